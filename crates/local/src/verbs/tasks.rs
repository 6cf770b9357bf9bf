//! Tasks of an array that a user names.

use phalanx_model::Tasks;

use super::{Failure, refuse};
use phalanx_api::protocol::{ErrorCode, JobView};

/// Whether a user names a task with this number, or names no task and so means all.
pub(super) fn is_named(named: Option<&Tasks>, number: Option<u32>) -> bool {
    named.is_none_or(|named| number.is_some_and(|number| named.index(number).is_some()))
}

/// Keeps these tasks of an array in its view.
pub(super) fn keep(view: &mut JobView, named: &Tasks) -> Result<(), Failure> {
    let id = view.id;
    let Some(array) = &view.array else {
        let message = format!("job {id} is not an array and has no tasks");
        return Err(refuse(ErrorCode::NotFound, message, format!("`phalanx get {id}` shows the job")));
    };
    if let Some(number) = named.numbers().find(|number| array.numbers.index(*number).is_none()) {
        let message = format!("job {id} has no task {number}");
        return Err(refuse(ErrorCode::NotFound, message, format!("its tasks are {}", array.numbers)));
    }
    view.gangs.retain(|gang| is_named(Some(named), gang.task));
    Ok(())
}

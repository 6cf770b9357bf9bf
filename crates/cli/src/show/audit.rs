//! `audit`: who changed what.

use phalanx_api::protocol::AuditView;

use super::table::{self, Grid, cell, dim};
use super::{Page, clean, nothing};

/// Oldest first.
pub(crate) fn list(page: &Page, acts: &[AuditView]) -> String {
    if acts.is_empty() {
        return nothing(page, "nothing was changed");
    }
    let mut grid = Grid::new(page, &["WHEN", "USER", "VERB", "TARGET", "RESULT", "DETAIL"]);
    for act in acts {
        let (result, detail) = match &act.refused {
            None => ("done", clean(&act.detail)),
            Some(why) => ("refused", clean(why)),
        };
        let user = if act.user.is_empty() { act.uid.to_string() } else { clean(&act.user) };
        let login = act.login.as_ref().map_or_else(String::new, |login| format!(" ({})", clean(login)));
        grid.row(vec![
            dim(page.date(act.at)),
            cell(user + &login),
            cell(clean(&act.verb)),
            cell(clean(&act.target)),
            table::state(result),
            cell(detail),
        ]);
    }
    grid.render()
}

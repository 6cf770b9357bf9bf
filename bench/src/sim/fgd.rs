//! The policies of FGD's evaluation on openb: unallocated GPUs when as many were asked for as there are. Settings and how
//! orders of arrival are drawn again: `openb`.

use std::path::Path;

use super::Row;

pub(super) fn measure(folder: &Path) -> Result<Vec<Row>, String> {
    let means = crate::openb::published_means(folder)?;
    Ok(means
        .into_iter()
        .map(|(workload, policy, published, ours)| {
            Row::new(workload, policy, "unallocated GPUs, %", published, ours)
        })
        .collect())
}

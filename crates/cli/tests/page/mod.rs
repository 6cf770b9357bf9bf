//! Pages and documents that are kept beside the tests.

use std::path::Path;

/// Compares what is shown with what is kept; `UPDATE=1` writes it anew.
pub(crate) fn same(name: &str, shown: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, shown).unwrap();
    }
    let known = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(shown, known, "{name} differs; UPDATE=1 writes it anew");
}

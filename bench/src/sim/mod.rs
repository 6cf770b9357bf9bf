//! Published results of other schedulers' simulations, and what comes out in our world under the same settings.

mod muri;

use std::path::{Path, PathBuf};

pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/traces");
    let _: &PathBuf = &folder;
    let _ = arguments;
    for row in muri::measure(&folder)? {
        println!("{}", serde_json::to_string(&row).map_err(|e| e.to_string())?);
    }
    Ok(())
}

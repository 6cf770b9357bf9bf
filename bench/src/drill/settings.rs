//! What can be typed after `drill` and `kube-drill`.

use std::path::PathBuf;

use crate::daemon::beside;

/// Executables of a drill.
pub(super) struct Tools {
    pub(super) phalanx: PathBuf,
    pub(super) ring: PathBuf,
}

#[derive(Default)]
pub(super) struct Settings {
    pub(super) page: Option<PathBuf>,
    pub(super) json: Option<PathBuf>,
    pub(super) only: Vec<String>,
    is_dev: bool,
}

impl Settings {
    /// Of a drill that has these faults.
    pub(super) fn parse(verb: &str, ids: &[&str], args: &[String]) -> Result<Self, String> {
        let mut settings = Self::default();
        let mut args = args.iter();
        while let Some(flag) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{flag} has no value"));
            match flag.as_str() {
                "--page" => settings.page = Some(value()?.into()),
                "--json" => settings.json = Some(value()?.into()),
                "--only" => settings.only.push(value()?.clone()),
                "--dev" => settings.is_dev = true,
                other => {
                    return Err(format!(
                        "{other}: {verb} [--page FILE] [--json FILE] [--only FAULT] [--dev]"
                    ));
                }
            }
        }
        match settings.only.iter().find(|only| !ids.contains(&only.as_str())) {
            Some(unknown) => Err(format!("no fault is called {unknown:?}; faults are {}", ids.join(", "))),
            None => Ok(settings),
        }
    }

    /// Whether a fault was chosen; without a choice all are.
    pub(super) fn takes(&self, id: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == id)
    }

    pub(super) fn tools(&self) -> Result<Tools, String> {
        let find = |name: &str, package: &str| {
            if !self.is_dev {
                return beside(name, package);
            }
            let own = std::env::current_exe().map_err(|e| e.to_string())?;
            let target =
                own.parent().and_then(|folder| folder.parent()).ok_or("this executable has no folder")?;
            let path = target.join("debug").join(name);
            let missing = || format!("{} is missing: cargo build -p {package}", path.display());
            path.exists().then(|| path.clone()).ok_or_else(missing)
        };
        Ok(Tools {
            phalanx: find("phalanx", "phalanx-cli")?,
            ring: find("ring-allreduce", "phalanx-examples")?,
        })
    }
}

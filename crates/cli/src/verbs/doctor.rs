//! `doctor`.

use std::fmt::Write as _;
use std::process::ExitCode;

use owo_colors::OwoColorize as _;
use phalanx_local::doctor::{self, DoctorError, Finding, Severity};
use phalanx_local::losses;

use super::Session;
use crate::args::Doctor;
use crate::failure::Failure;
use crate::show::clean;

pub(super) fn doctor(session: &Session, asked: &Doctor) -> Result<ExitCode, Failure> {
    if asked.cut {
        return cut(session);
    }
    if asked.seen {
        let path = session.paths.losses();
        let count = losses::forget(&session.paths).map_err(|e| Failure::file("remove", &path, &e))?;
        return done(session, &format!("{count} losses taken off the list"));
    }
    let found = doctor::examine(&session.paths);
    let items: Vec<serde_json::Value> = found.iter().map(document).collect();
    let body = serde_json::json!({ "items": items });
    let names = || found.iter().map(|finding| finding.severity.word().to_owned()).collect();
    session.out.show("Findings", body, |_| text(&found), names)?;
    let is_damaged = found.iter().any(|finding| finding.severity == Severity::Damage);
    Ok(ExitCode::from(u8::from(is_damaged)))
}

fn document(finding: &Finding) -> serde_json::Value {
    let Finding { severity, subject, detail, hint } = finding;
    serde_json::json!({ "severity": severity.word(), "subject": subject, "detail": detail, "hint": hint })
}

fn text(found: &[Finding]) -> String {
    let mut text = String::new();
    let mut hints: Vec<&str> = Vec::new();
    for Finding { severity, subject, detail, hint } in found {
        let word = format!("{:<8}", severity.word());
        let word = match severity {
            Severity::Good => word.green().to_string(),
            Severity::Warning => word.yellow().to_string(),
            Severity::Damage => word.red().to_string(),
        };
        let _ = writeln!(text, "{word} {subject:<8} {}", clean(detail));
        if !hint.is_empty() && !hints.contains(&hint.as_str()) {
            hints.push(hint);
        }
    }
    for hint in hints {
        let _ = writeln!(text, "{} {}", "hint:".cyan(), clean(hint));
    }
    text
}

fn cut(session: &Session) -> Result<ExitCode, Failure> {
    let cut = doctor::cut(&session.paths).map_err(|e| match e {
        DoctorError::Running(_) => Failure::unavailable(e.to_string(), "`phalanx down` stops it; jobs go on"),
        DoctorError::Io { .. } | DoctorError::Up(_) => {
            Failure::unavailable(e.to_string(), "run this as root, or as the user of the daemon")
        }
        DoctorError::Journal(_) => Failure::unavailable(e.to_string(), "nothing more was cut"),
    })?;
    if cut.is_empty() {
        return done(session, "the journal is whole; nothing was cut");
    }
    done(session, &cut.join("\n"))
}

fn done(session: &Session, detail: &str) -> Result<ExitCode, Failure> {
    let body = serde_json::json!({ "detail": detail });
    let page = |is_quiet: bool| if is_quiet { String::new() } else { format!("{}\n", detail) };
    session.out.show("Done", body, |page_of| page(page_of.quiet), Vec::new)?;
    Ok(ExitCode::SUCCESS)
}

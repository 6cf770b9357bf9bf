//! `doctor`.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use owo_colors::OwoColorize as _;
use phalanx_discover::rdma::{self, Check, Verdict};
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
    if asked.rdma {
        return rdma(session);
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
    session.out.show("Findings", body, |_| text(found.iter().map(Row::of_state).collect()), names)?;
    let is_damaged = found.iter().any(|finding| finding.severity == Severity::Damage);
    Ok(ExitCode::from(u8::from(is_damaged)))
}

fn document(finding: &Finding) -> serde_json::Value {
    let Finding { severity, subject, detail, hint } = finding;
    serde_json::json!({ "severity": severity.word(), "subject": subject, "detail": detail, "hint": hint })
}

/// Whether RDMA works on this machine. Exits with 1 if it does not.
fn rdma(session: &Session) -> Result<ExitCode, Failure> {
    let found = rdma::examine(Path::new("/"));
    let body = serde_json::json!({ "items": found });
    let names = || found.iter().map(|check| check.verdict.word().to_owned()).collect();
    session.out.show("Findings", body, |_| text(found.iter().map(Row::of_rdma).collect()), names)?;
    let is_broken = found.iter().any(|check| check.verdict == Verdict::Broken);
    Ok(ExitCode::from(u8::from(is_broken)))
}

/// One line, and what to do about it.
struct Row<'a> {
    word: &'static str,
    severity: Severity,
    subject: &'a str,
    detail: &'a str,
    hint: &'a str,
}

impl<'a> Row<'a> {
    fn of_state(finding: &'a Finding) -> Self {
        let Finding { severity, subject, detail, hint } = finding;
        Self { word: severity.word(), severity: *severity, subject, detail, hint }
    }

    fn of_rdma(check: &'a Check) -> Self {
        let severity = match check.verdict {
            Verdict::Good => Severity::Good,
            Verdict::Unknown | Verdict::Weak => Severity::Warning,
            Verdict::Broken => Severity::Damage,
        };
        let Check { verdict, subject, detail, hint } = check;
        Self { word: verdict.word(), severity, subject, detail, hint }
    }
}

fn text(rows: Vec<Row<'_>>) -> String {
    let mut text = String::new();
    let mut hints: Vec<&str> = Vec::new();
    let width = rows.iter().map(|row| row.subject.len()).max().unwrap_or(0).max(8);
    for Row { word, severity, subject, detail, hint } in rows {
        let word = format!("{word:<8}");
        let word = match severity {
            Severity::Good => word.green().to_string(),
            Severity::Warning => word.yellow().to_string(),
            Severity::Damage => word.red().to_string(),
        };
        let _ = writeln!(text, "{word} {subject:<width$} {}", clean(detail));
        if !hint.is_empty() && !hints.contains(&hint) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_of_rdma_is_a_line_and_what_to_do_is_said_once() {
        let check = |verdict, subject: &str, detail: &str, hint: &str| Check {
            verdict,
            subject: subject.to_owned(),
            detail: detail.to_owned(),
            hint: hint.to_owned(),
        };
        let found = [
            check(Verdict::Good, "modules", "loaded", ""),
            check(Verdict::Weak, "mlx5_10:1", "the port is down", "look at the cable"),
            check(Verdict::Weak, "mlx5_11:1", "the port is down", "look at the cable"),
            check(Verdict::Broken, "files", "none", "install rdma-core"),
        ];
        let shown = text(found.iter().map(Row::of_rdma).collect());
        let shown = anstream::adapter::strip_str(&shown).to_string();
        let expected = "ok       modules   loaded\nweak     mlx5_10:1 the port is down\n\
                        weak     mlx5_11:1 the port is down\nbroken   files     none\n\
                        hint: look at the cable\nhint: install rdma-core\n";
        assert_eq!(shown, expected);
    }
}

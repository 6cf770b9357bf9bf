//! What went wrong, for a person, for a script, and for the shell.

use std::path::Path;
use std::process::ExitCode;

use phalanx_api::client::ClientError;
use phalanx_api::protocol::{ErrorCode, VERSION};
use phalanx_spec::SpecError;
use serde_json::{Value, json};

use crate::output::{Format, print_error};

/// Exit codes of `sysexits.h`, as far as they are used.
pub(crate) const USAGE: u8 = 64;
const NOT_FOUND: u8 = 66;
const NO_DAEMON: u8 = 69;
const INTERNAL: u8 = 70;
const UNAVAILABLE: u8 = 75;
const FORBIDDEN: u8 = 77;

/// An error that ends the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// A stable word.
    pub(crate) code: &'static str,
    pub(crate) exit: u8,
    /// One line.
    pub(crate) message: String,
    /// More lines for a person, such as the place in a file.
    pub(crate) excerpt: String,
    /// What to do; may be empty.
    pub(crate) hint: String,
}

impl Failure {
    fn new(code: &'static str, exit: u8, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { code, exit, message: message.into(), excerpt: String::new(), hint: hint.into() }
    }

    /// Bad flags or files.
    pub(crate) fn usage(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new("usage", USAGE, message, hint)
    }

    pub(crate) fn not_found(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new("not_found", NOT_FOUND, message, hint)
    }

    pub(crate) fn unavailable(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new("unavailable", UNAVAILABLE, message, hint)
    }

    /// Whether the daemon knows no such job or node.
    pub(crate) const fn is_not_found(&self) -> bool {
        self.exit == NOT_FOUND
    }

    pub(crate) fn forbidden(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new("forbidden", FORBIDDEN, message, hint)
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new("internal", INTERNAL, message, "")
    }

    /// The daemon said something else than what was asked for.
    pub(crate) fn unexpected() -> Self {
        Self::internal("the daemon's answer does not fit the question").with_hint(
            "the daemon may be of another version: `phalanx down`, then `phalanx up --detach`; jobs go on",
        )
    }

    pub(crate) fn with_hint(self, hint: impl Into<String>) -> Self {
        Self { hint: hint.into(), ..self }
    }

    /// A file that cannot be read or written.
    pub(crate) fn file(doing: &str, path: &Path, error: &std::io::Error) -> Self {
        let exit = if error.kind() == std::io::ErrorKind::NotFound { NOT_FOUND } else { USAGE };
        Self::new("file", exit, format!("cannot {doing} {}: {error}", path.display()), "")
    }

    /// Prints it to standard error, in the shape that was asked for.
    pub(crate) fn report(&self, format: &Format) -> ExitCode {
        match format {
            Format::Json | Format::Yaml => print_error(&format!("{:#}\n", self.document())),
            _ => print_error(&self.text()),
        }
        ExitCode::from(self.exit)
    }

    /// The same as the last line of a log.
    pub(crate) fn log(&self) -> ExitCode {
        phalanx_shell::log::end(&self.message, &self.hint);
        ExitCode::from(self.exit)
    }

    fn document(&self) -> Value {
        let error = json!({ "code": self.code, "message": self.message, "hint": self.hint });
        json!({ "apiVersion": VERSION, "error": error })
    }

    fn text(&self) -> String {
        use owo_colors::OwoColorize as _;
        let mut text = format!("{} {}\n", "error:".red().bold(), self.message);
        if !self.excerpt.is_empty() {
            text += &self.excerpt;
            text.push('\n');
        } else if !self.hint.is_empty() {
            text += &format!("{} {}\n", "hint:".cyan().bold(), self.hint);
        }
        text
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let message = error.to_string();
        match error {
            ClientError::NoDaemon { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => {
                Self::new("forbidden", FORBIDDEN, message, "its state folder is not open to this user")
            }
            ClientError::NoDaemon { .. } => {
                Self::new("no_daemon", NO_DAEMON, message, "start one with `phalanx up --detach`")
            }
            ClientError::NoServer { .. } => Self::new(
                "no_daemon",
                NO_DAEMON,
                message,
                "PHALANX_URL names the server; without it, the daemon of this machine is asked",
            ),
            ClientError::Broken(_) => Self::new(
                "broken",
                UNAVAILABLE,
                message,
                "jobs go on; try again, or see daemon.log in its state folder",
            ),
            ClientError::Misunderstood(_) | ClientError::NoHttp => {
                Self::new("misunderstood", INTERNAL, message, Self::unexpected().hint)
            }
            ClientError::Refused(view) => {
                let (code, exit) = match view.code {
                    ErrorCode::BadRequest => ("bad_request", USAGE),
                    ErrorCode::NotFound => ("not_found", NOT_FOUND),
                    ErrorCode::Forbidden => ("forbidden", FORBIDDEN),
                    ErrorCode::Rejected => ("rejected", USAGE),
                    ErrorCode::Unavailable => ("unavailable", UNAVAILABLE),
                    ErrorCode::Internal => ("internal", INTERNAL),
                };
                Self::new(code, exit, view.message, view.hint)
            }
        }
    }
}

impl From<SpecError> for Failure {
    /// The first line is the message; the lines below show the place and what is accepted.
    fn from(error: SpecError) -> Self {
        let text = error.to_string();
        let (message, excerpt) = text.split_once('\n').unwrap_or((&text, ""));
        Self { excerpt: excerpt.to_owned(), ..Self::usage(message, error.notes().join("; ")) }
    }
}

#[cfg(test)]
mod tests {
    use phalanx_api::protocol::ErrorView;

    use super::*;

    #[test]
    fn refusals_have_their_own_exit_codes() {
        let codes = [
            (ErrorCode::BadRequest, 64),
            (ErrorCode::NotFound, 66),
            (ErrorCode::Forbidden, 77),
            (ErrorCode::Rejected, 64),
            (ErrorCode::Unavailable, 75),
            (ErrorCode::Internal, 70),
        ];
        for (code, exit) in codes {
            let failure = Failure::from(ClientError::Refused(ErrorView::new(code, "no", "do")));
            assert_eq!((failure.exit, failure.message.as_str(), failure.hint.as_str()), (exit, "no", "do"));
        }
    }

    #[test]
    fn an_error_is_a_document_too() {
        let document = Failure::usage("bad flag", "give another").document();
        let error = json!({ "code": "usage", "message": "bad flag", "hint": "give another" });
        assert_eq!(document, json!({ "apiVersion": "phalanx/v1", "error": error }));
    }
}

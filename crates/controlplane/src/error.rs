//! What can go wrong, with what to do about it.

use std::io;
use std::path::{Path, PathBuf};

use crate::program::{GO, Program};

/// Why there is no control plane, or why it did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "{0} is built from source with Go {GO}, and `go` is not in PATH: install Go {GO} or newer from \
         https://go.dev/dl (Debian, Ubuntu: apt-get install golang), then try again"
    )]
    GoIsMissing(&'static str),
    #[error("{program} could not be built with Go {GO} in {folder}; the end of what go said:\n{output}")]
    Build { program: &'static str, folder: PathBuf, output: String },
    #[error("{program} cannot write {folder} out; the end of what it said:\n{output}")]
    Render { program: &'static str, folder: PathBuf, output: String },
    #[error("cannot {what} {path}: {source}")]
    Io { what: &'static str, path: PathBuf, source: io::Error },
    #[error("expected Kubernetes 1.36 or 1.37 in PHALANX_KUBERNETES, found {0:?}")]
    UnknownKubernetes(String),
    #[error("there is no folder for built programs: set XDG_CACHE_HOME or HOME")]
    NoCache,
    #[error("no free port was found between {first} and {last} on 127.0.0.1")]
    NoPort { first: u16, last: u16 },
    #[error("{program} ended with {status} when it should run; the end of its log:\n{log}")]
    Ended { program: &'static str, status: String, log: String },
    #[error("{program} was not ready after {seconds} s ({last}); the end of its log:\n{log}")]
    NotReady { program: Program, seconds: u64, last: String, log: String },
    #[error("{program} is not part of this control plane: ask for it in the options")]
    NotThere { program: Program },
    #[error("real nodes cannot run here: {missing}")]
    NoNodes { missing: String },
    #[error("{program}, which says what an image consists of, failed: {output}")]
    Image { program: &'static str, output: String },
    #[error(
        "expected the name of an image with its registry and its tag, such as docker.io/library/phalanx:0.1.0, found {0:?}"
    )]
    ImageName(String),
    #[error(
        "{0} is missing, and the image needs certificates of authorities: apt-get install ca-certificates"
    )]
    NoAuthorities(&'static str),
    #[error("node {node}: {why}")]
    Node { node: String, why: String },
    #[error("the API server answered {status} to {method} {path}: {message}")]
    Refused { method: String, path: String, status: u16, message: String },
    #[error("{method} {path} got no answer: {why}")]
    NoAnswer { method: String, path: String, why: String },
}

impl Error {
    pub(crate) fn io(what: &'static str, path: impl AsRef<Path>) -> impl FnOnce(io::Error) -> Self {
        let path = path.as_ref().to_path_buf();
        move |source| Self::Io { what, path, source }
    }

    /// The HTTP status with which the API server refused, if it did.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Refused { status, .. } => Some(*status),
            _ => None,
        }
    }
}

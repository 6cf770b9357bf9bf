//! How a daemon is to run, and why it cannot.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use phalanx_api::http::{CertificateError, CertificateFiles};
use phalanx_api::oidc::OidcError;
use phalanx_node::IsolationChoice;
use phalanx_shell::JournalError;

use crate::Paths;
use crate::cluster::ClusterError;
use crate::health::PolicyError;
use crate::history::HistoryError;
use crate::limits::{LimitsError, LimitsGiven};
use crate::preflight::PreflightOptions;
use crate::queues::QueuesError;

/// The kernel's messages, as the kernel itself gives them.
const KERNEL_LOG: &str = "/dev/kmsg";
/// As DCGM's exporter is scraped by default in most clusters.
const SAMPLE_EVERY: Duration = Duration::from_secs(15);
/// Longer than a checkpoint is written or a data set is loaded, as a rule.
const IDLE_AFTER: Duration = Duration::from_secs(15 * 60);

/// How a daemon is to run.
#[derive(Clone, Debug)]
pub struct UpOptions {
    pub paths: Paths,
    /// A cluster file; without one the file that was given last, and without that the machine as found.
    pub cluster: Option<PathBuf>,
    /// A queue file; without one the queues are those that were in force last.
    pub queues: Option<PathBuf>,
    /// Use the machine as found, whatever was given before.
    pub found: bool,
    /// The program whose hidden `__shim` verb holds a rank; this program if not given.
    pub shim_exe: Option<PathBuf>,
    pub isolation: IsolationChoice,
    pub limits: LimitsGiven,
    /// Where `/metrics` is served; a loopback address.
    pub metrics: Option<SocketAddr>,
    /// Where the kernel's messages are: `/dev/kmsg`, or a file that has them alone.
    pub kernel_log: PathBuf,
    /// A tree of the form of `/sys`, for the network ports.
    pub sysfs: PathBuf,
    /// How often devices and network ports are sampled.
    pub sample_every: Duration,
    /// A gang on whose GPUs no kernel ran for so long is idle.
    pub idle_after: Duration,
    /// The DCGM exporter that samples come from, in place of NVIDIA's library.
    pub dcgm: Option<String>,
    /// The folder that DCGM's exporter reads the jobs of GPUs from.
    pub dcgm_job_mapping: Option<PathBuf>,
    /// Where the API and the dashboard are served.
    pub api: ApiAt,
    /// TLS for the API: with it any address will do.
    pub api_tls: Option<ApiTls>,
    /// The file that says whose tokens of an `OpenID` Connect issuer the API takes.
    pub api_oidc: Option<PathBuf>,
    /// The check of GPUs before ranks start.
    pub preflight: Option<PreflightOptions>,
}

/// Where the API and the dashboard are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ApiAt {
    /// On a loopback address, from when somebody first asks for a token on, also after a restart.
    #[default]
    WhenAsked,
    /// On this address: without TLS a loopback address.
    Address(SocketAddr),
    Nowhere,
}

/// TLS for the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiTls {
    pub files: CertificateFiles,
    /// Hosts under which clients ask, beside those of the certificate.
    pub names: Vec<String>,
}

impl UpOptions {
    #[must_use]
    pub fn new(paths: Paths) -> Self {
        Self {
            paths,
            cluster: None,
            queues: None,
            found: false,
            shim_exe: None,
            isolation: IsolationChoice::Best,
            limits: LimitsGiven::default(),
            metrics: None,
            kernel_log: PathBuf::from(KERNEL_LOG),
            sysfs: PathBuf::from("/sys"),
            sample_every: SAMPLE_EVERY,
            idle_after: IDLE_AFTER,
            dcgm: None,
            dcgm_job_mapping: None,
            api: ApiAt::WhenAsked,
            api_tls: None,
            api_oidc: None,
            preflight: None,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum UpError {
    #[error("a daemon already runs with {}; `phalanx down` stops it", .0.display())]
    AlreadyRunning(PathBuf),
    #[error("cannot {doing} {}: {source}", path.display())]
    Io { doing: &'static str, path: PathBuf, source: io::Error },
    #[error(
        "no thread can be started: {0}; the limit of the user or of the unit (`TasksMax`) may be reached"
    )]
    Thread(io::Error),
    #[error("metrics cannot be served on {0}: {1}")]
    Metrics(SocketAddr, io::Error),
    #[error("the API cannot be served on {0}: {1}")]
    Api(SocketAddr, io::Error),
    #[error("the API has no TLS: {0}")]
    Certificate(#[from] CertificateError),
    #[error("nobody can sign in to the API with OpenID Connect: {0}")]
    Oidc(#[from] OidcError),
    #[error("{0} needs an address on which the API is served: `--api ADDRESS:PORT`")]
    NoAddress(&'static str),
    #[error("the tokens in {} cannot be read: {}", .0.display(), .1)]
    Tokens(PathBuf, io::Error),
    #[error("jobs of GPUs cannot be written for DCGM's exporter to {}: {}", .0.display(), .1)]
    JobMapping(PathBuf, io::Error),
    #[error("ranks cannot be put where `--cgroup` says: {0}")]
    Cgroup(io::Error),
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error(transparent)]
    Queues(#[from] QueuesError),
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    History(#[from] HistoryError),
    #[error(transparent)]
    Limits(#[from] LimitsError),
    #[error(transparent)]
    HealthPolicy(#[from] PolicyError),
}

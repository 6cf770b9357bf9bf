//! What each program is told when it starts.

use std::path::{Path, PathBuf};

use crate::kubernetes::KubernetesVersion;
use crate::program::Program;

/// The client limits of every program, so that what is measured is the program.
const REQUESTS_PER_SECOND: u32 = 5_000;

/// Metadata of requests and answers of everything but what says nothing about anybody's rights.
const AUDIT_POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  nonResourceURLs: ['/healthz*', '/livez*', '/readyz*']
- level: Metadata
";

/// Where everything is: ports on loopback and files in the state folder.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) kubernetes: KubernetesVersion,
    pub(crate) folder: PathBuf,
    pub(crate) etcd: u16,
    pub(crate) etcd_peers: u16,
    pub(crate) api_server: u16,
    pub(crate) controller_manager: u16,
    pub(crate) kube_scheduler: u16,
    pub(crate) kwok: u16,
    pub(crate) training_operator: u16,
    /// Whether the controllers that the API server's defaults rely on will run.
    pub(crate) has_controllers: bool,
    /// Whether somebody renews the leases of nodes.
    pub(crate) has_kubelets: bool,
    /// Whether some of them are real, and one that is silent is to be noticed soon.
    pub(crate) has_real_kubelets: bool,
    pub(crate) has_audit: bool,
}

/// A file with its content, to be there before the program starts.
type Files = Vec<(PathBuf, String)>;

impl Layout {
    pub(crate) fn tokens(&self) -> PathBuf {
        self.folder.join("tokens.csv")
    }

    pub(crate) fn audit_log(&self) -> PathBuf {
        self.folder.join("audit.jsonl")
    }

    /// The API server signs its own certificate; this file holds it and its authority.
    pub(crate) fn authority(&self) -> PathBuf {
        self.folder.join("certificates/apiserver.crt")
    }

    /// What every container is said to have printed.
    pub(crate) fn container_log(&self) -> PathBuf {
        self.folder.join("containers.log")
    }

    pub(crate) fn server(&self) -> String {
        format!("https://127.0.0.1:{}", self.api_server)
    }

    pub(crate) fn kubeconfig(&self, user: &str) -> PathBuf {
        self.folder.join(format!("{user}.kubeconfig"))
    }

    /// Where the program says that it is ready; the controller manager's health is that of its controllers. Nothing for
    /// what runs on nodes.
    pub(crate) fn health(&self, program: Program) -> Option<(String, &'static str)> {
        Some(match program {
            Program::Etcd => (format!("http://127.0.0.1:{}", self.etcd), "/readyz"),
            Program::ApiServer => (self.server(), "/readyz"),
            Program::ControllerManager => {
                (format!("https://127.0.0.1:{}", self.controller_manager), "/healthz")
            }
            Program::KubeScheduler => (format!("https://127.0.0.1:{}", self.kube_scheduler), "/readyz"),
            Program::Kwok => (format!("http://127.0.0.1:{}", self.kwok), "/healthz"),
            Program::TrainingOperator => (format!("http://127.0.0.1:{}", self.training_operator), "/readyz"),
            Program::Kubelet | Program::CoreDns => return None,
        })
    }

    /// The user that the program is, in the API; the training operator and kwok may do everything.
    pub(crate) fn user(program: Program) -> &'static str {
        match program {
            Program::ControllerManager => "system:kube-controller-manager",
            Program::KubeScheduler => "system:kube-scheduler",
            _ => crate::plane::ADMIN,
        }
    }

    pub(crate) fn files(&self, program: Program) -> Files {
        match program {
            Program::ApiServer => vec![(self.folder.join("audit-policy.yaml"), AUDIT_POLICY.to_owned())],
            Program::KubeScheduler => {
                vec![(self.folder.join("scheduler.yaml"), self.scheduler_configuration())]
            }
            Program::Kwok => vec![(self.folder.join("kwok.yaml"), self.kubelets())],
            _ => Vec::new(),
        }
    }

    /// Nothing for what runs on nodes.
    pub(crate) fn arguments(&self, program: Program) -> Option<Vec<String>> {
        Some(match program {
            Program::Etcd => self.etcd(),
            Program::ApiServer => self.api_server(),
            Program::ControllerManager => self.controller_manager(),
            Program::KubeScheduler => self.kube_scheduler(),
            Program::Kwok => self.kwok(),
            Program::TrainingOperator => {
                vec![format!("--health-probe-bind-address=127.0.0.1:{}", self.training_operator)]
            }
            Program::Kubelet | Program::CoreDns => return None,
        })
    }

    fn features(&self) -> String {
        let features = self.kubernetes.features().iter();
        features.map(|feature| format!("{feature}=true")).collect::<Vec<_>>().join(",")
    }

    fn etcd(&self) -> Vec<String> {
        let clients = format!("http://127.0.0.1:{}", self.etcd);
        let peers = format!("http://127.0.0.1:{}", self.etcd_peers);
        vec![
            format!("--data-dir={}", show(&self.folder.join("etcd"))),
            format!("--listen-client-urls={clients}"),
            format!("--advertise-client-urls={clients}"),
            format!("--listen-peer-urls={peers}"),
            format!("--initial-advertise-peer-urls={peers}"),
            format!("--initial-cluster=default={peers}"),
            // Nothing here has to survive the loss of power.
            "--unsafe-no-fsync".to_owned(),
            "--quota-backend-bytes=8589934592".to_owned(),
            "--log-level=warn".to_owned(),
        ]
    }

    fn api_server(&self) -> Vec<String> {
        let key = show(&self.folder.join("certificates/apiserver.key"));
        let mut arguments = vec![
            format!("--etcd-servers=http://127.0.0.1:{}", self.etcd),
            "--bind-address=127.0.0.1".to_owned(),
            "--advertise-address=127.0.0.1".to_owned(),
            // No pod reaches this address as the Service `kubernetes`, and 1.37 refuses to publish one on loopback.
            "--endpoint-reconciler-type=none".to_owned(),
            format!("--secure-port={}", self.api_server),
            format!("--cert-dir={}", show(&self.folder.join("certificates"))),
            "--service-cluster-ip-range=10.0.0.0/16".to_owned(),
            // It makes this key for its certificate before it reads it for service accounts.
            format!("--service-account-key-file={key}"),
            format!("--service-account-signing-key-file={key}"),
            // Its own address, so that whoever verifies a token finds the keys.
            format!("--service-account-issuer={}", self.server()),
            "--authorization-mode=Node,RBAC".to_owned(),
            "--enable-admission-plugins=NodeRestriction".to_owned(),
            format!("--token-auth-file={}", show(&self.tokens())),
            // With what is off by default: `scheduling.k8s.io` beyond `v1` among it.
            "--runtime-config=api/all=true".to_owned(),
            format!("--feature-gates={}", self.features()),
            "--max-requests-inflight=3000".to_owned(),
            "--max-mutating-requests-inflight=1000".to_owned(),
            "--allow-privileged=true".to_owned(),
            // The names of nodes are in no DNS.
            "--kubelet-preferred-address-types=InternalIP".to_owned(),
        ];
        if !self.has_controllers {
            // They wait for what only a controller makes or removes: service accounts and the taint of new nodes.
            arguments.push("--disable-admission-plugins=ServiceAccount,TaintNodesByCondition".to_owned());
        }
        if self.has_audit {
            arguments.push(format!("--audit-log-path={}", show(&self.audit_log())));
            arguments.push(format!("--audit-policy-file={}", show(&self.folder.join("audit-policy.yaml"))));
        }
        arguments
    }

    fn controller_manager(&self) -> Vec<String> {
        let kubeconfig = show(&self.kubeconfig(Self::user(Program::ControllerManager)));
        let mut arguments = vec![
            format!("--kubeconfig={kubeconfig}"),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={}", self.controller_manager),
            format!("--cert-dir={}", show(&self.folder.join("controller-manager"))),
            "--use-service-account-credentials=true".to_owned(),
            format!(
                "--service-account-private-key-file={}",
                show(&self.folder.join("certificates/apiserver.key"))
            ),
            format!("--root-ca-file={}", show(&self.authority())),
            "--leader-elect=false".to_owned(),
            format!("--kube-api-qps={REQUESTS_PER_SECOND}"),
            format!("--kube-api-burst={REQUESTS_PER_SECOND}"),
            "--concurrent-job-syncs=20".to_owned(),
            format!("--feature-gates={}", self.features()),
        ];
        if self.has_real_kubelets {
            arguments.push("--node-monitor-period=1s".to_owned());
            arguments.push("--node-monitor-grace-period=6s".to_owned());
        }
        if !self.has_kubelets {
            arguments.push("--controllers=*,-node-lifecycle-controller".to_owned());
        }
        arguments
    }

    fn kube_scheduler(&self) -> Vec<String> {
        vec![
            format!("--config={}", show(&self.folder.join("scheduler.yaml"))),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={}", self.kube_scheduler),
            format!("--cert-dir={}", show(&self.folder.join("scheduler"))),
            format!("--feature-gates={}", self.features()),
        ]
    }

    fn scheduler_configuration(&self) -> String {
        format!(
            "apiVersion: kubescheduler.config.k8s.io/v1\n\
             kind: KubeSchedulerConfiguration\n\
             leaderElection: {{leaderElect: false}}\n\
             clientConnection:\n\
             \x20 kubeconfig: {}\n\
             \x20 qps: {REQUESTS_PER_SECOND}\n\
             \x20 burst: {REQUESTS_PER_SECOND}\n",
            show(&self.kubeconfig(Self::user(Program::KubeScheduler)))
        )
    }

    /// Where nobody configures it, kwok 0.8.0 loses its own defaults, and serves no logs.
    fn kubelets(&self) -> String {
        let stages = include_str!("stages.yaml");
        let log = show(&self.container_log());
        format!(
            "{stages}---\n\
             apiVersion: config.kwok.x-k8s.io/v1alpha1\n\
             kind: KwokConfiguration\n\
             options: {{enableDebuggingHandlers: true}}\n\
             ---\n\
             apiVersion: kwok.x-k8s.io/v1alpha1\n\
             kind: ClusterLogs\n\
             metadata: {{name: containers}}\n\
             spec: {{logs: [{{logsFile: {log}, follow: true}}]}}\n"
        )
    }

    fn kwok(&self) -> Vec<String> {
        vec![
            format!("--kubeconfig={}", show(&self.kubeconfig(Self::user(Program::Kwok)))),
            format!("--config={}", show(&self.folder.join("kwok.yaml"))),
            "--manage-all-nodes=false".to_owned(),
            "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake".to_owned(),
            "--node-lease-duration-seconds=40".to_owned(),
            "--node-ip=127.0.0.1".to_owned(),
            "--cidr=10.64.0.1/10".to_owned(),
            format!("--server-address=127.0.0.1:{}", self.kwok),
        ]
    }
}

/// Paths of the state folder are made here, of ASCII.
fn show(path: &Path) -> String {
    path.display().to_string()
}

//! Verbs that this server does not answer, and the command that does it instead.

use phalanx_api::protocol::{ErrorCode, ErrorView, JobRef, Verb};

const READS_ONLY: &str = "this server only reads the cluster";

/// Why a verb is refused; nothing for one that is answered.
pub(super) fn refused(verb: &Verb) -> Option<ErrorView> {
    let (message, hint) = match verb {
        Verb::Ping
        | Verb::Whoami
        | Verb::Overview
        | Verb::Map
        | Verb::Node { .. }
        | Verb::Watch { .. }
        | Verb::List { .. }
        | Verb::Get { .. }
        | Verb::Why { .. }
        | Verb::FindNodes(_)
        | Verb::Topology
        | Verb::Queues
        | Verb::Queue { .. }
        | Verb::Health { node: None }
        | Verb::Calendar => return None,
        Verb::Health { node: Some(node) } => ("the health of one node is in its document", format!("ask /v1/nodes/{node}")),
        Verb::Submit { .. } | Verb::SubmitFile { dry_run: false, .. } => {
            (READS_ONLY, "submit with `phalanx submit --to kubernetes FILE`, or with `kubectl create -f FILE`".to_owned())
        }
        Verb::DryRun { .. } | Verb::SubmitFile { dry_run: true, .. } => (
            "this server takes no job files",
            "`phalanx snapshot --to kubernetes` and `phalanx sim whatif` say when and where a job would start".to_owned(),
        ),
        Verb::Cancel { job } => (READS_ONLY, of_object("delete", job)),
        Verb::Hold { job } => (READS_ONLY, format!("suspend the owner of its pods: {}", of_object("patch", job))),
        Verb::Release { job } | Verb::Requeue { job, .. } => {
            (READS_ONLY, format!("resume the owner of its pods: {}", of_object("patch", job)))
        }
        Verb::Boost { job, .. } | Verb::Update { job, .. } | Verb::Scale { job, .. } | Verb::Resize { job, .. } => {
            (READS_ONLY, format!("change the owner of its pods: {}", of_object("edit", job)))
        }
        Verb::Tell { job, .. } => (READS_ONLY, format!("write annotations of its pods: {}", of_object("annotate", job))),
        Verb::Logs { job, .. } => ("this server reads no output of pods", pods_of("logs", job)),
        Verb::Follow { job } | Verb::History { job: Some(job), .. } => {
            ("this server keeps no events", pods_of("events", job))
        }
        Verb::History { job: None, .. } => ("this server keeps no events", "`kubectl events -A` lists them".to_owned()),
        Verb::Wait { .. } => ("this server does not wait for jobs", "use `kubectl wait`".to_owned()),
        Verb::Terminal { job } | Verb::Exec { job, .. } => ("this server opens no terminals", pods_of("exec -it", job)),
        Verb::Endpoints { .. } => {
            ("this server does not know where services are reached", "`kubectl get endpointslices` lists that".to_owned())
        }
        Verb::ApplyQueues { .. } => (READS_ONLY, "change queues with `kubectl apply -f FILE`".to_owned()),
        Verb::Cordon { node, .. } => (READS_ONLY, format!("`kubectl cordon {node}`")),
        Verb::Drain { node, .. } => (READS_ONLY, format!("`kubectl drain {node}`")),
        Verb::Uncordon { node } => (READS_ONLY, format!("`kubectl uncordon {node}`")),
        Verb::ReportHealth(report) => {
            (READS_ONLY, format!("`phalanx health report --to kubernetes {}`", report.node))
        }
        Verb::ClearHealth { node, .. } => (READS_ONLY, format!("`phalanx health clear --to kubernetes {node}`")),
        Verb::NewToken(_) => {
            (READS_ONLY, "`kubectl create token NAME` makes a token of a service account".to_owned())
        }
        Verb::Tokens | Verb::RevokeToken { .. } => {
            ("this server keeps no tokens", "tokens are those of the API server of the cluster".to_owned())
        }
        Verb::Audit { .. } => ("this server keeps no audit log", "the audit log of the API server has it".to_owned()),
        Verb::Bill(_) | Verb::Advise(_) => ("this server keeps no history", "the metrics of the scheduler have it".to_owned()),
        Verb::Defrag { .. } | Verb::AddWindow(_) | Verb::RemoveWindow { .. } | Verb::NoticeSpot { .. } => {
            (READS_ONLY, "no command does this on a cluster".to_owned())
        }
        Verb::Snapshot => {
            ("this server gives no snapshots", "`phalanx snapshot --to kubernetes` writes one".to_owned())
        }
        Verb::WhatIf(_) => (
            "this server runs no simulator",
            "`phalanx sim whatif --live --to kubernetes` answers this, with the rights of your kubeconfig".to_owned(),
        ),
        Verb::Stop => (READS_ONLY, "scale its Deployment with `kubectl`".to_owned()),
    };
    Some(ErrorView::new(ErrorCode::Rejected, message, hint))
}

/// Namespace and name of a job, for a command; placeholders where they are not said.
fn named(job: &JobRef) -> (&str, &str) {
    let name = match job {
        JobRef::Name(name) => name.as_str(),
        JobRef::Id(_) | JobRef::Tasks(..) => "NAMESPACE/NAME",
    };
    let (namespace, rest) = name.split_once('/').unwrap_or(("NAMESPACE", name));
    (namespace, rest.split('/').next().unwrap_or(rest))
}

fn of_object(verb: &str, job: &JobRef) -> String {
    let (namespace, name) = named(job);
    format!("`kubectl {verb} -n {namespace} KIND/{name}`, where KIND is that of the object")
}

fn pods_of(verb: &str, job: &JobRef) -> String {
    let (namespace, _) = named(job);
    format!("`kubectl {verb} -n {namespace} POD`")
}

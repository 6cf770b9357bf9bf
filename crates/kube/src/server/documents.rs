//! The answers: documents of the protocol, as far as a user may see what is in them.

use phalanx_api::protocol::{
    Answer, HealthView, JobFilter, JobView, NodeDetailView, NodeFilter, NodesView, OverviewView, WhyView,
};
use phalanx_model::{Bandwidth, DeviceMask, Job, JobId, NodeName, QueueName, Uplink};
use phalanx_shell::unix_now;
use phalanx_views::{self as views, Books, Found, Reasons};

use super::access::{LIST_HEALTH, LIST_QUEUES, NAMESPACES_MAX, Sight};
use super::outside;
use super::picture::Picture;

/// Who runs the pods of a cluster.
const ISOLATION: &str = "pods, by the kubelet of each node";

/// What one user sees.
pub(super) struct Reader<'a> {
    pub(super) picture: &'a Picture,
    pub(super) sight: Sight,
}

impl Reader<'_> {
    fn look<T>(&self, look: impl FnOnce(&Books<'_>) -> T) -> T {
        let sees = |job: &Job| self.sight.has(job);
        match self.sight {
            Sight::All => look(&Books::all(&self.picture.engine)),
            Sight::Of(_) => look(&Books::seen(&self.picture.engine, &sees)),
        }
    }

    /// What the documents of this cluster do not show.
    fn warnings(&self) -> Vec<String> {
        let mut warnings: Vec<String> = self.look(views::unkept_spares).into_iter().collect();
        let Picture { unread, .. } = self.picture;
        if !unread.is_empty() {
            warnings.push(format!("this server may not read, or cannot: {}", unread.join(", ")));
        }
        if self.sight != Sight::All {
            warnings.push("jobs are those of the namespaces whose pods you may list".to_owned());
            let namespaces = self.picture.namespaces().len();
            if namespaces > NAMESPACES_MAX {
                warnings.push(format!(
                    "{namespaces} namespaces have jobs: only the first {NAMESPACES_MAX}, in the order of their names, are \
                     looked at for users who may not list pods in all namespaces"
                ));
            }
        }
        warnings
    }
}

/// Devices that processes hold which no pod accounts for: their nodes do not report them.
fn unknown(_: &NodeName) -> DeviceMask {
    DeviceMask::EMPTY
}

pub(super) fn overview(reader: &Reader<'_>, sees_queues: bool) -> Answer {
    let mut warnings = reader.warnings();
    if !sees_queues {
        warnings.push(format!("queues are not shown: you may not {}", LIST_QUEUES.shown()));
    }
    reader.look(|books| {
        let (nodes, devices) = views::counts(books, &unknown);
        let reasons = views::reasons(books);
        Answer::Overview(Box::new(OverviewView {
            now: unix_now(),
            version: phalanx_shell::VERSION.to_owned(),
            nodes,
            devices,
            jobs: outside::count(reader, views::job_counts(books)),
            waiting: outside::reasons(reader, views::waiting(books, &reasons)),
            queues: if sees_queues { views::queues(books) } else { Vec::new() },
            warnings,
        }))
    })
}

pub(super) fn map(reader: &Reader<'_>) -> Answer {
    Answer::Map(reader.look(|books| views::map(books, &reader.picture.map.levels)))
}

pub(super) fn topology(reader: &Reader<'_>) -> Answer {
    Answer::Topology(reader.look(|books| views::topology(books, &reader.picture.map)))
}

pub(super) fn calendar(reader: &Reader<'_>) -> Answer {
    Answer::Calendar(reader.look(views::calendar))
}

pub(super) fn find_nodes(reader: &Reader<'_>, filter: &NodeFilter) -> Answer {
    let Found { nodes, matching, last } = reader.look(|books| views::find_nodes(books, &unknown, filter));
    Answer::Nodes(NodesView {
        nodes,
        matching,
        next: last,
        isolation: ISOLATION.to_owned(),
        notes: Vec::new(),
        warnings: reader.warnings(),
    })
}

/// One node with its hardware; without its health for a user who may not see that.
pub(super) fn node(reader: &Reader<'_>, name: &NodeName, sees_health: bool) -> Option<Answer> {
    let view = reader.look(|books| views::node(books, &unknown, name))?;
    let mut machine = (*reader.picture.engine.node(name)?.machine).clone();
    if reader.sight != Sight::All {
        // Host ports and devices are among them that pods of all namespaces ask for.
        machine.named.clear();
    }
    let (link_names, links) = NodeDetailView::matrix(&machine);
    let health = match sees_health {
        true => health(reader.picture, Some(name)),
        false => HealthView {
            missing: vec![format!("health is not shown: you may not {}", LIST_HEALTH.shown())],
            devices: machine.device_count(),
            ..no_health()
        },
    };
    Some(Answer::Node(Box::new(NodeDetailView {
        node: view,
        machine,
        levels: reader.picture.map.levels.above.clone(),
        health,
        link_names,
        links,
    })))
}

fn no_health() -> HealthView {
    HealthView {
        lines: Vec::new(),
        samples: Vec::new(),
        ports: Vec::new(),
        pressure: Vec::new(),
        bandwidths: Vec::new(),
        devices: 0,
        sources: Vec::new(),
        missing: Vec::new(),
        breaker: None,
    }
}

/// What agents published of all nodes, or of one.
pub(super) fn health(picture: &Picture, node: Option<&NodeName>) -> HealthView {
    let is_meant = |of: &NodeName| node.is_none_or(|node| node == of);
    let is_shown = |of: &&Bandwidth| match &of.uplink {
        Uplink::Node(name) => is_meant(name),
        Uplink::Domain(_) => node.is_none(),
    };
    let nodes = picture.engine.nodes().filter(|node| is_meant(&node.name));
    HealthView {
        lines: picture.health.iter().filter(|line| is_meant(&line.node)).cloned().collect(),
        bandwidths: picture.engine.bandwidths().filter(is_shown).cloned().collect(),
        devices: nodes.map(|node| node.machine.device_count()).sum(),
        sources: vec![format!("NodeTopology objects of {} agents", picture.agents)],
        missing: vec!["samples of devices and ports: agents serve them as metrics".to_owned()],
        breaker: picture.breaker.clone(),
        ..no_health()
    }
}

pub(super) fn queues(reader: &Reader<'_>) -> Answer {
    Answer::Queues(reader.look(views::queues))
}

pub(super) fn queue(reader: &Reader<'_>, name: &QueueName) -> Option<Answer> {
    reader.look(|books| views::queue(books, name)).map(|view| Answer::Queue(Box::new(view)))
}

/// The newest jobs that are meant, the newest last.
pub(super) fn jobs(reader: &Reader<'_>, finished: bool, filter: &JobFilter, limit: usize) -> Answer {
    let mut jobs = reader.look(|books| {
        let ids = views::newest(books, limit, finished, filter);
        views::jobs(books, &reader.picture.map, &ids, &Reasons::new())
    });
    let filter = filter.prepared();
    jobs.extend(outside::all(reader).filter(|view| outside::is_meant(view, &filter)));
    jobs.sort_by_key(|view| view.id);
    let surplus = jobs.len().saturating_sub(limit);
    Answer::Jobs(jobs.split_off(surplus))
}

/// Without the submission, which names nodes that the user may not list.
fn job_view(reader: &Reader<'_>, id: JobId) -> Option<JobView> {
    let of_engine = reader.look(|books| views::job(books, &reader.picture.map, id, true));
    let view = of_engine.or_else(|| outside::all(reader).find(|view| view.id == id))?;
    Some(JobView { job: None, ..view })
}

pub(super) fn job(reader: &Reader<'_>, id: JobId) -> Option<Answer> {
    Some(Answer::Job(Box::new(job_view(reader, id)?)))
}

/// Why a job waits, in sentences; with the reports behind them for a user who sees all nodes and jobs.
pub(super) fn why(reader: &Reader<'_>, id: JobId, is_whole: bool) -> Option<Answer> {
    let (job, now) = (job_view(reader, id)?, unix_now());
    let (reports, mut sentences) = reader.look(|books| {
        let reports = views::reports(books, id, None);
        let sentences = views::why_sentences(books, now, &reports);
        (reports, sentences)
    });
    if reader.picture.engine.job(id).is_none() {
        sentences.push(format!("It waits: {}.", job.detail));
    }
    let reports = if is_whole { reports } else { Vec::new() };
    Some(Answer::Why(WhyView { job, reports, now, sentences }))
}

#[cfg(test)]
mod tests {
    use phalanx_api::protocol::HELD_BY_OTHERS;
    use phalanx_model::{GangId, Reason, Timestamp};
    use phalanx_shell::sentences;
    use serde_json::{Value, json};

    use super::super::objects::Objects;
    use super::super::picture::namespace;
    use super::*;
    use crate::gang::{Numbers, Options};
    use crate::messages::Event;

    fn event(kind: &str, object: Value) -> Event {
        match kind {
            "node" => Event::Node(serde_json::from_value(object).unwrap()),
            _ => Event::Pod(serde_json::from_value(object).unwrap()),
        }
    }

    fn pod(namespace: &str, name: &str, gpus: u32, node: Option<&str>) -> Event {
        let scheduler = if node.is_some() { "other" } else { "phalanx" };
        let phase = if node.is_some() { "Running" } else { "Pending" };
        let container = json!({ "name": "c", "env": [{ "name": "PASSWORD", "value": "hush-hush" }],
                                "resources": { "limits": { "nvidia.com/gpu": gpus.to_string() } } });
        event(
            "pod",
            json!({ "metadata": { "namespace": namespace, "name": name, "uid": format!("{namespace}-{name}") },
                    "spec": { "schedulerName": scheduler, "nodeName": node, "containers": [container] },
                    "status": { "phase": phase } }),
        )
    }

    /// A Job of two pods.
    fn half(namespace: &str, name: &str) -> Event {
        let job = json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": { "namespace": namespace, "name": name, "uid": name },
            "spec": { "completions": 2, "parallelism": 2, "completionMode": "Indexed",
                      "template": { "spec": { "schedulerName": "phalanx", "containers": [] } } },
        });
        Event::Object(serde_json::from_value(job).unwrap())
    }

    /// One of its pods.
    fn half_pod(namespace: &str, job: &str) -> Event {
        let Event::Pod(mut pod) = pod(namespace, &format!("{job}-0"), 1, None) else {
            panic!("another event")
        };
        let owner =
            json!([{ "apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": job, "controller": true }]);
        pod.metadata.owner_references = serde_json::from_value(owner).unwrap();
        let index = ("batch.kubernetes.io/job-completion-index".to_owned(), "0".to_owned());
        pod.metadata.annotations = Some([index].into());
        Event::Pod(pod)
    }

    /// A node of which others have a half, a pod of `a` that fits and one of `b` that does not.
    fn objects() -> Objects {
        let mut objects = Objects::default();
        let node = json!({
            "metadata": { "name": "gpu-1", "uid": "gpu-1" },
            "status": {
                "allocatable": { "nvidia.com/gpu": "8", "cpu": "64", "memory": "64Gi", "pods": "110" },
                "conditions": [{ "type": "Ready", "status": "True" }],
            },
        });
        for event in [
            event("node", node),
            pod("b", "hush", 8, None),
            pod("a", "fits", 2, None),
            pod("c", "foreign", 4, Some("gpu-1")),
            half("b", "hush-half"),
            half_pod("b", "hush-half"),
        ] {
            assert!(objects.observe(event));
        }
        objects
    }

    fn picture(objects: &Objects, numbers: &mut Numbers) -> Picture {
        let options = Options::of_queue(QueueName::new("default").unwrap());
        Picture::derive(objects, &options, numbers, (1, Timestamp(1_000_000))).unwrap()
    }

    fn id(picture: &Picture, of: &str) -> JobId {
        picture.engine.jobs().find(|(job, _)| namespace(job) == of).unwrap().0.id
    }

    fn text(answer: &Answer) -> String {
        serde_json::to_string(answer).unwrap()
    }

    #[test]
    fn a_pod_that_fits_is_pending_until_the_scheduler_binds_it_and_numbers_stay() {
        let (mut objects, mut numbers) = (objects(), Numbers::default());
        let first = picture(&objects, &mut numbers);
        let (fits, hush) = (id(&first, "a"), id(&first, "b"));
        let reader = Reader { picture: &first, sight: Sight::All };
        let Some(Answer::Why(why)) = why(&reader, fits, true) else { panic!("no answer") };
        assert_eq!((&*why.job.state, why.job.gangs[0].placement.is_some()), ("pending", false));
        let Answer::Overview(overview) = overview(&reader, true) else { panic!("another answer") };
        assert_eq!((overview.jobs.pending, overview.jobs.running + overview.jobs.starting), (3, 0));
        assert_eq!((overview.devices.foreign, overview.devices.free), (4, 4));
        // One that is older comes, and one goes.
        objects.observe(pod("0", "new", 1, None));
        let gone = ("a".to_owned(), "fits".to_owned(), "a-fits".to_owned());
        let (namespace, name, uid) = gone;
        objects.observe(Event::PodGone { namespace, name, uid });
        let second = picture(&objects, &mut numbers);
        assert_eq!(id(&second, "b"), hush);
        assert!(id(&second, "0") > fits.max(hush), "a number is not given again");
    }

    #[test]
    fn no_document_names_a_job_that_the_user_may_not_see() {
        let picture = picture(&objects(), &mut Numbers::default());
        let (own, hush) = (id(&picture, "a"), id(&picture, "b"));
        let reader = Reader { picture: &picture, sight: Sight::Of(["a".to_owned()].into()) };
        let (node, queue) = (NodeName::new("gpu-1").unwrap(), QueueName::new("default").unwrap());
        let filter = |text: &str| JobFilter { text: Some(text.to_owned()), ..JobFilter::default() };
        let of_nodes = NodeFilter { text: Some("hush".to_owned()), state: None, after: None, limit: 10 };
        let Answer::Nodes(found) = find_nodes(&reader, &of_nodes) else { panic!("another answer") };
        assert!(found.nodes.is_empty());
        for answer in [
            overview(&reader, true),
            map(&reader),
            find_nodes(&reader, &NodeFilter::default()),
            super::node(&reader, &node, true).unwrap(),
            queues(&reader),
            super::queue(&reader, &queue).unwrap(),
            jobs(&reader, true, &JobFilter::default(), 10),
            jobs(&reader, true, &filter("hush"), 10),
            job(&reader, own).unwrap(),
            why(&reader, own, false).unwrap(),
        ] {
            let text = text(&answer);
            assert!(
                !text.contains("hush") && !text.contains("\"owner\":\"b\"") && !text.contains("b/"),
                "{text}"
            );
        }
        assert!(job(&reader, hush).is_none() && why(&reader, hush, false).is_none());
        let all = Reader { picture: &picture, sight: Sight::All };
        let said = text(&job(&all, hush).unwrap());
        assert!(said.contains("b/hush") && !said.contains("PASSWORD"), "{said}");
        // Sentences that name other jobs have their numbers alone.
        let reason = Reason::Preempting { victims: vec![GangId { job: hush, index: 0 }] };
        let said = |reader: &Reader<'_>| reader.look(|books| sentences::reason(books, &reason));
        assert!(said(&all).contains("b/hush"));
        assert_eq!(said(&reader), format!("reserved; waiting for these jobs to leave: job {hush}"));
    }

    #[test]
    fn a_gang_that_is_not_complete_waits_and_is_found_like_others() {
        let mut numbers = Numbers::default();
        let first = picture(&objects(), &mut numbers);
        let half = first.outside[0].id;
        let reader = Reader { picture: &first, sight: Sight::All };
        let filter = JobFilter { text: Some("half".to_owned()), ..JobFilter::default() };
        let Answer::Jobs(found) = jobs(&reader, false, &filter, 10) else { panic!("another answer") };
        let [view] = &found[..] else { panic!("{found:?}") };
        assert_eq!((view.id, &*view.name, &*view.state), (half, "b/hush-half", "pending"));
        assert_eq!((&*view.reason, view.detail.is_empty()), ("GangNotReady", false), "{view:?}");
        let Some(Answer::Why(why)) = why(&reader, half, true) else { panic!("no answer") };
        assert!(why.sentences[0].contains(&view.detail), "{:?}", why.sentences);
        let Answer::Jobs(all) = jobs(&reader, false, &JobFilter::default(), 2) else {
            panic!("another answer")
        };
        assert_eq!(all.len(), 2, "the limit is one of all");
        assert_eq!(picture(&objects(), &mut numbers).outside[0].id, half);
    }

    #[test]
    fn devices_of_others_are_held_on_the_map() {
        let picture = picture(&objects(), &mut Numbers::default());
        let Answer::Map(map) = map(&Reader { picture: &picture, sight: Sight::Of([].into()) }) else {
            panic!("another answer")
        };
        let held = map.nodes[0].devices.iter().filter(|of| **of == Some(HELD_BY_OTHERS)).count();
        assert_eq!((held, map.nodes[0].devices.len()), (4, 8));
    }
}

//! What somebody asked of the API server, as its audit log says.

use std::collections::BTreeSet;
use std::path::Path;

use phalanx_kube::rights::Right;
use serde_json::Value;

/// One call as RBAC sees it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Call {
    group: String,
    resource: String,
    verb: String,
    /// Empty for all, and for what is in none.
    namespace: String,
    /// Empty for lists, and for what is created.
    name: String,
}

/// One verb on one resource that a role allows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Need {
    pub(crate) group: String,
    pub(crate) resource: String,
    pub(crate) verb: String,
    /// Objects of these names alone; of all where there is none.
    names: Vec<String>,
    /// Nothing: everywhere.
    namespace: Option<String>,
}

impl Need {
    fn is_met_by(&self, call: &Call) -> bool {
        let is_said = (&self.group, &self.resource, &self.verb) == (&call.group, &call.resource, &call.verb);
        let is_there = self.namespace.as_ref().is_none_or(|namespace| *namespace == call.namespace);
        is_said && is_there && (self.names.is_empty() || self.names.contains(&call.name))
    }
}

/// What rights allow, in a namespace or in all.
pub(crate) fn needs(rights: &[Right], namespace: Option<&str>) -> BTreeSet<Need> {
    let each = |right: &Right| {
        let Right { group, resources, verbs, names, .. } = right.clone();
        let namespace = namespace.map(str::to_owned);
        resources.into_iter().flat_map(move |resource| {
            let (names, namespace) = (names.clone(), namespace.clone());
            verbs.iter().map(move |verb| Need {
                group: group.to_owned(),
                resource: resource.to_owned(),
                verb: (*verb).to_owned(),
                names: names.clone(),
                namespace: namespace.clone(),
            })
        })
    };
    rights.iter().flat_map(each).collect()
}

/// What a user did, and what was denied.
#[derive(Debug, Default)]
pub(crate) struct Audit {
    done: BTreeSet<Call>,
    pub(crate) denied: Vec<String>,
}

impl Audit {
    /// So far.
    pub(crate) fn of(log: &Path, user: &str) -> Self {
        let text = std::fs::read_to_string(log).unwrap();
        let mut audit = Self::default();
        for line in text.lines().filter(|line| line.contains(user)) {
            // The last line may be on its way.
            let Ok(event) = serde_json::from_str::<Value>(line) else { continue };
            if event["user"]["username"] != user {
                continue;
            }
            if event["annotations"]["authorization.k8s.io/decision"] == "forbid" {
                audit.denied.push(line.to_owned());
            }
            let of = &event["objectRef"];
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let resource = match of["subresource"].as_str() {
                Some(part) => format!("{}/{part}", text(&of["resource"])),
                None => text(&of["resource"]),
            };
            audit.done.insert(Call {
                group: text(&of["apiGroup"]),
                resource,
                verb: text(&event["verb"]),
                namespace: text(&of["namespace"]),
                name: text(&of["name"]),
            });
        }
        audit
    }

    /// What nobody needed so far.
    pub(crate) fn unmet<'a>(&self, needed: &'a BTreeSet<Need>) -> Vec<&'a Need> {
        needed.iter().filter(|need| !self.done.iter().any(|call| need.is_met_by(call))).collect()
    }

    /// Fails where anything was denied.
    pub(crate) fn assert_nothing_was_denied(&self) {
        assert!(self.denied.is_empty(), "denied:\n{}", self.denied.join("\n"));
    }
}

#[test]
fn a_right_on_named_objects_of_a_namespace_is_used_by_calls_about_these_alone() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("audit.jsonl");
    let event = |verb: &str, namespace: &str, name: &str, decision: &str| {
        serde_json::json!({"user": {"username": "ada"}, "verb": verb,
            "objectRef": {"apiGroup": "coordination.k8s.io", "resource": "leases", "namespace": namespace, "name": name},
            "annotations": {"authorization.k8s.io/decision": decision}})
        .to_string()
    };
    let needed = needs(&phalanx_kube::rights::of_lease("ours"), Some("here"));
    let unmet = |events: &[String]| {
        std::fs::write(&log, events.join("\n")).unwrap();
        let audit = Audit::of(&log, "ada");
        let verbs = audit.unmet(&needed).into_iter().map(|need| need.verb.clone()).collect::<Vec<_>>();
        (verbs, audit.denied.len())
    };
    let others = [event("get", "here", "theirs", "allow"), event("update", "there", "ours", "forbid")];
    assert_eq!(unmet(&others), (vec!["create".to_owned(), "get".to_owned(), "update".to_owned()], 1));
    let ours = [event("create", "here", "", "allow"), event("get", "here", "ours", "allow")];
    assert_eq!(unmet(&ours), (vec!["update".to_owned()], 0));
}

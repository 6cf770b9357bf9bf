//! Manifests of every kind that says which pods start together, and the gangs that come of them. Beside each manifest in
//! `gangs/` stands what was made of it; `UPDATE=1` writes that anew, to be read before it is kept.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use phalanx_kube::api::Pod;
use phalanx_kube::kube::api::DynamicObject;
use phalanx_kube::recognise::{
    GangKey, GangSpec, Refused, TopologyRule, add_owner, membership, owner_wanted, owners_wanted, settle,
    spec_of, spec_of_pods,
};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Pods, and every other object.
fn read(text: &str) -> (Vec<Pod>, Vec<DynamicObject>) {
    let (mut pods, mut objects) = (Vec::new(), Vec::new());
    for document in text.split("\n---\n") {
        let object: DynamicObject = serde_saphyr::from_str(document).unwrap();
        if object.types.as_ref().unwrap().kind == "Pod" {
            pods.push(serde_saphyr::from_str(document).unwrap());
        } else {
            objects.push(object);
        }
    }
    (pods, objects)
}

/// What all objects say, with what their owners add.
fn specs(objects: &[DynamicObject]) -> Vec<Result<GangSpec, Refused>> {
    let mut specs = Vec::new();
    for object in objects {
        let of_object = match spec_of(object) {
            Ok(of_object) => of_object,
            Err(refused) => {
                specs.push(Err(refused));
                continue;
            }
        };
        let mut above = Vec::new();
        let mut wanted = owner_wanted(object);
        while let Some(owner) = wanted.and_then(|wanted| {
            objects.iter().find(|object| {
                object.metadata.name.as_ref() == Some(&wanted.name)
                    && object.types.as_ref().unwrap().kind == wanted.kind
            })
        }) {
            above.push(owner);
            wanted = owner_wanted(owner);
        }
        specs.extend(of_object.into_iter().map(|mut spec| {
            above.iter().try_for_each(|owner| add_owner(&mut spec, owner))?;
            Ok(spec)
        }));
    }
    specs
}

fn rule(rule: &TopologyRule) -> String {
    let mut words = Vec::new();
    words.extend(rule.required.iter().map(|level| format!("inside one {level}")));
    words.extend(rule.preferred.iter().map(|level| format!("rather inside one {level}")));
    words.extend(rule.wait.iter().map(|wait| format!("wait {wait}")));
    words.extend(rule.exclusive.iter().map(|level| format!("alone in its {level}")));
    words.extend(rule.segments.iter().map(|segment| {
        let how = if segment.is_required { "" } else { "rather " };
        let alone = if segment.is_exclusive { " of its own" } else { "" };
        format!("every {} {how}inside one {}{alone}", segment.size, segment.level)
    }));
    if words.is_empty() { String::new() } else { format!(" ({})", words.join("; ")) }
}

fn show(spec: &GangSpec) -> String {
    let mut text = String::new();
    let kind = match (spec.is_lone, spec.is_open) {
        (true, _) => "each pod by itself".to_owned(),
        (false, true) => format!("at least {} pods", spec.min),
        (false, false) => format!("{} of {} pods", spec.min, spec.size()),
    };
    writeln!(text, "{}: {kind}{}", spec.key, rule(&spec.topology)).unwrap();
    for role in &spec.roles {
        let name = if role.name.is_empty() { "pods" } else { &role.name };
        write!(text, "  {name}: {} of {}", role.min, role.size).unwrap();
        if role.per_copy != role.size {
            write!(text, ", {} in each copy", role.per_copy).unwrap();
        }
        if role.leads {
            text.push_str(", the others after the first of each");
        }
        let template = role.template.as_ref();
        let containers =
            template.map(|t| t.spec.containers.iter().map(|c| c.name.as_str()).collect::<Vec<_>>());
        let will_be = containers.map_or_else(String::new, |names| format!(", will run {}", names.join(" ")));
        writeln!(text, "{will_be}{}", rule(&role.topology)).unwrap();
    }
    let mut rest = Vec::new();
    rest.extend(spec.queue.iter().map(|queue| format!("queue {queue}")));
    rest.extend(spec.priority_class.iter().map(|class| format!("class {class}")));
    rest.extend(spec.is_patient.then(|| "evicts nobody".to_owned()));
    rest.extend(spec.time_limit_s.iter().map(|limit| format!("at most {limit} s")));
    rest.extend(spec.late.iter().map(|role| format!("{role} may come late")));
    rest.extend(spec.follow.iter().map(|role| format!("{role} comes when the others have nodes")));
    rest.extend(spec.after.iter().map(|gang| format!("after {gang}")));
    if let Some(suspend) = &spec.suspend {
        let word = if spec.is_suspended { "is suspended" } else { "can be suspended" };
        rest.push(format!("{word} by {} of {} ({})", suspend.path.join("."), suspend.object, suspend.plural));
    }
    if !rest.is_empty() {
        writeln!(text, "  {}", rest.join("; ")).unwrap();
    }
    text
}

fn place(pod: &Pod, specs: &[GangSpec]) -> Result<String, Refused> {
    let (member, _) = settle(pod, &membership(pod)?, specs)?;
    let mut text = member.gang.to_string();
    if let Some(role) = member.role {
        write!(text, ", {role}").unwrap();
    }
    if let Some(index) = member.index {
        write!(text, " #{index}").unwrap();
    }
    let wanted: Vec<String> =
        owners_wanted(pod)?.iter().map(|object| format!("{} {object}", object.api_version)).collect();
    if !wanted.is_empty() {
        write!(text, ", needs {}", wanted.join(" and ")).unwrap();
    }
    Ok(text)
}

/// Gangs that have no object.
fn of_pods(pods: &[Pod], specs: &[GangSpec]) -> BTreeMap<GangKey, Result<GangSpec, Refused>> {
    let mut gangs: BTreeMap<GangKey, Vec<&Pod>> = BTreeMap::new();
    for pod in pods {
        let Ok((member, None)) = membership(pod).and_then(|member| settle(pod, &member, specs)) else {
            continue;
        };
        gangs.entry(member.gang).or_default().push(pod);
    }
    gangs.into_iter().map(|(key, pods)| (key, spec_of_pods(&pods))).collect()
}

fn story(text: &str) -> String {
    let (pods, objects) = read(text);
    let mut story = String::new();
    let mut known = Vec::new();
    for spec in specs(&objects) {
        match spec {
            Ok(spec) => {
                story.push_str(&show(&spec));
                known.push(spec);
            }
            Err(refused) => writeln!(story, "refused: {refused}").unwrap(),
        }
    }
    for spec in of_pods(&pods, &known).into_values() {
        match spec {
            Ok(spec) => story.push_str(&show(&spec)),
            Err(refused) => writeln!(story, "refused: {refused}").unwrap(),
        }
    }
    story.push('\n');
    for pod in &pods {
        let place = place(pod, &known).unwrap_or_else(|refused| format!("refused: {refused}"));
        writeln!(story, "{}: {place}", pod.path()).unwrap();
    }
    story
}

fn manifests(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(folder);
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    paths.sort();
    assert!(!paths.is_empty());
    paths
}

fn golden(path: &Path, text: &str) {
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, text).unwrap();
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    assert!(kept == text, "{} differs; UPDATE=1 writes it:\n{text}", path.display());
}

#[test]
fn manifests_of_every_kind_become_the_gangs_that_stand_beside_them() {
    for path in manifests("gangs") {
        golden(&path.with_extension("gangs"), &story(&std::fs::read_to_string(&path).unwrap()));
    }
}

/// Backwards and turned by some places: whatever is listed first may not matter.
#[test]
fn gangs_do_not_depend_on_the_order_of_pods() {
    for path in manifests("gangs").into_iter().chain(manifests("gangs/refused")) {
        let (pods, objects) = read(&std::fs::read_to_string(&path).unwrap());
        let known: Vec<GangSpec> = specs(&objects).into_iter().flatten().collect();
        let first = of_pods(&pods, &known);
        for turn in 0..pods.len() {
            let mut turned = pods.clone();
            turned.rotate_left(turn);
            assert_eq!(of_pods(&turned, &known), first, "{} turned by {turn}", path.display());
            turned.reverse();
            assert_eq!(of_pods(&turned, &known), first, "{} turned by {turn}, backwards", path.display());
        }
    }
}

/// Every manifest in `gangs/refused/` has something that cannot be understood or kept.
#[test]
fn what_is_refused_says_where_and_what_to_do() {
    for path in manifests("gangs/refused") {
        let story = story(&std::fs::read_to_string(&path).unwrap());
        assert!(story.contains("refused: "), "{}:\n{story}", path.display());
        golden(&path.with_extension("gangs"), &story);
    }
}

fn pod(name: &str, labels: &Value, annotations: &Value) -> Pod {
    let metadata = json!({"name": name, "namespace": "team", "labels": labels, "annotations": annotations});
    serde_json::from_value(json!({"metadata": metadata, "spec": {"containers": []}})).unwrap()
}

const KOORDINATOR: &str = "gang.scheduling.koordinator.sh";
const TASK_GROUPS: &str = "yunikorn.apache.org/task-groups";

#[test]
fn what_is_too_large_is_refused() {
    let gang = |key: &str, text: String| {
        let mut annotations = json!({"gang.scheduling.koordinator.sh/name": "g"});
        annotations[format!("{KOORDINATOR}/{key}")] = json!(text);
        membership(&pod("a", &json!({}), &annotations)).unwrap_err().to_string()
    };
    let names: Vec<String> = (0..300).map(|n| format!("team/g{n}")).collect();
    assert!(gang("groups", json!(names).to_string()).contains("names 300 gangs; name at most 256"));
    let long = format!("[{}]", " ".repeat(70_000));
    assert!(gang("groups", long).contains("has 70002 bytes; write at most 65536"));
    assert!(gang("min-available", "100001".to_owned()).contains("which is no count of pods"));
    let task = json!({"yunikorn.apache.org/task-group-name": "w", TASK_GROUPS: r#"[{"name": "w", "minMember": 100001}]"#});
    let refused = membership(&pod("a", &json!({"applicationId": "app"}), &task)).unwrap_err().to_string();
    assert!(refused.contains("one with too many members"), "{refused}");
    let groups: Vec<Value> = (0..257).map(|n| json!({"groupName": format!("g{n}")})).collect();
    let cluster = json!({"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "r", "namespace": "team"},
        "spec": {"headGroupSpec": {}, "workerGroupSpecs": groups}});
    let refused = spec_of(&serde_json::from_value(cluster).unwrap()).unwrap_err().to_string();
    assert!(refused.contains("spec.workerGroupSpecs has 257 entries; write at most 256"), "{refused}");
    assert!(spec_of_pods(&[]).unwrap_err().to_string().contains("the list of members is empty"));
}

/// Pods of a few gangs of several schedulers, some of which contradict each other.
fn pods() -> impl Strategy<Value = Vec<Pod>> {
    let one = (0_u32..3, 0_u32..4, 1_u32..4, prop::option::of(0_u32..8));
    prop::collection::vec(one, 1..12).prop_map(|drawn| {
        let of = |(at, (gang, system, size, index)): (usize, (u32, u32, u32, Option<u32>))| {
            let (name, gang, size) = (format!("p{at}"), format!("g{gang}"), size.to_string());
            let mut labels = json!({});
            let mut annotations = json!({});
            match system {
                0 => {
                    labels["kueue.x-k8s.io/pod-group-name"] = json!(gang);
                    annotations["kueue.x-k8s.io/pod-group-total-count"] = json!(size);
                }
                1 => {
                    annotations[format!("{KOORDINATOR}/name")] = json!(gang);
                    annotations[format!("{KOORDINATOR}/min-available")] = json!(size);
                    annotations[format!("{KOORDINATOR}/groups")] =
                        json!(r#"["team/g0", "team/g1", "team/g2"]"#);
                }
                2 => {
                    labels["applicationId"] = json!(gang);
                    annotations["yunikorn.apache.org/task-group-name"] = json!("w");
                    annotations[TASK_GROUPS] = json!(format!(r#"[{{"name": "w", "minMember": {size}}}]"#));
                }
                _ => {}
            }
            if let Some(index) = index {
                labels["phalanx.dev/queue"] = json!(format!("q{index}"));
            }
            pod(&name, &labels, &annotations)
        };
        drawn.into_iter().enumerate().map(of).collect()
    })
}

proptest! {
    /// Neither who is together, nor what they ask for, nor why they are refused.
    #[test]
    fn gangs_of_any_pods_do_not_depend_on_their_order(
        (pods, shuffled) in pods().prop_flat_map(|pods| (Just(pods.clone()), Just(pods).prop_shuffle())),
    ) {
        prop_assert_eq!(of_pods(&pods, &[]), of_pods(&shuffled, &[]));
    }
}

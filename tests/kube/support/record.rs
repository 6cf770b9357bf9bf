//! What a watch at the API server itself saw of pods, by their UIDs: nobody can tell it anything else later.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use phalanx_controlplane::Api;
use phalanx_model::DeviceMask;
use serde_json::Value;

use super::{Seat, seat};

/// It goes on as long as the API server serves it.
pub(crate) struct Record {
    pods: Arc<Mutex<Pods>>,
}

#[derive(Default)]
struct Pods {
    /// Pods of each gang.
    sizes: BTreeMap<String, usize>,
    by_uid: BTreeMap<String, Seat>,
    /// Node and device, and the pod that holds it.
    held: BTreeMap<(String, u32), String>,
    /// Since when a gang holds something without being whole.
    parts: BTreeMap<String, Instant>,
    /// How long that lasted at most, of each gang that was so.
    longest: BTreeMap<String, Duration>,
    wrong: Vec<String>,
    bindings: usize,
    /// Why nothing is seen any more.
    ended: Option<String>,
}

impl Record {
    /// From now on, of gangs of these sizes. Gangs that are not among them only hold devices.
    pub(crate) fn begin(api: &Api, sizes: impl IntoIterator<Item = (String, usize)>) -> Self {
        let pods = Pods { sizes: sizes.into_iter().collect(), ..Pods::default() };
        let pods = Arc::new(Mutex::new(pods));
        let (events, shared) = (api.follow("/api/v1/pods").unwrap(), Arc::clone(&pods));
        std::thread::spawn(move || {
            let mut why = "by itself".to_owned();
            for event in events {
                match event {
                    Ok(event) => shared.lock().unwrap().see(&event),
                    Err(error) => why = error.to_string(),
                }
            }
            shared.lock().unwrap().ended = Some(why);
        });
        Self { pods }
    }

    /// Bindings so far.
    pub(crate) fn bindings(&self) -> usize {
        let pods = self.pods.lock().unwrap();
        assert_eq!(pods.ended, None, "the watch has ended: what came after it was not seen");
        pods.bindings
    }

    /// Nothing that must never be was seen, and no gang was there in part for longer than this, or is so still.
    pub(crate) fn judge(&self, part: Duration) {
        let pods = self.pods.lock().unwrap();
        assert_eq!(pods.ended, None, "the watch has ended: what came after it was not seen");
        assert!(pods.wrong.is_empty(), "{:#?}", pods.wrong);
        assert!(pods.parts.is_empty(), "in part: {:?}\n{:#?}", pods.parts, pods.by_uid);
        println!("in part for at most {:?}", pods.longest.values().max().copied().unwrap_or_default());
        let long: Vec<_> = pods.longest.iter().filter(|(_, lasted)| **lasted > part).collect();
        assert!(long.is_empty(), "in part for longer than {part:?}: {long:?}");
    }
}

fn is_over(seat: &Seat) -> bool {
    matches!(&*seat.phase, "Succeeded" | "Failed")
}

impl Pods {
    fn see(&mut self, event: &Value) {
        let object = &event["object"];
        let Some(uid) = object["metadata"]["uid"].as_str().map(str::to_owned) else { return };
        let now = seat(object);
        let gang = now.gang.clone();
        let is_gone = event["type"] == "DELETED";
        let before = self.by_uid.get(&uid).cloned();
        if let Some(before) = before.as_ref().filter(|before| before.node.is_some())
            && (&before.node, &before.devices, before.rank) != (&now.node, &now.devices, now.rank)
        {
            self.wrong.push(format!("bound twice: {before:?}, then {now:?}"));
        }
        let is_new = now.node.is_some() && before.as_ref().is_none_or(|before| before.node.is_none());
        self.bindings += usize::from(is_new);
        if is_gone || is_over(&now) {
            self.held.retain(|_, holder| *holder != uid);
        } else {
            self.hold(&uid, &now);
        }
        if is_gone && !is_over(&now) {
            self.by_uid.remove(&uid);
        } else {
            self.by_uid.insert(uid, now);
        }
        self.judge_gang(&gang);
    }

    fn hold(&mut self, uid: &str, seat: &Seat) {
        let (Some(node), Some(devices)) = (&seat.node, &seat.devices) else { return };
        let devices: DeviceMask = devices.parse().unwrap();
        for device in devices.iter() {
            let holder = self.held.entry((node.clone(), device)).or_insert_with(|| uid.to_owned());
            if holder != uid {
                let other = self.by_uid.get(holder);
                self.wrong.push(format!("device {device} of {node}: {seat:?}, and {other:?}"));
            }
        }
    }

    fn judge_gang(&mut self, gang: &str) {
        let Some(size) = self.sizes.get(gang).copied() else { return };
        let of_it = || self.by_uid.values().filter(|seat| seat.gang == gang && seat.node.is_some());
        let held = of_it().filter(|seat| !is_over(seat)).count();
        let done = of_it().filter(|seat| seat.phase == "Succeeded").count();
        let is_part = held > 0 && held + done < size;
        match self.parts.get(gang).copied() {
            None if is_part => drop(self.parts.insert(gang.to_owned(), Instant::now())),
            Some(since) if !is_part => {
                self.parts.remove(gang);
                let longest = self.longest.entry(gang.to_owned()).or_default();
                *longest = (*longest).max(since.elapsed());
            }
            _ => {}
        }
    }
}

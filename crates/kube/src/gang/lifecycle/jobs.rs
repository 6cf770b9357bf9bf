//! What the engine says of the job of a gang: it ended, it is refused, it waits for another start.

use phalanx_model::{GangId, Input, JobId};

use crate::gang::Lifecycle;
use crate::gang::constraints::dependent;
use crate::gang::state::Run;
use crate::messages::WaitsFor;
use crate::recognise::GangKey;

impl Lifecycle {
    /// The job ended.
    pub fn job_ended(&mut self, job: JobId) {
        if let Some((key, _)) = self.close(job) {
            self.facts.push(Input::JobForgotten { job });
            self.provision(&key, None);
            self.changed.insert(key);
        }
    }

    /// Whether this is not why its gang was refused before: who is refused is handed in again whenever nodes change.
    #[must_use]
    pub fn is_news_to(&self, job: JobId, why: &str) -> bool {
        let gang = self.jobs.get(&job).and_then(|key| self.gangs.get(key));
        gang.is_some_and(|gang| gang.refused.as_deref() != Some(why))
    }

    /// The engine does not take the job.
    pub fn job_refused(&mut self, job: JobId, why: &str, waits_for: WaitsFor) {
        let (full, is_of_nodes) = self.refusal_in_full(job, why);
        let waits_for = if is_of_nodes { WaitsFor::Nodes } else { waits_for };
        let Some((key, also)) = self.close(job) else { return };
        if let Some(gang) = self.gangs.get_mut(&key) {
            gang.refused = Some(why.into());
        }
        let why = self.beside_refused(&key, format!("{full}{also}"));
        self.refused.insert(key.clone());
        self.explain(&key, waits_for, &why);
    }

    /// The engine will not start this job again. Whose it was, and what its gang is told with every reason.
    pub(in crate::gang) fn close(&mut self, job: JobId) -> Option<(GangKey, String)> {
        let key = self.jobs.remove(&job)?;
        let gang = self.gangs.get_mut(&key)?;
        let mut also = String::new();
        if let Some(submitted) = gang.job.take() {
            also = dependent(&submitted);
            submitted.sets.iter().for_each(|wanted| self.cluster.nodes.drop_set(wanted));
            submitted.ports.iter().for_each(|port| self.cluster.nodes.drop_port(port));
            self.end_run(&key, submitted.run.as_ref());
            self.end_start(&key, &submitted.seats, submitted.run.as_ref());
            if let Some(line) = &submitted.line {
                self.constraints.serial.leave(line, &key);
            }
            self.asks_no_more(&key);
        }
        Some((key, also))
    }

    /// The engine has taken the places back: the job waits for another start.
    pub fn gang_waits(&mut self, gang: GangId) {
        let Some(key) = self.jobs.get(&gang.job).cloned() else { return };
        let Some(submitted) = self.gangs.get_mut(&key).and_then(|gang| gang.job.as_mut()) else { return };
        let (run, seats) = (submitted.run.take(), submitted.seats.clone());
        self.end_run(&key, run.as_ref());
        self.end_start(&key, &seats, run.as_ref());
        self.changed.insert(key);
    }

    pub(in crate::gang) fn end_run(&mut self, key: &GangKey, run: Option<&Run>) {
        for (_, slot) in run.into_iter().flat_map(Run::held) {
            self.cluster.nodes.ours(&slot.node, slot.devices, false);
        }
        self.take_back_claims(key);
    }

    /// Jobs that were refused and may be possible now: nodes changed.
    pub(in crate::gang) fn reconsider(&mut self) {
        for key in std::mem::take(&mut self.refused) {
            self.changed.insert(key);
        }
    }

    /// Whose job that is.
    #[must_use]
    pub fn key_of(&self, job: JobId) -> Option<&GangKey> {
        self.jobs.get(&job)
    }

    /// How many ranks it has.
    #[must_use]
    pub fn size_of(&self, job: JobId) -> Option<usize> {
        Some(self.gangs.get(self.jobs.get(&job)?)?.job.as_ref()?.seats.len())
    }

    /// Whether a job is more than one pod: one pod's own status says all there is to say.
    #[must_use]
    pub fn is_gang(&self, job: JobId) -> bool {
        self.jobs.get(&job).is_some_and(|key| key.source != crate::recognise::Source::Pod)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::gang::constraints::tests::{Play, node_object};

    /// Every gang that was refused was handed in again whenever a pod of somebody else came or went.
    #[test]
    fn a_refused_gang_is_handed_in_again_when_nodes_change_and_not_when_their_use_does() {
        let mut play = Play::of(2);
        let large = json!({ "metadata": { "namespace": "x", "name": "large", "uid": "large" },
            "spec": { "schedulerName": "phalanx",
                "containers": [{ "name": "c", "resources": { "requests": { "cpu": "16" } } }] } });
        play.see("large", large);
        play.turn();
        assert!(play.reasons.contains_key("large"), "{:?}", play.reasons);
        let submissions = play.submissions;
        for _ in 0..3 {
            play.fill("a1", "2");
            play.turn();
            play.delete("fills-a1");
            play.turn();
        }
        assert_eq!(play.submissions, submissions);
        let mut node = node_object(5);
        node["status"]["allocatable"]["cpu"] = json!("32");
        play.node(node);
        play.turn();
        assert!(play.bound.contains_key("large"), "{:?}", play.reasons);
    }
}

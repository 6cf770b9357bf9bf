//! What is known of one device, or of a node itself.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use phalanx_model::product::Generation;
use phalanx_model::{Grade, Graded, JobId, PortVitals, Timestamp, Vitals};
use serde::{Deserialize, Serialize};

use crate::bandwidth::Measured;
use crate::evidence::{Finding, Kind, Seen, clean, note, span};
use crate::policy::{JOBS_MAX, TIMES_MAX};
use crate::ports::{Ports, named};
use crate::vitals::Base;
use crate::{Action, Policy, Repair, xid};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Subject {
    /// One of each kind, in order.
    pub(crate) findings: Vec<Finding>,
    /// `None`: ok.
    pub(crate) graded: Option<Graded>,
    /// What the engine knows.
    pub(crate) told: Option<Graded>,
    /// Since when it has its grade.
    pub(crate) since: Timestamp,
    /// The circuit breaker let automation close it.
    pub(crate) is_admitted: bool,
    /// It is closed, and not by people only.
    is_drained: bool,
    pub(crate) probation: Option<Probation>,
    /// When it was drained.
    pub(crate) drains: Vec<Timestamp>,
    /// Jobs with errors here.
    pub(crate) jobs: BTreeMap<JobId, Failure>,
    /// Incidents by Xid, where their number decides.
    incidents: BTreeMap<u32, Vec<Timestamp>>,
    pub(crate) seen: Vec<Seen>,
    base: Base,
    ports: Ports,
    /// Of the network of the node.
    #[serde(skip_serializing_if = "Measured::is_nothing")]
    pub(crate) measured: Measured,
}

/// The time after a drain in which it is watched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Probation {
    pub(crate) until: Timestamp,
    /// What closed it.
    pub(crate) after: String,
}

/// The errors of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Failure {
    /// The last one.
    at: Timestamp,
    /// On no other device.
    pub(crate) is_alone: bool,
}

/// Whether evidence counts in the comparison of devices by failed jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counts {
    Yes,
    No,
}

impl Subject {
    pub(crate) fn grade(&self) -> Grade {
        self.graded.as_ref().map_or(Grade::Ok, |of| of.grade)
    }

    /// The evidence for its grade, in words.
    pub(crate) fn detail(&self) -> &str {
        self.graded.as_ref().map_or("", |of| &of.detail)
    }

    /// The grade that automation asks for.
    pub(crate) fn automatic(&self) -> Grade {
        let automatic = self.findings.iter().filter(|finding| !finding.kind.is_exempt());
        automatic.map(|finding| finding.wants).max().unwrap_or_default()
    }

    /// The grade that the circuit breaker keeps it from.
    pub(crate) fn held(&self) -> Option<Grade> {
        let automatic = self.automatic();
        let is_held = automatic.is_closed() && !self.is_admitted && automatic > self.grade();
        is_held.then_some(automatic)
    }

    /// Whether automation alone closes it.
    pub(crate) fn is_automatic(&self) -> bool {
        self.grade().is_closed() && self.closing().all(|finding| !finding.kind.is_exempt())
    }

    /// The findings that close it, or would.
    pub(crate) fn closing(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| finding.wants.is_closed())
    }

    /// What brings it back.
    pub(crate) fn repair(&self, policy: &Policy) -> Repair {
        let repair = self.closing().map(|finding| finding.repair).max().unwrap_or_default();
        let is_last = self.grade().is_closed() && self.is_drained_too_often(policy);
        if is_last { repair.max(Repair::Service) } else { repair }
    }

    fn is_drained_too_often(&self, policy: &Policy) -> bool {
        self.drains.len() as u64 >= u64::from(policy.drains)
    }

    /// Nothing is known against it, and nothing was.
    pub(crate) fn is_clean(&self) -> bool {
        self.graded.is_none()
            && self.findings.is_empty()
            && self.probation.is_none()
            && self.measured.is_nominal()
    }

    pub(crate) fn xid(
        &mut self,
        now: Timestamp,
        number: u32,
        generation: Option<Generation>,
        text: &str,
        policy: &Policy,
    ) -> Counts {
        let verdict = xid::verdict(number, generation, text);
        let kind = if verdict.is_known { Kind::Xid(number) } else { Kind::UnknownXid };
        let (repair, mut detail) = (verdict.repair, verdict.detail);
        let wants = match verdict.action {
            Action::Ignore | Action::Application => None,
            Action::Watch if repair == Repair::None => Some(Grade::Suspect),
            Action::Watch => {
                let times = self.incident(now, number, policy.repeat_window_ms, policy);
                let is_repeated = times >= policy.repeats;
                if is_repeated {
                    detail = format!("{detail}; {times} times in {}", span(policy.repeat_window_ms));
                }
                Some(if is_repeated { Grade::DrainAfterJob } else { Grade::Suspect })
            }
            Action::DrainAfterJob | Action::DrainNow | Action::Broken => {
                let is_enough = verdict.needs <= 1
                    || self.incident(now, number, policy.needs_window_ms, policy) >= verdict.needs;
                Some(match verdict.action {
                    _ if !is_enough => Grade::Suspect,
                    Action::DrainAfterJob => Grade::DrainAfterJob,
                    Action::DrainNow => Grade::DrainNow,
                    _ => Grade::Broken,
                })
            }
        };
        note(&mut self.seen, now, &clean(&detail));
        if let Some(wants) = wants {
            self.find(Finding::new(kind, wants, repair, &detail, now));
        }
        match verdict.action {
            Action::Application | Action::Watch => Counts::Yes,
            _ => Counts::No,
        }
    }

    /// The incidents of an Xid within a time, with this one. Lines that come together are one incident.
    fn incident(&mut self, now: Timestamp, number: u32, window_ms: u64, policy: &Policy) -> u32 {
        let times = self.incidents.entry(number).or_default();
        times.retain(|at| now.since(*at) < window_ms);
        if times.last().is_none_or(|last| now.since(*last) >= policy.burst_ms) {
            times.push(now);
        }
        let surplus = times.len().saturating_sub(TIMES_MAX);
        times.drain(..surplus);
        u32::try_from(times.len()).unwrap_or(u32::MAX)
    }

    pub(crate) fn vitals(&mut self, now: Timestamp, vitals: &Vitals, policy: &Policy) -> Counts {
        let Some(said) = self.base.sample(now, vitals, policy) else { return Counts::No };
        let before = self.closing_detail();
        if said.answers {
            self.findings.retain(|finding| finding.kind != Kind::Lost || !finding.is_rebooted);
            // The driver was loaded again, or the device was reset: it comes back once it has answered for a while.
            let lost = self.findings.iter_mut().find(|finding| finding.kind == Kind::Lost);
            if let Some(lost) = lost.filter(|lost| lost.repair != Repair::None) {
                (lost.repair, lost.last_at) = (Repair::None, now);
                note(&mut self.seen, now, "the device answers again");
            }
        }
        let was_pending = self.findings.iter().any(|finding| finding.kind == Kind::RowsPending);
        if said.is_settled && was_pending {
            // Only a reset replaces rows: what else waited for it is done, too.
            self.findings.retain(|finding| finding.repair != Repair::Reset);
            self.incidents.clear();
            note(&mut self.seen, now, "the device was reset");
        }
        let mut counts = Counts::No;
        for finding in said.findings {
            if finding.kind == Kind::Ecc {
                counts = Counts::Yes;
            }
            // A state is seen in each sample; its begin is evidence, its duration is not.
            let known = self.findings.iter().find(|known| known.kind == finding.kind);
            if !finding.wants.is_closed() || known.is_none() {
                note(&mut self.seen, now, &finding.detail);
            }
            self.find(finding);
        }
        self.come_back(now, policy, before);
        counts
    }

    /// A sample of the ports of the node. What closes it for a port ends once no sample showed it for a while, also while gangs run
    /// there: nothing else has to be done.
    pub(crate) fn ports(&mut self, now: Timestamp, ports: &[PortVitals], policy: &Policy) {
        let Some(said) = self.ports.sample(now, ports, policy) else { return };
        let before = self.closing_detail();
        if let Some((permille, why)) = said.slow {
            // What is also evidence for a grade is noted below.
            if self.measured.is_nominal() && said.findings.is_empty() {
                note(&mut self.seen, now, &clean(&why));
            }
            self.measured.sample(now, permille, clean(&why), policy);
        }
        if !said.restored.is_empty() {
            note(&mut self.seen, now, &clean(&format!("{} as before", named(&said.restored))));
        }
        for finding in said.findings {
            let known = self.findings.iter().find(|known| known.kind == finding.kind);
            // A slower port is still down, and the one that closed the node is not.
            if known.is_some_and(|known| known.wants > finding.wants) {
                continue;
            }
            // A state is seen in each sample; its begin is evidence, its duration is not.
            if !finding.kind.is_of_port() || known.is_none_or(|known| known.detail != finding.detail) {
                note(&mut self.seen, now, &finding.detail);
            }
            self.find(finding);
        }
        self.findings.retain(|of| {
            !of.kind.is_of_port() || !of.wants.is_closed() || now.since(of.last_at) < policy.settle_ms.max(1)
        });
        self.come_back(now, policy, before);
    }

    /// What a person says. It never lowers the grade: [`Self::clear`] does.
    pub(crate) fn report(&mut self, now: Timestamp, grade: Grade, by: &str, text: &str) {
        let detail = clean(&format!("{by}: {text}"));
        note(&mut self.seen, now, &clean(&format!("{grade} by {detail}")));
        let known = self.findings.iter().find(|finding| finding.kind == Kind::Report);
        if grade > Grade::Ok && known.is_none_or(|known| known.wants <= grade) {
            self.find(Finding::new(Kind::Report, grade, Repair::Service, &detail, now));
        }
    }

    /// What a person measured. It changes no grade.
    pub(crate) fn bandwidth(&mut self, now: Timestamp, permille: u16, by: &str, text: &str) {
        let detail = if text.is_empty() { by.to_owned() } else { format!("{by}: {text}") };
        let detail = clean(&detail);
        note(&mut self.seen, now, &clean(&format!("{permille} ‰ of the bandwidth by {detail}")));
        self.measured.report(now, permille, detail);
    }

    /// A check before a start. One that passes takes back what the circuit breaker held: nothing that is closed is checked.
    pub(crate) fn preflight(&mut self, now: Timestamp, failure: Option<&str>) {
        let Some(why) = failure else {
            if !self.grade().is_closed() {
                self.findings.retain(|finding| finding.kind != Kind::Preflight);
            }
            return;
        };
        let detail = clean(&format!("preflight: {why}"));
        note(&mut self.seen, now, &detail);
        self.find(Finding::new(Kind::Preflight, Grade::DrainNow, Repair::Service, &detail, now));
    }

    /// Adds a finding, or adds to the one of its kind.
    pub(crate) fn find(&mut self, finding: Finding) {
        match self.findings.binary_search_by_key(&finding.kind, |known| known.kind) {
            Err(index) => self.findings.insert(index, finding),
            Ok(index) => {
                let Some(known) = self.findings.get_mut(index) else { return };
                known.last_at = finding.last_at;
                if finding.wants >= known.wants {
                    known.detail = finding.detail;
                }
                known.wants = known.wants.max(finding.wants);
                known.repair = known.repair.max(finding.repair);
            }
        }
    }

    /// A job had an error here.
    pub(crate) fn count_job(&mut self, now: Timestamp, job: JobId, is_alone: bool) {
        self.jobs.insert(job, Failure { at: now, is_alone });
        if self.jobs.len() > JOBS_MAX {
            let oldest = self.jobs.iter().min_by_key(|(job, of)| (of.is_alone, of.at, **job));
            let oldest = oldest.map(|(job, _)| *job);
            oldest.map(|oldest| self.jobs.remove(&oldest));
        }
    }

    /// Jobs with errors here and on no other device.
    pub(crate) fn failed_alone(&self) -> u64 {
        self.jobs.values().map(|of| u64::from(of.is_alone)).sum()
    }

    pub(crate) fn reboot(&mut self, now: Timestamp, policy: &Policy) {
        let before = self.closing_detail();
        self.base.reboot();
        self.ports.reboot();
        self.incidents.clear();
        if !self.findings.is_empty() {
            note(&mut self.seen, now, "the node booted again");
        }
        self.findings.retain_mut(|finding| {
            finding.is_rebooted |= finding.kind == Kind::Lost;
            finding.kind == Kind::Lost || !matches!(finding.repair, Repair::Reset | Repair::Reboot)
        });
        self.come_back(now, policy, before);
    }

    /// An operator says that it is repaired: on probation if it was closed, and ok otherwise.
    pub(crate) fn clear(&mut self, now: Timestamp, by: &str, policy: &Policy) {
        let until = now.plus(policy.probation_ms);
        self.probation = self.closing_detail().map(|after| Probation { until, after });
        self.findings.clear();
        self.incidents.clear();
        self.jobs.clear();
        self.drains.clear();
        self.base.clear();
        self.ports.clear();
        self.measured.clear();
        note(&mut self.seen, now, &clean(&format!("cleared by {by}")));
    }

    /// Time passed.
    pub(crate) fn tick(&mut self, now: Timestamp, policy: &Policy, is_free: impl FnOnce() -> bool) {
        self.measured.tick(now, policy);
        let is_over = |at: Timestamp, window_ms: u64| now.since(at) >= window_ms;
        self.drains.retain(|at| !is_over(*at, policy.drain_window_ms));
        self.jobs.retain(|_, of| !is_over(of.at, policy.lemon_window_ms));
        let incidents_ms = policy.needs_window_ms.max(policy.repeat_window_ms);
        self.incidents.retain(|_, times| times.last().is_some_and(|at| !is_over(*at, incidents_ms)));
        self.seen.retain(|seen| !is_over(seen.at, policy.drain_window_ms));
        self.findings
            .retain(|finding| finding.wants.is_closed() || !is_over(finding.last_at, policy.suspect_ms));
        if self.probation.as_ref().is_some_and(|probation| now >= probation.until) {
            self.probation = None;
        }
        let is_settled = self.grade().is_closed()
            && is_over(self.since, policy.settle_ms)
            && self.findings.iter().all(|finding| is_over(finding.last_at, policy.settle_ms))
            && self.closing().all(|finding| finding.repair == Repair::None);
        if is_settled && is_free() {
            let before = self.closing_detail();
            self.findings.retain(|finding| !finding.wants.is_closed());
            self.jobs.clear();
            self.come_back(now, policy, before);
        }
    }

    /// The first of the worst findings that close it, in words.
    fn closing_detail(&self) -> Option<String> {
        let worst = self.closing().max_by_key(|finding| (finding.wants, Reverse(finding.kind)));
        worst.map(|finding| finding.detail.clone())
    }

    /// If nothing closes it any more, it is on probation, or it has come back too often.
    fn come_back(&mut self, now: Timestamp, policy: &Policy, before: Option<String>) {
        let Some(after) = before.filter(|_| self.closing().next().is_none()) else { return };
        self.drains.retain(|at| now.since(*at) < policy.drain_window_ms);
        if self.is_drained_too_often(policy) {
            let window = span(policy.drain_window_ms);
            let detail = format!("drained {} times in {window}; last: {after}", self.drains.len());
            note(&mut self.seen, now, &clean(&detail));
            self.find(Finding::new(Kind::TooOften, Grade::Broken, Repair::Service, &detail, now));
        } else {
            self.probation = Some(Probation { until: now.plus(policy.probation_ms), after });
        }
    }

    /// Derives the grade from the findings.
    pub(crate) fn regrade(&mut self, now: Timestamp) {
        self.is_admitted &= self.automatic().is_closed();
        let is_admitted = self.is_admitted;
        let grade_of = |finding: &Finding| {
            let is_open = finding.kind.is_exempt() || is_admitted;
            if is_open { finding.wants } else { finding.wants.min(Grade::Suspect) }
        };
        let order = |finding: &&Finding| (grade_of(finding), finding.wants, Reverse(finding.kind));
        let worst = self.findings.iter().max_by_key(order);
        let found = worst.map(|finding| Graded { grade: grade_of(finding), detail: finding.detail.clone() });
        let graded = found.or_else(|| {
            let after = &self.probation.as_ref()?.after;
            Some(Graded { grade: Grade::Suspect, detail: clean(&format!("on probation after: {after}")) })
        });
        let is_drained = self.findings.iter().any(|of| of.kind != Kind::Report && grade_of(of).is_closed());
        if is_drained && !self.is_drained {
            self.drains.push(now);
            let surplus = self.drains.len().saturating_sub(TIMES_MAX);
            self.drains.drain(..surplus);
        }
        self.is_drained = is_drained;
        let before = self.grade();
        self.graded = graded.filter(|of| of.grade > Grade::Ok);
        if self.grade() != before {
            self.since = now;
        }
        if self.grade().is_closed() {
            self.probation = None;
        }
    }
}

//! What comes out of the figures, in sentences.

use std::collections::BTreeSet;

use super::{Consolidation, HOUR, Outcome, Way};

impl Consolidation {
    /// By way the smallest cluster whose training time is within the claim, and which assumption binds.
    pub(super) fn findings(&self, all: &[Outcome]) -> Vec<String> {
        let (claimed, most) = (self.claim.used.percent(), self.claim.training_time.real());
        let best = |way: &Way| {
            let of = all.iter().filter(|o| o.way == *way && o.longer <= most);
            of.max_by(|a, b| a.used_percent.total_cmp(&b.used_percent))
        };
        let line = |way: &Way| {
            let (peaks, jobs) = (way.peaks(), way.jobs());
            match best(way) {
                Some(o) => format!(
                    "Peaks {peaks}, {jobs} jobs: {} GPUs are enough, used to {:.1} % at {:.2} of the training time.",
                    o.gpus, o.used_percent, o.longer
                ),
                None => format!("Peaks {peaks}, {jobs} jobs: none of these clusters is large enough."),
            }
        };
        let used = |are_peaks_spread: bool| {
            let ways = Way::ALL.iter().filter(|way| way.are_peaks_spread == are_peaks_spread);
            ways.filter_map(best).map(|o| o.used_percent).fold(0.0, f64::max)
        };
        let (same, spread) = (used(false), used(true));
        let hours: BTreeSet<u64> = self.zones.0.iter().map(|zone| zone.0 / HOUR).collect();
        let hours: Vec<String> = hours.iter().map(ToString::to_string).collect();
        let verdict = match (same >= claimed, spread >= claimed) {
            (true, _) => "is reached with the peaks of all services at the same hour".to_owned(),
            (false, true) => format!(
                "is not reached with the peaks of all services at the same hour, and is reached with peaks that are {} h \
                 later in turn: the hour of the peaks is the assumption that binds",
                hours.join(", ")
            ),
            (false, false) => format!(
                "is not reached: used are {same:.1} % at best with the peaks of all services at the same hour, and {spread:.1} % \
                 with peaks that are {} h later in turn",
                hours.join(", ")
            ),
        };
        let claim = format!("The claim, {claimed:.0} % of use at {most:.2} of the training time, {verdict}.");
        let fastest =
            all.iter().filter(|o| o.used_percent >= claimed).min_by(|a, b| a.longer.total_cmp(&b.longer));
        let fastest = fastest.map(|o| {
            format!(
                "Of the clusters that are used to {claimed:.0} % or more, the fastest takes {:.2} of the training time: {} GPUs, \
                 peaks {}, {} jobs.",
                o.longer,
                o.gpus,
                o.way.peaks(),
                o.way.jobs()
            )
        });
        Way::ALL.iter().map(line).chain([claim]).chain(fastest).collect()
    }
}

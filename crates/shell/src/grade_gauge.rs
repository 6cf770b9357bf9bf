//! The gauge of devices and nodes by grade of health, the same for daemon, scheduler and agent.

use std::collections::BTreeMap;

use phalanx_model::Grade;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfGrade {
    grade: &'static str,
}

/// A series for each grade that is not ok.
#[derive(Clone, Debug, Default)]
pub struct GradeGauge(Family<OfGrade, Gauge>);

impl GradeGauge {
    /// All series are there from the start: one that came later than its metric would be no change to whoever watches for
    /// one.
    pub fn register(&self, registry: &mut Registry, name: &str, help: &str) {
        self.set(&BTreeMap::new());
        registry.register(name, help, self.0.clone());
    }

    /// What is not counted is 0.
    pub fn set(&self, counts: &BTreeMap<Grade, usize>) {
        for grade in Grade::ALL.into_iter().filter(|grade| *grade != Grade::Ok) {
            let count = counts.get(&grade).copied().unwrap_or_default();
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.0.get_or_create(&OfGrade { grade: grade.word() }).set(count);
        }
    }
}

//! What people and machines did, among the facts of a journal.

use phalanx_engine::Engine;
use phalanx_model::show::span;
use phalanx_model::{Input, JobId};
use phalanx_sentences as sentences;

/// Whose fact it is, a word, and the rest; nothing where a decision says it as well, or where it says little.
pub(super) fn told(input: &Input, engine: &Engine) -> Option<(Option<JobId>, &'static str, String)> {
    let of_all = |what, detail: String| Some((None, what, detail));
    let of = |job: &JobId, what, detail: String| Some((Some(*job), what, detail));
    match input {
        Input::NodeCordoned { node } => of_all("cordoned", node.to_string()),
        Input::NodeUncordoned { node } => of_all("uncordoned", node.to_string()),
        Input::DrainRequested { node } => of_all("drained", node.to_string()),
        Input::DefragmentationRequested { gang } => {
            let whom = gang.map_or_else(String::new, |gang| format!("for {}", sentences::gang(engine, gang)));
            of_all("moves asked", whom)
        }
        Input::HealthGraded { health } => {
            let what = if health.devices.is_empty() {
                health.node.to_string()
            } else {
                format!("{}:{}", health.node, health.devices)
            };
            of_all("graded", format!("{what} {}: {}", health.grade, health.detail))
        }
        Input::BandwidthMeasured { bandwidth } => {
            of_all("measured", format!("{}: {}", bandwidth.uplink, bandwidth.sentence(engine.now())))
        }
        Input::NodeRemoved { node } => of_all("node gone", node.to_string()),
        Input::NodeObserved { node } => of_all("node there", node.name.to_string()),
        Input::SettingsConfigured { .. } => of_all("queues changed", String::new()),
        Input::SpotNoticed { notice } => {
            let ms = notice.ends_at.since(engine.now());
            of_all("taken back", format!("{} in {}", notice.node, span(ms)))
        }
        Input::CalendarObserved { calendar } if !calendar.is_open_ended() => {
            let (begins, lasts) =
                (calendar.begins_at.since(engine.now()), calendar.ends_at.since(calendar.begins_at));
            let purpose =
                calendar.held_for.as_ref().map_or_else(String::new, |queue| format!(" for queue {queue}"));
            let text = format!("{} in {} for {}{purpose}", calendar.node, span(begins), span(lasts));
            of_all("window", text)
        }
        Input::JobHeld { job, by } => of(job, "held", format!("by {by}")),
        Input::JobReleased { job, by } => of(job, "released", format!("by {by}")),
        Input::JobBoosted { job, boost: Some(boost) } => {
            let ms = boost.until.since(engine.now());
            of(job, "boosted", format!("{:+} for {} by {}", boost.priority, span(ms), boost.by))
        }
        Input::JobRequeued { job, by } => of(job, "requeued", format!("by {by}")),
        Input::JobBoosted { job, boost: None } => of(job, "boost ends", String::new()),
        Input::GangCheckpointed { gang, .. } => of(&gang.job, "work saved", sentences::gang(engine, *gang)),
        Input::EffectFailed { detail, class, .. } => of_all("order failed", format!("{class}: {detail}")),
        _ => None,
    }
}

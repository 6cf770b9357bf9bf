//! Requests that came to nothing: the autoscaler gave up, or what it had kept for them is gone. They are made anew, later and
//! later, and not for ever.

use std::time::Duration;

use serde_json::Value;

/// Of the first that came to nothing; twice as long each time.
const PAUSE: Duration = Duration::from_secs(30);
/// Requests that are made for a gang as it is, one after another.
const ATTEMPTS_MAX: u32 = 8;

/// What of a request's conditions says that nothing comes of it any more.
const LAPSED: [&str; 3] = ["Failed", "BookingExpired", "CapacityRevoked"];

pub(super) fn has_lapsed(request: &Value) -> bool {
    let conditions = request["status"]["conditions"].as_array().into_iter().flatten();
    let is = |condition: &Value| {
        condition["status"] == "True" && LAPSED.iter().any(|lapsed| condition["type"] == *lapsed)
    };
    conditions.into_iter().any(is)
}

/// How long after one that came to nothing the next is made; nothing where that was the last.
pub(super) fn pause(attempt: u32) -> Option<Duration> {
    (attempt < ATTEMPTS_MAX).then(|| PAUSE.saturating_mul(1 << attempt.saturating_sub(1).min(ATTEMPTS_MAX)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_failed_expired_or_was_revoked_has_lapsed() {
        let of = |kind: &str, status: &str| {
            let conditions =
                json!([{ "type": "Accepted", "status": "True" }, { "type": kind, "status": status }]);
            has_lapsed(&json!({ "status": { "conditions": conditions } }))
        };
        for kind in ["Failed", "BookingExpired", "CapacityRevoked"] {
            assert!(of(kind, "True") && !of(kind, "False"), "{kind}");
        }
        assert!(!of("Provisioned", "True") && !has_lapsed(&json!({})));
    }

    #[test]
    fn the_next_is_made_later_each_time_and_not_for_ever() {
        let pauses: Vec<u64> = (1..).map_while(pause).map(|pause| pause.as_secs()).collect();
        assert_eq!(pauses, [30, 60, 120, 240, 480, 960, 1920]);
        assert_eq!(pause(u32::MAX), None);
    }
}

//! Names in journals and documents that stay although the fields of the model were renamed.

#![allow(clippy::unwrap_used)]

use phalanx_model::{Caps, Delay, QueueReport, Reason};
use serde_json::{from_value, json, to_value};

#[test]
fn renamed_fields_keep_their_written_names() {
    let reason = Reason::ScaledIn { replicas: 2 };
    assert_eq!(to_value(&reason).unwrap(), json!({"resting": {"replicas": 2}}));
    assert_eq!(from_value::<Reason>(json!({"resting": {"replicas": 2}})).unwrap(), reason);

    let caps = Caps { delay: Some(Delay::For(60_000)), ..Caps::default() };
    assert_eq!(to_value(caps).unwrap(), json!({"hold_out": {"for": 60_000}}));
    assert_eq!(from_value::<Caps>(json!({"hold_out": {"for": 60_000}})).unwrap(), caps);

    let resource = json!({
        "resource": "gpus", "used": 1, "wanted": 2, "guaranteed": 3, "limit": null, "due": 4, "capacity": 5,
    });
    let report = json!({
        "queue": {"name": "team"}, "depth": 0, "pending": 0, "running": 1, "goods": [resource],
        "share": 6, "dominant": "gpus", "past": 7,
    });
    let read: QueueReport = from_value(report.clone()).unwrap();
    assert_eq!((read.resources[0].fair_share, read.decayed_usage), (Some(4), 7));
    let written = to_value(&read).unwrap();
    assert_eq!((&written["goods"], &written["past"]), (&report["goods"], &report["past"]));
}

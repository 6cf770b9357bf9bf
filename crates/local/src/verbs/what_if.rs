//! What would change: a snapshot of now, and the simulator of this program.

use phalanx_api::protocol::{AddedNodes, Answer, ErrorCode, ErrorView, WhatIfAsk, WhatIfView, WrongField};
use phalanx_api::{Peer, Reply};

use super::{Failure, refuse, snapshot};
use crate::daemon::Daemon;
use crate::simulator::{DEADLINE, NoAnswer, Run};

/// What the files are called in the sentences of the simulator.
const JOB_FILE: &str = "job.yaml";
const QUEUE_FILE: &str = "queues.yaml";
/// The exit code of the simulator for what it does not take (`EX_USAGE`).
const USAGE: i32 = 64;
const ALL_FIELDS: &str = "GET /v1/openapi.json has the schema of the body";

/// Asks the simulator. The client may go away meanwhile.
pub(super) fn what_if(
    daemon: &Daemon,
    peer: &Peer,
    ask: &WhatIfAsk,
    reply: &dyn Reply,
) -> Result<Answer, Failure> {
    if !peer.is_operator {
        let message = format!(
            "user {} may not ask this: a simulation takes CPU time and memory of this machine",
            peer.owner.name
        );
        let hint = "`phalanx sim whatif --live` simulates as you; POST /v1/jobs/dry-run says when and where a job of yours would \
                    start";
        return Err(refuse(ErrorCode::Forbidden, message, hint));
    }
    ask.check().map_err(Failure::Told)?;
    let turn = daemon.simulator.turn().map_err(|why| told(ask, why))?;
    let stdin = serde_json::to_vec(&snapshot(daemon)?)
        .map_err(|e| refuse(ErrorCode::Internal, format!("the snapshot cannot be written: {e}"), ""))?;
    let answer = turn.run(&asked(ask, stdin), || reply.is_gone()).map_err(|why| told(ask, why))?;
    let view: WhatIfView = serde_json::from_slice(&answer)
        .map_err(|e| refuse(ErrorCode::Internal, format!("the simulator gave no answer: {e}"), ""))?;
    Ok(Answer::WhatIf(Box::new(view)))
}

/// `phalanx sim whatif -` with the changes as options.
fn asked(ask: &WhatIfAsk, stdin: Vec<u8>) -> Run {
    let mut words: Vec<String> = ["sim", "whatif", "-", "-o", "json"].map(str::to_owned).to_vec();
    let mut option = |name: &str, value: &str| words.push(format!("--{name}={value}"));
    let mut files = Vec::new();
    if let Some(text) = &ask.queues {
        option("queues", QUEUE_FILE);
        files.push((QUEUE_FILE, text.clone()));
    }
    ask.set.iter().for_each(|typed| option("set", typed));
    for AddedNodes { count, domain } in &ask.add_nodes {
        option("add-nodes", &format!("{count}:{domain}"));
    }
    if !ask.drain.is_empty() {
        option("drain", &ask.drain.join(","));
    }
    if let Some(text) = &ask.job {
        option("job", JOB_FILE);
        files.push((JOB_FILE, text.clone()));
    }
    if let Some(horizon) = &ask.horizon {
        option("horizon", horizon);
    }
    Run { words, files, stdin }
}

/// Why there is no answer, for the client.
fn told(ask: &WhatIfAsk, why: NoAnswer) -> Failure {
    match why {
        NoAnswer::Gone => Failure::Gone,
        NoAnswer::Complained { code: USAGE, said } => Failure::Told(complaint(ask, &said)),
        NoAnswer::Busy(running) => refuse(
            ErrorCode::Unavailable,
            format!("{running} simulations run already, and no more run at a time"),
            "try again in a moment",
        ),
        NoAnswer::TimedOut => refuse(
            ErrorCode::Rejected,
            format!("the simulation did not end within {} s", DEADLINE.as_secs()),
            "give a shorter horizon; `phalanx sim whatif --live` takes as long as it needs",
        ),
        NoAnswer::Complained { said, .. } => failed(said.trim()),
        NoAnswer::Failed(why) => failed(&why),
    }
}

fn failed(why: &str) -> Failure {
    tracing::warn!(why, "a simulation failed");
    let hint = "the scheduler is not affected; `phalanx sim whatif --live` runs the same by hand";
    refuse(ErrorCode::Internal, format!("the simulation failed: {why}"), hint)
}

/// What the simulator does not take, as it says it on a terminal: `error: --drain: there is no node "x"; there are n1, n2`.
fn complaint(ask: &WhatIfAsk, said: &str) -> ErrorView {
    let text = said.split_once("error:").map_or(said, |(_, text)| text).trim();
    let text = ["\nhint:", "\n\nFor more information"]
        .into_iter()
        .fold(text, |text, end| text.split_once(end).map_or(text, |(text, _)| text));
    let text = &of_value(text.trim()).unwrap_or_else(|| text.trim().to_owned());
    let schema = "GET /v1/schemas/queues shows the fields of a queue file";
    let fields: [(&str, &str, &str); 8] = [
        ("--set", "set", schema),
        ("--queues", "queues", schema),
        (QUEUE_FILE, "queues", schema),
        ("--add-nodes", "add_nodes", "GET /v1/topology has the domains of the nodes"),
        ("--drain", "drain", "GET /v1/nodes lists the nodes"),
        ("--job", "job", "GET /v1/schemas/job shows the fields of a job file"),
        (JOB_FILE, "job", "GET /v1/schemas/job shows the fields of a job file"),
        ("--horizon", "horizon", ALL_FIELDS),
    ];
    let found = fields.into_iter().find_map(|(begin, field, hint)| {
        let what = text.strip_prefix(begin)?.trim_start_matches([':', ' ']);
        Some((field, what, hint))
    });
    let Some((field, what, hint)) = found else {
        return ErrorView::new(ErrorCode::BadRequest, text, "change what is asked");
    };
    let path = match field {
        "set" => at(field, ask.set.iter().position(|typed| what.starts_with(typed.as_str()))),
        "add_nodes" => {
            let typed = |one: &AddedNodes| format!("{}:{}", one.count, one.domain);
            at(field, ask.add_nodes.iter().position(|one| what.starts_with(&typed(one))))
        }
        "drain" => at(field, ask.drain.iter().position(|name| what.contains(&format!("{name:?}")))),
        _ => field.to_owned(),
    };
    let first = what.lines().next().unwrap_or_default().to_owned();
    let view = ErrorView::new(ErrorCode::BadRequest, format!("{field}: {what}"), hint);
    ErrorView { field: Some(WrongField { path, what: first }), ..view }
}

/// A value that is refused before the command runs: `invalid value '1y' for '--horizon <TIME>': why` as `--horizon 1y: why`.
fn of_value(text: &str) -> Option<String> {
    let (value, rest) = text.strip_prefix("invalid value '")?.split_once("' for '")?;
    let (option, why) = rest.split_once("': ")?;
    let option = option.split_once(' ').map_or(option, |(option, _)| option);
    Some(format!("{option} {value}: {why}"))
}

/// `drain[3]`.
fn at(field: &str, index: Option<usize>) -> String {
    index.map_or_else(|| field.to_owned(), |index| format!("{field}[{index}]"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_options_that_no_value_can_leave() {
        let ask = WhatIfAsk {
            set: vec!["queues.a.weight=2".to_owned(), "half_life=3d".to_owned()],
            queues: Some("queues: []".to_owned()),
            drain: vec!["n1".to_owned(), "n2".to_owned()],
            add_nodes: vec![AddedNodes { count: 16, domain: "leaf-9".to_owned() }],
            job: Some("run: 'true'".to_owned()),
            horizon: Some("1h".to_owned()),
        };
        let Run { words, files, stdin } = asked(&ask, b"{}".to_vec());
        assert_eq!(
            words.join(" "),
            "sim whatif - -o json --queues=queues.yaml --set=queues.a.weight=2 --set=half_life=3d \
             --add-nodes=16:leaf-9 --drain=n1,n2 --job=job.yaml --horizon=1h"
        );
        assert_eq!(files.iter().map(|(name, _)| *name).collect::<Vec<_>>(), [QUEUE_FILE, JOB_FILE]);
        assert_eq!(stdin, b"{}");
        assert_eq!(asked(&WhatIfAsk::default(), Vec::new()).words.join(" "), "sim whatif - -o json");
    }

    #[test]
    fn a_complaint_names_its_field() {
        let ask = WhatIfAsk {
            set: vec!["half_life=3d".to_owned(), "queues.b.weight=2".to_owned()],
            drain: vec!["n1".to_owned(), "n9".to_owned()],
            ..WhatIfAsk::default()
        };
        let field = |said: &str| {
            let error = complaint(&ask, said);
            assert_eq!(error.code, ErrorCode::BadRequest);
            (error.field.map(|field| (field.path, field.what)), error.message)
        };
        let (found, message) = field("error: --set queues.b.weight=2: none of the queues is named \"b\"\n");
        let what = "queues.b.weight=2: none of the queues is named \"b\"";
        assert_eq!(found, Some(("set[1]".to_owned(), what.to_owned())));
        assert_eq!(message, format!("set: {what}"));
        let (found, _) = field("error: --drain: there is no node \"n9\"; there are n1, n2\nhint: none\n");
        assert_eq!(
            found,
            Some(("drain[1]".to_owned(), "there is no node \"n9\"; there are n1, n2".to_owned()))
        );
        let said = "error: invalid value 'half_life=3d' for '--set <PATH=VALUE>': no: 'such'\n\nFor more information, try '--help'.\n";
        let what = "half_life=3d: no: 'such'";
        assert_eq!(field(said).0, Some(("set[0]".to_owned(), what.to_owned())));
        let (found, message) = field("error: job.yaml:1:1: unknown field `x`\n 1 | x: 1\n");
        assert_eq!(found, Some(("job".to_owned(), "1:1: unknown field `x`".to_owned())));
        assert!(message.ends_with("1 | x: 1"), "{message}");
        let (found, message) = field("error: the engine does not take this: no\n");
        assert_eq!((found, message.as_str()), (None, "the engine does not take this: no"));
    }
}

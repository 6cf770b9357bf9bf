//! What is wrong with a scenario is said with its line, its column and what would do.

#![allow(clippy::unwrap_used)]

use phalanx_scenario::parse;
use proptest::prelude::*;

fn error(text: &str) -> (usize, usize, String) {
    let error = parse(text).unwrap_err();
    (error.line, error.column, error.what)
}

#[test]
fn the_word_that_is_wrong_is_pointed_at() {
    let cases = [
        (
            "node a gpus=8\n\nsubmitt j",
            (3, 1),
            "unknown verb \"submitt\"; known are levels, limit, torus, node",
        ),
        ("node", (1, 5), "a node's name is missing"),
        ("node a gpu=8", (1, 8), "unknown option \"gpu\"; known here: cluster, gpus, shape"),
        ("node a gpus=8 gpus=4", (1, 15), "gpus is given twice"),
        ("node a gpus=-1", (1, 13), "expected a whole number in range, and found \"-1\""),
        ("node a gpus=65", (1, 6), "a node has at most 64 devices"),
        ("node a gpus=4294967296", (1, 13), "expected a whole number in range"),
        ("node a shape=ring", (1, 14), "unknown shape \"ring\"; known are pcie, nvswitch, hybrid_cube_mesh"),
        ("node a gpus=4 shape=hybrid_cube_mesh", (1, 6), "a hybrid cube mesh has gpus=8"),
        ("node a memory=lots", (1, 15), "\"lots\" does not begin with a plain decimal number"),
        ("node a busy=3-1", (1, 13), "expected devices or ranges from 0 to 63, and found \"3-1\""),
        ("node n-[4-1]", (1, 6), "expected a pattern such as n-[1-4]"),
        ("node n-[0-99999999]", (1, 6), "expected a pattern such as n-[1-4]"),
        ("node a\nnode a", (2, 6), "there is a node a already"),
        ("node a!b", (1, 6), "not '!'"),
        ("levels cluster leaf\nnode a", (2, 6), "needs leaf=, the domain that contains"),
        ("levels leaf leaf", (1, 13), "there is a level leaf already"),
        ("node a\nlevels x", (2, 1), "levels must come before the first node"),
        ("submit j time=soon", (1, 15), "write 90s or 1h30m"),
        ("submit j retry=1:user", (1, 16), "unknown failure \"user\"; known are user_code, start_up"),
        ("submit j preferred=leaf@x", (1, 25), "write 90s"),
        ("submit j segments=8@node,4", (1, 26), "expected a segment such as 8@node, and found \"4\""),
        ("submit j segments=8@node,x@node", (1, 26), "expected a whole number in range"),
        ("submit j segments=8@node,4@", (1, 28), "empty"),
        ("submit j spread=1", (1, 17), "expected a spread such as 8@node, and found \"1\""),
        ("submit j named=nic", (1, 16), "expected an amount such as nic:1, and found \"nic\""),
        ("submit j share=half", (1, 16), "expected a number such as 0.25, and found \"half\""),
        ("submit j share=0.5@lots", (1, 20), "\"lots\" does not begin with a plain decimal number"),
        ("submit j mig=big", (1, 14), "expected a number such as 0.25, and found \"big\""),
        ("submit j model=H100,A100:fast", (1, 26), "expected a number such as 0.25, and found \"fast\""),
        ("submit j slice=4x4", (1, 16), "expected a box such as 4x4x8, and found \"4x4\""),
        ("submit j slice=4x4xz", (1, 20), "expected a whole number in range"),
        ("submit j roles=ps", (1, 16), "expected a role such as launcher:1, and found \"ps\""),
        ("submit j roles=ps:1,cpu=1", (1, 21), "unknown option \"cpu\"; known here: gpus"),
        ("submit j roles=ps:1;x:y", (1, 23), "expected a whole number in range"),
        ("submit j grid=tensor:2,width:2", (1, 24), "unknown axis \"width\"; known are tensor, expert, data"),
        ("limit leaf power=1", (1, 7), "there is no level leaf above the node"),
        ("limit cluster power=much", (1, 21), "expected a whole number in range"),
        ("node a\nlimit cluster power=1", (2, 1), "limit must come before the first node"),
        ("node a\ntorus pod 4x4x4", (2, 1), "torus must come before the first node"),
        ("torus pod 4x4", (1, 11), "expected a box such as 4x4x8"),
        ("torus pod 4x4x4\nnode a torus=pod@0,0", (2, 14), "expected a position such as pod@0,0,0"),
        ("node a torus=pod@0,0,0", (1, 14), "in a declared torus"),
        ("node a share-limit=x", (1, 20), "expected a number such as 0.25"),
        ("submit j\nsubmit j", (2, 8), "there is a job j already"),
        ("advance", (1, 8), "a time is missing"),
        ("advance 1s 2s", (1, 12), "unexpected word \"2s\""),
        ("cancel j", (1, 8), "no job j was submitted before; submitted are none"),
        ("submit j\nexit j rang=1", (2, 8), "unknown option \"rang\"; known here: rank, code"),
        ("cordon a", (1, 8), "no node a was declared before"),
        (
            "submit j\nexpect j fine",
            (2, 10),
            "unknown state \"fine\"; known are on, held, evicted, runs, pending",
        ),
        ("    expect   # nothing", (1, 11), "a job, a queue, or nothing-held is missing"),
        ("queue", (1, 6), "a queue's name is missing"),
        ("queue a parent=b", (1, 16), "no queue b was declared before; declared are none"),
        ("queue a limit=gpus", (1, 15), "expected an amount such as gpus:8, and found \"gpus\""),
        ("queue a limit=cpus:4,gpus:x", (1, 27), "expected a number such as 0.25, and found \"x\""),
        ("queue a limit=gpus/:1", (1, 15), "empty"),
        ("queue a shapes=leaf:2", (1, 21), "expected a count of domains and nodes such as 2x32"),
        ("queue a max-running=-1", (1, 21), "expected a whole number in range"),
        (
            "queue a colour=red",
            (1, 9),
            "unknown option \"colour\"; known here: parent, guaranteed, limit, lend",
        ),
        ("queue-gone a", (1, 12), "no queue a was declared before"),
        ("settings reclaim=all", (1, 18), "unknown reclaim \"all\"; known are guarantee, fair_share"),
        ("settings min-run=training", (1, 18), "expected a class and a time such as training:0s"),
        ("settings min-run=serving:1s,x:1s", (1, 29), "unknown class \"x\"; known are serving, training"),
        ("settings worth=A100:half", (1, 21), "expected a whole number in range"),
        ("class batch", (1, 7), "class batch is new and needs rank="),
        ("class batch rank=1 preempts=maybe", (1, 29), "expected yes or no, and found \"maybe\""),
        ("submit j after=i", (1, 16), "no job i was submitted before"),
        ("submit j after=j", (1, 16), "no job j was submitted before"),
        ("submit i\nsubmit j after=i:soon", (2, 16), "unknown end \"soon\"; known are success, failure, any"),
        ("submit j array=0", (1, 16), "an array has 1 to 100000 tasks"),
        ("submit j array=3%x", (1, 18), "expected a whole number in range"),
        ("submit j preempt=maybe", (1, 18), "unknown preempt \"maybe\"; known are requeue, cancel, never"),
        ("submit j saves=0s", (1, 16), "the time between two checkpoints must be above 0"),
        ("submit j\nboost j until=1h", (2, 7), "a boost needs priority="),
        ("show cats", (1, 6), "unknown view \"cats\"; known are queues, all"),
        ("submit j\nexpect j held a", (2, 15), "expected on and nodes, and found \"a\""),
        ("expect a uses gpus:1", (1, 8), "no queue a was declared before"),
    ];
    for (text, (line, column), what) in cases {
        let found = error(text);
        assert_eq!((found.0, found.1), (line, column), "{text:?}: {found:?}");
        assert!(found.2.contains(what), "{text:?}: {found:?}");
    }
}

#[test]
fn an_error_shows_the_line_with_a_caret() {
    let error = parse("submit bert ranks=4 gpus=x").unwrap_err();
    let expected = "line 1, column 26: expected a whole number in range, and found \"x\"\n  \
                    submit bert ranks=4 gpus=x\n  \
                    \u{20}                        ^";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn a_scenario_that_is_too_long_is_refused() {
    assert!(error(&"#".repeat(5 << 20)).2.contains("at most"));
    let nodes: String = (0..3).map(|i| format!("node n{i}-[1-50000]\n")).collect();
    assert_eq!(error(&nodes).0, 3);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_panics(text in "\\PC{0,80}") {
        let _ = parse(&text);
    }

    /// Nearly right text, which comes farther into the parser.
    #[test]
    fn no_words_panic(words in proptest::collection::vec(
        prop_oneof![
            Just("levels"), Just("node"), Just("submit"), Just("advance"), Just("exit"), Just("expect"),
            Just("a"), Just("j"), Just("leaf=x"), Just("gpus=8"), Just("gpus=é"), Just("busy=0-"), Just("\n"),
            Just("retry=:,"), Just("preferred=@"), Just("segments=,@"), Just("advisory=@"), Just("n[1-3]"), Just("n]3["), Just("on"),
            Just("shape=nvswitch"), Just("torus"), Just("limit"), Just("pod"),
            Just("queue"), Just("settings"), Just("class"), Just("limit=gpus/:,"), Just("shapes=:x"), Just("min-run=:"),
            Just("uses"), Just("held"), Just("array=%"), Just("after=:"), Just("boost"), Just("show"), Just("4x4x4"), Just("host=0x0x0"),
            Just("torus=pod@65535,0,9"), Just("slice=x"), Just("roles=:;,=:"), Just("grid=data:"), Just("share=@"),
            Just("named=é:"), Just("spread=,@"), Just("cluster"), Just("power=1"), Just("at=/"), Just("model=\u{301}"), Just("# é"), Just("time=1s"), Just("="), Just("\t"),
        ],
        0..25,
    )) {
        if let Err(error) = parse(&words.join(" ")) {
            let width = error.text.chars().count();
            prop_assert!(error.column <= width + 2, "{error}");
        }
    }
}

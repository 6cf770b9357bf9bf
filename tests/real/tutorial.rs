//! The tutorial of one machine: its commands print what the page shows, see [`crate::page`].

use crate::page::{Block, Shell, blocks};
use crate::support::{LONG, exe};

const ASKS: [&str; 6] = ["history", "logs", "nodes", "ps", "queues", "why"];

#[test]
fn the_tutorial_of_one_machine_does_what_it_shows() {
    let phalanx = exe().with_file_name("phalanx");
    if !phalanx.exists() {
        let what = "the program beside the test daemon: cargo build -p phalanx-cli";
        assert!(std::env::var_os("CI").is_none(), "missing: {what}");
        eprintln!("passed over, missing: {what}");
        return;
    }
    let last = "phalanx cancel --states pending,starting,running && sleep 1; phalanx down";
    let mut shell = Shell::new(&[phalanx.parent().unwrap()], &[], LONG, last);
    let user = shell.run("id -un").1.concat();
    let mut commands = 0;
    for block in blocks("one-machine.md") {
        match block {
            Block::File { name, text } => std::fs::write(shell.folder().join(name), text).unwrap(),
            Block::Steps(steps) => {
                commands += steps.len();
                for step in &steps {
                    let mut words = step.command.split(' ');
                    let is_phalanx = words.next() == Some("phalanx");
                    let only_asks = is_phalanx && words.next().is_some_and(|verb| ASKS.contains(&verb));
                    // The page was written by root.
                    shell.step(step, only_asks, |line| line.replace(&user, "root"));
                }
            }
        }
    }
    assert!(commands >= 30, "{commands} commands");
}

//! What can be typed of the simulator: its own commands, with what `phalanx` alone knows of the daemon and of clusters.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command, Error, FromArgMatches, Subcommand};
use clap_complete::engine::ArgValueCompleter;
use phalanx_sim::command;

use super::{Reach, World};
use crate::complete;
use crate::output::Format;

#[derive(Debug, Args)]
pub(crate) struct Sim {
    // The global option ends here, because clap passes it to no subcommand of a command with the same id: after a command of
    // the simulator `-o` is an option of that command, such as the file of a report.
    /// Format of what whatif and replay print
    #[arg(short, long, id = "output", value_name = "FORMAT", default_value = "table",
          value_parser = PossibleValuesParser::new(Format::WORDS).map(|word| Format::of(&word)))]
    pub(crate) output: Format,
    #[command(subcommand)]
    pub(crate) verb: SimVerb,
}

/// A command of the simulator, and the cluster that its `--live` asks if it is not this machine.
#[derive(Debug)]
pub(crate) struct SimVerb {
    pub(crate) command: command::Command,
    pub(crate) cluster: Option<Reach>,
}

impl Subcommand for SimVerb {
    fn augment_subcommands(sim: Command) -> Command {
        command::Command::augment_subcommands(sim)
            .mut_subcommand("whatif", |whatif| {
                Reach::augment_args(whatif)
                    .mut_arg("drain", completed(complete::nodes))
                    .mut_arg("add_nodes", completed(complete::counted_domains))
                    .mut_arg("set", completed(complete::queue_fields))
            })
            .mut_subcommand("replay", replay)
    }

    fn augment_subcommands_for_update(sim: Command) -> Command {
        Self::augment_subcommands(sim)
    }

    fn has_subcommand(name: &str) -> bool {
        command::Command::has_subcommand(name)
    }
}

impl FromArgMatches for SimVerb {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let command = command::Command::from_arg_matches(matches)?;
        let cluster = match (&command, matches.subcommand()) {
            (command::Command::Whatif(whatif), Some((_, matches))) => {
                cluster(whatif.command.is_live(), matches)?
            }
            _ => None,
        };
        Ok(Self { command, cluster })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// A snapshot in a file is of no system that could be asked. `PHALANX_TO` may be set all the same, for other commands.
fn cluster(is_live: bool, matches: &ArgMatches) -> Result<Option<Reach>, Error> {
    let is_typed = |id: &&str| matches.value_source(id) == Some(ValueSource::CommandLine);
    let typed = ["to", "context", "namespace"].into_iter().find(is_typed);
    if let Some(option) = typed.filter(|_| !is_live) {
        let text = format!("--{option} is of a system that is asked: give --live instead of SNAPSHOT\n");
        return Err(Error::raw(ErrorKind::ArgumentConflict, text));
    }
    let reach = Reach::from_arg_matches(matches)?;
    Ok((is_live && reach.to == World::Kubernetes).then_some(reach))
}

/// `phalanx replay`, which is `phalanx sim replay` with the global `-o`.
#[derive(Debug)]
pub(crate) struct Replay(pub(crate) command::Replay);

impl Args for Replay {
    fn augment_args(command: Command) -> Command {
        replay(command::Replay::augment_args(command))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Replay {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        command::Replay::from_arg_matches(matches).map(Self)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.0.update_from_arg_matches(matches)
    }
}

fn replay(command: Command) -> Command {
    command.mut_arg("job", completed(complete::jobs)).mut_arg("queue", completed(complete::queues))
}

/// An option whose values the daemon knows.
fn completed(
    candidates: fn(&std::ffi::OsStr) -> Vec<clap_complete::CompletionCandidate>,
) -> impl FnOnce(Arg) -> Arg {
    move |arg| arg.add(ArgValueCompleter::new(candidates))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use phalanx_sim::command::Printed;

    use super::*;
    use crate::args::{Cli, Verb};

    fn sim(words: &str) -> Result<(Cli, SimVerb), Error> {
        let mut cli = Cli::try_parse_from(format!("phalanx {words}").split(' '))?;
        let verb = std::mem::replace(&mut cli.verb, Verb::Down);
        let Verb::Sim(sim) = verb else { panic!("not sim: {verb:?}") };
        Ok((cli, sim.verb))
    }

    #[test]
    fn the_cluster_of_a_live_snapshot_is_an_option_of_whatif() {
        let context = |words: &str| sim(words).unwrap().1.cluster.map(|reach| reach.context);
        let of_cluster = "sim whatif --live --to kubernetes --drain a --context=test";
        assert_eq!(context(of_cluster), Some(Some("test".to_owned())));
        assert_eq!(context("sim whatif --live --to=machine --all"), None);
        assert_eq!(context("sim whatif s.json"), None);
        let error = sim("sim whatif s.json --to kubernetes").unwrap_err();
        assert!(error.to_string().contains("--to is of a system that is asked"), "{error}");
        let error = sim("sim whatif --live --to mars").unwrap_err();
        assert!(error.to_string().contains("mars"), "{error}");
    }

    #[test]
    fn the_global_format_ends_before_the_commands_of_the_simulator() {
        for words in ["-o json sim whatif s.json", "sim -o json whatif s.json"] {
            let (cli, _) = sim(words).unwrap();
            assert_eq!(cli.global.output, Format::Json, "{words}");
        }
        let (cli, verb) = sim("sim whatif s.json -o json").unwrap();
        assert_eq!(cli.global.output, Format::Table);
        let command::Command::Whatif(Printed { format, .. }) = verb.command else { panic!("{verb:?}") };
        assert_eq!(format, command::Format::Json);
        // A report has a file there.
        assert!(sim("-o json sim run --trace t.csv -o r.html --quiet -q").is_ok());
        assert!(sim("sim study spot -o spot.md --json -").is_ok());
        let cli = Cli::try_parse_from(["phalanx", "replay", "dir", "-o", "yaml", "--check"]).unwrap();
        assert_eq!(cli.global.output, Format::Yaml);
        assert!(matches!(cli.verb, Verb::Replay(_)));
    }
}

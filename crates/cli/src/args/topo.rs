//! What can be typed after `topo`.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand, ValueEnum, ValueHint};
use clap_complete::engine::ArgValueCompleter;
use phalanx_discover::objects::Preset;
use phalanx_discover::source::Kind;

use crate::complete;
use crate::measure::{BYTES_MAX, REPEAT_MAX};
use crate::output::Format;
use crate::verbs::probe::Pairs;

#[derive(Debug, Subcommand)]
pub(crate) enum Topo {
    /// Draw the cluster and its machines, one node, or what files describe.
    Show {
        /// Node, or files of any kind that `topo import --help` lists (`-` for standard input).
        #[arg(value_name = "NODE|FILE", add = ArgValueCompleter::new(complete::nodes), value_hint = ValueHint::FilePath)]
        what: Vec<String>,
        #[command(flatten)]
        reading: Reading,
    },
    /// Look for what is wrong, weak or lopsided in the cluster, or in what files describe.
    Check {
        /// Files of any kind that `topo import --help` lists (`-` for standard input).
        #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
        files: Vec<PathBuf>,
        #[command(flatten)]
        reading: Reading,
    },
    /// Turn descriptions of machines and fabrics into a cluster file.
    #[command(after_long_help = kinds())]
    Import(Import),
    /// Fit the constants of the cost model to measured collectives.
    Calibrate(Calibrate),
    /// Measure what the links carry, with a short job on each pair.
    Probe(Probe),
    /// Write a map in the format of another tool.
    Export(Export),
    /// Say what changed from one map to another.
    Diff {
        /// The map before: a file of any kind.
        #[arg(value_hint = ValueHint::FilePath)]
        before: PathBuf,
        /// The map after [default: the running cluster].
        #[arg(value_hint = ValueHint::FilePath)]
        after: Option<PathBuf>,
        /// End with status 1 when there are differences.
        #[arg(long)]
        exit_code: bool,
        #[command(flatten)]
        reading: Reading,
    },
}

/// `topo-m   nvidia-smi topo -m`, one line for each kind.
fn kinds() -> String {
    let lines = Kind::ALL.map(|kind| format!("  {:16} {}", kind.word(), kind.source()));
    format!(
        "Files are recognised by what they hold. Several are put together: a machine that is read by itself \
         stands in every host of a fabric.\n\nKinds:\n{}",
        lines.join("\n")
    )
}

/// How files are read.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Reading {
    /// What the files are [default: recognised by what they hold].
    #[arg(long, value_name = "KIND", value_parser = PossibleValuesParser::new(Kind::ALL.map(Kind::word))
          .map(|word| Kind::named(&word).unwrap_or_else(|| unreachable!("possible values are kinds"))))]
    pub(crate) from: Option<Kind>,
    /// Levels of the map, outermost first, of those that the files have [default: all that tell hosts apart].
    #[arg(long, value_name = "LEVEL,…", value_delimiter = ',')]
    pub(crate) levels: Vec<String>,
    /// Hosts of the map, by name with `*` and `?` [default: all].
    #[arg(long, value_name = "PATTERN,…", value_delimiter = ',')]
    pub(crate) hosts: Vec<String>,
    /// Whose labels Kubernetes nodes carry [default: recognised by the labels].
    #[arg(long, value_parser = PossibleValuesParser::new(Preset::names().collect::<Vec<_>>()))]
    pub(crate) preset: Option<String>,
    /// Node label of a level, outermost first: `rack=example.com/rack`. May be given more than once.
    #[arg(long = "label", value_name = "LEVEL=KEY", conflicts_with = "preset")]
    pub(crate) labels: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Import {
    /// Files; `-` for standard input.
    #[arg(required = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) files: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) reading: Reading,
    /// Name of the node, or a pattern such as `node-[1-4]` [default: the name of the file]. For a fabric: the
    /// name of the cluster.
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Product name of the devices, e.g. `NVIDIA H100 80GB HBM3`.
    #[arg(long)]
    pub(crate) model: Option<String>,
    /// Memory of one device, e.g. `80GB`.
    #[arg(long, value_name = "SIZE")]
    pub(crate) gpu_memory: Option<String>,
    /// Memory of the node, e.g. `2TB`.
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Option<String>,
    /// CPUs of the node [default: those that the text names].
    #[arg(long, value_name = "N")]
    pub(crate) cpus: Option<String>,
    /// Cluster file to write, or to add the node to; without it the text is printed.
    // The same flag as everywhere, with another meaning: here what is printed is a file.
    #[arg(short = 'o', long = "output", id = "output", value_name = "FILE", value_hint = ValueHint::FilePath,
          value_parser = clap::builder::StringValueParser::new().map(|word| Format::of(&word)))]
    pub(crate) to: Option<Format>,
}

/// What a map can be written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportTo {
    /// Our cluster file.
    Cluster,
    /// NCCL's topology XML, for `NCCL_TOPO_FILE`; of one machine.
    Nccl,
    /// Slurm's topology.yaml.
    Slurm,
    /// Topology of Kueue, by the labels of `--preset` or `--label`.
    Kueue,
    /// HyperNodes of Volcano.
    Volcano,
    /// Graphviz.
    Dot,
    /// A picture for a browser.
    Svg,
}

#[derive(Debug, Args)]
pub(crate) struct Export {
    /// Files of any kind that `topo import --help` lists [default: the running cluster].
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) files: Vec<PathBuf>,
    /// Format.
    #[arg(long, value_enum)]
    pub(crate) to: ExportTo,
    /// The node whose machine is written, where there is more than one.
    #[arg(long)]
    pub(crate) node: Option<String>,
    #[command(flatten)]
    pub(crate) reading: Reading,
    /// File to write; without it the text is printed.
    #[arg(short = 'o', long = "output", id = "output", value_name = "FILE", value_hint = ValueHint::FilePath,
          value_parser = clap::builder::StringValueParser::new().map(|word| Format::of(&word)))]
    pub(crate) file: Option<Format>,
}

#[derive(Debug, Args)]
pub(crate) struct Probe {
    /// Nodes [default: all that take work].
    #[arg(value_name = "NODE", add = ArgValueCompleter::new(complete::nodes))]
    pub(crate) nodes: Vec<String>,
    /// Pairs: each node with the next, all, or a number of near and far ones; likewise for devices of a node.
    #[arg(long, value_name = "ring|all|N", default_value = "ring")]
    pub(crate) pairs: Pairs,
    /// Size of one transfer.
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = transfer_bytes)]
    pub(crate) bytes: u64,
    /// Transfers whose median counts, after one that does not.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=i64::from(REPEAT_MAX)))]
    pub(crate) repeat: u32,
    /// What carries the bytes. auto: sockets between nodes, NCCL between found devices where nccl-tests is
    /// installed, and shared memory where there is one node alone.
    #[arg(long, value_enum, default_value = "auto")]
    pub(crate) transport: Transport,
    /// Cluster file whose list `measured` takes the results.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) to: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Transport {
    Auto,
    Socket,
    Shm,
    Nccl,
}

fn transfer_bytes(text: &str) -> Result<u64, String> {
    let bytes = phalanx_spec::quantity::parse_memory(text).map_err(|e| e.to_string())?;
    let is_good = (1..=BYTES_MAX).contains(&bytes);
    is_good.then_some(bytes).ok_or_else(|| format!("expected 1 byte to {} GiB", BYTES_MAX >> 30))
}

#[derive(Debug, Args)]
pub(crate) struct Calibrate {
    /// CSV with a header: collective, bytes, nodes, gpus_per_node, hardware, nic, and time_us or busbw.
    #[arg(required = true, value_name = "CSV", value_hint = ValueHint::FilePath)]
    pub(crate) measurements: Vec<PathBuf>,
    /// Constants to begin with, as TOML [default: the built-in ones].
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) start: Option<PathBuf>,
    /// File for the constants, which a cluster file names as `constants`.
    #[arg(short = 'o', long = "output", id = "output", value_name = "FILE", value_hint = ValueHint::FilePath,
          value_parser = clap::builder::StringValueParser::new().map(|word| Format::of(&word)))]
    pub(crate) to: Option<Format>,
}

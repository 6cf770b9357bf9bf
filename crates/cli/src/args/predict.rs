//! What can be typed after `predict`.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{ArgGroup, Args, ValueHint};
use clap_complete::engine::ArgValueCompleter;
use phalanx_cost::Collective;
use phalanx_spec::quantity::{format_memory, parse_memory};

use super::Reading;
use crate::complete;
use crate::output::Format;

/// The largest size: more than any message of today.
const BYTES_MAX: u64 = 1 << 50;
/// Sizes of one prediction.
pub(crate) const SIZES_MAX: usize = 256;

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("where").required(true).args(["on", "gpus", "file"]))]
pub(crate) struct Predict {
    /// Collective [default: what the job file declares, else all-reduce].
    #[arg(required_unless_present = "file", value_parser = PossibleValuesParser::new(COLLECTIVES.map(|(word, _)| word))
          .map(|word| collective(&word)))]
    pub(crate) collective: Option<Collective>,
    /// Sizes as nccl-tests counts them: `1GiB`, several, or a sweep `8MiB..8GiB` that doubles [default:
    /// 1MiB..8GiB, and for a job file what it declares].
    #[arg(value_name = "SIZE", value_delimiter = ',', value_parser = sizes)]
    pub(crate) sizes: Vec<Sizes>,
    /// In a sweep, each size is this many times the one before.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(2..=1024))]
    pub(crate) factor: u32,
    /// These GPUs, in the order of their ranks: `n1:0-3,n2:0-3`; `n1` or `n[1-4]` for all GPUs of nodes.
    #[arg(long, value_name = "NODE[:GPUS],…", add = ArgValueCompleter::new(complete::nodes))]
    pub(crate) on: Option<String>,
    /// So many GPUs, placed on the empty cluster as the scheduler would, and beside it by first fit: `16`, `H100:16`.
    #[arg(short = 'G', long, value_name = "[MODEL:]N")]
    pub(crate) gpus: Option<String>,
    /// The job of this file (YAML), placed likewise; `-` reads it from standard input.
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: Option<PathBuf>,
    /// Map: files of any kind that `topo import --help` lists, which are put together, or `2x4x8` (leaves, nodes of
    /// each, GPUs of each) [default: this machine as found].
    #[arg(long, value_name = "FILE|SHAPE", value_delimiter = ',', value_hint = ValueHint::FilePath)]
    pub(crate) cluster: Vec<PathBuf>,
    /// Product name of the GPUs, where the files of the map give none: `NVIDIA B200`.
    #[arg(long)]
    pub(crate) model: Option<String>,
    #[command(flatten)]
    pub(crate) reading: Reading,
    /// Shape of what is printed.
    // The same flag as everywhere, which here knows one format more.
    #[arg(short = 'o', long = "output", id = "output", value_name = "FORMAT", default_value = "table",
          value_parser = PossibleValuesParser::new(WORDS).map(|word| Format::of_table(&word)))]
    pub(crate) format: Format,
}

const WORDS: [&str; 6] = ["table", "wide", "json", "yaml", "name", "csv"];

const COLLECTIVES: [(&str, Collective); 6] = [
    ("all-reduce", Collective::AllReduce),
    ("all-gather", Collective::AllGather),
    ("reduce-scatter", Collective::ReduceScatter),
    ("all-to-all", Collective::AllToAll),
    ("broadcast", Collective::Broadcast),
    ("send-recv", Collective::PointToPoint),
];

fn collective(word: &str) -> Collective {
    let known = COLLECTIVES.iter().find(|(name, _)| *name == word);
    known.map_or(Collective::AllReduce, |(_, collective)| *collective)
}

/// The word of a collective here.
pub(crate) fn word(collective: Collective) -> &'static str {
    COLLECTIVES.iter().find(|(_, known)| *known == collective).map_or("", |(word, _)| word)
}

/// One size, or a sweep from the first to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    pub(crate) first: u64,
    pub(crate) last: u64,
}

impl Sizes {
    /// Without sizes: from where latency is most of the time to where it is none.
    pub(crate) const USUAL: Self = Self { first: 1 << 20, last: 8 << 30 };

    /// All sizes of the sweep; the last is there only if the factor meets it, as in nccl-tests.
    pub(crate) fn each(self, factor: u32) -> impl Iterator<Item = u64> {
        let next = move |size: &u64| size.checked_mul(u64::from(factor.max(2)));
        std::iter::successors(Some(self.first), next).take_while(move |size| *size <= self.last)
    }
}

fn sizes(text: &str) -> Result<Sizes, String> {
    let size = |text: &str| {
        let bytes = parse_memory(text).map_err(|e| e.to_string())?;
        match bytes {
            0 => Err("a message of 0 bytes takes no time to send; expected a size such as 1GiB".to_owned()),
            1..=BYTES_MAX => Ok(bytes),
            _ => Err(format!("expected at most {}", format_memory(BYTES_MAX))),
        }
    };
    let Some((first, last)) = text.split_once("..") else {
        let one = size(text)?;
        return Ok(Sizes { first: one, last: one });
    };
    let sweep = Sizes { first: size(first)?, last: size(last)? };
    if sweep.first > sweep.last {
        return Err(
            "the sweep ends before it begins; expected the smallest size first: 8MiB..8GiB".to_owned()
        );
    }
    Ok(sweep)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sweeps_are_those_of_nccl_tests() {
        let all = |text: &str, factor| sizes(text).map(|sizes| sizes.each(factor).collect::<Vec<_>>());
        assert_eq!(all("1GiB", 2), Ok(vec![1 << 30]));
        assert_eq!(all("8..64", 2), Ok(vec![8, 16, 32, 64]));
        assert_eq!(all("1KiB..1MiB", 32), Ok(vec![1 << 10, 1 << 15, 1 << 20]));
        assert_eq!(all("1MB..3MB", 2), Ok(vec![1_000_000, 2_000_000]));
        for bad in ["0", "", "8GiB..8MiB", "..1GiB", "1GiB..", "1G", "9999TiB", "0..1GiB", "-1"] {
            assert!(all(bad, 2).is_err(), "{bad}");
        }
        assert!(Sizes { first: 1, last: u64::MAX }.each(1).count() <= 64, "the largest ends a sweep");
    }

    #[test]
    fn every_collective_has_a_word() {
        assert!(Collective::ALL.iter().all(|one| collective(word(*one)) == *one));
    }
}

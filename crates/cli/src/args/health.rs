//! What can be typed after `health`.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{ArgGroup, Args, Subcommand};
use clap_complete::ArgValueCompleter;
use phalanx_model::{Grade, NodeName};

use super::{Either, Reach};
use crate::complete;

#[derive(Debug, Args)]
pub(crate) struct Health {
    #[command(subcommand)]
    pub(crate) act: Option<HealthAct>,
    /// Only this node, with all evidence and the last samples of its GPUs.
    #[arg(add = ArgValueCompleter::new(complete::nodes))]
    pub(crate) node: Option<String>,
    #[command(flatten)]
    reach: Reach,
}

impl Health {
    pub(crate) fn reach(&self) -> &Reach {
        match &self.act {
            Some(HealthAct::Report(asked)) => &asked.reach,
            Some(HealthAct::Clear(asked)) => &asked.reach,
            None => &self.reach,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum HealthAct {
    /// Report evidence about a node or a GPU, which decides what becomes of it.
    Report(Either<HealthReportOf>),
    /// Say that a node or a GPU is repaired: it takes work again, and is watched for a day.
    Clear(Either<HealthClear>),
}

#[derive(Debug, Args)]
pub(crate) struct HealthClear {
    /// Node, or one of its GPUs: `gpu-1`, `gpu-1:3`.
    #[arg(value_name = "NODE[:GPU]", value_parser = hardware, add = ArgValueCompleter::new(complete::nodes))]
    pub(crate) what: Hardware,
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("finding").required(true).args(["grade", "xid", "bandwidth"])))]
pub(crate) struct HealthReportOf {
    /// Node, or one of its GPUs: `gpu-1`, `gpu-1:3`.
    #[arg(value_name = "NODE[:GPU]", value_parser = hardware, add = ArgValueCompleter::new(complete::nodes))]
    pub(crate) what: Hardware,
    /// Grade until it is cleared.
    #[arg(long, value_name = "GRADE",
          value_parser = PossibleValuesParser::new(Grade::ALL.map(Grade::word)).map(|word| grade(&word)))]
    pub(crate) grade: Option<Grade>,
    /// Number of an Xid that NVIDIA's driver reported; the table of Xids says what follows.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) xid: Option<u32>,
    /// Share of its bandwidth that the network of a node was measured to have, such as 40%: gangs of several nodes prefer other
    /// nodes for an hour, less and less.
    #[arg(long, value_name = "PERCENT", value_parser = share)]
    pub(crate) bandwidth: Option<u16>,
    /// What was seen.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub(crate) reason: String,
}

/// A node, or one of its devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hardware {
    pub(crate) node: NodeName,
    pub(crate) device: Option<u32>,
}

fn grade(word: &str) -> Grade {
    Grade::of_word(word).unwrap_or_default()
}

/// `40%` as thousandths.
fn share(text: &str) -> Result<u16, String> {
    let percent: Option<u16> = text.strip_suffix('%').unwrap_or(text).parse().ok();
    let percent = percent.filter(|percent| (1..=100).contains(percent));
    percent.map(|percent| percent * 10).ok_or_else(|| "expected 1% to 100%".to_owned())
}

fn hardware(text: &str) -> Result<Hardware, String> {
    let (node, device) = match text.rsplit_once(':') {
        Some((node, device)) => {
            let device = device.parse().map_err(|_| format!("expected a number of a GPU after `{node}:`"))?;
            (node, Some(device))
        }
        None => (text, None),
    };
    let node = NodeName::new(node).map_err(|e| e.to_string())?;
    Ok(Hardware { node, device })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hardware_is_a_node_or_one_of_its_gpus() {
        let of = |text: &str| hardware(text).map(|of| (of.node.to_string(), of.device));
        assert_eq!(of("gpu-1"), Ok(("gpu-1".to_owned(), None)));
        assert_eq!(of("gpu-1:3"), Ok(("gpu-1".to_owned(), Some(3))));
        assert_eq!(of("gpu-1:x"), Err("expected a number of a GPU after `gpu-1:`".to_owned()));
        assert!(of(":3").is_err() && of("gpu-1:-1").is_err());
    }

    #[test]
    fn a_bandwidth_is_a_share_of_the_nominal_one() {
        assert_eq!([share("40%"), share("100")], [Ok(400), Ok(1_000)]);
        for bad in ["0%", "101%", "-1%", "half", "%"] {
            assert_eq!(share(bad), Err("expected 1% to 100%".to_owned()), "{bad}");
        }
    }
}

//! Readers of the public all-reduce and all-gather tables. What a table does not say of its hardware stands in
//! [`CURVES`], in words that anyone can check against the text beside the table.

use std::path::Path;

use phalanx_cost::measurements::{Measurement, Site, bus_factor};
use phalanx_cost::{Collective, Network};

/// One curve: times over message sizes on one hardware.
pub(crate) struct Curve {
    pub(crate) name: &'static str,
    pub(crate) file: &'static str,
    pub(crate) collective: Collective,
    pub(crate) measurements: Vec<Measurement>,
}

struct Facts {
    name: &'static str,
    file: &'static str,
    /// The n-th table of the file, or for a table of bandwidths by payload the n-th column after the payload.
    table: usize,
    format: Format,
    collective: Collective,
    hardware: &'static str,
    nodes: u32,
    nic_gigabits: u32,
    network: Network,
    /// Measured through a framework, or with one process for all devices.
    is_framework: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    /// `| 64MiB | 84.90GBps | ...`: bus bandwidth by payload.
    Payload,
    /// `size time algbw busbw`, digits grouped by underscores.
    Short,
    /// As nccl-tests prints it: size, count, type, redop, root, time, ...
    NcclTests,
}

const ONE: Facts = Facts {
    name: "",
    file: "",
    table: 0,
    format: Format::NcclTests,
    collective: Collective::AllReduce,
    hardware: "H100",
    nodes: 2,
    nic_gigabits: 0,
    network: Network::Verbs,
    is_framework: false,
};

const CURVES: [Facts; 11] = [
    Facts {
        name: "A100, 1 node",
        file: "a100-8gpu-1node-allreduce.txt",
        format: Format::Short,
        hardware: "A100",
        nodes: 1,
        is_framework: true,
        ..ONE
    },
    // The fabric is not named. The curve ends at 92 GB/s, so 4 x 200G (100 GB/s) is assumed.
    Facts {
        name: "A100, 4 nodes, network unnamed",
        file: "a100-4node-allreduce-unlabelled.md",
        format: Format::Payload,
        hardware: "A100",
        nodes: 4,
        nic_gigabits: 800,
        is_framework: true,
        ..ONE
    },
    Facts {
        name: "A100 p4de, 2 nodes, 4 x 100G EFA",
        file: "aws-p4de-p5-2node-allreduce.txt",
        hardware: "A100",
        nic_gigabits: 400,
        network: Network::Efa100,
        ..ONE
    },
    Facts {
        name: "H100 p5, 2 nodes, 3.2T EFA",
        file: "aws-p4de-p5-2node-allreduce.txt",
        table: 1,
        nic_gigabits: 3200,
        network: Network::Efa,
        ..ONE
    },
    Facts {
        name: "B200, 1 node",
        file: "b200-1node-4node-allreduce.md",
        format: Format::Payload,
        hardware: "B200",
        nodes: 1,
        is_framework: true,
        ..ONE
    },
    Facts {
        name: "B200, 4 nodes, 3.2T EFA",
        file: "b200-1node-4node-allreduce.md",
        table: 1,
        format: Format::Payload,
        hardware: "B200",
        nodes: 4,
        nic_gigabits: 3200,
        network: Network::Efa,
        is_framework: true,
        ..ONE
    },
    Facts {
        name: "H200, 1 node",
        file: "h200-8gpu-1node-allreduce.md",
        format: Format::Payload,
        hardware: "H200",
        nodes: 1,
        is_framework: true,
        ..ONE
    },
    // The GPU is not named: H100 or H200.
    Facts {
        name: "H100 or H200, 2 nodes, 3.2T InfiniBand",
        file: "nebius-2node-allreduce.txt",
        nic_gigabits: 3200,
        ..ONE
    },
    Facts {
        name: "MI300X, 2 nodes, 3.2T RoCE",
        file: "oci-mi300x-2node-allreduce.txt",
        hardware: "MI300X",
        nic_gigabits: 3200,
        ..ONE
    },
    Facts {
        name: "H100 A3 High, 2 nodes, 4 x 200G TCPX",
        file: "gcp-a3high.txt",
        collective: Collective::AllGather,
        nic_gigabits: 800,
        network: Network::Tcpx,
        ..ONE
    },
    Facts {
        name: "H100 A3 Mega, 2 nodes, 8 x 200G TCPXO",
        file: "gcp-a3mega-allgather.txt",
        collective: Collective::AllGather,
        nic_gigabits: 1600,
        network: Network::Tcpxo,
        ..ONE
    },
];

pub(crate) fn read(measured: &Path) -> Result<Vec<Curve>, String> {
    CURVES.iter().map(|facts| facts.read(&measured.join("nccl_tests"))).collect()
}

impl Facts {
    fn read(&self, folder: &Path) -> Result<Curve, String> {
        let path = folder.join(self.file);
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let ranks = 8 * self.nodes;
        let points: Vec<(u64, f64)> = match self.format {
            Format::Payload => text.lines().filter_map(|line| payload(line, self.table)).collect::<Vec<_>>(),
            Format::Short => text.lines().filter_map(short).collect(),
            Format::NcclTests => nccl_tests(&text).into_iter().nth(self.table).unwrap_or_default(),
        };
        if points.is_empty() {
            return Err(format!("{}: no table of {:?} was found", path.display(), self.name));
        }
        let site = Site {
            hardware: self.hardware,
            link: "",
            nodes: self.nodes,
            per_node: 8,
            nic_mb: f64::from(self.nic_gigabits) * 125.0,
            network: self.network,
        };
        let span = site.span().ok_or("a link is not known")?;
        let factor = bus_factor(self.collective, ranks);
        let measurements = points.into_iter().map(|(bytes, value)| Measurement {
            collective: self.collective,
            bytes,
            span,
            setup: self.name.to_owned(),
            is_framework: self.is_framework,
            ns: if self.format == Format::Payload { as_f64(bytes) / value * factor } else { value * 1e3 },
        });
        Ok(Curve {
            name: self.name,
            file: self.file,
            collective: self.collective,
            measurements: measurements.collect(),
        })
    }
}

/// Bytes and bus bandwidth in GB/s.
fn payload(line: &str, column: usize) -> Option<(u64, f64)> {
    let mut cells = line.trim().strip_prefix('|')?.split('|').map(str::trim);
    let size = cells.next()?;
    let at = size.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = size.split_at_checked(at)?;
    let shift = match unit {
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        _ => return None,
    };
    let bytes = number.parse::<u64>().ok()? << shift;
    let busbw = cells.nth(column)?.strip_suffix("GBps")?.parse().ok().filter(|gb: &f64| *gb > 0.0)?;
    Some((bytes, busbw))
}

/// Bytes and time in microseconds.
fn short(line: &str) -> Option<(u64, f64)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [size, time, _, _] = words.as_slice() else { return None };
    Some((size.replace('_', "").parse().ok()?, time.parse().ok()?))
}

/// Tables of out-of-place times in microseconds; sizes grow within a table.
fn nccl_tests(text: &str) -> Vec<Vec<(u64, f64)>> {
    let mut tables: Vec<Vec<(u64, f64)>> = Vec::new();
    for line in text.lines() {
        let line = line.trim_start().trim_start_matches("0:");
        let words: Vec<&str> = line.split_whitespace().collect();
        let [size, count, _, _, _, time, ..] = words.as_slice() else { continue };
        let (Ok(size), Ok(_), Ok(time)) = (size.parse::<u64>(), count.parse::<u64>(), time.parse::<f64>())
        else {
            continue;
        };
        match tables.last_mut().filter(|table| table.last().is_some_and(|(last, _)| *last < size)) {
            Some(table) => table.push((size, time)),
            None => tables.push(vec![(size, time)]),
        }
    }
    tables
}

#[expect(clippy::cast_precision_loss, reason = "sizes are far below 2^53")]
pub(crate) fn as_f64(bytes: u64) -> f64 {
    bytes as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_line_is_read() {
        assert_eq!(payload("|  16MiB | 254.96GBps |  64.43GBps | 4.0x |", 1), Some((16 << 20, 64.43)));
        assert_eq!(payload("| payload | busbw |", 0), None);
        assert_eq!(payload("| 32KiB | 0.00GBps |", 0), None, "no bandwidth is no measurement");
        assert_eq!(short("  67_108_864   684.6   98.02  171.54"), Some((67_108_864, 684.6)));
        let text = "0:  8  2 float sum -1 164.3 0.00 0.00 0\n0: 16 4 float sum -1 161.4 0.00 0.00 0\n\
                    # out-of-place\n 8 2 float sum -1 69.12 0.00 0.00 0\n";
        assert_eq!(nccl_tests(text), [vec![(8, 164.3), (16, 161.4)], vec![(8, 69.12)]]);
        assert!(nccl_tests("size count type\n 18446744073709551616 1 float sum -1 1 1").is_empty());
    }

    #[test]
    fn the_public_tables_are_all_there() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/measured");
        if !folder.is_dir() {
            println!("skipped: ../shared/data is not there");
            return;
        }
        let curves = read(&folder).unwrap();
        let points: Vec<usize> = curves.iter().map(|curve| curve.measurements.len()).collect();
        assert_eq!(points, [20, 20, 29, 32, 20, 20, 20, 31, 5, 11, 11]);
        // 16 GiB on 8 A100 in 127,997 us.
        assert!((curves[0].measurements[19].ns - 127_997_000.0).abs() < 1.0);
    }
}

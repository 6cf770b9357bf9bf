//! Reading measurements, and fitting to them.

use proptest::prelude::*;

use crate::calibrate::{Own, Parameter, calibrate, predicted_ns};
use crate::collective::Collective;
use crate::measurements::{Measurement, MeasurementError, parse};
use crate::{Constants, MachineKind, Network};

const GOOD: &str = "\
# measured on a Tuesday
collective,bytes,nodes,gpus_per_node,hardware,nic,launch,busbw
all_reduce,1073741824,2,8,NVIDIA H100 80GB HBM3,8x400G verbs,benchmark,446.21

all_gather, 64MiB , 1,8,A100,-,framework,171.5
";

#[test]
fn a_table_is_read_with_its_words() {
    let read = parse(GOOD).unwrap();
    assert_eq!(read.len(), 2);
    assert_eq!((read[0].bytes, read[0].span.ranks, read[0].span.nodes), (1 << 30, 16, 2));
    assert_eq!(read[0].span.network, Network::Verbs);
    // 2 x 15/16 GiB at 446.21 GB/s.
    assert!((read[0].ns / 4_512_000.0 - 1.0).abs() < 1e-3, "{}", read[0].ns);
    assert_eq!(
        (read[1].bytes, read[1].collective, read[1].is_framework),
        (64 << 20, Collective::AllGather, true)
    );
    let times =
        "time_us,link,nic,hardware,gpus_per_node,nodes,bytes,collective\n5,mesh:4,-,A100,4,1,8,broadcast";
    let read = parse(times).unwrap();
    assert!((read[0].ns - 5_000.0).abs() < 1e-9 && read[0].span.is_direct);
}

#[test]
fn errors_say_where_and_what_to_write() {
    let header = "collective,bytes,nodes,gpus_per_node,hardware,nic,busbw\n";
    let cases = [
        ("", "line 1, column 1: the file is empty; begin with a header"),
        ("colective,bytes\n", "line 1, column 1: no column is called `colective`"),
        ("collective,bytes,bytes\n", "line 1, column 18: the column bytes stands there twice"),
        (
            "collective,bytes,nodes,gpus_per_node,hardware,nic\n",
            "line 1, column 1: a column time_us or busbw is missing",
        ),
        ("all_reduce,1,1,8,A100,-\n", "line 2, column 23: 6 fields, but the header has 7"),
        ("all_reduce,1k,1,8,A100,-,5\n", "line 2, column 12: bytes is `1k`; write a number, or one with KiB"),
        ("all_reduce,1, 0,8,A100,-,5\n", "line 2, column 15: nodes is `0`; write a number from 1"),
        ("all_reduse,1,1,8,A100,-,5\n", "line 2, column 1: unknown collective; write all_reduce"),
        ("all_reduce,1,2,8,A100,8x400,5\n", "line 2, column 23: not a set of NICs"),
        ("all_reduce,1,2,8,A100,-,5\n", "line 2, column 23: several nodes need NICs"),
        ("all_reduce,1,1,8,A100,-,nan\n", "line 2, column 25: busbw is `nan`; write a bandwidth in GB/s"),
    ];
    for (text, expected) in cases {
        let whole = if text.starts_with("all") { format!("{header}{text}") } else { text.to_owned() };
        let error: MeasurementError = parse(&whole).unwrap_err();
        assert!(error.to_string().starts_with(expected), "{error}");
    }
}

/// Measurements that the model itself made, with constants that nobody knows.
fn made(constants: &Constants) -> Vec<Measurement> {
    let mut text = "collective,bytes,nodes,gpus_per_node,hardware,nic,launch,time_us\n".to_owned();
    for size in 10..34 {
        for (hardware, nodes, nic, launch) in [
            ("A100", 1, "-", "framework"),
            ("H100", 1, "-", "framework"),
            ("H100", 2, "8x400G", "benchmark"),
            ("A100", 4, "4x200G", "benchmark"),
            ("H100", 16, "8x200G efa", "benchmark"),
        ] {
            text += &format!("all_reduce,{},{nodes},8,{hardware},{nic},{launch},1\n", 1_u64 << size);
        }
    }
    let mut made = parse(&text).unwrap();
    for measurement in &mut made {
        measurement.ns = predicted_ns(measurement, constants);
    }
    made
}

#[test]
fn a_fit_finds_the_constants_that_made_the_measurements() {
    let mut hidden = Constants::PRIOR;
    hidden.ring_share = 0.85;
    hidden.nvls_share = 0.9;
    hidden.launch_ns = 40_000.0;
    hidden.networks.verbs.share = 0.8;
    hidden.networks.efa.share = 0.7;
    let measurements = made(&hidden);
    let fit = calibrate(&measurements, &Constants::PRIOR);
    assert!(fit.error_before > 0.1 && fit.error_after < 0.02, "{} {}", fit.error_before, fit.error_after);
    for parameter in [
        Parameter::Common(Own::RingShare),
        Parameter::OfKind(MachineKind::NvlinkHopper, Own::NvlsShare),
        Parameter::NetworkShare(Network::Efa),
    ] {
        let (found, wanted) = (parameter.get(&fit.constants), parameter.get(&hidden));
        assert!((found / wanted - 1.0).abs() < 0.03, "{}: {found} of {wanted}", parameter.name());
    }
    assert_eq!(fit, calibrate(&measurements, &Constants::PRIOR), "no chance in it");
    let untouched = Parameter::NetworkShare(Network::Tcpx);
    assert!(fit.moved.iter().all(|moved| moved.parameter != untouched), "no measurement speaks of it");
    assert_eq!(calibrate(&[], &hidden).constants, hidden);
}

/// All-reduces on one node of this product, `factor` times as slow as predicted.
fn slow(hardware: &str, shifts: std::ops::Range<u32>, factor: f64) -> Vec<Measurement> {
    let mut text = "collective,bytes,nodes,gpus_per_node,hardware,nic,time_us\n".to_owned();
    for shift in shifts {
        text += &format!("all_reduce,{},1,8,{hardware},-,1\n", 1_u64 << shift);
    }
    let mut made = parse(&text).unwrap();
    for measurement in &mut made {
        measurement.ns = predicted_ns(measurement, &Constants::DEFAULT) * factor;
    }
    made
}

#[test]
fn measurements_of_one_kind_of_machine_move_no_other() {
    let fit = calibrate(&slow("A100", 26..34, 2.0), &Constants::DEFAULT);
    let ampere = Parameter::OfKind(MachineKind::NvlinkAmpere, Own::RingShare);
    assert!(ampere.get(&fit.constants) < 0.6, "{fit:?}");
    let others = Constants { kinds: crate::Kinds::NONE, ..fit.constants };
    assert_eq!(others, Constants::DEFAULT, "what all kinds have stays");
    for other in slow("H100", 26..34, 1.0).iter().chain(&slow("V100", 26..34, 1.0)) {
        assert!((predicted_ns(other, &fit.constants) / other.ns - 1.0).abs() < 1e-12, "{other:?}");
    }
    // Two kinds that agree move what all kinds have, and a site that was fitted before keeps what is its own.
    let both = [slow("A100", 26..34, 1.3), slow("V100", 26..34, 1.3)].concat();
    let common = calibrate(&both, &Constants::DEFAULT);
    assert!(common.constants.kinds.is_empty() && common.constants.ring_share < 0.9, "{common:?}");
    let again = calibrate(&slow("A100", 26..34, 3.0), &fit.constants);
    assert!(ampere.get(&again.constants) < ampere.get(&fit.constants), "{again:?}");
    assert_eq!(again.constants.ring_share, Constants::DEFAULT.ring_share);
}

#[test]
fn a_constant_moves_by_enough_sizes_and_says_how_many_it_has() {
    let kept = |measurements: &[Measurement]| {
        let fit = calibrate(measurements, &Constants::DEFAULT);
        let ring = |parameter: Parameter| parameter.name().ends_with("ring_share");
        let moved = fit.moved.iter().filter(|moved| ring(moved.parameter)).count();
        (moved, fit.kept.iter().find(|kept| ring(kept.parameter)).map(|kept| (kept.sizes, kept.needs)))
    };
    let two = slow("A100", 30..32, 2.0);
    assert_eq!(kept(&two), (0, Some((2, 3))));
    assert_eq!(kept(&[two.clone(), two.clone(), two].concat()), (0, Some((2, 3))), "repeats say no more");
    assert_eq!(kept(&slow("A100", 30..33, 2.0)), (1, None));
    assert_eq!(kept(&slow("A100", 3..9, 2.0)), (0, Some((0, 3))), "small messages tell no bandwidth");
}

proptest! {
    /// Cut, changed and repeated text: an answer, and errors that point into the text.
    #[test]
    fn no_text_breaks_the_reader(
        at in 0..GOOD.len(), to in 0..GOOD.len(), with in "[,\\n0-9a-zA-Zé#.x-]{0,6}", twice in any::<bool>(),
    ) {
        let (from, to) = (at.min(to), at.max(to));
        let mut text: String = GOOD.chars().take(from).collect();
        text += &with;
        text.extend(GOOD.chars().skip(to));
        if twice {
            text = format!("{text}{text}");
        }
        match parse(&text) {
            Ok(read) => prop_assert!(read.iter().all(|m| m.ns.is_finite() && m.ns > 0.0)),
            Err(error) => {
                let line = text.lines().nth(error.line - 1).unwrap_or("");
                prop_assert!(error.column <= line.chars().count() + 1, "{}", error);
            }
        }
    }
}

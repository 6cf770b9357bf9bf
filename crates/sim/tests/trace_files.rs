//! The public traces, read in place where they are: as many jobs as their publishers count, and no bad row.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};

use phalanx_sim::trace::{Format, Trace};

/// Where the traces lie beside the project.
fn folder() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(3)?.join("shared/data/traces");
    if root.is_dir() {
        return Some(root);
    }
    println!("skipped: ../shared/data is not there");
    None
}

/// Read with nothing but its name and its text, as a user would.
fn read(path: &Path, format: Format) -> Trace {
    let text = std::fs::read(path).unwrap();
    let (found, trace) = Format::read_any(path.to_str().unwrap(), &text).unwrap();
    assert_eq!(found, format, "{}", path.display());
    assert_eq!(trace.bad, [], "{}", path.display());
    assert_eq!(trace.rows, trace.jobs.len() as u64);
    trace
}

fn jobs(path: &Path, format: Format) -> usize {
    read(path, format).jobs.len()
}

#[test]
fn philly_as_its_readme_counts_it() {
    let Some(folder) = folder() else { return };
    let trace = read(&folder.join("philly/philly_pollux.csv"), Format::Philly);
    let summary = trace.summary();
    assert_eq!(
        (summary.jobs, summary.gpu_seconds.map(|s| s / 3_600), summary.queues),
        (82_247, Some(978_078), 15)
    );
    let shown = summary.to_string();
    assert!(shown.contains("from 2017-09-04"), "{shown}");
}

#[test]
fn elasticflow_as_its_readme_counts_it() {
    let Some(folder) = folder() else { return };
    for (cluster, count) in [("01", 1_595), ("02", 5_778), ("03", 3_011), ("04", 15_802), ("05", 3_629)] {
        let raw =
            read(&folder.join(format!("elasticflow_itp/raw/cluster{cluster}.csv")), Format::ElasticFlow);
        let derived =
            read(&folder.join(format!("elasticflow_itp/derived/cluster{cluster}.csv")), Format::ElasticFlow);
        assert_eq!((raw.jobs.len(), derived.jobs.len()), (count, count));
        assert_eq!((raw.generated.len(), derived.generated.len()), (0, 4));
        if cluster == "04" {
            // Of 494.56, as published: 495.
            assert_eq!(raw.summary().mean_load_milli_gpus, Some(494_558));
        }
    }
}

#[test]
fn openb_as_its_readme_counts_it() {
    let Some(folder) = folder() else { return };
    let counts = [
        ("default", 8_152),
        ("gpushare40", 8_152),
        ("gpushare100", 8_152),
        ("gpuspec10", 8_152),
        ("gpuspec33", 8_152),
        ("cpu050", 7_439),
        ("cpu100", 7_853),
        ("cpu250", 9_420),
        ("multigpu20", 8_324),
        ("multigpu50", 9_061),
    ];
    for (list, count) in counts {
        assert_eq!(
            jobs(&folder.join(format!("openb/openb_pod_list_{list}.csv")), Format::Openb),
            count,
            "{list}"
        );
    }
}

#[test]
fn muri_and_tiresias_as_their_readmes_count_them() {
    let Some(folder) = folder() else { return };
    for (trace, count) in [("1", 1_494), ("2", 5_755), ("3", 992), ("4", 2_638)] {
        let plain = read(&folder.join(format!("muri/trace{trace}.csv")), Format::Muri);
        assert_eq!(plain.jobs.len(), count);
        for job in &plain.jobs {
            let training = job.training.as_ref().unwrap();
            let sum_ms = training.steps.unwrap() * training.step_us.unwrap() / 1_000;
            // Iterations were cut to whole ones.
            assert!(job.run_ms.unwrap().abs_diff(sum_ms) * 100 <= sum_ms.max(100_000), "{job:?}");
        }
        let at_once = read(&folder.join(format!("muri/trace{trace}_pr.csv")), Format::Muri);
        assert_eq!((at_once.jobs.len(), at_once.summary().span_ms), (count, 0));
    }
    assert_eq!(jobs(&folder.join("tiresias/60_job.csv"), Format::Tiresias), 60);
}

#[test]
fn gavel_shockwave_and_pollux_as_their_readmes_count_them() {
    let Some(folder) = folder() else { return };
    let mut sum = 0;
    let clusters: Vec<_> = std::fs::read_dir(folder.join("gavel/msr_seed0")).unwrap().collect();
    assert_eq!(clusters.len(), 15);
    for cluster in clusters {
        sum += jobs(&cluster.unwrap().path(), Format::Gavel);
    }
    assert_eq!(sum, 15_264);
    let mut found: Vec<usize> = Vec::new();
    for file in std::fs::read_dir(folder.join("shockwave")).unwrap().map(|file| file.unwrap().path()) {
        if file.extension().is_some_and(|extension| extension == "trace") {
            found.push(jobs(&file, Format::Shockwave));
        }
    }
    found.sort_unstable();
    assert_eq!(found, [120, 220, 460, 900, 900]);
    for (suffix, count) in [("-0.5", 80), ("", 160), ("-1.5", 240), ("-2.0", 320)] {
        for workload in 1..=8 {
            let file = folder.join(format!("pollux/workloads{suffix}/workload-{workload}.csv"));
            assert_eq!(jobs(&file, Format::Pollux), count);
        }
    }
}

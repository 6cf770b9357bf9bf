//! Our own formats keep what they are given, and no reader falls over what it is given.

#![allow(clippy::unwrap_used, reason = "tests")]

use phalanx_sim::trace::{
    BatchMode, Ended, Format, Selection, Trace, TraceJob, Training, write_csv, write_jsonl,
};
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;

/// Names with all that a table must quote.
fn name() -> impl Strategy<Value = String> {
    "[a-z0-9\",;#{é\t ]{0,6}[a-z0-9]".prop_map(|text| text.trim().to_owned())
}

fn time() -> impl Strategy<Value = u64> {
    0..=100_000_000_000_000_u64
}

fn training() -> impl Strategy<Value = Training> {
    let batch = prop_oneof![Just(BatchMode::Static), Just(BatchMode::Accordion), Just(BatchMode::Gns)];
    (name(), of(any::<u32>()), of(any::<u64>()), of(any::<u64>()), batch).prop_map(
        |(model, batch_size, steps, step_us, batch)| Training { model, batch_size, steps, step_us, batch },
    )
}

fn job() -> impl Strategy<Value = TraceJob> {
    let ended = prop_oneof![Just(Ended::Completed), Just(Ended::Failed), Just(Ended::Cancelled)];
    let who = (of(name()), of(name()), vec(name(), 0..3));
    let times = (time(), of(time()), of(time()), of(time()), of(time()));
    let what = (0..=1_u32 << 20, 1..=1_000_u32, of(any::<u32>()), of(any::<u64>()), of(any::<u64>()));
    (who, times, what, of(any::<i32>()), of(ended), of(training())).prop_map(
        |(who, times, what, priority, ended, training)| {
            let (submit_ms, run_ms, waited_ms, limit_ms, deadline_ms) = times;
            let (gpus, gpu_milli, nodes, cpu_milli, memory_bytes) = what;
            TraceJob {
                row: 0,
                id: String::new(),
                user: who.0,
                queue: who.1,
                submit_ms,
                run_ms,
                waited_ms,
                limit_ms,
                deadline_ms,
                gpus,
                gpu_milli,
                gpu_models: who.2,
                nodes,
                cpu_milli,
                memory_bytes,
                priority,
                ended,
                training,
            }
        },
    )
}

fn trace() -> impl Strategy<Value = Trace> {
    vec(job(), 1..20).prop_map(|mut jobs| {
        jobs.sort_by_key(|job| job.submit_ms);
        (0..).zip(&mut jobs).for_each(|(at, job): (u32, _)| job.id = format!("job \"{at}\", one"));
        Trace { rows: jobs.len() as u64, jobs, ..Trace::default() }
    })
}

/// As it was written, but for the rows.
fn without_rows(mut trace: Trace) -> Trace {
    trace.jobs.iter_mut().for_each(|job| job.row = 0);
    trace
}

/// Texts that look like traces: the beginnings of each format, cells of every kind, and what separates them.
fn likely() -> impl Strategy<Value = Vec<u8>> {
    const HEADERS: &[&str] = &[
        "timestamp,duration,num_gpus,gpu_time,cluster\n",
        "job_id,submission_time,duration,num_gpu,deadline,model_name,batch_size,num_iteration\n",
        "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n",
        "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,queue,gpu_time\n",
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n",
        "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,iteration_time\n",
        "name,time,application,num_replicas,batch_size\n",
        "JobID|Submit|Start|Elapsed|Timelimit|State|AllocTRES\n",
        "id,submit_ms,gpus,run_ms,gpu_models,ended,model\n",
        "",
    ];
    const CELLS: &[&str] = &[
        "",
        "0",
        "-1",
        "1",
        "4.0",
        "1e9",
        "99999999999999999999",
        "2017-10-03 00:00:00",
        "2026-01-01T00:00:00+01:00",
        "1-02:03:04",
        "gres/gpu=4,mem=1.5T,cpu=",
        "COMPLETED",
        "Terminated",
        "LM (batch size 10)",
        "gns",
        "\"",
        "é",
        "x",
        "{\"id\":\"a\",\"submit_ms\":0,\"gpus\":1}",
        "; UnixStartTime: 5",
    ];
    const SEPARATORS: &[&str] = &[",", ",", ",", "|", "\t", " ", "\n", "\n", "\r\n"];
    let cells = vec((prop::sample::select(CELLS), prop::sample::select(SEPARATORS)), 0..60);
    (prop::sample::select(HEADERS), cells).prop_map(|(header, cells)| {
        let cells = cells.into_iter().flat_map(|(cell, separator)| [cell, separator]);
        [header].into_iter().chain(cells).collect::<String>().into_bytes()
    })
}

fn read_all(text: &[u8]) -> Result<(), TestCaseError> {
    let _ = Format::read_any("x", text);
    for format in Format::ALL {
        let Ok(trace) = format.read(text) else { continue };
        prop_assert!(trace.rows >= (trace.jobs.len() + trace.bad.len()) as u64 || format == Format::Pai);
        prop_assert!(trace.jobs.is_sorted_by_key(|job| job.submit_ms));
        let _ = trace.summary().to_string();
        let selection = Selection { load_milli: 1, cpus_are_gpus: true, ..Selection::default() };
        prop_assert_eq!(selection.apply(trace.clone()).map(|trace| trace.jobs.len()), Ok(trace.jobs.len()));
        // What any reader makes of a file can be kept in our own formats.
        let mut written = Vec::new();
        write_csv(&trace, &mut written).unwrap();
        prop_assert_eq!(without_rows(Format::Csv.read(&written).unwrap()).jobs, without_rows(trace).jobs);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn our_own_formats_keep_every_job(trace in trace()) {
        for (format, write) in [(Format::Csv, true), (Format::Jsonl, false)] {
            let mut written = Vec::new();
            if write { write_csv(&trace, &mut written) } else { write_jsonl(&trace, &mut written) }.unwrap();
            prop_assert_eq!(Format::guess("x", &written), Some(format));
            let read = without_rows(format.read(&written).unwrap());
            prop_assert_eq!(&read, &trace);
        }
    }

    #[test]
    fn no_reader_falls_over_any_bytes(text in vec(any::<u8>(), 0..400)) {
        read_all(&text)?;
    }

    #[test]
    fn no_reader_falls_over_what_looks_like_a_trace(text in likely()) {
        read_all(&text)?;
    }
}

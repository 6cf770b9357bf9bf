//! Readers of traces: what each makes of a few rows, and what it says of bad ones.

#![allow(clippy::unwrap_used, reason = "tests")]

use phalanx_sim::trace::{Format, Trace, TraceError, pai, write_csv, write_jsonl};

/// Jobs as lines of JSON, bad rows behind them.
fn shown(trace: &Trace) -> String {
    let mut out = Vec::new();
    write_jsonl(trace, &mut out).unwrap();
    let bad = trace.bad.iter().map(|bad| format!("bad {bad}\n"));
    String::from_utf8(out).unwrap() + &bad.collect::<String>()
}

/// Reads as the format that the text itself tells, which must be the one named.
fn read(format: Format, file: &str, text: &str) -> Trace {
    assert_eq!(Format::guess(file, text.as_bytes()), Some(format), "{file}");
    let (found, trace) = Format::read_any(file, text.as_bytes()).unwrap();
    assert_eq!(found, format);
    trace
}

#[track_caller]
fn check(format: Format, file: &str, text: &str, expected: &str) {
    let trace = read(format, file, text);
    assert_eq!(shown(&trace).trim(), expected.trim());
    assert_eq!(trace.jobs.len() + trace.bad.len(), usize::try_from(trace.rows).unwrap());
}

#[test]
fn philly_has_dates_and_virtual_clusters() {
    let text = "\
timestamp,duration,num_gpus,gpu_time,cluster
2017-10-03 00:00:10,90.5,8,724.0,aaaa

2017-10-03 00:00:00,60.0,1,60.0,bbbb
2017-10-03 25:00:00,60.0,1,60.0,bbbb
2017-10-03 00:00:20,60.0,-1,60.0,bbbb
";
    check(
        Format::Philly,
        "jobs.csv",
        text,
        r#"
{"id":"4","queue":"bbbb","submit_ms":0,"run_ms":60000,"gpus":1}
{"id":"2","queue":"aaaa","submit_ms":10000,"run_ms":90500,"gpus":8}
bad row 5: timestamp: "2017-10-03 25:00:00" is no date such as 2017-10-09 07:01:55
bad row 6: num_gpus: "-1" is no number of zero or more
"#,
    );
    assert_eq!(read(Format::Philly, "", text).start_unix_ms, Some(1_506_988_800_000));
}

#[test]
fn elasticflow_raw_is_measured_and_derived_is_partly_generated() {
    check(
        Format::ElasticFlow,
        "cluster09.csv",
        "job_id,submission_time,duration,num_gpu\nx-1,1005,30,4\nx-2,1000,60,1",
        r#"
{"id":"x-2","submit_ms":0,"run_ms":60000,"gpus":1}
{"id":"x-1","submit_ms":5000,"run_ms":30000,"gpus":4}
"#,
    );
    let derived = "\
job_id,submission_time,num_iteration,model_name,deadline,batch_size,num_gpu,duration
x-1,1000,500,bert,1090,64,4,30
";
    check(
        Format::ElasticFlow,
        "cluster09.csv",
        derived,
        r#"{"id":"x-1","submit_ms":0,"run_ms":30000,"deadline_ms":90000,"gpus":4,"model":"bert","batch_size":64,"steps":500}"#,
    );
    let generated = read(Format::ElasticFlow, "", derived).generated;
    assert_eq!(generated, ["model_name", "batch_size", "num_iteration", "deadline"]);
}

#[test]
fn helios_has_states_and_waits() {
    check(
        Format::Helios,
        "cluster_log.csv",
        "\
job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
7,uA,vcB,8,16,1,COMPLETED,2020-06-01 00:00:00,2020-06-01 00:00:05,2020-06-01 00:01:05,60,5
8,uA,vcB,0,4,1,CANCELLED,2020-06-01 00:00:01,2020-06-01 00:00:01,2020-06-01 00:00:02,1,0
9,uA,vcB,2,4,1,TIMEOUT,2020-06-01 00:00:02,2020-06-01 00:00:02,2020-06-01 00:00:03,one,0
",
        r#"
{"id":"7","user":"uA","queue":"vcB","submit_ms":0,"run_ms":60000,"waited_ms":5000,"gpus":8,"nodes":1,"cpu_milli":16000,"ended":"completed"}
{"id":"8","user":"uA","queue":"vcB","submit_ms":1000,"run_ms":1000,"waited_ms":0,"gpus":0,"nodes":1,"cpu_milli":4000,"ended":"cancelled"}
bad row 4: duration: "one" is no number of zero or more
"#,
    );
}

#[test]
fn acme_runs_from_start_to_end_whatever_its_duration_says() {
    check(
        Format::Acme,
        "trace_kalos.csv",
        "\
job_id,user,node_num,gpu_num,cpu_num,mem_per_pod_GB,shared_mem_per_pod,type,state,submit_time,start_time,end_time,fail_time,stop_time,duration,queue,gpu_time
dlc1,u1,2,16,240,1000,100.0,Pretrain,FAILED,2023-05-17 11:00:00+00:00,2023-05-17 11:00:10+00:00,2023-05-17 11:01:00+00:00,2023-05-17 11:01:00+00:00,,60,10.0,960.0
dlc2,u1,1,8,120,1000,100.0,Other,CANCELLED,2023-05-17 19:00:30+08:00,,,,,,,
dlc3,u1,1,8,120,1000,100.0,Other,FAILED,2023-05-17 11:00:30+00:00,2023-05-17 11:01:10+00:00,2023-05-17 11:01:00+00:00,,,,,
",
        r#"
{"id":"dlc1","user":"u1","queue":"Pretrain","submit_ms":0,"run_ms":50000,"waited_ms":10000,"gpus":16,"nodes":2,"cpu_milli":240000,"ended":"failed"}
{"id":"dlc2","user":"u1","queue":"Other","submit_ms":30000,"gpus":8,"nodes":1,"cpu_milli":120000,"ended":"cancelled"}
bad row 4: end_time: is before the start
"#,
    );
}

const PAI_TASKS: &str = "\
j1,ps,1.0,Terminated,1000.0,1100.0,600.0,1.5,0.0,
j1,worker,2.0,Terminated,1005.0,1200.0,400.0,2.0,50.0,T4
j2,worker,4.0,Failed,1050.0,1060.0,800.0,10.0,200.0,V100
j3,worker,1.0,Waiting,,,800.0,10.0,100.0,V100
j4,worker,1.0,Running,1070.0,,800.0,,100.0,MISC
";

#[test]
fn pai_joins_the_tasks_of_a_job() {
    let trace = read(Format::Pai, "pai_task_table.csv", PAI_TASKS);
    assert_eq!(trace.rows, 5);
    let expected = r#"
{"id":"j1","submit_ms":0,"run_ms":200000,"gpus":2,"gpu_milli":500,"gpu_models":["T4"],"cpu_milli":14000,"memory_bytes":5905580032,"ended":"completed"}
{"id":"j2","submit_ms":50000,"run_ms":10000,"gpus":8,"gpu_models":["V100"],"cpu_milli":32000,"memory_bytes":42949672960,"ended":"failed"}
{"id":"j4","submit_ms":70000,"gpus":1,"gpu_models":["MISC"],"cpu_milli":8000,"memory_bytes":0}
bad row 4: start_time: is empty
"#;
    assert_eq!(shown(&trace).trim(), expected.trim());
}

#[test]
fn pai_takes_users_and_submissions_from_the_table_of_jobs() {
    let jobs = "j1,i1,user-a,Terminated,990.0,1200.0\nj2,i2,user-b,Failed,,1060.0\n";
    assert_eq!(Format::Pai.read(jobs.as_bytes()), Err(TraceError::PaiJobs));
    let trace = pai::read(PAI_TASKS.as_bytes(), Some(jobs.as_bytes())).unwrap();
    let first = &trace.jobs[0];
    assert_eq!((first.user.as_deref(), first.submit_ms, first.waited_ms), (Some("user-a"), 0, Some(10_000)));
    assert_eq!(trace.bad[0].to_string(), "row 2: start_time: is empty (in the table of jobs)");
}

#[test]
fn openb_has_parts_of_devices_and_models() {
    check(
        Format::Openb,
        "openb_pod_list_x.csv",
        "\
name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
p-0,6000,1024,1,460,V100M16|V100M32,LS,Succeeded,5,105,15
p-1,6000,1024,0,0,,BE,Pending,6,106,
p-2,6000,1024,1,1460,,BE,Running,7,106,8
p-3,6000,1024,1,1000,,BE,Running,7,106,6
",
        r#"
{"id":"p-0","queue":"LS","submit_ms":0,"run_ms":90000,"waited_ms":10000,"gpus":1,"gpu_milli":460,"gpu_models":["V100M16","V100M32"],"cpu_milli":6000,"memory_bytes":1073741824,"ended":"completed"}
{"id":"p-1","queue":"BE","submit_ms":1000,"gpus":0,"cpu_milli":6000,"memory_bytes":1073741824}
bad row 4: gpu_milli: "1460" is more than a whole device
bad row 5: scheduled_time: "6" is before what comes before it
"#,
    );
    check(
        Format::Openb,
        "openb_pod_list_multigpu20.csv",
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np-0,6000,1,8,1000\n",
        r#"{"id":"p-0","submit_ms":0,"gpus":8,"cpu_milli":6000,"memory_bytes":1048576}"#,
    );
}

#[test]
fn muri_counts_milliseconds_and_tiresias_seconds() {
    check(
        Format::Muri,
        "trace9.csv",
        "\
job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,iteration_time,resource_time_0,resource_time_1,resource_time_2,priority\r
0,4,2000,100,vgg16,16,50000,10,500,1,0.5,2,1\r
",
        r#"{"id":"0","submit_ms":0,"run_ms":50000,"gpus":4,"model":"vgg16","batch_size":16,"steps":100,"step_us":500000}"#,
    );
    check(
        Format::Tiresias,
        "60_job.csv",
        "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\r\n0,4,2,100,vgg16,50,10\r\n1,4,3,100,,50,10\r\n",
        r#"
{"id":"0","submit_ms":0,"run_ms":50000,"gpus":4,"model":"vgg16","steps":100}
bad row 3: model_name: is empty
"#,
    );
}

/// Read as Tiresias's, its minutes were seconds, and it had no deadlines.
#[test]
fn chronus_counts_minutes_and_has_deadlines() {
    check(
        Format::Chronus,
        "trace_job_Philly_MIX2.csv",
        "\
job_id,user,num_gpu,submit_time,iterations,model_name,duration,interval,expect_time_list,expect_value_list,best_effort,job_type
0,vc_1,8,100,7000,vgg16,60,5,90,10,0,strict
1,vc_1,1,101,700,vgg16,6,5,9-15,10-4,0,soft
2,vc_2,0,102,700,alexnet,6,5,102,10,1,best
3,vc_2,1,102,700,alexnet,6,5,soon,10,0,strict
",
        r#"
{"id":"0","user":"vc_1","queue":"vc_1","submit_ms":0,"run_ms":3600000,"deadline_ms":5400000,"gpus":8,"model":"vgg16","steps":7000}
{"id":"1","user":"vc_1","queue":"vc_1","submit_ms":60000,"run_ms":360000,"deadline_ms":600000,"gpus":1,"model":"vgg16","steps":700}
{"id":"2","user":"vc_2","queue":"vc_2","submit_ms":120000,"run_ms":360000,"gpus":0,"model":"alexnet","steps":700}
bad row 5: expect_time_list: "soon" is no number of zero or more
"#,
    );
}

#[test]
fn gavel_says_what_there_is_to_do_and_not_how_long_it_takes() {
    let seven = "ResNet-18 (batch size 32)\tpython3 a, \"b\" | c\t-n\t1\t5000\t7.500000\t2\nA3C\tx\t-n\t0\t10\t9.0\t1\nA3C\tx\t-n\t0\t10\n";
    let expected = r#"
{"id":"1","submit_ms":0,"gpus":2,"model":"ResNet-18","batch_size":32,"steps":5000}
{"id":"2","submit_ms":1500,"gpus":1,"model":"A3C","steps":10}
bad row 3: the row that begins with "A3C" has 5 cells, and 7 are expected
"#;
    check(Format::Gavel, "vc.trace", seven, expected);
    let nine = "A3C\tx\t-n\t0\t10\t4\t1.0\t-1.000000\t9.0\n";
    check(Format::Gavel, "vc.trace", nine, r#"{"id":"1","submit_ms":0,"gpus":4,"model":"A3C","steps":10}"#);
}

#[test]
fn shockwave_has_batch_sizes_that_change() {
    check(
        Format::Shockwave,
        "120.trace",
        "\
LM (batch size 10)\tcmd\tdir\t--steps\t1\t500\t1\tgns\t1\t-1.000000\t1418\t3
LM (batch size 10)\tcmd\tdir\t--steps\t1\t500\t1\tother\t1\t-1.000000\t1418\t3
",
        r#"
{"id":"1","submit_ms":0,"run_ms":1418000,"gpus":1,"model":"LM","batch_size":10,"steps":500,"batch":"gns"}
bad row 2: mode: "other" is none of static, accordion, gns
"#,
    );
}

#[test]
fn pollux_names_applications() {
    check(
        Format::Pollux,
        "workload-9.csv",
        "name,time,application,num_replicas,batch_size\nbert-0,100.25,bert,12,384\nbert-0,101,bert,12,384\n",
        r#"
{"id":"bert-0","submit_ms":0,"gpus":12,"model":"bert","batch_size":384}
bad row 3: a job with the id "bert-0" stands in row 2
"#,
    );
}

#[test]
fn sacct_leaves_out_steps_and_knows_what_did_not_start() {
    check(
        Format::Sacct,
        "jobs.txt",
        "\
JobID|User|Partition|Submit|Start|Elapsed|Timelimit|State|AllocTRES|ReqTRES|NNodes
10|ann|gpu|2026-01-01T00:00:00|2026-01-01T00:01:00|1-00:00:30|2-00:00:00|COMPLETED|billing=8,cpu=16,gres/gpu:a100=4,gres/gpu=4,mem=64G,node=2|cpu=16|2
10.batch|||2026-01-01T00:00:00|2026-01-01T00:01:00|00:00:30||COMPLETED|cpu=16|cpu=16|1
11_3|ann|gpu|2026-01-01T00:00:10|Unknown|00:00:00|UNLIMITED|CANCELLED by 1000||cpu=2,gres/gpu:h100=8,mem=1.50T|1
12|bob|gpu|2026-01-01T00:00:20|2026-01-01T00:00:20|05:00|Partition_Limit|RUNNING|cpu=2,gres/gpu=1||1
13|bob|gpu|2026-01-01T00:00:20|2026-01-01T00:00:20|5 min||FAILED|cpu=2,gres/gpu=1||1
",
        r#"
{"id":"10","user":"ann","queue":"gpu","submit_ms":0,"run_ms":86430000,"waited_ms":60000,"limit_ms":172800000,"gpus":4,"gpu_models":["a100"],"nodes":2,"cpu_milli":16000,"memory_bytes":68719476736,"ended":"completed"}
{"id":"11_3","user":"ann","queue":"gpu","submit_ms":10000,"gpus":8,"gpu_models":["h100"],"nodes":1,"cpu_milli":2000,"memory_bytes":1649267441664,"ended":"cancelled"}
{"id":"12","user":"bob","queue":"gpu","submit_ms":20000,"waited_ms":0,"gpus":1,"nodes":1,"cpu_milli":2000}
bad row 6: Elapsed: "5 min" is no time such as 1-02:03:04
"#,
    );
}

#[test]
fn sacct_raw_counts_seconds_and_minutes() {
    check(
        Format::Sacct,
        "",
        "JobIDRaw|Submit|Start|ElapsedRaw|TimelimitRaw|State|AllocTRES|\n9|2026-01-01T00:00:00|2026-01-01T00:00:00|90|10|NODE_FAIL|gres/gpu=2|\n",
        r#"{"id":"9","submit_ms":0,"run_ms":90000,"waited_ms":0,"limit_ms":600000,"gpus":2,"ended":"failed"}"#,
    );
}

#[test]
fn swf_has_processors_and_says_what_it_does_not_know() {
    let text = "\
; Version: 2.2
; UnixStartTime: 1000000000
1 0 5 60 4 -1 100 8 120 200 1 3 1 -1 2 -1 -1 -1
2 10 -1 -1 -1 -1 -1 16 -1 -1 5 -1 -1 -1 -1 -1 -1 -1
2 10 -1 30 16 -1 -1 16 -1 -1 3 -1 -1 -1 -1 -1 -1 -1
3 10 -1 30
";
    check(
        Format::Swf,
        "log.swf",
        text,
        r#"
{"id":"1","user":"3","queue":"2","submit_ms":0,"run_ms":60000,"waited_ms":5000,"limit_ms":120000,"gpus":0,"cpu_milli":4000,"memory_bytes":819200,"ended":"completed"}
{"id":"2","submit_ms":10000,"gpus":0,"cpu_milli":16000,"ended":"cancelled"}
bad row 6: the row has 4 fields, and 18 are expected
"#,
    );
    assert_eq!(read(Format::Swf, "", text).start_unix_ms, Some(1_000_000_000_000));
    let bare = text.lines().nth(2).unwrap();
    assert_eq!(Format::guess("x", bare.as_bytes()), Some(Format::Swf));
}

#[test]
fn our_own_table_may_leave_columns_out_and_no_slip_of_the_pen_is_lost() {
    check(
        Format::Csv,
        "mine.csv",
        "gpus,id,submit_ms,run_ms,gpu_models\n4,\"a, b\",500,1000,A100|H100\n4,c,500,1.5,\n1,d,1e30,1,\n",
        r#"
{"id":"a, b","submit_ms":500,"run_ms":1000,"gpus":4,"gpu_models":["A100","H100"]}
bad row 3: run_ms: "1.5" is no whole number
bad row 4: submit_ms: "1e30" is no number of zero or more
"#,
    );
    let error = Format::Csv.read(b"id,submit_ms,gpus,run\na,0,1,5\n").unwrap_err();
    assert!(error.to_string().starts_with("the column \"run\" is not known; known are id, user"), "{error}");
}

#[test]
fn our_own_lines_name_what_is_wrong() {
    check(
        Format::Jsonl,
        "mine.jsonl",
        r#"
{"id":"a","submit_ms":0,"gpus":1,"run_ms":5,"priority":-3}
{"id":"b","submit_ms":0,"gpus":1,"runs":5}
{"id":"c","submit_ms":0,"gpus":1,"gpu_milli":0}
{"id":"d","submit_ms":0,"gpus":1,"gpu_models":["A|B"]}
{"id":"e","submit_ms":0,"gpus":1,"steps":5}
{"id":"f","submit_ms":0,
{"id":"g","\u001b[2J":0}
"#,
        r#"
{"id":"a","submit_ms":0,"run_ms":5,"gpus":1,"priority":-3}
bad row 3: unknown field `runs`, expected one of `id`, `user`, `queue`, `submit_ms`, `run_ms`, `waited_ms`, `limit_ms`, `deadline_ms`, `gpus`, `gpu_milli`, `gpu_models`, `nodes`, `cpu_milli`, `memory_bytes`, `priority`, `ended`, `model`, `batch_size`, `steps`, `step_us`, `batch` at column 39
bad row 4: gpu_milli: "0" is not 1 to 1000
bad row 5: gpu_models: "A|B" is empty, begins or ends with a blank, or is a model with |
bad row 6: model: is empty, and what is trained is told
bad row 7: EOF while parsing a value at column 24
bad row 8: unknown field `�[2J`, expected one of `id`, `user`, `queue`, `submit_ms`, `run_ms`, `waited_ms`, `limit_ms`, `deadline_ms`, `gpus`, `gpu_milli`, `gpu_models`, `nodes`, `cpu_milli`, `memory_bytes`, `priority`, `ended`, `model`, `batch_size`, `steps`, `step_us`, `batch` at column 21
"#,
    );
}

#[test]
fn a_file_that_is_no_trace_says_what_was_expected_and_what_was_found() {
    let errors = [
        Format::Philly.read(b"job_id,num_gpu\n1,2\n"),
        Format::Philly.read(b""),
        Format::Philly.read(b"timestamp,duration,num_gpus,gpu_time,cluster\n"),
        Format::Pollux.read(b"name,time,application,num_replicas,batch_size\nx,y,z,1,1\n"),
        Format::read_any("notes.txt", b"once upon a time\n").map(|(_, trace)| trace),
        Format::Sacct.read(b"JobID|Submit\n"),
    ];
    let shown: String = errors.into_iter().map(|error| format!("{}\n", error.unwrap_err())).collect();
    let expected = "\
the header \"job_id,num_gpu\" is not that of philly: missing are timestamp, duration, num_gpus, gpu_time, cluster
the file has no row of a job
the file has no row of a job
none of 1 rows can be read as pollux; the first is row 2: time: \"y\" is no number of zero or more
no format begins with \"once upon a time\"; say which it is, one of philly, elasticflow, helios, acme, pai, openb, muri, tiresias, chronus, gavel, shockwave, pollux, sacct, swf, csv, jsonl
the header \"JobID,Submit\" is not that of sacct: missing are Start, Elapsed|ElapsedRaw, State, AllocTRES|ReqTRES
";
    assert_eq!(shown, expected);
}

#[test]
fn rows_that_are_too_long_or_not_text_are_bad_rows_at_their_line() {
    let mut text = b"id,submit_ms,gpus\n\n\na,0,1\n\"".to_vec();
    text.extend([b'x'; 70_000]);
    text.extend(b"\",0,1\n\nc\xff,0,1\n");
    let trace = Format::Csv.read(&text).unwrap();
    assert_eq!(trace.jobs[0].row, 4);
    let bad: Vec<String> = trace.bad.iter().map(ToString::to_string).collect();
    assert_eq!(
        bad,
        [
            "row 5: the row has 70007 bytes, and at most 65536 are read; is a quote not closed?",
            "row 7: id: is not UTF-8"
        ]
    );
}

#[test]
fn names_of_formats_are_theirs() {
    for format in Format::ALL {
        assert_eq!(Format::of_name(format.name()), Some(format));
    }
    assert_eq!(Format::of_name("nothing"), None);
    let mut written = Vec::new();
    write_csv(&read(Format::Pai, "", PAI_TASKS), &mut written).unwrap();
    assert_eq!(Format::guess("x.csv", &written), Some(Format::Csv));
}

//! Runs and comparisons as a user types them: what they print and write, and that the page opens by itself.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use phalanx_sim::command::{self, CommandError, Host};
use phalanx_sim::report::Progress;
use serde_json::Value;

/// Files in memory.
#[derive(Default)]
struct Memory {
    files: BTreeMap<String, Vec<u8>>,
    words: Vec<String>,
    printed: String,
    notes: Vec<String>,
    ended: Vec<u64>,
}

impl Host for Memory {
    fn words(&mut self) -> Vec<String> {
        self.words.clone()
    }

    fn read(&mut self, file: &str, _: u64) -> Result<Vec<u8>, String> {
        self.files.get(file).cloned().ok_or_else(|| format!("cannot read {file}: there is none"))
    }

    fn write(&mut self, file: &str, bytes: &[u8]) -> Result<(), String> {
        self.files.insert(file.to_owned(), bytes.into());
        Ok(())
    }

    fn print(&mut self, text: &[u8]) -> Result<(), String> {
        self.printed.push_str(std::str::from_utf8(text).unwrap());
        Ok(())
    }

    fn segments(&mut self, _: &str) -> Result<Vec<String>, String> {
        Err("there is no journal".to_owned())
    }

    fn seconds(&mut self) -> f64 {
        0.0
    }

    fn note(&mut self, text: &str) {
        self.notes.push(text.to_owned());
    }

    fn progress(&mut self, progress: Option<Progress<'_>>) {
        self.ended.extend(progress.map(|progress| progress.done));
    }
}

impl Memory {
    fn said(&mut self, line: &str) -> Result<(), CommandError> {
        let words: Vec<&str> = line.split_whitespace().collect();
        self.words = [&["sim"], &words[..]].concat().iter().map(ToString::to_string).collect();
        command::Command::read(&words).map_err(|error| CommandError::Usage(error.to_string()))?.run(self)
    }

    fn text(&self, file: &str) -> String {
        String::from_utf8(self.files[file].clone()).unwrap()
    }

    /// A trace under the name `t.csv`.
    fn drawn(options: &str) -> Self {
        let mut drawing = Self::default();
        drawing.said(&format!("generate {options}")).unwrap();
        Self { files: BTreeMap::from([("t.csv".to_owned(), drawing.printed.into())]), ..Self::default() }
    }
}

/// Two teams on two nodes of four devices: one fills them, and the other comes for its half.
const TEAMS: &str = "\
id,queue,submit_ms,run_ms,gpus
a1,vision,0,3600000,4
a2,vision,0,7200000,4
b1,speech,600000,1800000,4
b2,speech,900000,1800000,1
b3,speech,900000,600000,2
c,vision,1000000,60000,16
";

const CLUSTER: &str = "\
levels: [cluster, rack]
nodes:
  - {name: \"n[1-2]\", devices: {count: 4, link: nvlink, model: NVIDIA H100}, path: {rack: r1}}
";

fn golden(name: &str) -> (Memory, String) {
    match name {
        // A Clos under load, where places and losses of nodes matter.
        "clos" => (
            Memory::drawn("--like philly --jobs 80 --rate 60 --seed 7 --users 5 --queues 3"),
            "compare --trace t.csv --cluster 2x2x8:2 --policies fifo,srtf,las,phalanx --traffic 0.3 \
             --mtbf 2d --repair 1h --slow-every 2d --checkpoint-cost 20s --price 3 --seed 3"
                .to_owned(),
        ),
        // A cluster file with queues, one of which has to give back; one job is larger than the cluster.
        "teams" => {
            let queues = "queues:\n  - {name: vision, guaranteed: {gpus: 4}}\n  - {name: speech, guaranteed: {gpus: 4}}\n";
            let files = [("t.csv", TEAMS), ("c.yaml", CLUSTER), ("q.yaml", queues)];
            let files = files.map(|(name, text)| (name.to_owned(), text.into()));
            let line =
                "compare --trace t.csv --cluster c.yaml --queues q.yaml --policies drf,hived,easy,phalanx";
            (Memory { files: BTreeMap::from(files), ..Memory::default() }, line.to_owned())
        }
        // One policy on a cluster that is drawn up for the load.
        "alone" => (
            Memory::drawn("--like gavel-multi --jobs 60 --rate 30 --seed 2"),
            "run --trace t.csv --policy phalanx --start 0s --restore 0s".to_owned(),
        ),
        other => unreachable!("{other}"),
    }
}

/// Time limits are obeyed under all policies or under none; where other jobs end under some, times are of those that end
/// under all.
#[test]
fn limits_are_for_all_policies_or_none() {
    let trace = "\
id,submit_ms,run_ms,limit_ms,gpus
a,0,3600000,7200000,8
b,0,3600000,3600000,16
c,60000,600000,,8
";
    let files = BTreeMap::from([("t.csv".to_owned(), trace.into())]);
    let mut memory = Memory { files, ..Memory::default() };
    let line = "compare --trace t.csv --cluster 2x1x8 --policies fifo,easy,phalanx --checkpoint-cost 20s --json r.json";
    memory.said(&format!("{line} --per-job j.csv")).unwrap();
    let report: Value = serde_json::from_str(&memory.text("r.json")).unwrap();
    for policy in report["policies"].as_array().unwrap() {
        // Checkpoints take of its hour, so b runs over it under every policy.
        assert_eq!(policy["metrics"]["killed"], 1, "{policy:#}");
        assert_eq!(policy["metrics"]["compared"], 2);
        assert_eq!(policy["is_oracle"], policy["name"] == "easy", "c has no limit");
    }
    assert!(report["command"].as_str().unwrap().starts_with("phalanx sim compare --trace t.csv"));
    let jobs = memory.text("j.csv");
    assert_eq!(jobs.lines().count(), 10, "{jobs}");
    memory.said(&format!("{line} --per-job j.jsonl")).unwrap();
    memory.said(&format!("{line} --per-job j.parquet")).unwrap();
    is_the_same_table(&jobs, &memory.text("j.jsonl"), &memory.files["j.parquet"]);
    assert!(jobs.contains("\nfifo,b,,16,1000,killed,0,"), "{jobs}");
    assert!(
        memory.printed.contains("obeyed under all policies: the time limits of 2 jobs"),
        "{}",
        memory.printed
    );
    memory.said(&format!("{line} --limits none")).unwrap();
    let report: Value = serde_json::from_str(&memory.text("r.json")).unwrap();
    assert!(report["policies"].as_array().unwrap().iter().all(|policy| policy["metrics"]["ended"] == 3));
    let wrong = memory.said(&format!("{line} --limits some")).unwrap_err().to_string();
    assert!(wrong.contains("[possible values: obey, none, stretch]"), "{wrong}");
    let wrong = memory.said(&format!("{line} --per-job j.xls")).unwrap_err().to_string();
    assert!(wrong.contains("ends in .csv, .jsonl or .parquet"), "{wrong}");
}

/// The same rows and columns, whatever the format.
fn is_the_same_table(csv: &str, jsonl: &str, parquet: &[u8]) {
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    let names: Vec<String> = reader.headers().unwrap().iter().map(str::to_owned).collect();
    let rows: Vec<Vec<String>> =
        reader.records().map(|row| row.unwrap().iter().map(str::to_owned).collect()).collect();
    let word = |value: &Value| match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    for (line, row) in jsonl.lines().zip(&rows) {
        let object: Value = serde_json::from_str(line).unwrap();
        assert_eq!(&names.iter().map(|name| word(&object[name])).collect::<Vec<_>>(), row);
    }
    assert_eq!(jsonl.lines().count(), rows.len());
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(parquet).unwrap();
    let table = SerializedFileReader::new(file).unwrap();
    let word = |field: &Field| match field {
        Field::Null => String::new(),
        Field::Str(text) => text.clone(),
        Field::Long(number) => number.to_string(),
        other => panic!("{other}"),
    };
    let read = table.get_row_iter(None).unwrap().map(|row| {
        let row = row.unwrap();
        let columns: Vec<(String, String)> =
            row.get_column_iter().map(|(name, field)| (name.clone(), word(field))).collect();
        columns
    });
    let read: Vec<Vec<(String, String)>> = read.collect();
    let named = |row: &Vec<String>| names.iter().cloned().zip(row.iter().cloned()).collect::<Vec<_>>();
    assert_eq!(read, rows.iter().map(named).collect::<Vec<_>>());
}

/// `far` finds half of each node free. Its limit ends it there, unless limits stretch with the slowdown. `over` is not
/// slower anywhere, so its limit ends it all the same.
#[test]
fn limits_stretch_with_the_predicted_slowdown() {
    let (short, long) = ("60000,", "360000000,800000000");
    let half = |at: u32| format!("half-{at},{at},{},4\n", if at.is_multiple_of(2) { short } else { long });
    let halves: String = (0..8).map(half).collect();
    let trace = format!(
        "id,submit_ms,run_ms,limit_ms,gpus\n{halves}far,600000,3600000,3900000,16\nover,700000,3600000,3600000,4\n"
    );
    let files = BTreeMap::from([("t.csv".to_owned(), trace.into())]);
    let mut memory = Memory { files, ..Memory::default() };
    let line = "compare --trace t.csv --cluster 2x2x8 --policies best-fit,phalanx --traffic 0.5 --checkpoint-cost 20s \
                --per-job j.csv";
    for (limits, far) in [("", "killed"), ("--limits stretch", "completed")] {
        memory.said(&format!("{line} {limits}")).unwrap();
        let jobs = memory.text("j.csv");
        for policy in ["best-fit", "phalanx"] {
            assert!(jobs.contains(&format!("\n{policy},far,,16,1000,{far},")), "{limits}: {jobs}");
            assert!(jobs.contains(&format!("\n{policy},over,,4,1000,killed,")), "{limits}: {jobs}");
        }
    }
    let told = "stretched under all policies: the time limits of 6 jobs";
    assert!(memory.printed.contains(told), "{}", memory.printed);
}

/// Two jobs that ask for shares of a GPU run on one at the same time, under every policy, and hold what they ask for.
#[test]
fn jobs_of_a_trace_share_gpus() {
    let trace = "\
name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
whole,1000,1024,1,1000,,LS,Succeeded,0,3600,0
half,1000,1024,1,500,,LS,Succeeded,0,3600,0
fifth,1000,1024,1,200,,LS,Succeeded,0,3600,0
";
    let files = BTreeMap::from([("t.csv".to_owned(), trace.into())]);
    let mut memory = Memory { files, ..Memory::default() };
    let line = "compare --trace t.csv --format openb --cluster 1x1x2 --policies phalanx,best-fit,las,easy --start 0s \
                --per-job j.csv --json r.json";
    memory.said(line).unwrap();
    let told = "modelled: 2 jobs ask for shares of GPUs, which others may share under every policy";
    assert!(memory.printed.contains(told), "{}", memory.printed);
    let rows = memory.text("j.csv");
    for policy in ["phalanx", "best-fit", "las", "easy"] {
        for (job, milli, held) in
            [("whole", 1_000, 3_600_000), ("half", 500, 1_800_000), ("fifth", 200, 720_000)]
        {
            let row = format!("\n{policy},{job},LS,1,{milli},completed,0,0,3600000,3600000,0,{held},");
            assert!(rows.contains(&row), "{row}: {rows}");
        }
    }
    let report: Value = serde_json::from_str(&memory.text("r.json")).unwrap();
    let held = report["policies"][0]["metrics"]["gpu_hours"]["held"].as_f64().unwrap();
    assert!((held - 1.7).abs() < 1e-3, "{held}");
}

#[test]
fn reports_are_as_they_were() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reports");
    for name in ["clos", "teams", "alone"] {
        let (mut memory, line) = golden(name);
        let line = format!("{line} --points 12 --json r.json -o r.html");
        memory.said(&line).unwrap();
        let found = [("txt", memory.printed.clone()), ("json", memory.text("r.json"))];
        for (ending, text) in found {
            let file = folder.join(format!("{name}.{ending}"));
            if std::env::var_os("UPDATE").is_some() {
                std::fs::create_dir_all(&folder).unwrap();
                std::fs::write(&file, &text).unwrap();
            }
            let expected = std::fs::read_to_string(&file).unwrap_or_default();
            assert!(text == expected, "{} differs; UPDATE=1 writes it anew:\n{text}", file.display());
        }
        // The page has the same figures, and names nothing outside of itself.
        let html = memory.text("r.html");
        let data = html.split_once("application/json\">").unwrap().1.split_once("</script>").unwrap().0;
        let same: Value = serde_json::from_str(&memory.text("r.json")).unwrap();
        assert_eq!(serde_json::from_str::<Value>(data).unwrap(), same, "{name}");
        for outside in ["src=", "href=\"http", "@import", "url(", "{{", "fetch(", "XMLHttpRequest"] {
            assert!(!html.contains(outside), "{name}: {outside}");
        }
        assert!(memory.ended.is_sorted() && !memory.ended.is_empty(), "progress goes on");
        // Once more, the same bytes.
        let (mut again, _) = golden(name);
        again.said(&line).unwrap();
        assert_eq!((again.printed, again.files), (memory.printed, memory.files), "{name}");
    }
}

#[test]
fn what_is_shown_adds_up() {
    let (mut memory, line) = golden("clos");
    memory.said(&format!("{line} --points 200 --json r.json")).unwrap();
    let report: Value = serde_json::from_str(&memory.text("r.json")).unwrap();
    let numbers =
        |value: &Value| value.as_array().unwrap().iter().map(|n| n.as_f64().unwrap()).collect::<Vec<_>>();
    for policy in report["policies"].as_array().unwrap() {
        let over_time = &policy["over_time"];
        let allocated = numbers(&over_time["allocated_percent"]);
        assert_eq!(report["time"]["points"], allocated.len());
        // What the world counted is what was seen beside the policy, by queue. Each share is rounded to a thousandth.
        let queues: Vec<Vec<f64>> =
            over_time["queues_percent"].as_array().unwrap().iter().map(numbers).collect();
        for (at, all) in allocated.iter().enumerate() {
            let sum: f64 = queues.iter().map(|queue| queue[at]).sum();
            assert!((sum - all).abs() < 0.01, "{}: {sum} of {all} at {at}", policy["name"]);
        }
        // All jobs ended, so both distributions end at all of them.
        for of in ["completion", "waited"] {
            assert_eq!(numbers(&policy["distributions"][of]).last(), Some(&100.0));
        }
    }
}

#[test]
fn what_is_wrong_is_said() {
    for (line, is_usage, error) in [
        ("compare --policies fifo", true, "required arguments were not provided:\n  --trace <FILE>"),
        ("run --trace x.csv", false, "cannot read x.csv: there is none"),
        ("run --trace t.csv --policy best", true, "a similar value exists: 'best-fit'"),
        ("compare --trace t.csv --policies fifo,fifo", true, "--policies: name each policy once"),
        (
            "run --trace t.csv --traffic 2",
            true,
            "invalid value '2' for '--traffic <X>': expected a number from 0 to 1",
        ),
        (
            "run --trace t.csv --share-links",
            true,
            "--share-links: jobs send nothing; say how much with --traffic",
        ),
        ("run --trace t.csv --mtbf 0s", true, "'0s' for '--mtbf <TIME>': expected more than 0s"),
        (
            "run --trace t.csv --start 5",
            true,
            "'5' for '--start <TIME>': it has no unit; expected a duration",
        ),
        ("run --trace t.csv --slow-by 0.5", true, "'--slow-by <X>': expected a number of at least 1"),
        ("run --trace t.csv --limits never", true, "[possible values: obey, none, stretch]"),
        ("run --trace t.csv --per-job x.txt", true, "expected a name that ends in .csv, .jsonl or .parquet"),
        (
            "run --trace t.csv --checkpoint 10s --checkpoint-cost 10s",
            true,
            "--checkpoint-cost: jobs would do nothing but save; --checkpoint has to be longer",
        ),
        ("run --trace t.csv --points 0", true, "'0' for '--points <N>': 0 is not in 1..=1000"),
        ("run --trace t.csv --sede 3", true, "a similar argument exists: '--seed'"),
        ("run --trace t.csv more", true, "unexpected argument 'more'"),
        ("run --trace t.csv --cluster c.yaml", false, "cannot read c.yaml: there is none"),
        ("run --trace t.csv --gpus 64", false, "none of 6 jobs is selected"),
        ("run --trace t.csv --gpus 8-1", true, "'--gpus <A-B>': expected A-B with A of at most B"),
        ("run --trace t.csv --from 2017-10-01", true, "--from: the trace has no dates"),
    ] {
        let files = BTreeMap::from([("t.csv".to_owned(), TEAMS.into())]);
        let found = Memory { files, ..Memory::default() }.said(line).unwrap_err();
        assert_eq!(matches!(found, CommandError::Usage(_)), is_usage, "{line}: {found:?}");
        assert!(found.to_string().contains(error), "{line}: {found}");
    }
}

#[test]
fn rates_of_failure_have_names_and_links_are_shared() {
    let (mut memory, _) = golden("clos");
    let line =
        "compare --trace t.csv --cluster 4x1x8:8 --policies spread,topology --traffic 0.5 --mtbf llama3";
    let mut shown = |line: &str| {
        memory.printed.clear();
        memory.said(line).unwrap();
        memory.printed.clone()
    };
    let full = shown(line);
    assert!(full.contains("each node is lost after 264d on the average, and back after 4h"), "{full}");
    let shared = shown(&format!("{line} --share-links"));
    assert!(shared.contains("jobs that send across the same uplinks share them"), "{shared}");
    // The column before the cost: how much slower by place.
    let slower = |text: &str, policy: &str| -> f64 {
        let row = text.lines().rfind(|line| line.starts_with(policy)).unwrap();
        row.split_whitespace().rev().nth(2).unwrap().parse().unwrap()
    };
    assert!(slower(&shared, "spread") < slower(&full, "spread"), "{full}\n{shared}");
    assert!(slower(&shared, "spread") > slower(&shared, "topology"), "{shared}");
}

/// A browser of this machine.
fn browser() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser", "google-chrome"];
    std::env::split_paths(&path)
        .flat_map(|folder| names.map(|name| folder.join(name)))
        .find(|file| file.is_file())
}

/// What the page looks like after its scripts, with what was asked of the network and drawn written into its first tag.
fn opened(browser: &Path, dir: &Path, html: &str) -> String {
    const SPY: &str = "<script>addEventListener('securitypolicyviolation', () => document.documentElement.dataset.blocked = 1);
      addEventListener('error', (e) => document.documentElement.dataset.error = e.message);
      addEventListener('load', () => setTimeout(() => {
        const drawn = [...document.querySelectorAll('canvas')].filter((c) =>
          c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some((byte) => byte > 0));
        document.documentElement.dataset.canvases = drawn.length;
        document.documentElement.dataset.requests = performance.getEntriesByType('resource').length;
      }, 300));</script>";
    let file = dir.join("page.html");
    std::fs::write(&file, html.replacen("<head>", &format!("<head>{SPY}"), 1)).unwrap();
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=5000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", dir.join("profile").display()))
        .arg(format!("file://{}", file.display()))
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_page_draws_in_a_browser_and_asks_the_network_for_nothing() {
    let Some(browser) = browser() else {
        println!("skipped: there is no Chromium here");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let (mut memory, line) = golden("clos");
    // A name that would end the script, were it not for its being quoted.
    let hostile = memory.text("t.csv").replace("queue-1", "</script><b id=hostile>");
    memory.files.insert("t.csv".to_owned(), hostile.into());
    memory.said(&format!("{line} -o r.html -q")).unwrap();
    assert!(memory.printed.is_empty(), "-q prints no table");
    let html = memory.text("r.html");
    let dom = opened(&browser, dir.path(), &html);
    let root = dom.split_once("<head>").unwrap().0;
    assert!(root.contains("data-requests=\"0\"") && !root.contains("data-blocked"), "{root}");
    assert!(!root.contains("data-error") && !dom.contains("<b id=\"hostile\""), "{root}");
    // Eight charts, and a map for each of four policies.
    assert!(root.contains("data-drawn=\"8\"") && root.contains("data-canvases=\"12\""), "{root}");
    assert!(dom.contains("srtf ◇") && dom.contains("</td>"), "the summary names the oracle");

    // A page that does ask is found out.
    let asking = html.replacen("<header>", "<header><img src=\"http://192.0.2.1/x.png\">", 1);
    let root = opened(&browser, dir.path(), &asking);
    assert!(root.contains("data-blocked"), "the policy of the page refuses it");
}

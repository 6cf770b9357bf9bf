//! What is claimed of such schedulers, on declared inputs: every input is printed beside what comes out.

mod consolidate;
mod draw;
mod share;
mod spot;
mod topology;

use std::path::Path;

use crate::tables::Marks;

/// Between these lines of a file stands what was written last.
const MARKS: Marks = Marks { begin: "<!-- claims -->", end: "<!-- end of claims -->" };
/// Of a GPU-hour. One point of 10,000 GPUs is 2.2 million a year at that.
const PRICE: f64 = 2.5;
const HOURS_OF_YEAR: f64 = 8_760.0;

type Claim = (&'static str, fn(&Path) -> Result<String, String>);

const CLAIMS: [Claim; 4] = [
    ("topology", topology::measure),
    ("consolidate", consolidate::measure),
    ("spot", |_| spot::measure()),
    ("share", share::measure),
];

/// Prints them as Markdown, and puts all of them between the marks of a file.
pub(super) fn measure(folder: &Path, only: &[String], into: Option<&Path>) -> Result<(), String> {
    let known: Vec<&str> = CLAIMS.iter().map(|(name, _)| *name).collect();
    if let Some(name) = only.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(format!("{name} is no claim; known are {}", known.join(", ")));
    }
    if into.is_some() && !only.is_empty() {
        return Err("--into keeps all claims, and --only measures some".to_owned());
    }
    let mut all = String::new();
    for (name, measure) in CLAIMS {
        if only.is_empty() || only.iter().any(|wanted| wanted == name) {
            let text = measure(folder)?;
            println!("{text}");
            all.push_str(&text);
            all.push('\n');
        }
    }
    into.map_or(Ok(()), |file| MARKS.splice(file, all.trim_end()))
}

/// With commas between thousands.
fn whole(number: f64) -> String {
    let digits = format!("{number:.0}");
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits.as_str()), |rest| ("-", rest));
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().filter_map(|g| std::str::from_utf8(g).ok()).collect();
    format!("{sign}{}", groups.join(","))
}

fn percent(part: f64, all: f64) -> f64 {
    if all > 0.0 { part / all * 100.0 } else { 0.0 }
}

#[test]
fn thousands_are_apart() {
    assert_eq!(
        [whole(0.4), whole(999.0), whole(1_234_567.0), whole(-1_000.0)],
        ["0", "999", "1,234,567", "-1,000"]
    );
}

//! Figures that a page quotes: a number in the text of a link to the results of the benchmarks stands where the link leads,
//! with as many decimals or more.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::page::{Page, without_code};
use super::{Fault, normal};

/// Where tables of results are.
const RESULTS: &str = "bench";

/// Faults of these pages.
pub(super) fn check(pages: &BTreeMap<PathBuf, String>) -> Vec<Fault> {
    pages.keys().flat_map(|file| check_page(pages, file)).collect()
}

fn check_page(pages: &BTreeMap<PathBuf, String>, file: &Path) -> Vec<Fault> {
    let mut faults = Vec::new();
    for Quote { line, text, target } in pages.get(file).map_or_else(Vec::new, |page| quotes(page)) {
        let (path, fragment) = target.split_once('#').unwrap_or((&target, ""));
        let folder = file.parent().unwrap_or(Path::new(""));
        let Some(aim) = normal(&folder.join(path)).filter(|aim| aim.starts_with(RESULTS)) else { continue };
        // A link that does not resolve is told elsewhere.
        let Some(section) = pages.get(&aim).and_then(|page| Page::section(page, fragment)) else { continue };
        let there = figures(&section);
        let is_there = |quoted: &String| there.iter().any(|figure| is_rounded(figure, quoted));
        for missing in figures(&text).iter().filter(|quoted| !is_there(quoted)) {
            let what = format!(
                "quotes {missing}, which is not in `{target}`; correct the figure, or link the table that it is from"
            );
            faults.push(Fault { file: file.to_path_buf(), line, what });
        }
    }
    faults
}

/// The text of a link, and where it leads.
struct Quote {
    line: usize,
    text: String,
    target: String,
}

/// The links of a page. Their text may go over the end of a line.
fn quotes(page: &str) -> Vec<Quote> {
    let mut fenced = false;
    let lines = page.lines().map(|line| {
        let is_fence = line.trim_start().starts_with("```");
        fenced ^= is_fence;
        if fenced || is_fence { String::new() } else { without_code(line) }
    });
    let text = lines.collect::<Vec<_>>().join("\n");
    let mut found = Vec::new();
    for (middle, _) in text.match_indices("](") {
        let before = &text[..middle];
        let paragraph = before.rfind("\n\n").unwrap_or(0);
        let Some(begin) = before[paragraph..].rfind('[').map(|at| paragraph + at + 1) else { continue };
        let target = text[middle + 2..].split([')', ' ', '\n']).next().unwrap_or_default().to_owned();
        let line = text[..begin].matches('\n').count() + 1;
        found.push(Quote { line, text: before[begin..].to_owned(), target });
    }
    found
}

/// Numbers, without commas between thousands.
fn figures(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_digit() || matches!(c, '.' | ',');
    let words = text.split(|c: char| !is_part(c)).map(|word| word.trim_matches(['.', ',']));
    words.filter(|word| !word.is_empty()).map(|word| word.replace(',', "")).collect()
}

/// Whether a figure is that one, or what becomes of it with fewer decimals.
fn is_rounded(figure: &str, quoted: &str) -> bool {
    let decimals = |text: &str| text.split_once('.').map_or(0, |(_, part)| part.len());
    let rounded = || figure.parse::<f64>().map(|value| format!("{value:.0$}", decimals(quoted)));
    figure == quoted
        || decimals(figure) > decimals(quoted) && rounded().is_ok_and(|rounded| rounded == quoted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(page: &str) -> Vec<String> {
        let table = "# All\n\n## Speed\n\n| 1,800 | 0.82 |\n\n### More\n\n49 times\n\n## Size\n\n97 MB\n";
        let pages = [("bench/table.md", table), ("docs/page.md", page)];
        let found = check(&pages.map(|(file, text)| (PathBuf::from(file), text.to_owned())).into());
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn figures_that_stand_where_their_link_leads_are_no_faults() {
        let page = "[1800 of\n1,800](../bench/table.md#speed), [0.82 and 49](../bench/table.md#speed), [97 and 0.8](../bench/table.md), \
                    [0.5](other.md), [4 of them](#here), `[5](../bench/table.md)`\n\n```\n[6](../bench/table.md)\n```\n";
        assert_eq!(faults(page), Vec::<String>::new());
    }

    #[test]
    fn another_figure_and_one_of_another_section_are_faults() {
        let page = "a\n\n[0.83 times](../bench/table.md#speed) and [97](../bench/table.md#speed)\n";
        let advice = "correct the figure, or link the table that it is from";
        let fault = |figure: &str| {
            format!("docs/page.md:3: quotes {figure}, which is not in `../bench/table.md#speed`; {advice}")
        };
        assert_eq!(faults(page), [fault("0.83"), fault("97")]);
    }
}

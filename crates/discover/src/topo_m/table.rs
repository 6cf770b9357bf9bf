//! The matrix as a table of cells: header, rows, affinities, legend. Nothing is concluded from it here.

use phalanx_model::LinkKind;

use super::text::{Word, fields, shorten, words};
use super::{Gap, TopoError, glue, wrap};

/// A column of the matrix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) text: String,
    pub(super) is_device: bool,
}

/// One cell that could be read, and where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) kind: LinkKind,
    pub(super) line: u32,
    pub(super) column: u32,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Row {
    /// As long as the names; the diagonal and what could not be read are `None`.
    pub(super) cells: Vec<Option<Cell>>,
    /// It does not have all cells, so those it has may stand in wrong columns.
    pub(super) is_short: bool,
    /// Fields after the cells, empty ones too if tabs show them.
    rest: usize,
    pub(super) cpus: Option<Affinity>,
    pub(super) numa: Option<Affinity>,
}

/// What a row says of its device's CPUs or NUMA node.
#[derive(Clone, Debug)]
pub(super) struct Affinity {
    pub(super) text: String,
    pub(super) line: u32,
    pub(super) column: u32,
}

#[derive(Debug)]
pub(super) struct Table {
    pub(super) names: Vec<Name>,
    /// As long as the names; `None` where the text has no such row.
    pub(super) rows: Vec<Option<Row>>,
    /// `NIC0` and its host name, in the legend's order.
    pub(super) aliases: Vec<(String, String)>,
    pub(super) header_line: u32,
    pub(super) last_line: u32,
    pub(super) gaps: Vec<Gap>,
}

impl Table {
    fn set_row(&mut self, at: usize, row: Row) {
        if let Some(slot) = self.rows.get_mut(at) {
            *slot = Some(row);
        }
    }
}

/// What the header promises.
pub(super) struct Header<'a> {
    line: u32,
    pub(super) names: Vec<Word<'a>>,
    has_cpus: bool,
    has_numa: bool,
}

/// Reads the first matrix of a text that was cleaned.
pub(super) fn read(text: &str) -> Result<Table, TopoError> {
    let broken: Vec<(u32, &str)> = (1..).zip(text.lines()).collect();
    let whole = wrap::joined(&broken);
    let lines: Vec<(u32, &str)> = whole.iter().map(|(line, text)| (*line, &**text)).collect();
    let header = find_header(&lines)?;
    let mut gaps = Vec::new();
    let names = read_names(&header, &mut gaps)?;
    let mut table = Table {
        rows: vec![None; names.len()],
        names,
        aliases: Vec::new(),
        header_line: header.line,
        last_line: header.line,
        gaps,
    };
    for (line, text) in lines.iter().filter(|(line, _)| *line > header.line) {
        let words = words(text);
        // A name alone is a row that was cut off.
        if words.len() > 1 && header_of(*line, &glue::header(&words)).is_some() {
            break;
        }
        let words = glue::row(&words);
        let Some(first) = words.first() else { continue };
        if let Some(alias) = read_alias(&words) {
            table.aliases.push(alias);
        } else if let Some(at) = table.names.iter().position(|n| n.text == first.text) {
            read_row(&mut table, &header, at, *line, text, &words);
        }
    }
    if table.rows.iter().all(Option::is_none) {
        return Err(TopoError::NoRows { line: header.line });
    }
    drop_glued_affinities(&mut table);
    Ok(table)
}

/// `0-31` and `0` may have become `0-310`: a row with fewer affinities than other rows does not say which it lacks.
fn drop_glued_affinities(table: &mut Table) {
    let most = table.rows.iter().flatten().map(|row| row.rest).max().unwrap_or(0);
    for row in table.rows.iter_mut().flatten().filter(|row| row.rest < most) {
        let Some(first) = row.cpus.take().or(row.numa.take()) else { continue };
        row.numa = None;
        let what = format!(
            "after the cells the row has {} of {most} columns from {:?} on; its affinities are left out",
            row.rest,
            shorten(&first.text)
        );
        table.gaps.push(Gap::new((first.line, first.column), what));
    }
}

/// The first header that a row follows before the next header: a caption may look like one.
fn find_header<'a>(lines: &[(u32, &'a str)]) -> Result<Header<'a>, TopoError> {
    let mut first: Option<Header<'a>> = None;
    let mut last: Option<Header<'a>> = None;
    for (line, text) in lines {
        let words = words(text);
        if let Some(header) = header_of(*line, &glue::header(&words)) {
            if let Some(unused) = last.replace(header) {
                first = first.or(Some(unused));
            }
        } else if let (Some(header), [name, cell, ..]) = (&last, glue::row(&words).as_slice())
            && header.names.iter().any(|n| n.text == name.text)
            && (is_self(cell.text) || looks_like_cell(cell.text))
        {
            return last.ok_or_else(|| why_nothing(lines));
        }
    }
    first.or(last).ok_or_else(|| why_nothing(lines))
}

/// A header starts with a GPU, and goes on with names until the columns of affinities.
pub(super) fn header_of<'a>(line: u32, words: &[Word<'a>]) -> Option<Header<'a>> {
    let is_name = |w: &&Word<'_>| !matches!(w.text, "CPU" | "NUMA" | "GPU" | "Affinity" | "ID");
    let names: Vec<Word<'a>> = words.iter().take_while(is_name).copied().collect();
    let rest: Vec<&str> = words.iter().skip(names.len()).map(|w| w.text).collect();
    let is_port = |w: &Word<'_>| {
        looks_like_name(w.text)
            && (w.text.bytes().any(|c| c.is_ascii_digit()) || matches!(w.text, "NIC" | "NET"))
    };
    let good = names.first().is_some_and(|w| is_device(w.text)) && names.iter().all(is_port);
    good.then(|| Header {
        line,
        names,
        has_cpus: rest.first() == Some(&"CPU"),
        has_numa: rest.windows(2).any(|pair| pair == ["NUMA", "Affinity"]) || rest.ends_with(&["NUMA"]),
    })
}

/// Whether words are a header, with a device first and nothing after the columns.
pub(super) fn starts_header(words: &[Word<'_>]) -> bool {
    if !words.first().is_some_and(|w| w.text.starts_with("GPU")) {
        return false;
    }
    let words = glue::header(words);
    header_of(0, &words).is_some_and(|header| {
        let rest = words.get(header.names.len()..).unwrap_or_default();
        rest.iter().all(|w| matches!(w.text, "CPU" | "NUMA" | "GPU" | "Affinity" | "ID"))
    })
}

fn read_names(header: &Header<'_>, gaps: &mut Vec<Gap>) -> Result<Vec<Name>, TopoError> {
    let mut names: Vec<Name> = Vec::new();
    for word in &header.names {
        let at = (header.line, word.column);
        if names.iter().any(|n| n.text == word.text) {
            gaps.push(Gap::new(at, format!("a second column is named {}; the first is kept", word.text)));
        }
        names.push(Name { text: word.text.to_owned(), is_device: is_device(word.text) });
        let devices = names.iter().filter(|n| n.is_device).count();
        if devices > super::DEVICES_MAX {
            return Err(TopoError::TooManyDevices { line: at.0, column: at.1 });
        }
        if names.len() - devices > super::NICS_MAX {
            return Err(TopoError::TooManyNics { line: at.0, column: at.1 });
        }
    }
    Ok(names)
}

fn read_row(table: &mut Table, header: &Header<'_>, at: usize, line: u32, text: &str, words: &[Word<'_>]) {
    let Some(second) = words.get(1).map(|w| w.text) else { return };
    if !is_self(second) && !looks_like_cell(second) {
        return; // A sentence that starts with a device's name.
    }
    let column = words.first().map_or(1, |w| w.column);
    let name = words.first().map_or("", |w| w.text);
    if table.rows.get(at).is_some_and(Option::is_some) {
        table.gaps.push(Gap::new((line, column), format!("a second row for {name} is left out")));
        return;
    }
    let count = table.names.len();
    let row = cells_of(text, words, at, count);
    table.last_line = line;
    let mut read = Row { cells: vec![None; count], ..Row::default() };
    let Some(row) = row else {
        let what = format!("the row of {name} does not have its X in column {}; it is left out", at + 1);
        table.gaps.push(Gap::new((line, column), what));
        table.set_row(at, read);
        return;
    };
    let is_device = table.names.get(at).is_some_and(|n| n.is_device);
    let affinities = if is_device { usize::from(header.has_cpus) + usize::from(header.has_numa) } else { 0 };
    if !row.by_tabs && is_shifted(&row.words, count, affinities) {
        let what = format!("the row of {name} does not have {count} cells; those after its X are left out");
        table.gaps.push(Gap::new((line, column), what));
        let known = row.words.get(..at.min(row.words.len())).unwrap_or_default();
        read.is_short = true;
        read_words(&mut table.gaps, &mut read, at, line, known);
        table.set_row(at, read);
        return;
    }
    read_cells(table, &mut read, at, line, &row.words);
    let rest = row.words.get(count..).unwrap_or_default();
    if let ([one], 2) = (rest, affinities)
        && one.text != "N/A"
    {
        let what = format!(
            "{:?} may be the CPUs, or CPUs and NUMA node in one word; it is left out",
            shorten(one.text)
        );
        table.gaps.push(Gap::new((line, one.column), what));
        table.set_row(at, read);
        return;
    }
    read.rest = rest.len();
    let mut rest = rest.iter();
    let given = |w: &Word<'_>| {
        (!w.text.is_empty()).then(|| Affinity { text: w.text.to_owned(), line, column: w.column })
    };
    if header.has_cpus {
        read.cpus = rest.next().and_then(given);
    }
    if header.has_numa {
        read.numa = rest.next().and_then(given);
    }
    table.set_row(at, read);
}

/// The cells and affinities of a row.
struct Cells<'a> {
    words: Vec<Word<'a>>,
    /// Each stands in its own column, so an empty one is seen.
    by_tabs: bool,
}

/// The words of a row after its name, so that its `X` stands in its own column, `at`; a row that ends before
/// that column is taken as it is. One tab per cell is trusted first, because it shows which cells are empty;
/// texts that were copied about have lost that, and there words are counted.
fn cells_of<'a>(text: &'a str, words: &[Word<'a>], at: usize, count: usize) -> Option<Cells<'a>> {
    let tabs = fields(text);
    let name = tabs.iter().position(|f| !f.text.is_empty())?;
    let tabs: Vec<Word<'a>> =
        tabs.get(name + 1..).unwrap_or_default().iter().flat_map(|f| glue::field(*f)).collect();
    let words = words.get(1..).unwrap_or_default();
    let fits = |row: &[Word<'_>]| row.len() >= count && row.get(at).is_some_and(|w| is_self(w.text));
    let full = |row: &[Word<'_>]| {
        fits(row) && row.iter().take(count).all(|w| is_self(w.text) || looks_like_cell(w.text))
    };
    let whole = |row: &[Word<'_>]| row.iter().take(count).all(|w| !w.text.contains(char::is_whitespace));
    if full(&tabs) {
        return Some(Cells { words: tabs, by_tabs: true });
    }
    if full(words) || !(fits(&tabs) && whole(&tabs)) {
        let lines_up = words.len() <= at || words.get(at).is_some_and(|w| is_self(w.text));
        return lines_up.then(|| Cells { words: words.to_vec(), by_tabs: false });
    }
    Some(Cells { words: tabs, by_tabs: true })
}

/// Whether a row of words has fewer cells than columns although it was not cut off: its affinities come too early.
fn is_shifted(row: &[Word<'_>], count: usize, affinities: usize) -> bool {
    let cells = row.iter().take_while(|w| !w.text.starts_with(|c: char| c.is_ascii_digit())).count();
    let is_early = cells < row.len() && cells < count;
    let lacks = affinities > 0
        && row.len() >= count
        && row.len() < count + affinities
        && row.get(count - 1).is_some_and(|w| w.text == "N/A");
    // A word of letters that is no cell may be two of them.
    let is_glued = row.len() < count && row.iter().any(|w| !is_self(w.text) && !looks_like_cell(w.text));
    is_early || lacks || is_glued
}

fn read_cells(table: &mut Table, read: &mut Row, at: usize, line: u32, row: &[Word<'_>]) {
    let count = table.names.len();
    let is_short = row.len() < count;
    read.is_short = is_short;
    let mut row = row;
    // `NV1` at the end of a row that was cut may have been `NV18`.
    if is_short
        && let Some((last, before)) = row.split_last()
        && last.text.starts_with("NV")
    {
        let what = format!("{:?} ends a row that is cut off; it is left out", last.text);
        table.gaps.push(Gap::new((line, last.column), what));
        let what = format!("the row has {} of {count} cells", row.len());
        table.gaps.push(Gap::new((line, last.column), what));
        row = before;
    } else if is_short {
        let end = row.last().map_or(1, |w| w.column);
        let what = format!("the row has {} of {count} cells", row.len());
        table.gaps.push(Gap::new((line, end), what));
    }
    read_words(&mut table.gaps, read, at, line, row);
}

fn read_words(gaps: &mut Vec<Gap>, read: &mut Row, at: usize, line: u32, row: &[Word<'_>]) {
    for (i, (word, cell)) in row.iter().zip(&mut read.cells).enumerate() {
        if i == at && is_self(word.text) {
            continue;
        }
        if let Some(kind) = kind_of(word.text) {
            *cell = Some(Cell { kind, line, column: word.column });
        } else {
            gaps.push(Gap::new((line, word.column), format!("{:?} is no kind of link", shorten(word.text))));
        }
    }
}

/// `NIC0: mlx5_0` of the legend.
fn read_alias(words: &[Word<'_>]) -> Option<(String, String)> {
    let [name, alias] = words else { return None };
    let name = name.text.strip_suffix(':')?;
    let good = name.starts_with("NIC") && looks_like_name(name) && looks_like_name(alias.text);
    good.then(|| (name.to_owned(), alias.text.to_owned()))
}

/// What the cell of a class says; `None` for what is no class. `SOC` is what old drivers wrote for `SYS`;
/// `XGMI` is ours, for machines that `nvidia-smi` does not know.
pub(super) fn kind_of(text: &str) -> Option<LinkKind> {
    Some(match text {
        "PIX" => LinkKind::PcieSwitch,
        "PXB" => LinkKind::PcieBridges,
        "PHB" => LinkKind::HostBridge,
        "NODE" => LinkKind::Numa,
        "SYS" | "SOC" => LinkKind::Socket,
        "XGMI" => LinkKind::Xgmi,
        _ => {
            let digits = text.strip_prefix("NV").filter(|d| d.bytes().all(|c| c.is_ascii_digit()))?;
            LinkKind::Nvlink(digits.parse().ok().filter(|count| *count > 0)?)
        }
    })
}

fn is_self(text: &str) -> bool {
    matches!(text, "X" | "x")
}

pub(crate) fn is_device(text: &str) -> bool {
    text.strip_prefix("GPU").is_some_and(|d| !d.is_empty() && d.bytes().all(|c| c.is_ascii_digit()))
}

fn looks_like_name(text: &str) -> bool {
    let good = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'-' | b'.' | b':');
    text.len() <= 64
        && text.bytes().all(good)
        && !text.ends_with(':')
        && !looks_like_cell(text)
        && !is_self(text)
}

/// Also of the matrices of `topo -p2p`, and damaged ones.
fn looks_like_cell(text: &str) -> bool {
    kind_of(text).is_some() || is_peer_state(text) || text.starts_with("NV") || matches!(text, "N/A" | "ERR!")
}

/// States of `nvidia-smi topo -p2p`.
fn is_peer_state(text: &str) -> bool {
    matches!(text, "OK" | "CNS" | "GNS" | "TNS" | "NS" | "U" | "DR")
}

/// Whether the rows below the header are a `-p2p` matrix: states, and no class of link.
pub(super) fn peer_state_in(text: &str) -> Option<(u32, u32)> {
    let mut found = None;
    for (line, text) in (1..).zip(text.lines()) {
        let words = words(text);
        if header_of(line, &glue::header(&words)).is_some() {
            continue;
        }
        let words = glue::row(&words);
        if !words.first().is_some_and(|w| is_device(w.text)) {
            continue;
        }
        if words.iter().skip(1).any(|w| kind_of(w.text).is_some()) {
            return None;
        }
        let state = words.iter().skip(1).find(|w| is_peer_state(w.text));
        found = found.or(state.map(|w| (line, w.column)));
    }
    found
}

fn why_nothing(lines: &[(u32, &str)]) -> TopoError {
    let first = lines.iter().find_map(|(line, text)| Some((*line, words(text).first()?.column)));
    match first {
        Some((line, column)) => TopoError::NoMatrix { line, column },
        None => TopoError::Empty,
    }
}

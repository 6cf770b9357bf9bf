//! `top`: the machine as it is now, one page at a time.

use std::cmp::Ordering;

use owo_colors::OwoColorize as _;
use phalanx_api::protocol::{JobView, NodesView, QueueView};

use super::{Page, count, jobs, nodes, queues};

/// Columns of the bar of GPUs.
const BAR: u64 = 30;
/// Lines above and below a page.
const FRAME: usize = 4;

/// What the daemon says of now.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) nodes: Option<NodesView>,
    pub(crate) jobs: Vec<JobView>,
    pub(crate) queues: Vec<QueueView>,
}

/// Pages, in the order of their keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tab {
    #[default]
    Jobs,
    Nodes,
    Queues,
}

impl Tab {
    const ALL: [(Self, &'static str); 3] =
        [(Self::Jobs, "1 jobs"), (Self::Nodes, "2 nodes"), (Self::Queues, "3 queues")];

    pub(crate) const fn next(self) -> Self {
        match self {
            Self::Jobs => Self::Nodes,
            Self::Nodes => Self::Queues,
            Self::Queues => Self::Jobs,
        }
    }
}

/// All pages below each other, for who has no terminal.
pub(crate) fn all(page: &Page, seen: &Seen) -> String {
    let pages = Tab::ALL.map(|(tab, _)| body(page, seen, tab)).join("\n");
    format!("{}\n\n{pages}", summary(page, seen))
}

fn body(page: &Page, seen: &Seen, tab: Tab) -> String {
    match tab {
        Tab::Jobs => jobs::list(page, &seen.jobs, false),
        Tab::Nodes => seen.nodes.as_ref().map(|nodes| nodes::list(page, nodes)).unwrap_or_default(),
        Tab::Queues => queues::list(page, &seen.queues),
    }
}

/// The lines of the screen, at most `height`; and how many lines of the page can be skipped at most.
pub(crate) fn screen(page: &Page, seen: &Seen, tab: Tab, skip: usize, height: usize) -> (Vec<String>, usize) {
    let body = body(page, seen, tab);
    let body: Vec<&str> = body.lines().collect();
    let room = height.saturating_sub(FRAME).max(1);
    let most = body.len().saturating_sub(room);
    let skip = skip.min(most);
    // The headings stay where they are.
    let (heading, rows) = body.split_at(usize::from(body.len() > 1).min(body.len()));
    let rows = rows.iter().skip(skip).take(room.saturating_sub(heading.len()));
    let mut lines = vec![summary(page, seen), tabs(tab)];
    lines.extend(heading.iter().chain(rows).map(|line| (*line).to_owned()));
    let left = most.saturating_sub(skip);
    let below = if left > 0 { format!("{} below; ", count(left as u64, "line")) } else { String::new() };
    lines.resize(height.saturating_sub(1).max(lines.len()), String::new());
    lines.push(format!("{below}1 2 3 or tab: page; up, down: scroll; q: quit").dimmed().to_string());
    if let Some(width) = page.width {
        lines.iter_mut().for_each(|line| cut(line, usize::from(width), page.ellipsis()));
    }
    (lines, most)
}

/// Cuts a line at the edge of the screen; codes of colours take no room, and all stay.
fn cut(line: &mut String, width: usize, ellipsis: &str) {
    let room = width.saturating_sub(ellipsis.chars().count());
    let (mut shown, mut is_code, mut kept) = (0, false, String::with_capacity(line.len()));
    for letter in line.chars() {
        is_code |= letter == '\u{1b}';
        if is_code {
            kept.push(letter);
            is_code = letter != 'm';
            continue;
        }
        shown += 1;
        match shown.cmp(&(room + 1)) {
            Ordering::Less => kept.push(letter),
            Ordering::Equal => kept.push_str(ellipsis),
            Ordering::Greater => {}
        }
    }
    if shown > width {
        *line = kept;
    }
}

/// `12:00:00  GPUs ■■■■■□□□ 11 of 16 in use  2 running jobs, 3 pending`.
fn summary(page: &Page, seen: &Seen) -> String {
    let nodes = seen.nodes.as_ref().map(|view| view.nodes.as_slice()).unwrap_or_default();
    let all: u64 = nodes.iter().map(|node| u64::from(node.devices)).sum();
    let free: u64 = nodes.iter().map(|node| u64::from(node.free.count())).sum();
    let used = all.saturating_sub(free);
    let filled = (used * BAR).checked_div(all).unwrap_or(0);
    let [full, empty] = if page.ascii { ["#", "."] } else { ["■", "□"] };
    let repeat = |text: &str, times: u64| text.repeat(usize::try_from(times).unwrap_or(0));
    let bar = format!("{}{}", repeat(full, filled).green(), repeat(empty, BAR - filled).dimmed());
    let gpus = if all == 0 { "no GPUs".to_owned() } else { format!("GPUs {bar} {used} of {all} in use") };
    let jobs = |states: &[&str]| seen.jobs.iter().filter(|job| states.contains(&job.state.as_str())).count();
    let [running, pending] = [jobs(&["starting", "running", "stopping"]), jobs(&["pending"])];
    format!("{}  {gpus}  {}, {pending} pending", page.clock(page.now), count(running as u64, "running job"))
}

fn tabs(current: Tab) -> String {
    // The brackets are for terminals without colours.
    let tab = |(tab, name): (Tab, &str)| match tab == current {
        true => format!("[{name}]").bold().to_string(),
        false => format!(" {} ", name.dimmed()),
    };
    Tab::ALL.map(tab).join("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_at_the_edge_and_keep_their_codes() {
        let cut = |line: &str, width| {
            let mut line = line.to_owned();
            cut(&mut line, width, "…");
            line
        };
        assert_eq!(cut("abcdef", 6), "abcdef");
        assert_eq!(cut("abcdef", 5), "abcd…");
        assert_eq!(cut("\u{1b}[1mabc\u{1b}[0mdef", 4), "\u{1b}[1mabc\u{1b}[0m…");
        assert_eq!(cut("\u{1b}[1mabcdef\u{1b}[0m", 4), "\u{1b}[1mabc…\u{1b}[0m");
        assert_eq!(cut("", 0), "");
    }
}

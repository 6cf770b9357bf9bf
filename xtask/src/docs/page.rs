//! What the check reads of a Markdown page: its links, and the anchors of its headings as GitHub makes them.

use std::collections::{BTreeMap, BTreeSet};

/// A link or an image, with its line from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) line: usize,
    pub(super) target: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Page {
    pub(super) links: Vec<Link>,
    pub(super) anchors: BTreeSet<String>,
}

impl Page {
    /// Reads a page. Code blocks and code spans have neither links nor headings.
    pub(super) fn parse(text: &str) -> Self {
        let mut page = Self::default();
        let mut seen = BTreeMap::new();
        let mut fence: Option<String> = None;
        for (line, text) in (1..).zip(text.lines()) {
            let begin = text.trim_start();
            if let Some(open) = &fence {
                if begin.starts_with(open.as_str())
                    && begin.trim_end().bytes().all(|b| open.as_bytes()[0] == b)
                {
                    fence = None;
                }
                continue;
            }
            if begin.starts_with("```") || begin.starts_with("~~~") {
                let mark = &begin[..1];
                let length = begin.len() - begin.trim_start_matches(mark).len();
                fence = Some(mark.repeat(length));
                continue;
            }
            if let Some(heading) = heading(text) {
                page.anchors.insert(unique(anchor(heading), &mut seen));
            }
            let text = without_code(text);
            page.links.extend(targets(&text).into_iter().map(|target| Link { line, target }));
            page.anchors.extend(attributes(&text, &["id=\"", "name=\""]));
        }
        page
    }

    /// The text below a heading, with the sections inside it; without a fragment the whole page.
    pub(super) fn section(text: &str, fragment: &str) -> Option<String> {
        if fragment.is_empty() {
            return Some(text.to_owned());
        }
        let (mut seen, mut level, mut section) = (BTreeMap::new(), None, String::new());
        for line in text.lines() {
            if let Some(of) = heading(line) {
                let depth = line.len() - line.trim_start_matches('#').len();
                match level {
                    Some(level) if depth <= level => break,
                    Some(_) => {}
                    None => level = (unique(anchor(of), &mut seen) == fragment).then_some(depth),
                }
            }
            if level.is_some() {
                section.push_str(line);
                section.push('\n');
            }
        }
        level.map(|_| section)
    }

    /// The anchor that shares the most words with this one, the shortest of equals.
    pub(super) fn nearest(&self, fragment: &str) -> Option<&str> {
        let words: BTreeSet<&str> = fragment.split('-').collect();
        let shared = |anchor: &str| anchor.split('-').filter(|word| words.contains(word)).count();
        let nearest = self.anchors.iter().max_by_key(|anchor| (shared(anchor), usize::MAX - anchor.len()));
        nearest.map(String::as_str)
    }
}

/// The text of a heading that begins with `#`.
fn heading(line: &str) -> Option<&str> {
    let text = line.trim_start_matches('#');
    let level = line.len() - text.len();
    if !(1..=6).contains(&level) || !text.starts_with(' ') {
        return None;
    }
    let text = text.trim();
    match text.rsplit_once(' ') {
        Some((kept, closing)) if closing.bytes().all(|b| b == b'#') => Some(kept.trim_end()),
        _ => Some(text),
    }
}

/// GitHub's rule: lower case, spaces as hyphens, letters, digits, `-` and `_` alone; of a link its text.
fn anchor(heading: &str) -> String {
    let mut text = heading.to_owned();
    while let Some(middle) = text.find("](") {
        let (Some(begin), Some(end)) = (text[..middle].rfind('['), text[middle..].find(')')) else { break };
        text = format!("{}{}{}", &text[..begin], &text[begin + 1..middle], &text[middle + end + 1..]);
    }
    let kept = text.to_lowercase();
    kept.chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

/// The second heading of a name ends with `-1`, the third with `-2`.
fn unique(anchor: String, seen: &mut BTreeMap<String, usize>) -> String {
    let count = seen.entry(anchor.clone()).or_default();
    *count += 1;
    if *count == 1 { anchor } else { format!("{anchor}-{}", *count - 1) }
}

/// A line without its code spans. A row of backticks that nothing closes is text.
pub(super) fn without_code(line: &str) -> String {
    let (mut kept, mut rest) = (String::new(), line);
    while let Some(begin) = rest.find('`') {
        let inner = rest[begin..].trim_start_matches('`');
        let length = rest.len() - begin - inner.len();
        kept.push_str(&rest[..begin]);
        let mut at = 0;
        let end = loop {
            let Some(next) = inner[at..].find('`') else { break None };
            let after = inner[at + next..].trim_start_matches('`');
            let found = inner.len() - at - next - after.len();
            if found == length {
                break Some(after);
            }
            at = inner.len() - after.len();
        };
        rest = end.unwrap_or(inner);
    }
    kept.push_str(rest);
    kept
}

/// Where the links and images of a line lead, also those of HTML and of reference definitions.
fn targets(line: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = line;
    while let Some((_, after)) = rest.split_once("](") {
        let mut depth = 1;
        let end = after.find(|c| {
            depth += match c {
                '(' => 1,
                ')' => -1,
                _ => 0,
            };
            depth == 0
        });
        let Some(end) = end else { break };
        found.push(target(&after[..end]));
        rest = &after[end..];
    }
    if let Some((label, definition)) = line.split_once("]: ")
        && label.starts_with('[')
        && !label.starts_with("[^")
        && !label.contains(' ')
    {
        found.push(target(definition));
    }
    found.extend(attributes(line, &["href=\"", "src=\""]));
    found.retain(|target| !target.is_empty());
    found
}

/// Without the title, and without angle brackets.
fn target(inside: &str) -> String {
    let inside = inside.trim();
    match inside.strip_prefix('<').and_then(|rest| rest.split_once('>')) {
        Some((target, _)) => target.to_owned(),
        None => inside.split_whitespace().next().unwrap_or_default().to_owned(),
    }
}

/// Values of these attributes in HTML.
fn attributes(line: &str, names: &[&str]) -> Vec<String> {
    let values = |name| line.split(name).skip(1).filter_map(|rest: &str| rest.split('"').next());
    names.iter().flat_map(|name| values(*name)).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anchors_follow_the_rule_of_github() {
        for (text, expected) in [
            ("Who preempts whom", "who-preempts-whom"),
            ("`QueueLimit`", "queuelimit"),
            ("What is proved, and how: a list", "what-is-proved-and-how-a-list"),
            ("From ibnetdiscover and topo -m to a cluster", "from-ibnetdiscover-and-topo--m-to-a-cluster"),
            ("The [queue file](queue-file.md) (`queues`)", "the-queue-file-queues"),
            ("0.9 — August", "09--august"),
            ("drain_after_job", "drain_after_job"),
        ] {
            assert_eq!(anchor(text), expected);
        }
    }

    #[test]
    fn equal_headings_are_numbered() {
        let page =
            Page::parse("# A\n## Limits\n## Limits ##\n#no heading\n####### none\n<a id=\"own\"></a>\n");
        assert_eq!(page.anchors, ["a", "limits", "limits-1", "own"].map(str::to_owned).into());
        assert_eq!(page.nearest("the-limits"), Some("limits"));
    }

    #[test]
    fn code_has_no_links_and_no_headings() {
        let text = "````\n```\n# no\n[no](a.md)\n````\n`[no](b.md)` ``a ` [no](c.md)`` ` [yes](d.md#x)\n\
                    ~~~ sh\n# no\n~~~\n  ```console\n  [no](e.md)\n  ```\n";
        let page = Page::parse(text);
        assert_eq!(page.links, [Link { line: 6, target: "d.md#x".to_owned() }]);
        assert!(page.anchors.is_empty());
    }

    #[test]
    fn all_sorts_of_links_are_found() {
        let line =
            "[a](a.md) ![b](b.svg \"t\") [![c](c.svg)](<c d.md>) [e](f(1).md) <img src=\"g.png\"> [h]: no";
        assert_eq!(targets(line), ["a.md", "b.svg", "c.svg", "c d.md", "f(1).md", "g.png"]);
        assert_eq!(targets("[label]: to.md \"title\""), ["to.md"]);
        assert_eq!(targets("[^1]: a note"), Vec::<String>::new());
    }
}

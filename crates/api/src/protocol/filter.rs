//! Which jobs and nodes somebody means.

use phalanx_model::{Ending, JobId, NodeName, QueueName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::LIMIT_MAX;

/// Jobs that have all that is said here; with nothing said, all jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct JobFilter {
    /// Of this user, by number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// Of this user, by name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueName>,
    /// A name, in which `*` stands for any text and `?` for one letter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// A text that is in its number, name, owner or queue, in small or capital letters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// One of these words of [`super::JobView::state`]. None: any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub states: Vec<String>,
    /// With a lower number than this: for the next page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<JobId>,
}

impl JobFilter {
    /// Whether it asks for jobs that have ended.
    #[must_use]
    pub fn wants_ended(&self) -> bool {
        self.states.iter().any(|word| Ending::WORDS.contains(&word.as_str()))
    }

    /// What jobs of a list are compared with, the text of the filter prepared once for all of them.
    #[must_use]
    pub fn prepared(&self) -> PreparedFilter<'_> {
        PreparedFilter { filter: self, text: self.text.as_deref().map(Wanted::new) }
    }

    fn has_name(&self, name: &str) -> bool {
        self.name.as_ref().is_none_or(|pattern| is_like(pattern, name))
    }

    fn has_state(&self, state: &str) -> bool {
        self.states.is_empty() || self.states.iter().any(|word| word == state)
    }
}

/// What a filter looks at of a job, beside its state. A queue that is not known is empty.
#[derive(Clone, Copy, Debug)]
pub struct Filtered<'a> {
    pub id: JobId,
    pub name: &'a str,
    pub uid: u32,
    pub owner: &'a str,
    pub queue: &'a str,
}

/// See [`JobFilter::prepared`].
#[derive(Clone, Debug)]
pub struct PreparedFilter<'a> {
    filter: &'a JobFilter,
    text: Option<Wanted>,
}

impl PreparedFilter<'_> {
    /// Whether a job has all that the filter says. Its state is worked out only if it is asked for.
    pub fn admits<'s>(&self, job: Filtered<'_>, state: impl FnOnce() -> &'s str) -> bool {
        let Filtered { id, name, uid, owner, queue } = job;
        let Self { filter, text } = self;
        let has_text = |text: &Wanted| text.is_in([name, owner, queue]) || text.is_in([&*id.to_string()]);
        filter.before.is_none_or(|before| id < before)
            && filter.uid.is_none_or(|of| uid == of)
            && filter.user.as_ref().is_none_or(|user| owner == user)
            && filter.queue.as_ref().is_none_or(|of| queue == of.as_str())
            && filter.has_name(name)
            && text.as_ref().is_none_or(has_text)
            && (filter.states.is_empty() || filter.has_state(state()))
    }
}

/// A part of the nodes that have all that is said here, in the order of their names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeFilter {
    /// A text that is in its name, its domains, its model or a job that runs there, in small or capital letters.
    #[serde(default)]
    pub text: Option<String>,
    #[serde(default)]
    pub state: Option<NodeState>,
    /// From after this node on: for the next part.
    #[serde(default)]
    pub after: Option<NodeName>,
    /// At most so many.
    pub limit: u32,
}

impl Default for NodeFilter {
    /// The first nodes, as many as one answer has.
    fn default() -> Self {
        Self { text: None, state: None, after: None, limit: LIMIT_MAX }
    }
}

/// What nodes are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// They take work, as far as the operator is concerned.
    Open,
    Cordoned,
    Draining,
    /// Of the node or a device of it, something is not ok.
    Unhealthy,
}

impl NodeState {
    pub const WORDS: [(&str, Self); 4] = [
        ("open", Self::Open),
        ("cordoned", Self::Cordoned),
        ("draining", Self::Draining),
        ("unhealthy", Self::Unhealthy),
    ];
}

/// A text that is looked for in others, in small or capital letters of ASCII.
#[derive(Clone, Debug)]
pub struct Wanted(Vec<u8>);

impl Wanted {
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.to_ascii_lowercase().into_bytes())
    }

    /// Whether it is in one of these. Takes no memory: a list has many names.
    pub fn is_in<'a>(&self, texts: impl IntoIterator<Item = &'a str>) -> bool {
        let is_here = |part: &[u8]| part.eq_ignore_ascii_case(&self.0);
        self.0.is_empty() || texts.into_iter().any(|text| text.as_bytes().windows(self.0.len()).any(is_here))
    }
}

/// Whether a text is like a pattern. Each `*` first stands for as little as possible, and only the last can need more, so
/// the cost is the product of the lengths at most.
fn is_like(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    let (mut p, mut t) = (0, 0);
    // Where the last star is, and how much of the text it has taken.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(letter) if *letter == '?' || *letter == text[t] => (p, t) = (p + 1, t + 1),
            _ => match star {
                Some((at, taken)) => {
                    star = Some((at, taken + 1));
                    (p, t) = (at + 1, taken + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|letter| *letter == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_and_question_marks_stand_for_text() {
        for (pattern, text) in [
            ("sweep", "sweep"),
            ("sweep*", "sweep"),
            ("*", ""),
            ("*-3", "sweep-13-3"),
            ("s*p-?", "sweep-1"),
            ("*a*b*c*", "xaxbxc"),
            ("?", "ä"),
        ] {
            assert!(is_like(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [
            ("sweep", "sweeps"),
            ("sweep?", "sweep"),
            ("", "a"),
            ("a*b", "abc"),
            ("*a*b", "ba"),
            ("[a]", "a"),
        ] {
            assert!(!is_like(pattern, text), "{pattern} {text}");
        }
        assert!(!is_like(&"*a".repeat(200), &"a".repeat(199)), "and it ends");
    }

    #[test]
    fn a_text_is_found_in_names() {
        let found = |text: &str, names: &[&str]| Wanted::new(text).is_in(names.iter().copied());
        assert!(found("", &["a"]) && found("", &[]));
        assert!(found("LEAF-1", &["node", "leaf-12"]) && found("h100", &["8 × NVIDIA H100"]));
        assert!(!found("leaf-1", &["leaf-2", ""]) && !found("ab", &["a", "b"]));
    }

    #[test]
    fn nothing_said_means_all() {
        let all = JobFilter::default();
        assert!(all.has_name("any") && all.has_state("pending"));
        let some = JobFilter { states: vec!["running".to_owned(), "failed".to_owned()], ..all };
        assert!(some.has_state("failed") && !some.has_state("pending"));
    }
}

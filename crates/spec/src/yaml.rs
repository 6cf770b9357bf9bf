//! Reads YAML into a typed file, inside limits, and turns every failure into a [`SpecError`].

use serde::de::DeserializeOwned;
use serde_saphyr::granit_parser::{Event, Parser, StructureStyle};
use serde_saphyr::options::{AliasLimits, DuplicateKeyPolicy};
use serde_saphyr::{Error, Location, Options};

use crate::error::{Place, Source, SpecError, listed, nearest, quote};

/// Largest file that is read, in bytes.
pub const FILE_BYTES_MAX: usize = 4 << 20;
/// Deepest nesting: two for each of the queues above each other, and a few more inside the last.
const DEPTH_MAX: usize = 24;

/// Scalars and collections that aliases may repeat in all.
const ALIASED_MAX: usize = 100_000;
const LIMITS: &str =
    "the limits are 4 MiB, 24 levels of nesting, a million values, and 100000 repeated by aliases";

/// Words of other schedulers, and what they are called here.
const SYNONYMS: &[(&str, &str)] = &[
    ("accelerators", "resources.gpus"),
    ("args", "command"),
    ("commands", "run"),
    ("begin_time", "begin"),
    ("begins_at", "begin"),
    ("cpu", "resources.cpus"),
    ("cpus", "resources.cpus"),
    ("depend", "after"),
    ("dependency", "after"),
    ("depends_on", "after"),
    ("envs", "env"),
    ("exclude", "nodes.except"),
    ("exclude_nodes", "nodes.except"),
    ("excluded_nodes", "nodes.except"),
    ("gpu", "resources.gpus"),
    ("gpus", "resources.gpus"),
    ("grid", "parallelism"),
    ("max_restarts", "retry.max"),
    ("mesh", "parallelism"),
    ("mig", "resources.gpus.mig"),
    ("mem", "resources.memory"),
    ("memory", "resources.memory"),
    ("nproc_per_node", "ranks_per_node"),
    ("ntasks", "ranks"),
    ("nodelist", "nodes.of"),
    ("ntasks_per_node", "ranks_per_node"),
    ("num_nodes", "nodes"),
    ("parallel", "parallelism"),
    ("partition", "queue"),
    ("preemptible", "preempt"),
    ("priority_class", "class"),
    ("qos", "class"),
    ("script", "run"),
    ("slice", "topology.slice"),
    ("spread", "topology.spread"),
    ("time", "time_limit"),
    ("working_dir", "workdir"),
];

/// How a file that users write comes out of its text, and goes back. What concerns more than one field is checked
/// afterwards, once flags were put on top.
macro_rules! define_file {
    ($file:ty) => {
        impl $file {
            /// Reads one YAML document. `source_name` is shown in errors.
            ///
            /// # Errors
            /// When the text is no YAML, has an unknown field, or a value that its field does not take.
            pub fn from_yaml(text: &str, source_name: &str) -> Result<Self, $crate::SpecError> {
                let source = $crate::Source::new(source_name, text);
                let file: Self = $crate::yaml::read(&source, text)?;
                Ok(Self { source, ..file })
            }

            /// Writes the file as YAML, without what was left out.
            ///
            /// # Errors
            /// When the writer refuses a value; it has no known reason to.
            pub fn to_yaml(&self) -> Result<String, $crate::SpecError> {
                serde_saphyr::to_string(self)
                    .map_err(|error| self.source.error($crate::Place::Nowhere, error.to_string(), ""))
            }
        }
    };
}
pub(crate) use define_file;

/// Reads one YAML document into a type of the caller, within the limits of all files that users write. `source_name` is
/// shown in errors.
///
/// # Errors
/// When the text is no YAML, has an unknown field, or a value that its field does not take. A reader of a field gives two
/// lines: what is wrong, and what is accepted.
pub fn from_yaml<T: DeserializeOwned>(text: &str, source_name: &str) -> Result<T, SpecError> {
    read(&Source::new(source_name, text), text)
}

/// Parses one document.
pub(crate) fn read<T: DeserializeOwned>(source: &Source, text: &str) -> Result<T, SpecError> {
    if text.len() > FILE_BYTES_MAX {
        let what = format!("has {} bytes, and at most {FILE_BYTES_MAX} are read", text.len());
        return Err(source.error(Place::Nowhere, what, ""));
    }
    serde_saphyr::from_str_with_options(text, options())
        .map_err(|error| explain(source, error.without_snippet()))
}

fn options() -> Options {
    let mut aliases = AliasLimits::default();
    aliases.max_total_replayed_events = ALIASED_MAX;
    aliases.max_replay_stack_depth = 8;
    serde_saphyr::options! {
        with_snippet: false,
        duplicate_keys: DuplicateKeyPolicy::Error,
        alias_limits: aliases,
        budget: serde_saphyr::budget! {
            max_depth: DEPTH_MAX,
            flow_nesting_limit: DEPTH_MAX,
            max_documents: 2,
            // A cluster file at its limit of size has some 400,000 scalars.
            max_nodes: 1_000_000,
            max_events: 2_000_000,
            // Text that aliases repeat counts again.
            max_total_scalar_bytes: FILE_BYTES_MAX,
            // One anchor may serve every node of a cluster: what is repeated is bounded by its bytes and number.
            enforce_alias_anchor_ratio: false,
        },
    }
}

/// The place of a parser's location; nowhere when it does not know.
pub(crate) fn place_of(location: &Location) -> Place {
    let narrow = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    match narrow(location.line()) {
        0 => Place::Nowhere,
        line => Place::File {
            line,
            column: narrow(location.column()),
            length: narrow(location.span().len()).max(1),
        },
    }
}

/// Says what the parser's error means for the one who wrote the file.
fn explain(source: &Source, error: &Error) -> SpecError {
    let place = error.location().map_or(Place::Nowhere, |location| place_of(&location));
    match error {
        Error::AliasError { error: inner, .. } => {
            let at = explain(source, inner);
            source.error(place, at.what(), at.notes().join("; "))
        }
        // Our own readers put what is wrong on the first line and what is accepted on the second.
        Error::Message { msg, .. } => match msg.split_once('\n') {
            Some((what, accepted)) => source.error(place, what, format!("expected {accepted}")),
            None => source.error(place, msg, ""),
        },
        Error::SerdeUnknownField { field, expected, .. } => unknown_field(source, place, field, expected),
        Error::SerdeMissingField { field, .. } => {
            source.error_about_mapping(place, format!("the field {field:?} is missing"))
        }
        Error::DuplicateMappingKey { key, .. } => {
            let key = key.as_deref().unwrap_or("this key");
            source.error(place, format!("{} stands here a second time", quote(key)), "give it once")
        }
        Error::Unexpected { expected: "string scalar", .. } => {
            source.error(place, "a list or mapping stands where one value belongs", "")
        }
        Error::Unexpected { expected: "mapping start", .. } => {
            source.error(place, "is no mapping", "expected lines of `field: value`, or {field: value}")
        }
        Error::Unexpected { expected: "sequence start", .. } => {
            source.error(place, "is no list", "expected [a, b], or lines that begin with `- `")
        }
        Error::NullIntoString { .. } => {
            source.error(place, "has no value", "give one, or leave the field out")
        }
        Error::MultipleDocuments { .. } => {
            source.error(place, "a second document begins here", "give every document a file of its own")
        }
        Error::TaggedScalarCannotDeserializeIntoString { .. } => {
            source.error(place, "YAML tags (`!…`) are not used here", "write the value without the tag")
        }
        Error::SerdeInvalidType { unexpected, expected, .. } => {
            source.error(place, format!("{unexpected} does not belong here"), format!("expected {expected}"))
        }
        Error::Budget { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => {
            source.error(place, "is too large, nested too deeply or repeated too often to be read", LIMITS)
        }
        other => {
            let what = first_sentence(other);
            let accepted = if what.contains("tab") { "YAML is indented with spaces" } else { "" };
            source.error(place, what, accepted)
        }
    }
}

/// The parser's own text without the place, which is shown apart.
fn first_sentence(error: &Error) -> String {
    let text = error.to_string();
    let end = text.rfind(" at line ").unwrap_or(text.len());
    text.get(..end).unwrap_or(&text).lines().next().unwrap_or_default().to_owned()
}

fn unknown_field(source: &Source, place: Place, field: &str, known: &[&str]) -> SpecError {
    let place = match place {
        Place::File { line, column, .. } => {
            Place::File { line, column, length: u32::try_from(field.chars().count()).unwrap_or(1) }
        }
        other => other,
    };
    let lower = field.to_lowercase().replace('-', "_");
    let synonym =
        SYNONYMS.iter().find(|(theirs, _)| *theirs == lower).map(|(_, ours)| *ours).filter(|ours| {
            // Inside `resources`, `gpu` is a slip for `gpus`; the path would be one too long.
            known.contains(&ours.split('.').next().unwrap_or(ours))
        });
    let meant = synonym.or_else(|| nearest(&lower, known));
    let error = source.error(
        place,
        "no such field",
        meant.map_or_else(String::new, |m| format!("did you mean {m:?}?")),
    );
    error.note(format!("known fields here: {}", listed(known)))
}

/// Path of the node (or key) that begins at a line and column, e.g. `resources.gpus` or `nodes[2].name`; of the
/// outermost that begins there when the `container` is meant.
pub(crate) fn field_at(text: &str, line: u32, column: u32, container: bool) -> Option<String> {
    let mut open: Vec<Step> = Vec::new();
    for event in Parser::new_from_str(text) {
        let (event, span) = event.ok()?;
        let here = u32::try_from(span.start.line()).ok()? == line
            && u32::try_from(span.start.col()).ok()?.checked_add(1)? == column;
        match &event {
            Event::MappingEnd | Event::SequenceEnd => {
                open.pop();
                continue;
            }
            Event::Scalar(..) | Event::Alias(_) | Event::MappingStart(..) | Event::SequenceStart(..) => {}
            _ => continue,
        }
        if let Some(step) = open.last_mut() {
            step.enter(if let Event::Scalar(value, ..) = &event { value } else { "?" });
        }
        let opens = match &event {
            Event::MappingStart(style, ..) => {
                Some((style, Step::Mapping { key: String::new(), at_value: true }))
            }
            Event::SequenceStart(style, ..) => Some((style, Step::Sequence { index: None })),
            _ => None,
        };
        // A block mapping begins where its first key does, and then the key is meant, unless asked otherwise.
        let means_child = !container && matches!(opens, Some((StructureStyle::Block, _)));
        if here && !means_child {
            // The parser may give the first key of a flow mapping for the mapping.
            let outside = usize::from(container && opens.is_none());
            return open.get(..open.len().saturating_sub(outside)).map(join);
        }
        open.extend(opens.map(|(_, step)| step));
    }
    None
}

/// An open mapping or sequence, and where in it the reader stands.
enum Step {
    Mapping { key: String, at_value: bool },
    Sequence { index: Option<usize> },
}

impl Step {
    /// A new child node begins: a key, a value or an item.
    fn enter(&mut self, scalar: &str) {
        match self {
            Self::Mapping { key, at_value } => {
                *at_value = !*at_value;
                if !*at_value {
                    *key = scalar.chars().filter(|c| !c.is_control()).take(40).collect();
                }
            }
            Self::Sequence { index } => *index = Some(index.map_or(0, |i| i.saturating_add(1))),
        }
    }
}

fn join(open: &[Step]) -> String {
    let mut path = String::new();
    for step in open {
        match step {
            Step::Mapping { key, .. } if path.is_empty() => path.clone_from(key),
            Step::Mapping { key, .. } => path = format!("{path}.{key}"),
            Step::Sequence { index } => path = format!("{path}[{}]", index.unwrap_or(0)),
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_named_by_its_path() {
        let text = "name: a\nresources: {gpus: H100:0, cpus: 4}\nnodes:\n  - name: n1\n    busy: [3, \"4-7\"]\n  - {name: n2}\nt:\n  x: 1\n";
        let path = |line, column| field_at(text, line, column, false);
        assert_eq!(path(1, 7).as_deref(), Some("name"));
        assert_eq!(path(2, 12).as_deref(), Some("resources"));
        assert_eq!(path(2, 19).as_deref(), Some("resources.gpus"));
        assert_eq!(path(2, 13).as_deref(), Some("resources.gpus"));
        assert_eq!(path(4, 5).as_deref(), Some("nodes[0].name"));
        assert_eq!(path(4, 11).as_deref(), Some("nodes[0].name"));
        assert_eq!(path(5, 15).as_deref(), Some("nodes[0].busy[1]"));
        assert_eq!(path(6, 5).as_deref(), Some("nodes[1]"));
        assert_eq!(path(8, 6).as_deref(), Some("t.x"));
        assert_eq!(field_at(text, 4, 5, true).as_deref(), Some("nodes[0]"));
        assert_eq!(field_at(text, 6, 6, true).as_deref(), Some("nodes[1]"));
        assert_eq!(path(99, 1), None);
    }
}

//! Expressions over labels, in one canonical form: what means the same is equal.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// What an expression asks of the value of its key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Test {
    /// One of these, sorted.
    In(Box<[Box<str>]>),
    /// None of these, sorted; a label that is absent will do.
    NotIn(Box<[Box<str>]>),
    Exists,
    Absent,
    Above(i64),
    Below(i64),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Expression {
    pub(super) key: Box<str>,
    pub(super) test: Test,
}

impl Expression {
    /// None where upstream cannot read it; a term with such an expression matches nothing.
    pub(super) fn read(key: &str, operator: &str, values: Option<&[String]>) -> Option<Self> {
        let values = values.unwrap_or_default();
        if !is_label_key(key) || !values.iter().all(|value| is_label_value(value)) {
            return None;
        }
        let test = match (operator, values) {
            ("In", [_, ..]) => Test::In(sorted(values)),
            ("NotIn", [_, ..]) => Test::NotIn(sorted(values)),
            ("Exists", []) => Test::Exists,
            ("DoesNotExist", []) => Test::Absent,
            ("Gt", [bound]) => Test::Above(bound.parse().ok()?),
            ("Lt", [bound]) => Test::Below(bound.parse().ok()?),
            _ => return None,
        };
        Some(Self { key: key.into(), test })
    }

    pub(super) fn equals(key: &str, value: &str) -> Self {
        Self { key: key.into(), test: Test::In(Box::new([value.into()])) }
    }

    /// `value`: of the key, where there is one.
    pub(super) fn accepts(&self, value: Option<&str>) -> bool {
        let among = |values: &[Box<str>]| value.is_some_and(|value| values.iter().any(|one| **one == *value));
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match &self.test {
            Test::In(values) => among(values),
            Test::NotIn(values) => !among(values),
            Test::Exists => value.is_some(),
            Test::Absent => value.is_none(),
            Test::Above(bound) => number().is_some_and(|number| number > *bound),
            Test::Below(bound) => number().is_some_and(|number| number < *bound),
        }
    }

    pub(super) fn matches(&self, labels: Option<&BTreeMap<String, String>>) -> bool {
        self.accepts(labels.and_then(|labels| labels.get(&*self.key)).map(String::as_str))
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        match &self.test {
            Test::In(values) if values.len() == 1 => write!(f, "{key}={}", values[0]),
            Test::In(values) => write!(f, "{key} in ({})", values.join(",")),
            Test::NotIn(values) if values.len() == 1 => write!(f, "{key}!={}", values[0]),
            Test::NotIn(values) => write!(f, "{key} notin ({})", values.join(",")),
            Test::Exists => write!(f, "{key}"),
            Test::Absent => write!(f, "!{key}"),
            Test::Above(bound) => write!(f, "{key}>{bound}"),
            Test::Below(bound) => write!(f, "{key}<{bound}"),
        }
    }
}

/// Which objects, by their labels.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Selector {
    Nothing,
    /// All of these hold, sorted; everything where there are none.
    All(Box<[Expression]>),
}

impl Selector {
    /// No selector selects nothing, an empty one everything. None where upstream cannot read it.
    pub(crate) fn read(selector: Option<&LabelSelector>) -> Option<Self> {
        let Some(selector) = selector else { return Some(Self::Nothing) };
        let labels = selector.match_labels.iter().flatten();
        let labels = labels.map(|(key, value)| {
            (is_label_key(key) && is_label_value(value)).then(|| Expression::equals(key, value))
        });
        let expressions = selector.match_expressions.iter().flatten();
        let expressions = expressions.map(|one| match one.operator.as_str() {
            // Only nodes are compared by numbers.
            "Gt" | "Lt" => None,
            operator => Expression::read(&one.key, operator, one.values.as_deref()),
        });
        Some(Self::all(labels.chain(expressions).collect::<Option<Vec<_>>>()?))
    }

    /// What both select.
    pub(super) fn and(self, more: Vec<Expression>) -> Self {
        match self {
            Self::Nothing => Self::Nothing,
            Self::All(expressions) => Self::all(expressions.into_iter().chain(more).collect()),
        }
    }

    pub(super) fn is_everything(&self) -> bool {
        matches!(self, Self::All(expressions) if expressions.is_empty())
    }

    /// The labels that it looks at.
    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        let expressions = match self {
            Self::Nothing => [].as_slice(),
            Self::All(expressions) => expressions,
        };
        expressions.iter().map(|expression| &*expression.key)
    }

    fn all(mut expressions: Vec<Expression>) -> Self {
        expressions.sort();
        expressions.dedup();
        Self::All(expressions.into())
    }

    pub(crate) fn matches(&self, labels: Option<&BTreeMap<String, String>>) -> bool {
        match self {
            Self::Nothing => false,
            Self::All(expressions) => expressions.iter().all(|expression| expression.matches(labels)),
        }
    }
}

fn sorted(values: &[String]) -> Box<[Box<str>]> {
    let mut values: Vec<Box<str>> = values.iter().map(|value| value.as_str().into()).collect();
    values.sort();
    values.dedup();
    values.into()
}

/// `[prefix/]name` as Kubernetes reads it.
fn is_label_key(key: &str) -> bool {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    !name.is_empty() && is_label_value(name) && prefix.is_none_or(is_dns_subdomain)
}

/// Empty, or up to 63 letters, digits, `-`, `_` and `.`, with a letter or digit at both ends.
fn is_label_value(value: &str) -> bool {
    let is_inner = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let bytes = value.as_bytes();
    let ends = [bytes.first(), bytes.last()];
    bytes.len() <= 63
        && bytes.iter().all(is_inner)
        && ends.iter().flatten().all(|end| end.is_ascii_alphanumeric())
}

fn is_dns_subdomain(text: &str) -> bool {
    let is_inner = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-';
    let is_part = |part: &str| {
        let bytes = part.as_bytes();
        !bytes.is_empty() && bytes.iter().all(is_inner) && bytes[0] != b'-' && bytes[bytes.len() - 1] != b'-'
    };
    text.len() <= 253 && text.split('.').all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(operator: &str, values: &[&str]) -> Option<Expression> {
        let values: Vec<String> = values.iter().map(|value| (*value).to_owned()).collect();
        Expression::read("example.com/key", operator, Some(&values))
    }

    #[test]
    fn every_operator_over_present_absent_and_odd_values() {
        for (operator, values, accepted, refused) in [
            ("In", &["a", "b"][..], &[Some("a"), Some("b")][..], &[None, Some("c"), Some("")][..]),
            ("NotIn", &["a", "b"], &[None, Some("c"), Some("")], &[Some("a")]),
            ("Exists", &[], &[Some(""), Some("a")], &[None]),
            ("DoesNotExist", &[], &[None], &[Some(""), Some("a")]),
            (
                "Gt",
                &["5"],
                &[Some("6"), Some("+6"), Some("9223372036854775807")],
                &[None, Some("5"), Some("a"), Some("6.5"), Some("9223372036854775808")],
            ),
            ("Lt", &["5"], &[Some("4"), Some("-7")], &[None, Some("5"), Some("")]),
        ] {
            let expression = read(operator, values).unwrap();
            for value in accepted {
                assert!(expression.accepts(*value), "{expression} of {value:?}");
            }
            for value in refused {
                assert!(!expression.accepts(*value), "{expression} of {value:?}");
            }
        }
    }

    #[test]
    fn what_upstream_cannot_read_is_not_read() {
        for (operator, values) in [
            ("In", &[][..]),
            ("NotIn", &[]),
            ("Exists", &["a"]),
            ("DoesNotExist", &["a"]),
            ("Gt", &["many"]),
            ("Gt", &["1", "2"]),
            ("Lt", &[]),
            // No value of a label begins with a minus, so no bound does either.
            ("Lt", &["-5"]),
            ("in", &["a"]),
            ("In", &["not a label"]),
            ("NotIn", &["-a"]),
        ] {
            assert_eq!(read(operator, values), None, "{operator} {values:?}");
        }
        for key in ["", "/a", "a/", "A.com/a", "a/b/c", "a..b/c", "-a"] {
            assert_eq!(Expression::read(key, "Exists", None), None, "{key:?}");
        }
    }

    #[test]
    fn no_selector_selects_nothing_and_an_empty_one_everything() {
        assert!(!Selector::read(None).unwrap().matches(None));
        assert!(Selector::read(Some(&LabelSelector::default())).unwrap().matches(None));
    }
}

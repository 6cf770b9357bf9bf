//! Lists of hosts as Slurm writes them: `gpu-[1-3,07],login`.

/// Names that one list may stand for.
const NAMES_MAX: usize = 10_000;

/// The names of a list, in its order.
///
/// # Errors
/// If a bracket is not closed, a range is no range, or there are too many names.
pub(super) fn expand(list: &str) -> Result<Vec<String>, String> {
    let mut names = Vec::new();
    for part in split(list)? {
        one(part, &mut names)?;
    }
    Ok(names)
}

/// Splits at commas outside of brackets.
fn split(list: &str) -> Result<Vec<&str>, String> {
    let (mut parts, mut depth, mut begin) = (Vec::new(), 0_i32, 0);
    for (at, letter) in list.char_indices() {
        match letter {
            '[' => depth += 1,
            ']' => depth -= 1,
            ',' if depth == 0 => {
                parts.extend(list.get(begin..at));
                begin = at + 1;
            }
            _ => {}
        }
        if !(0..=1).contains(&depth) {
            return Err(format!("{list:?}: brackets do not match"));
        }
    }
    if depth != 0 {
        return Err(format!("{list:?}: a bracket is not closed"));
    }
    parts.extend(list.get(begin..));
    Ok(parts.into_iter().map(str::trim).filter(|part| !part.is_empty()).collect())
}

/// One part; brackets after the first are read in turn.
fn one(part: &str, names: &mut Vec<String>) -> Result<(), String> {
    let mut begun = vec![String::new()];
    let mut rest = part;
    while let Some((head, tail)) = rest.split_once('[') {
        let (ranges, after) =
            tail.split_once(']').ok_or_else(|| format!("{part:?}: a bracket is not closed"))?;
        let mut next = Vec::new();
        for range in ranges.split(',') {
            let numbers =
                numbers(range).ok_or_else(|| format!("{part:?}: {range:?} is no range of numbers"))?;
            if begun.len().saturating_mul(numbers.len()) > NAMES_MAX {
                return Err(format!("{part:?} stands for more than {NAMES_MAX} names"));
            }
            for name in &begun {
                next.extend(numbers.iter().map(|number| format!("{name}{head}{number}")));
            }
            if next.len() > NAMES_MAX {
                return Err(format!("{part:?} stands for more than {NAMES_MAX} names"));
            }
        }
        (begun, rest) = (next, after);
    }
    names.extend(begun.into_iter().map(|name| name + rest));
    if names.len() > NAMES_MAX { Err(format!("more than {NAMES_MAX} names")) } else { Ok(()) }
}

/// `3`, `07`, `1-3` or `08-11`: numbers keep their zeros.
fn numbers(range: &str) -> Option<Vec<String>> {
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(first) || !is_number(last) {
        return None;
    }
    let (from, to): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
    let width = first.len();
    (from <= to && to - from < NAMES_MAX as u64)
        .then(|| (from..=to).map(|n| format!("{n:0width$}")).collect())
}

/// Numbers from the first to the last, with zeros before them up to a width.
type Range = (u64, u64, usize);

/// The shortest list of names: neighbours that differ in a number at their end share brackets.
pub(super) fn compress(names: &[String]) -> String {
    let mut parts: Vec<(String, Vec<Range>)> = Vec::new();
    for name in names {
        let head = name.trim_end_matches(|letter: char| letter.is_ascii_digit());
        let digits = name.get(head.len()..).unwrap_or_default();
        let Ok(number) = digits.parse::<u64>() else {
            parts.push((name.clone(), Vec::new()));
            continue;
        };
        let width = if digits.starts_with('0') { digits.len() } else { 0 };
        match parts.last_mut().filter(|(of, ranges)| of == head && !ranges.is_empty()) {
            Some((_, ranges)) => match ranges.last_mut() {
                Some((_, last, of))
                    if last.checked_add(1) == Some(number) && fits(*of, width, digits.len()) =>
                {
                    *last = number
                }
                _ => ranges.push((number, number, width)),
            },
            None => parts.push((head.to_owned(), vec![(number, number, width)])),
        }
    }
    let written = parts.into_iter().map(|(head, ranges)| match ranges.as_slice() {
        [] => head,
        [(first, last, width)] if first == last => format!("{head}{first:0width$}"),
        ranges => {
            let texts: Vec<String> = ranges
                .iter()
                .map(|(first, last, width)| {
                    if first == last {
                        format!("{first:0width$}")
                    } else {
                        format!("{first:0width$}-{last:0width$}")
                    }
                })
                .collect();
            format!("{head}[{}]", texts.join(","))
        }
    });
    written.collect::<Vec<_>>().join(",")
}

/// Whether a number may follow in a range: with zeros before it both have as many digits.
const fn fits(of: usize, width: usize, digits: usize) -> bool {
    if of == 0 { width == 0 } else { digits == of }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lists_are_expanded_and_compressed() {
        for (list, names) in [
            ("a", "a"),
            ("gpu-[1-3,7],login", "gpu-1 gpu-2 gpu-3 gpu-7 login"),
            ("n[08-11]", "n08 n09 n10 n11"),
            ("r1n[1-2],r2n[1,3]", "r1n1 r1n2 r2n1 r2n3"),
        ] {
            let expanded = expand(list).unwrap();
            assert_eq!(expanded.join(" "), names);
            assert_eq!(compress(&expanded), list);
        }
        assert_eq!(expand("r[1-2]n[1-2]").unwrap().len(), 4);
        for wrong in ["a[1", "a]1[", "a[x]", "a[3-1]", "a[[1]]", "a[1-99999999]", "a[0-9999][0-9999][0-9999]"]
        {
            assert!(expand(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn what_is_compressed_is_expanded_again(names in proptest::collection::vec("[a-c]{1,2}-?[0-9]{0,3}", 0..12)) {
            prop_assert_eq!(expand(&compress(&names)).unwrap(), names);
        }

        #[test]
        fn no_text_panics(text in "[a\\[\\],0-9-]{0,20}") {
            let _ = expand(&text);
        }
    }
}

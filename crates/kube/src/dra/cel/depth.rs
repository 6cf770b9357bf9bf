//! How deep an expression nests, seen before it is parsed: the parser and the interpreter call themselves for each
//! level, and a stack that is used up cannot be caught.

/// Levels of brackets, and links of a chain such as `a.b[c] + d` around and inside of them. Expressions in use
/// have about ten.
const DEPTH_MAX: usize = 24;

/// # Errors
/// When it nests deeper than the limit.
pub(super) fn check(expression: &str) -> Result<(), String> {
    let deepest = deepest(expression.as_bytes());
    if deepest > DEPTH_MAX {
        return Err(format!("the expression nests {deepest} levels deep, at most {DEPTH_MAX} are allowed"));
    }
    Ok(())
}

fn deepest(text: &[u8]) -> usize {
    // Links of the chain at each level of brackets; `&&`, `||` and commas begin a new chain.
    let mut chains = vec![0_usize];
    let (mut sum, mut deepest, mut at) = (0_usize, 0, 0);
    while let Some(&byte) = text.get(at) {
        match byte {
            b'"' | b'\'' => {
                at = string_end(text, at);
                continue;
            }
            b'(' | b'[' | b'{' => {
                chains.push(1);
                sum += 1;
            }
            b')' | b']' | b'}' if chains.len() > 1 => {
                sum -= chains.pop().unwrap_or_default();
                // What is behind the bracket stands one link further: `f(x)(y)`, `a[b][c]`.
                link(&mut chains, &mut sum);
            }
            b',' => sum -= std::mem::take(chains.last_mut().unwrap_or(&mut 0)),
            b'&' | b'|' => sum -= std::mem::take(chains.last_mut().unwrap_or(&mut 0)),
            b'.' | b'?' | b'+' | b'-' | b'*' | b'/' | b'%' | b'<' | b'>' | b'=' | b'!' => {
                link(&mut chains, &mut sum)
            }
            _ => {}
        }
        deepest = deepest.max(sum);
        at += 1;
    }
    deepest
}

fn link(chains: &mut [usize], sum: &mut usize) {
    if let Some(chain) = chains.last_mut() {
        *chain += 1;
        *sum += 1;
    }
}

/// Behind the closing quote; the end of the text where there is none.
fn string_end(text: &[u8], start: usize) -> usize {
    let quote = text[start];
    let is_triple = text[start..].starts_with(&[quote; 3]);
    let is_raw = start > 0 && matches!(text[start - 1], b'r' | b'R');
    let closing = if is_triple { 3 } else { 1 };
    let mut at = start + closing;
    while at < text.len() {
        if text[at] == b'\\' && !is_raw {
            at += 2;
        } else if text[at..].starts_with(&[quote; 3][..closing]) {
            return at + closing;
        } else {
            at += 1;
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_is_of_brackets_and_chains_and_not_of_texts() {
        let cases = [
            ("true", 0),
            ("device.driver == 'a.b.c.d((('", 3),
            ("a.b && c.d && e.f", 1),
            ("f((1))", 2),
            ("[a.b, c.d]", 2),
            (r"'\'((((' == ''", 2),
            ("r'\\' + \"\"\"(\"(\"\"\"", 1),
            ("'", 0),
        ];
        for (expression, expected) in cases {
            assert_eq!(deepest(expression.as_bytes()), expected, "{expression}");
        }
        assert!(check(&"(".repeat(25)).is_err());
        assert!(check(&["device.attributes['a'].b == 'c'"; 200].join(" || ")).is_ok());
    }
}

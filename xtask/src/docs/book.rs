//! A preprocessor of mdbook: links that leave `docs/` lead to the repository, because the book has no other files.
//!
//! mdbook gives `[context, book]` as JSON and takes the book back. Its versions name the list of chapters differently, so
//! every object with a text and the path of a source counts as a chapter.

use std::io::Read as _;
use std::path::Path;

use serde_json::Value;

use super::{BOOK, normal};

/// Reads the book from standard input and writes it to standard output. `supports RENDERER` is answered by success.
///
/// # Errors
/// If the input is not what mdbook gives.
pub(crate) fn preprocess(arguments: &[&str]) -> Result<(), String> {
    if arguments.first() == Some(&"supports") {
        return Ok(());
    }
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map_err(|error| format!("cannot read the book: {error}"))?;
    println!("{}", rewritten(&text)?);
    Ok(())
}

fn rewritten(text: &str) -> Result<Value, String> {
    let input: Value =
        serde_json::from_str(text).map_err(|error| format!("the book is not JSON: {error}"))?;
    let Value::Array(parts) = input else { return Err("expected [context, book] from mdbook".to_owned()) };
    let Ok([context, mut book]) = <[Value; 2]>::try_from(parts) else {
        return Err("expected [context, book] from mdbook".to_owned());
    };
    let repository = context
        .pointer("/config/output/html/git-repository-url")
        .and_then(Value::as_str)
        .ok_or("book.toml has no git-repository-url below [output.html]")?;
    chapters(&mut book, repository);
    Ok(book)
}

fn chapters(value: &mut Value, repository: &str) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| chapters(item, repository)),
        Value::Object(fields) => {
            let source = ["source_path", "path"].iter().find_map(|key| fields.get(*key)?.as_str());
            if let Some(source) = source.map(str::to_owned)
                && let Some(Value::String(content)) = fields.get_mut("content")
            {
                *content = page(content, &source, repository);
            }
            fields.values_mut().for_each(|field| chapters(field, repository));
        }
        _ => {}
    }
}

/// A page with its links to other files of the repository as full addresses. Code blocks stay as they are.
fn page(text: &str, source: &str, repository: &str) -> String {
    let folder = Path::new(BOOK).join(source).parent().map(Path::to_path_buf).unwrap_or_default();
    let mut is_code = false;
    let lines = text.split_inclusive('\n').map(|line| {
        is_code ^= line.trim_start().starts_with("```");
        if is_code { line.to_owned() } else { links(line, &folder, repository) }
    });
    lines.collect()
}

fn links(line: &str, folder: &Path, repository: &str) -> String {
    let mut parts = line.split("](");
    let mut kept = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        kept.push_str("](");
        let address = part.split_once(')').and_then(|(target, _)| outside(target, folder, repository));
        match address {
            Some((target, address)) => {
                kept.push_str(&address);
                kept.push_str(&part[target..]);
            }
            None => kept.push_str(part),
        }
    }
    kept
}

/// The length of a target that leads out of the book, and its address.
fn outside(target: &str, folder: &Path, repository: &str) -> Option<(usize, String)> {
    if !target.starts_with("..") {
        return None;
    }
    let (path, fragment) =
        target.split_once('#').map_or((target, ""), |(path, _)| (path, &target[path.len()..]));
    let aim = normal(&folder.join(path))?;
    if aim.starts_with(BOOK) {
        return None;
    }
    Some((target.len(), format!("{repository}/blob/main/{}{fragment}", aim.display())))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn links_out_of_the_book_lead_to_the_repository() {
        let context = json!({"config": {"output": {"html": {"git-repository-url": "https://x.org/r"}}}});
        let text = "[a](../../README.md#commands) [b](../policy.md) [c](c.md)\n```\n[d](../../d)\n```\n[e](../../e/f.rs)\n";
        let chapter = |content: &str| {
            let below = json!([{"Chapter": {"content": "[g](../g.rs)", "path": "h.md", "sub_items": []}}]);
            json!({"Chapter": {"content": content, "path": "operate/x.md", "sub_items": below}})
        };
        let input = json!([context, {"sections": [chapter(text), "Separator"]}]);
        let book = rewritten(&input.to_string()).unwrap();
        let expected = "[a](https://x.org/r/blob/main/README.md#commands) [b](../policy.md) [c](c.md)\n```\n[d](../../d)\n```\n[e](https://x.org/r/blob/main/e/f.rs)\n";
        let chapter = &book["sections"][0]["Chapter"];
        assert_eq!(chapter["content"], expected);
        assert_eq!(chapter["sub_items"][0]["Chapter"]["content"], "[g](https://x.org/r/blob/main/g.rs)");
        assert_eq!(book["sections"][1], "Separator");
    }

    #[test]
    fn other_input_is_an_error() {
        assert!(rewritten("{}").unwrap_err().contains("[context, book]"));
        assert!(rewritten("[{}, {}]").unwrap_err().contains("git-repository-url"));
    }
}

//! Reads a Rust library for wasm32 and looks for float instructions.
//!
//! An rlib is an `ar` archive (System V form: `!<arch>\n`, then 60-byte headers with the size in decimal, each
//! member padded to an even length) of wasm objects. The operators are found by wasmparser, and the function's
//! name in the object's `linking` section.

use std::collections::BTreeMap;
use std::path::Path;

use wasmparser::{KnownCustom, Linking, Parser, Payload, SymbolInfo, TypeRef};

use crate::cargo::CargoError;
use crate::walls::Breach;

const RULE: &str = "the engine's wasm32 build has no float instruction";
const MAGIC: &[u8] = b"!<arch>\n";
const HEADER_BYTES: usize = 60;

/// The first float instruction of every object in the library, or why it cannot be read.
pub(crate) fn check(library: &Path) -> Result<Vec<Breach>, CargoError> {
    let bytes =
        std::fs::read(library).map_err(|source| CargoError::Read { path: library.to_path_buf(), source })?;
    let objects = match objects(&bytes) {
        Ok(objects) => objects,
        Err(why) => return Ok(vec![Breach::new(library, RULE, why)]),
    };
    let mut breaches = Vec::new();
    for (name, object) in objects {
        match first_float(object) {
            Ok(None) => {}
            Ok(Some(found)) => breaches.push(Breach::new(library, RULE, found)),
            Err(why) => breaches.push(Breach::new(library, RULE, format!("object {name}: {why}"))),
        }
    }
    Ok(breaches)
}

/// The members of an archive that are objects: all but the symbol table, the long names and Rust's metadata.
/// An archive without an object proves nothing, and so is an error.
fn objects(bytes: &[u8]) -> Result<Vec<(String, &[u8])>, String> {
    let mut rest = bytes.strip_prefix(MAGIC).ok_or("this is no ar archive")?;
    let mut objects = Vec::new();
    while !rest.is_empty() {
        let (header, body) = rest.split_at_checked(HEADER_BYTES).ok_or("a member's header is cut off")?;
        let field = |range: std::ops::Range<usize>| {
            header
                .get(range)
                .map(|field| String::from_utf8_lossy(field).trim_end().to_owned())
                .unwrap_or_default()
        };
        let size: usize = field(48..58).parse().map_err(|_| "a member's size is no number")?;
        let (member, after) = body.split_at_checked(size).ok_or("a member is cut off")?;
        rest = if size % 2 == 1 { after.get(1..).unwrap_or(&[]) } else { after };
        let name = field(0..16);
        if !matches!(name.as_str(), "/" | "//" | "/SYM64/") && !is_metadata(&name) {
            objects.push((name, member));
        }
    }
    if objects.is_empty() { Err("the archive holds no object".to_owned()) } else { Ok(objects) }
}

fn is_metadata(name: &str) -> bool {
    name.trim_end_matches('/') == "lib.rmeta"
}

/// `function: instruction` of the first float instruction of a wasm object.
fn first_float(object: &[u8]) -> Result<Option<String>, String> {
    let wrong = |error: wasmparser::BinaryReaderError| format!("no wasm object: {error}");
    let mut function = 0;
    let mut found = None;
    let mut names = BTreeMap::new();
    for payload in Parser::new(0).parse_all(object) {
        match payload.map_err(wrong)? {
            Payload::ImportSection(imports) => {
                for import in imports.into_imports() {
                    // Imported functions are counted before the object's own.
                    let is_function =
                        matches!(import.map_err(wrong)?.ty, TypeRef::Func(_) | TypeRef::FuncExact(_));
                    function += u32::from(is_function);
                }
            }
            Payload::CodeSectionEntry(body) => {
                for operator in body.get_operators_reader().map_err(wrong)? {
                    let text = format!("{:?}", operator.map_err(wrong)?);
                    let instruction = text.split([' ', '{', '(']).next().unwrap_or_default();
                    if found.is_none() && (instruction.contains("F32") || instruction.contains("F64")) {
                        found = Some((function, instruction.to_owned()));
                    }
                }
                function += 1;
            }
            Payload::CustomSection(section) => {
                if let KnownCustom::Linking(linking) = section.as_known() {
                    names.extend(function_names(&linking).map_err(wrong)?);
                }
            }
            _ => {}
        }
    }
    Ok(found.map(|(function, instruction)| {
        let name = names.get(&function).cloned().unwrap_or_else(|| format!("function {function}"));
        format!("{name}: {instruction}")
    }))
}

fn function_names(
    linking: &wasmparser::LinkingSectionReader<'_>,
) -> wasmparser::Result<BTreeMap<u32, String>> {
    let mut names = BTreeMap::new();
    for subsection in linking.subsections() {
        if let Linking::SymbolTable(symbols) = subsection? {
            for symbol in symbols {
                if let SymbolInfo::Func { index, name: Some(name), .. } = symbol? {
                    names.insert(index, name.to_owned());
                }
            }
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_archive_of_objects_is_an_error() {
        assert!(objects(b"ELF").is_err());
        assert!(objects(MAGIC).is_err(), "an empty archive proves nothing");
        assert!(objects(b"!<arch>\nshort").is_err());
        let member = |name: &str, size: &str| format!("!<arch>\n{name:<16}{:<32}{size:<10}`\n", "0");
        assert!(objects(member("a.o/", "9").as_bytes()).is_err(), "cut off");
        assert!(objects(member("a.o/", "-1").as_bytes()).is_err());
        assert!(objects(format!("{}xy", member("lib.rmeta/", "2")).as_bytes()).is_err(), "only metadata");
        let good = format!("{}xy", member("a.o/", "2"));
        assert_eq!(objects(good.as_bytes()), Ok(vec![("a.o/".to_owned(), &b"xy"[..])]));
        assert!(first_float(b"xy").is_err(), "bitcode or anything else");
    }
}

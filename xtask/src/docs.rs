//! The documentation: every relative link resolves, figures that it quotes are those of the tables, the summary of the book
//! lists each page once, and the reference has every item of the lists in the sources.

pub(crate) mod book;
mod figures;
mod listed;
mod mentions;
mod page;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Component, Path, PathBuf};

use crate::cargo::{CargoError, read};
use crate::files;
use page::Page;

/// Pages outside of the book whose links are checked as well.
const PAGES: &[&str] = &[
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "fuzz/README.md",
    "python/README.md",
    "ui/README.md",
];
/// Folders outside of the book, of which all pages are checked.
const FOLDERS: &[&str] = &["bench"];
const BOOK: &str = "docs";
const SUMMARY: &str = "docs/SUMMARY.md";

/// A link or a page that is wrong, with what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Fault {
    file: PathBuf,
    line: usize,
    what: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file.display(), self.line, self.what)
    }
}

/// All faults of the documentation below the root of the repository, by file and line.
///
/// # Errors
/// If a page or a folder cannot be read.
pub(crate) fn check(root: &Path) -> Result<Vec<Fault>, CargoError> {
    let mut faults = check_pages(root)?;
    faults.extend(listed::check(root)?);
    faults.extend(mentions::check(root)?);
    faults.sort();
    Ok(faults)
}

fn check_pages(root: &Path) -> Result<Vec<Fault>, CargoError> {
    let mut files: Vec<PathBuf> = PAGES.iter().map(PathBuf::from).collect();
    files.retain(|file| root.join(file).is_file());
    for folder in FOLDERS.iter().chain(&[BOOK]).map(Path::new).filter(|folder| root.join(folder).is_dir()) {
        files.extend(relative(root, files::of_kind(&root.join(folder), "md")?));
    }
    let mut texts = BTreeMap::new();
    for file in files {
        let text = read(&root.join(&file))?;
        texts.insert(file, text);
    }
    let pages = texts.iter().map(|(file, text)| (file.clone(), Page::parse(text))).collect();
    let mut faults = check_links(root, &pages)?;
    faults.extend(figures::check(&texts));
    faults.extend(check_summary(&pages));
    faults.sort();
    Ok(faults)
}

/// Paths below the root, from there.
fn relative(root: &Path, files: Vec<PathBuf>) -> impl Iterator<Item = PathBuf> {
    files.into_iter().map(move |file| file.strip_prefix(root).map(Path::to_path_buf).unwrap_or(file))
}

fn check_links(root: &Path, pages: &BTreeMap<PathBuf, Page>) -> Result<Vec<Fault>, CargoError> {
    let mut faults = Vec::new();
    for (file, page) in pages {
        for link in &page.links {
            if let Some(what) = wrong(root, pages, file, &link.target)? {
                faults.push(Fault {
                    file: file.clone(),
                    line: link.line,
                    what: format!("link `{}`: {what}", link.target),
                });
            }
        }
    }
    Ok(faults)
}

/// Why a link does not resolve, and what to do; nothing if it does, or leads to another site.
fn wrong(
    root: &Path,
    pages: &BTreeMap<PathBuf, Page>,
    file: &Path,
    target: &str,
) -> Result<Option<String>, CargoError> {
    if target.contains("://") || target.starts_with("mailto:") {
        return Ok(None);
    }
    let (path, fragment) = target.split_once('#').map_or((target, None), |(path, at)| (path, Some(at)));
    if path.starts_with('/') {
        return Ok(Some("write the path relative to the page, without a leading slash".to_owned()));
    }
    let aim = if path.is_empty() {
        file.to_path_buf()
    } else {
        let folder = file.parent().unwrap_or(Path::new(""));
        match normal(&folder.join(path.replace("%20", " "))) {
            Some(aim) => aim,
            None => return Ok(Some("the path leaves the repository; write the full address".to_owned())),
        }
    };
    if !root.join(&aim).exists() {
        return Ok(Some(format!("{} does not exist; correct the path, or remove the link", aim.display())));
    }
    let Some(fragment) = fragment else { return Ok(None) };
    if aim.extension().is_none_or(|extension| extension != "md") {
        return Ok(None);
    }
    let parsed;
    let page = match pages.get(&aim) {
        Some(page) => page,
        None => {
            parsed = Page::parse(&read(&root.join(&aim))?);
            &parsed
        }
    };
    if page.anchors.contains(fragment) {
        return Ok(None);
    }
    let advice = page.nearest(fragment).map_or_else(
        || "the page has no headings; remove the fragment".to_owned(),
        |near| format!("the nearest is `#{near}`; correct the fragment, or restore the heading"),
    );
    Ok(Some(format!("{} has no heading `#{fragment}`; {advice}", aim.display())))
}

/// The summary lists every page of the book exactly once, and nothing else.
fn check_summary(pages: &BTreeMap<PathBuf, Page>) -> Vec<Fault> {
    let file = PathBuf::from(SUMMARY);
    let fault = |line, what| Fault { file: file.clone(), line, what };
    let Some(summary) = pages.get(&file) else {
        return vec![fault(1, "the book has no summary; list every page of docs in it".to_owned())];
    };
    let mut faults = Vec::new();
    let mut listed = BTreeSet::new();
    for link in &summary.links {
        let path = link.target.split('#').next().unwrap_or_default();
        let Some(aim) = normal(&Path::new(BOOK).join(path)) else { continue };
        if !aim.starts_with(BOOK) || aim.extension().is_none_or(|extension| extension != "md") {
            let what =
                format!("link `{}`: only pages below {BOOK} belong in the summary; remove it", link.target);
            faults.push(fault(link.line, what));
        } else if !listed.insert(aim) {
            let what = format!("link `{}`: the page is listed twice; remove one entry", link.target);
            faults.push(fault(link.line, what));
        }
    }
    for page in pages.keys().filter(|page| page.starts_with(BOOK) && **page != file) {
        if !listed.contains(page) {
            faults.push(Fault {
                file: page.clone(),
                line: 1,
                what: format!("the page is not in the book; add it to {SUMMARY}"),
            });
        }
    }
    faults
}

/// A path without `.` and `..`; nothing if it leaves the repository.
fn normal(path: &Path) -> Option<PathBuf> {
    let mut parts = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => parts.push(name),
            Component::CurDir => {}
            Component::ParentDir if parts.pop() => {}
            _ => return None,
        }
    }
    Some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The faults of a repository of these files.
    fn faults(files: &[(&str, &str)]) -> Vec<String> {
        let root = tempfile::tempdir().unwrap();
        for (file, text) in files {
            let path = root.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        check_pages(root.path()).unwrap().iter().map(Fault::to_string).collect()
    }

    #[test]
    fn links_that_resolve_are_no_faults() {
        let found = faults(&[
            (
                "README.md",
                "[a](docs/a.md#the-rule) [b](docs/deep/b.md) [code](src/x.rs#L3) [site](https://x.org/#y)",
            ),
            ("src/x.rs", ""),
            ("docs/SUMMARY.md", "- [A](a.md)\n  - [B](deep/b.md)\n"),
            ("docs/a.md", "# A\n## The rule\n[here](#the-rule) [folder](deep) ![](p.svg \"title\")\n"),
            ("docs/p.svg", ""),
            ("docs/deep/b.md", "# B\n[up](../../README.md), [a](../a.md#a)\n"),
        ]);
        assert_eq!(found, Vec::<String>::new());
    }

    #[test]
    fn a_fault_names_file_line_link_and_what_to_do() {
        let found = faults(&[
            ("README.md", "one\n\n[a](docs/gone.md)\n"),
            ("docs/SUMMARY.md", "- [A](a.md)\n"),
            (
                "docs/a.md",
                "# A\n## Who preempts whom\n[x](#who-preempts)\n[y](../../x)\n[z](/docs/a.md)\n<img src=\"no.png\">\n",
            ),
        ]);
        assert_eq!(
            found,
            [
                "README.md:3: link `docs/gone.md`: docs/gone.md does not exist; correct the path, or remove the link",
                "docs/a.md:3: link `#who-preempts`: docs/a.md has no heading `#who-preempts`; the nearest is \
                 `#who-preempts-whom`; correct the fragment, or restore the heading",
                "docs/a.md:4: link `../../x`: the path leaves the repository; write the full address",
                "docs/a.md:5: link `/docs/a.md`: write the path relative to the page, without a leading slash",
                "docs/a.md:6: link `no.png`: docs/no.png does not exist; correct the path, or remove the link",
            ]
        );
    }

    #[test]
    fn the_summary_lists_each_page_once_and_nothing_else() {
        let found = faults(&[
            ("README.md", ""),
            ("docs/SUMMARY.md", "- [A](a.md)\n- [Again](./a.md)\n- [Readme](../README.md)\n"),
            ("docs/a.md", "# A\n"),
            ("docs/b.md", "# B\n"),
        ]);
        assert_eq!(
            found,
            [
                "docs/SUMMARY.md:2: link `./a.md`: the page is listed twice; remove one entry",
                "docs/SUMMARY.md:3: link `../README.md`: only pages below docs belong in the summary; remove it",
                "docs/b.md:1: the page is not in the book; add it to docs/SUMMARY.md",
            ]
        );
        let found = faults(&[("docs/a.md", "# A\n")]);
        assert_eq!(found, ["docs/SUMMARY.md:1: the book has no summary; list every page of docs in it"]);
    }
}

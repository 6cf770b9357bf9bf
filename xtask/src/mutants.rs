//! Engines with a known bug each: the test that is named for the bug must fail on it.
//!
//! Bugs are data, [`LIST`]: texts of the engine's source and what stands there in an engine that has the bug. One copy of the
//! source is made in which each of these texts is a switch, and the tests are built with that copy once; which engine a
//! test runs is said by an environment variable. The engine itself knows nothing of all this.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::cargo::{Workspace, cargo, metadata, read, read_toml};
use crate::lines::rust_files;

const LIST: &str = "crates/engine/tests/mutants.toml";
const ENGINE: &str = "crates/engine/src";
/// What a test run says its engine's bug in.
const SWITCH: &str = "PHALANX_MUTANT";
/// Where the copy is, for [`rustc`].
const COPY: &str = "PHALANX_MUTANTS_SOURCE";
/// An engine that never ends is found out as well.
const TEST_MAX: Duration = Duration::from_secs(300);

/// The module that the copy has beside the engine's own.
const SWITCHES: &str = "pub(crate) fn is(name: &str) -> bool {
    static NAME: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    NAME.get_or_init(|| std::env::var(\"PHALANX_MUTANT\").unwrap_or_default()) == name
}
";

/// An engine with a bug.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mutant {
    name: String,
    places: Vec<Place>,
    caught_by: Vec<Test>,
}

/// A text that is once in the source, and what stands there in the mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    source: String,
    broken: String,
}

/// Written as `PACKAGE FILE NAME`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Test {
    package: String,
    file: String,
    name: String,
}

/// Checks the mutants with these names, or all.
pub(crate) fn run(root: &Path, names: &[&str]) -> ExitCode {
    match check(root, names) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(missed) => {
            eprintln!(
                "{missed} broken engines are not noticed: mend their tests, or their entries in {LIST}"
            );
            ExitCode::FAILURE
        }
        Err(why) => {
            eprintln!("mutants: {why}");
            ExitCode::FAILURE
        }
    }
}

/// How many tests do not notice.
fn check(root: &Path, names: &[&str]) -> Result<usize, String> {
    let begin = Instant::now();
    let workspace = metadata(root).map_err(|error| error.to_string())?;
    let all = parse(&read_toml(&root.join(LIST)).map_err(|error| error.to_string())?)?;
    // The copy has all of them, so that it is the same for every choice.
    let copy = workspace.target.join("mutants").join("engine");
    write_copy(&root.join(ENGINE), &copy, &all)?;
    let mutants = chosen(all, names)?;
    let binaries = build(&workspace, &copy, &mutants)?;
    let built = begin.elapsed();
    unbroken_passes(&mutants, &binaries)?;
    let runs: Vec<(&Mutant, &Test)> =
        mutants.iter().flat_map(|mutant| mutant.caught_by.iter().map(move |test| (mutant, test))).collect();
    let missed = run_all(&runs, &binaries)?;
    let (all, built) = (begin.elapsed().as_secs(), built.as_secs());
    println!(
        "{} broken engines, {} tests, {missed} missed, in {all} s ({built} s to build)",
        mutants.len(),
        runs.len()
    );
    Ok(missed)
}

fn parse(list: &toml::Table) -> Result<Vec<Mutant>, String> {
    let entries = list.get("mutant").and_then(toml::Value::as_array).ok_or("it has no [[mutant]]")?;
    let mutants: Vec<Mutant> = entries.iter().map(parse_mutant).collect::<Result<_, _>>()?;
    let names: BTreeSet<&String> = mutants.iter().map(|mutant| &mutant.name).collect();
    if names.len() < mutants.len() {
        return Err(format!("{LIST}: two mutants have one name"));
    }
    Ok(mutants)
}

fn parse_mutant(entry: &toml::Value) -> Result<Mutant, String> {
    let name = text(entry, "name").ok_or_else(|| format!("{LIST}: a mutant has no name"))?;
    let lacks = |what: &str| format!("{LIST}: mutant {name} lacks {what}");
    text(entry, "bug").ok_or_else(|| lacks("a sentence that says its bug"))?;
    let place = |place: &toml::Value| {
        let (source, broken) = (text(place, "source")?, text(place, "broken")?);
        Some(Place { source: source.trim().to_owned(), broken: broken.trim().to_owned() })
    };
    let places = entry.get("place").and_then(toml::Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let places: Option<Vec<Place>> = places.iter().map(place).collect();
    let tests = entry.get("caught_by").and_then(toml::Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let tests: Option<Vec<Test>> = tests.iter().map(|test| Test::read(test.as_str()?)).collect();
    Ok(Mutant {
        places: places
            .filter(|all| !all.is_empty())
            .ok_or_else(|| lacks("a [[mutant.place]] with source and broken"))?,
        caught_by: tests
            .filter(|all| !all.is_empty())
            .ok_or_else(|| lacks("caught_by = [\"PACKAGE FILE NAME\"]"))?,
        name,
    })
}

fn text(entry: &toml::Value, key: &str) -> Option<String> {
    entry.get(key)?.as_str().map(str::to_owned)
}

impl Test {
    fn read(text: &str) -> Option<Self> {
        match text.split_whitespace().collect::<Vec<_>>().as_slice() {
            [package, file, name] => {
                let [package, file, name] = [package, file, name].map(|word| (*word).to_owned());
                Some(Self { package, file, name })
            }
            _ => None,
        }
    }

    fn binary(&self) -> (String, String) {
        (self.package.clone(), self.file.clone())
    }
}

fn chosen(all: Vec<Mutant>, names: &[&str]) -> Result<Vec<Mutant>, String> {
    if let Some(unknown) = names.iter().find(|name| all.iter().all(|mutant| mutant.name != **name)) {
        return Err(format!("{LIST} has no mutant {unknown}"));
    }
    let is_chosen = |mutant: &Mutant| names.is_empty() || names.contains(&mutant.name.as_str());
    Ok(all.into_iter().filter(is_chosen).collect())
}

/// Writes the copy with its switches. Files that are as before are left alone, so that they are not built again.
fn write_copy(source: &Path, copy: &Path, mutants: &[Mutant]) -> Result<(), String> {
    let mut files = read_all(source)?;
    insert_switches(&mut files, mutants)?;
    files.entry("lib.rs".into()).or_default().push_str("\nmod mutant;\n");
    files.insert("mutant.rs".into(), SWITCHES.to_owned());
    std::fs::create_dir_all(copy).map_err(|error| format!("{}: {error}", copy.display()))?;
    for old in all_files(copy)? {
        if old.strip_prefix(copy).is_ok_and(|inside| !files.contains_key(inside)) {
            std::fs::remove_file(&old).map_err(|error| format!("{}: {error}", old.display()))?;
        }
    }
    for (inside, text) in &files {
        let path = copy.join(inside);
        let error = |error: std::io::Error| format!("{}: {error}", path.display());
        if std::fs::read_to_string(&path).is_ok_and(|old| old == *text) {
            continue;
        }
        std::fs::create_dir_all(path.parent().unwrap_or(copy)).map_err(error)?;
        std::fs::write(&path, text).map_err(error)?;
    }
    Ok(())
}

/// The text of every file in a folder, by its path inside.
fn read_all(folder: &Path) -> Result<BTreeMap<PathBuf, String>, String> {
    let mut files = BTreeMap::new();
    for path in all_files(folder)? {
        let inside = path.strip_prefix(folder).map_err(|error| error.to_string())?;
        files.insert(inside.to_path_buf(), read(&path).map_err(|error| error.to_string())?);
    }
    Ok(files)
}

/// Makes each place a switch. A text may be moved from file to file: it is looked for in all of them.
fn insert_switches(files: &mut BTreeMap<PathBuf, String>, mutants: &[Mutant]) -> Result<(), String> {
    let mut spans: BTreeMap<PathBuf, Vec<(usize, usize, String)>> = BTreeMap::new();
    for mutant in mutants {
        for place in &mutant.places {
            let found: Vec<(PathBuf, usize)> = files
                .iter()
                .flat_map(|(path, text)| text.match_indices(&place.source).map(|(at, _)| (path.clone(), at)))
                .collect();
            let [(path, at)] = found.as_slice() else {
                return Err(format!(
                    "{LIST}: the source of {} is found {} times in {ENGINE}, and must be there once; update the entry. It is\n{}",
                    mutant.name,
                    found.len(),
                    place.source
                ));
            };
            let switch = switch(&mutant.name, place);
            spans.entry(path.clone()).or_default().push((*at, at + place.source.len(), switch));
        }
    }
    for (path, mut spans) in spans {
        spans.sort();
        if let Some([(.., one), (.., other)]) =
            spans.array_windows::<2>().find(|[(_, end, _), (next, ..)]| end > next)
        {
            return Err(format!("{LIST}: two sources in {} overlap:\n{one}\n{other}", path.display()));
        }
        if let Some(text) = files.get_mut(&path) {
            for (from, to, switch) in spans.iter().rev() {
                text.replace_range(*from..*to, switch);
            }
        }
    }
    Ok(())
}

/// One arm for each. Statements stay statements; all else is in brackets, so that it can be a part of something.
fn switch(name: &str, Place { source, broken }: &Place) -> String {
    let switch = format!("if crate::mutant::is({name:?}) {{ {broken} }} else {{ {source} }}");
    if source.ends_with([';', '}']) { switch } else { format!("({switch})") }
}

fn all_files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    rust_files(folder).map_err(|error| error.to_string())
}

/// The files of tests that are needed, built with the copy: the program of each, and the folder where it runs.
type Binaries = BTreeMap<(String, String), (PathBuf, PathBuf)>;

fn build(workspace: &Workspace, copy: &Path, mutants: &[Mutant]) -> Result<Binaries, String> {
    let tests: BTreeSet<_> = mutants.iter().flat_map(|mutant| &mutant.caught_by).map(Test::binary).collect();
    let mut command = cargo();
    // Of the workspace: a package by itself has other features of its dependencies, and they would be built again.
    command.args([
        "test",
        "--workspace",
        "--no-run",
        "--quiet",
        "--message-format",
        "json-render-diagnostics",
    ]);
    for (_, file) in &tests {
        command.args(["--test", file]);
    }
    // This program stands before the compiler, see `rustc`.
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    command.env("RUSTC_WORKSPACE_WRAPPER", program).env(COPY, copy);
    let output = command
        .current_dir(&workspace.root)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cargo cannot be started: {error}"))?;
    if !output.status.success() {
        return Err(format!("the copy in {} does not build", copy.display()));
    }
    let mut built: Binaries =
        String::from_utf8_lossy(&output.stdout).lines().filter_map(executable).collect();
    // Another package may have a test of that name.
    built.retain(|binary, _| tests.contains(binary));
    let missing = tests.iter().find(|test| !built.contains_key(*test));
    missing.map_or(Ok(built), |(package, file)| Err(format!("cargo says nothing of {package}'s test {file}")))
}

/// The program that a line of cargo's tells of.
fn executable(line: &str) -> Option<((String, String), (PathBuf, PathBuf))> {
    let message: Value = serde_json::from_str(line).ok()?;
    let target = message.get("target")?;
    let is_test = target.get("kind")?.as_array()?.iter().any(|kind| kind == "test");
    let program = PathBuf::from(message.get("executable")?.as_str().filter(|_| is_test)?);
    let folder = Path::new(message.get("manifest_path")?.as_str()?).parent()?;
    let manifest: toml::Table = read(&folder.join("Cargo.toml")).ok()?.parse().ok()?;
    let package = manifest.get("package")?.get("name")?.as_str()?.to_owned();
    Some(((package, target.get("name")?.as_str()?.to_owned()), (program, folder.to_path_buf())))
}

/// Cargo runs this program in front of the compiler while [`build`] builds: the engine is compiled from the copy. Cargo
/// keeps what such a compiler makes apart from all other builds.
pub(crate) fn rustc(arguments: &[String]) -> Option<ExitCode> {
    let copy = PathBuf::from(std::env::var_os(COPY)?).join("lib.rs");
    let (compiler, arguments) = arguments.split_first()?;
    let mut command = Command::new(compiler);
    let is_engine = arguments.iter().any(|argument| argument == "phalanx_engine");
    for argument in arguments {
        if is_engine && Path::new(argument).ends_with(Path::new(ENGINE).join("lib.rs")) {
            command.arg(&copy).args(["--cap-lints", "allow"]);
        } else {
            command.arg(argument);
        }
    }
    let is_good = command.status().is_ok_and(|status| status.success());
    Some(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Without a bug every test that is named passes; and it exists.
fn unbroken_passes(mutants: &[Mutant], binaries: &Binaries) -> Result<(), String> {
    let tests: BTreeSet<&Test> = mutants.iter().flat_map(|mutant| &mutant.caught_by).collect();
    for (binary, (program, folder)) in binaries {
        let names: Vec<&str> =
            tests.iter().filter(|test| test.binary() == *binary).map(|test| test.name.as_str()).collect();
        let output = Command::new(program)
            .arg("--exact")
            .args(&names)
            .current_dir(folder)
            .output()
            .map_err(|error| format!("{}: {error}", program.display()))?;
        let said = String::from_utf8_lossy(&output.stdout);
        if !said.contains(&format!("ok. {} passed", names.len())) {
            let (package, file) = binary;
            return Err(format!(
                "these of {package}'s {file} are not there or fail without a bug: {names:?}\n{said}"
            ));
        }
    }
    Ok(())
}

/// Runs each test on the engine that it has to find out, as many at once as there are processors, and says what happens.
fn run_all(runs: &[(&Mutant, &Test)], binaries: &Binaries) -> Result<usize, String> {
    let (next, missed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let failure = Mutex::new(None);
    let work = || {
        while let Some((mutant, test)) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let begin = Instant::now();
            match notices(mutant, test, binaries) {
                Ok(is_noticed) => {
                    let verdict = if is_noticed { "caught by" } else { "MISSED by" };
                    println!("  {} {verdict} {} {} s", mutant.name, test.name, begin.elapsed().as_secs());
                    missed.fetch_add(usize::from(!is_noticed), Ordering::Relaxed);
                }
                Err(why) => *failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(why),
            }
        }
    };
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..workers).for_each(|_| drop(scope.spawn(work))));
    let failure = failure.into_inner().unwrap_or_else(PoisonError::into_inner);
    failure.map_or(Ok(missed.into_inner()), Err)
}

/// Whether a test fails on an engine with this bug.
fn notices(mutant: &Mutant, test: &Test, binaries: &Binaries) -> Result<bool, String> {
    let Some((program, folder)) = binaries.get(&test.binary()) else { return Ok(false) };
    let error = |error: std::io::Error| format!("{}: {error}", program.display());
    let mut child = Command::new(program)
        .args(["--exact", &test.name])
        .env(SWITCH, &mutant.name)
        .current_dir(folder)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(error)?;
    let begin = Instant::now();
    while begin.elapsed() < TEST_MAX {
        if let Some(status) = child.try_wait().map_err(error)? {
            return Ok(!status.success());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().map_err(error)?;
    child.wait().map_err(error)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutant(name: &str, source: &str, broken: &str) -> Mutant {
        let places = vec![Place { source: source.to_owned(), broken: broken.to_owned() }];
        Mutant { name: name.to_owned(), places, caught_by: Vec::new() }
    }

    fn switched(text: &str, mutants: &[Mutant]) -> Result<String, String> {
        let mut files =
            BTreeMap::from([("a.rs".into(), text.to_owned()), ("b.rs".into(), "other();".to_owned())]);
        insert_switches(&mut files, mutants)?;
        Ok(files.remove(Path::new("a.rs")).unwrap_or_default())
    }

    #[test]
    fn a_place_becomes_a_switch() {
        let both = [mutant("one", "a < b", "true"), mutant("two", "go();", "")];
        assert_eq!(
            switched("if a < b && c { go(); }", &both).unwrap(),
            "if (if crate::mutant::is(\"one\") { true } else { a < b }) && c \
             { if crate::mutant::is(\"two\") {  } else { go(); } }"
        );
    }

    #[test]
    fn a_source_must_be_there_once() {
        for text in ["", "go(); go();"] {
            let why = switched(text, &[mutant("one", "go();", "")]).unwrap_err();
            assert!(why.contains("the source of one is found"), "{why}");
        }
        let both = [mutant("one", "a < b", "true"), mutant("two", "b && c", "c")];
        assert!(switched("a < b && c", &both).unwrap_err().contains("overlap"));
    }

    #[test]
    fn every_source_is_in_the_engine_once() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mutants = parse(&read_toml(&root.join(LIST)).unwrap()).unwrap();
        insert_switches(&mut read_all(&root.join(ENGINE)).unwrap(), &mutants).unwrap();
    }

    #[test]
    fn an_entry_says_all_that_is_needed() {
        let list = "[[mutant]]\nname = \"one\"\nbug = \"It stays.\"\ncaught_by = [\"engine policy bugs::one\"]\n\
                    [[mutant.place]]\nsource = '''\ngo();\n'''\nbroken = ''\n";
        let mutants = parse(&list.parse().unwrap()).unwrap();
        let test =
            Test { package: "engine".to_owned(), file: "policy".to_owned(), name: "bugs::one".to_owned() };
        assert_eq!(mutants, [Mutant { caught_by: vec![test], ..mutant("one", "go();", "") }]);
        for lacking in
            ["bug = \"It stays.\"\n", "broken = ''\n", "caught_by = [\"engine policy bugs::one\"]\n"]
        {
            assert!(
                parse(&list.replace(lacking, "").parse().unwrap()).unwrap_err().contains("mutant one lacks")
            );
        }
    }
}

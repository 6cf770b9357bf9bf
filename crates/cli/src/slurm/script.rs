//! The text of a batch script, and the options in its `#SBATCH` lines.

use super::flags;
use super::options::{self, After, Given, Where};
use crate::failure::Failure;

/// The longest script; the daemon keeps it as a secret of the job, and a secret has at most 1 MiB.
pub(super) const SCRIPT_BYTES_MAX: usize = 512 << 10;

const MARK: &str = "#SBATCH";

/// Reads the options of a script as `sbatch` does: in lines that begin with `#SBATCH`, before the first command.
///
/// # Errors
/// If the text is no script, or an option is not supported. The message names the line.
pub(super) fn options(name: &str, text: &str) -> Result<Given, Failure> {
    let command = "sbatch";
    let whole = Where { command, place: Some(name) };
    if !text.starts_with("#!") {
        let hint = "the first line must be `#!` and the path of an interpreter, such as #!/bin/bash";
        return Err(whole.refuse("this is no batch script", hint));
    }
    if text.lines().next().is_some_and(|line| line.ends_with('\r')) || text.contains("\r\n") {
        return Err(whole.refuse("the script has DOS line breaks", "`dos2unix` rewrites them"));
    }
    if text.len() > SCRIPT_BYTES_MAX {
        let what = format!("the script has {} bytes", text.len());
        return Err(
            whole.refuse(&what, &format!("at most {SCRIPT_BYTES_MAX}; start a longer program from a file"))
        );
    }
    let mut all = Given::default();
    for (number, line) in (1_usize..).zip(text.lines()) {
        if !line.trim_start().is_empty() && !line.trim_start().starts_with('#') {
            break;
        }
        let Some(rest) = line.strip_prefix(MARK) else { continue };
        if rest.chars().next().is_some_and(|next| !next.is_whitespace()) {
            continue;
        }
        let place = format!("{name}:{number}");
        let from = Where { command, place: Some(&place) };
        let words = words(rest).map_err(|what| from.refuse(what, ""))?;
        if words.first().is_some_and(|word| word == "hetjob" || word == "packjob") {
            let hint = "a job file has `roles`: members that need something else (docs/job-file.md)";
            return Err(from.refuse("hetjob is not supported: a batch script describes equal nodes", hint));
        }
        let given = options::read(flags::SBATCH, from, &words, After::Options)?;
        if let Some(word) = given.words.first() {
            return Err(
                from.refuse(&format!("{word:?} is no option"), "options begin with `-`; `#` begins a remark")
            );
        }
        all = given.over(all);
    }
    Ok(all)
}

/// The words of an `#SBATCH` line: quotes and backslashes as in a shell, and a `#` before a word begins a remark.
fn words(line: &str) -> Result<Vec<String>, &'static str> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match letter {
            quote @ ('"' | '\'') => {
                let word = word.get_or_insert_default();
                loop {
                    match letters.next() {
                        None => return Err("a quote is not closed"),
                        Some(end) if end == quote => break,
                        Some('\\') if quote == '"' => word.extend(letters.next()),
                        Some(other) => word.push(other),
                    }
                }
            }
            '\\' => word.get_or_insert_default().extend(letters.next()),
            space if space.is_whitespace() => words.extend(word.take()),
            '#' if word.is_none() => break,
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_until_the_first_command() {
        let text = "#!/bin/bash\n\
                    #SBATCH --job-name=train -N 2   # two nodes\n\
                    \n\
                    \x20 # an indented remark\n\
                    ##SBATCH --time=1\n\
                    #SBATCHED --time=2\n \t\n\
                    #SBATCH\t-n 4\n\
                    #SBATCH --comment=\"two words\" -o 'out %j.txt'\n\
                    #SBATCH --job-name=later\n\
                    echo hello\n\
                    #SBATCH --time=3\n";
        let given = options("a.sh", text).unwrap();
        assert_eq!(
            (given.get("job-name"), given.get("nodes"), given.get("ntasks")),
            (Some("later"), Some("2"), Some("4"))
        );
        assert_eq!((given.get("time"), given.get("output")), (None, Some("out %j.txt")));
    }

    #[test]
    fn a_wrong_line_is_named() {
        for (text, message) in [
            ("echo\n", "sbatch: a.sh: this is no batch script"),
            ("#!/bin/sh\r\necho\r\n", "sbatch: a.sh: the script has DOS line breaks"),
            (
                "#!/bin/sh\n#SBATCH -N 1\n#SBATCH --bbf=x\n",
                "sbatch: a.sh:3: --bbf is not supported: there are no burst buffers",
            ),
            (
                "#!/bin/sh\n#SBATCH hetjob\n",
                "sbatch: a.sh:2: hetjob is not supported: a batch script describes equal nodes",
            ),
            ("#!/bin/sh\n#SBATCH -J \"a\n", "sbatch: a.sh:2: a quote is not closed"),
            ("#!/bin/sh\n#SBATCH nodes=2\n", "sbatch: a.sh:2: \"nodes=2\" is no option"),
        ] {
            assert_eq!(options("a.sh", text).unwrap_err().message, message);
        }
    }

    #[test]
    fn words_are_split_as_a_shell_does() {
        assert_eq!(
            words(r#" -J "a \"b\"" c\ d 'e\f' g#h #i"#).unwrap(),
            ["-J", "a \"b\"", "c d", "e\\f", "g#h"]
        );
        assert_eq!(words(" --comment=''").unwrap(), ["--comment="]);
    }
}

//! Lists with columns that users choose: `%.18i %9P` of `squeue` and `sinfo`, and `JobID%12,State` of `sacct`.

use super::options::Where;
use crate::failure::Failure;

/// A column: what it shows, how wide it is, and on which side its text stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Column<T> {
    pub(super) of: T,
    /// None: as wide as its text.
    pub(super) width: Option<usize>,
    pub(super) is_right: bool,
    /// Text before it.
    pub(super) before: String,
    /// Text behind the last column; empty for others.
    pub(super) after: String,
}

impl<T> Column<T> {
    fn write(&self, value: &str) -> String {
        let Some(width) = self.width else { return value.to_owned() };
        let cut: String = value.chars().take(width).collect();
        if self.is_right { format!("{cut:>width$}") } else { format!("{cut:<width$}") }
    }
}

/// Reads `%[[.]WIDTH]LETTER` and the text between.
///
/// # Errors
/// If a letter is unknown; the message names it.
pub(super) fn read<T>(
    format: &str,
    from: Where<'_>,
    field: impl Fn(char) -> Option<T>,
) -> Result<Vec<Column<T>>, Failure> {
    let mut columns = Vec::new();
    let mut before = String::new();
    let mut rest = format;
    while let Some((text, after)) = rest.split_once('%') {
        before.push_str(text);
        let (is_right, after) = after.strip_prefix('.').map_or((false, after), |after| (true, after));
        let digits = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
        let width =
            after.get(..digits).and_then(|text| text.parse::<usize>().ok()).map(|width| width.min(1_000));
        let tail = after.get(digits..).unwrap_or_default();
        let letter = tail.chars().next().ok_or_else(|| from.refuse("the format ends with %", ""))?;
        let of = field(letter).ok_or_else(|| {
            let hint = "docs/slurm.md lists the letters that are supported; `phalanx ps -o json` has all that is known";
            from.refuse(&format!("%{letter} is not supported in a format"), hint)
        })?;
        columns.push(Column {
            of,
            width,
            is_right,
            before: std::mem::take(&mut before),
            after: String::new(),
        });
        rest = tail.get(letter.len_utf8()..).unwrap_or_default();
    }
    if let Some(last) = columns.last_mut() {
        rest.clone_into(&mut last.after);
    }
    Ok(columns)
}

/// A line of a list without the spaces at its end.
pub(super) fn line<T>(columns: &[Column<T>], value: impl Fn(&T) -> String) -> String {
    let write =
        |column: &Column<T>| format!("{}{}{}", column.before, column.write(&value(&column.of)), column.after);
    let text: String = columns.iter().map(write).collect();
    text.trim_end().to_owned() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_read_and_written() {
        let from = Where { command: "squeue", place: None };
        let field = |letter: char| letter.is_ascii_lowercase().then_some(letter);
        let columns = read("%.5i|%3j %t|", from, field).unwrap();
        let value = |letter: &char| format!("{letter}{letter}{letter}{letter}");
        assert_eq!(line(&columns, value), " iiii|jjj tttt|\n");
        for (format, message) in [
            ("%X", "squeue: %X is not supported in a format"),
            ("a%", "squeue: the format ends with %"),
            ("%.5", "squeue: the format ends with %"),
        ] {
            assert_eq!(read(format, from, field).unwrap_err().message, message);
        }
    }
}

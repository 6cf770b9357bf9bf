//! What is wrong with a scenario, and where.

/// A scenario that cannot be read, cannot be carried out, or does not end as it says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {what}\n  {text}\n  {caret}^", caret = " ".repeat(column.saturating_sub(1)))]
pub struct ScenarioError {
    /// Counts from 1.
    pub line: usize,
    /// Of the word that is wrong, in characters from 1.
    pub column: usize,
    pub what: String,
    /// The line as written.
    pub text: String,
    /// What had been printed until then; empty when the text could not be read.
    pub output: String,
}

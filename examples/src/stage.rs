//! How it is told: headings, commands as a user would type them, and a bar where it waits.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use owo_colors::{OwoColorize, Stream::Stdout};

/// Where a demo speaks: standard output, with colours and a bar where it is a terminal.
#[derive(Debug)]
pub struct Stage {
    terminal: bool,
}

/// Something that is being waited for.
#[derive(Debug)]
pub struct Wait {
    bar: Option<ProgressBar>,
}

impl Stage {
    #[must_use]
    pub fn of_stdout() -> Self {
        Self { terminal: std::io::stdout().is_terminal() && std::io::stderr().is_terminal() }
    }

    /// A heading.
    pub fn title(&self, text: &str) {
        println!("\n{}", text.if_supports_color(Stdout, |t| t.bold()));
        println!("{}", "─".repeat(text.chars().count().min(100)));
    }

    /// A sentence.
    pub fn say(&self, text: &str) {
        println!("{text}");
    }

    /// A fact that was just checked.
    pub fn holds(&self, text: &str) {
        println!("  {} {text}", "✔".if_supports_color(Stdout, |t| t.green()));
    }

    /// A command as a user would type it; what it prints follows.
    pub fn command(&self, line: &str) {
        println!(
            "\n{} {}",
            "$".if_supports_color(Stdout, |t| t.dimmed()),
            line.if_supports_color(Stdout, |t| t.cyan())
        );
    }

    /// Why it did not come out as promised.
    pub fn failed(&self, why: &str) {
        println!("\n{} {why}", "✘ the demo failed:".if_supports_color(Stdout, |t| t.red()));
    }

    /// A bar on a terminal, a plain line elsewhere.
    pub fn wait(&self, what: &str, length: Option<u64>) -> Wait {
        if !self.terminal {
            println!("  … {what}");
            return Wait { bar: None };
        }
        let (bar, template) = match length {
            Some(n) => (ProgressBar::new(n), "  {spinner:.cyan} {msg:<46} {bar:30.cyan/dim} {pos}/{len}"),
            None => (ProgressBar::new_spinner(), "  {spinner:.cyan} {msg} {elapsed}"),
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("━╸─"));
        }
        bar.set_message(what.to_owned());
        bar.enable_steady_tick(Duration::from_millis(90));
        Wait { bar: Some(bar) }
    }
}

impl Wait {
    /// How far it is.
    pub fn at(&self, position: u64) {
        if let Some(bar) = &self.bar {
            bar.set_position(position);
        }
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

//! How it is told: headings, commands as a user would type them, and a bar where it waits.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use owo_colors::{OwoColorize, Stream::Stdout};

pub(crate) struct Stage {
    terminal: bool,
}

/// Something that is being waited for.
pub(crate) struct Wait {
    bar: Option<ProgressBar>,
}

impl Stage {
    pub(crate) fn new() -> Self {
        Self { terminal: std::io::stdout().is_terminal() && std::io::stderr().is_terminal() }
    }

    pub(crate) fn title(&self, text: &str) {
        println!("\n{}", text.if_supports_color(Stdout, |t| t.bold()));
        println!("{}", "─".repeat(text.chars().count().min(100)));
    }

    pub(crate) fn say(&self, text: &str) {
        println!("{text}");
    }

    /// A fact that was just checked.
    pub(crate) fn holds(&self, text: &str) {
        println!("  {} {text}", "✔".if_supports_color(Stdout, |t| t.green()));
    }

    pub(crate) fn command(&self, line: &str) {
        println!(
            "\n{} {}",
            "$".if_supports_color(Stdout, |t| t.dimmed()),
            line.if_supports_color(Stdout, |t| t.cyan())
        );
    }

    pub(crate) fn failed(&self, why: &str) {
        println!("\n{} {why}", "✘ the demo failed:".if_supports_color(Stdout, |t| t.red()));
    }

    /// A bar on a terminal, a plain line elsewhere.
    pub(crate) fn wait(&self, what: &str, length: Option<u64>) -> Wait {
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
    pub(crate) fn at(&self, position: u64) {
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

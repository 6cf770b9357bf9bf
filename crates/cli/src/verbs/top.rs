//! `top`: looks at the daemon again and again, and draws what it says until a key ends it.

use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers, poll, read};
use crossterm::terminal::{
    Clear, ClearType, DisableLineWrap, EnableLineWrap, EnterAlternateScreen, LeaveAlternateScreen,
    disable_raw_mode, enable_raw_mode, size,
};
use crossterm::{cursor, queue};
use phalanx_api::protocol::{Answer, JobFilter, Verb as Ask};

use super::Session;
use crate::failure::Failure;
use crate::output::{self, now};
use crate::show::Page;
use crate::show::top::{Seen, Tab, all, screen};

/// Jobs that are looked at.
const JOBS_MAX: u32 = 1_000;

pub(super) fn top(session: &Session, interval: Duration) -> Result<ExitCode, Failure> {
    let seen = look(session)?;
    if session.out.format.is_document() {
        return Err(Failure::usage("top is for people", "`ps`, `nodes` and `queues` give documents"));
    }
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        output::print(&all(&session.out.page, &seen))?;
        return Ok(ExitCode::SUCCESS);
    }
    let _screen = Screen::enter().map_err(broken)?;
    run(session, interval, seen)
}

#[allow(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn broken(error: io::Error) -> Failure {
    Failure::unavailable(format!("the terminal cannot be used: {error}"), "")
}

/// The terminal in raw mode, on its other screen; as it was when dropped.
struct Screen;

impl Screen {
    fn enter() -> io::Result<Self> {
        enable_raw_mode()?;
        let screen = Self;
        let mut out = io::stdout();
        queue!(out, EnterAlternateScreen, cursor::Hide, DisableLineWrap)?;
        out.flush()?;
        Ok(screen)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let mut out = io::stdout();
        let _ = queue!(out, EnableLineWrap, cursor::Show, LeaveAlternateScreen).and_then(|()| out.flush());
        let _ = disable_raw_mode();
    }
}

fn look(session: &Session) -> Result<Seen, Failure> {
    let nodes = session.nodes()?;
    let list = Ask::List { finished: false, filter: JobFilter::default(), limit: JOBS_MAX };
    let Answer::Jobs(jobs) = session.ask(list)? else { return Err(Failure::unexpected()) };
    let Answer::Queues(queues) = session.ask(Ask::Queues)? else { return Err(Failure::unexpected()) };
    Ok(Seen { nodes: Some(nodes), jobs, queues })
}

fn run(session: &Session, interval: Duration, mut seen: Seen) -> Result<ExitCode, Failure> {
    let (mut tab, mut skip) = (Tab::default(), 0);
    let mut looked = Instant::now();
    loop {
        let (width, height) = size().map_err(broken)?;
        let page = Page { now: now(), width: Some(width), ..session.out.page.clone() };
        let height = usize::from(height);
        let (lines, most) = screen(&page, &seen, tab, skip, height);
        draw(&lines).map_err(broken)?;
        skip = skip.min(most);
        if poll(interval.saturating_sub(looked.elapsed())).map_err(broken)? {
            if let Event::Key(key) = read().map_err(broken)? {
                match step(key, &mut tab, &mut skip, height) {
                    Step::Stay => {}
                    Step::Quit => return Ok(ExitCode::SUCCESS),
                }
            }
        } else {
            seen = look(session)?;
            looked = Instant::now();
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Stay,
    Quit,
}

/// What a key does.
fn step(key: KeyEvent, tab: &mut Tab, skip: &mut usize, height: usize) -> Step {
    if key.kind == KeyEventKind::Release {
        return Step::Stay;
    }
    let other = |tab: &mut Tab, skip: &mut usize, to: Tab| (*tab, *skip) = (to, 0);
    match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Step::Quit,
        KeyCode::Char('q') | KeyCode::Esc => return Step::Quit,
        KeyCode::Char('1') => other(tab, skip, Tab::Jobs),
        KeyCode::Char('2') => other(tab, skip, Tab::Nodes),
        KeyCode::Char('3') => other(tab, skip, Tab::Queues),
        KeyCode::Tab => {
            let next = tab.next();
            other(tab, skip, next);
        }
        KeyCode::Down | KeyCode::Char('j') => *skip += 1,
        KeyCode::Up | KeyCode::Char('k') => *skip = skip.saturating_sub(1),
        KeyCode::PageDown | KeyCode::Char(' ') => *skip += height,
        KeyCode::PageUp => *skip = skip.saturating_sub(height),
        KeyCode::Home | KeyCode::Char('g') => *skip = 0,
        KeyCode::End | KeyCode::Char('G') => *skip = usize::MAX,
        _ => {}
    }
    Step::Stay
}

/// Draws over what is there, so that nothing flickers.
fn draw(lines: &[String]) -> io::Result<()> {
    let mut out = anstream::stdout().lock();
    for (row, line) in (0..).zip(lines) {
        queue!(out, cursor::MoveTo(0, row), Clear(ClearType::CurrentLine))?;
        write!(out, "{line}")?;
    }
    queue!(out, Clear(ClearType::FromCursorDown))?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_choose_pages_and_scroll() {
        let (mut tab, mut skip) = (Tab::Jobs, 0);
        let mut press = |code| {
            let step = step(KeyEvent::new(code, KeyModifiers::NONE), &mut tab, &mut skip, 20);
            (step, tab, skip)
        };
        assert_eq!(press(KeyCode::Down), (Step::Stay, Tab::Jobs, 1));
        assert_eq!(press(KeyCode::Char('2')), (Step::Stay, Tab::Nodes, 0));
        assert_eq!(press(KeyCode::PageDown), (Step::Stay, Tab::Nodes, 20));
        assert_eq!(press(KeyCode::Up), (Step::Stay, Tab::Nodes, 19));
        assert_eq!(press(KeyCode::Tab), (Step::Stay, Tab::Queues, 0));
        assert_eq!(press(KeyCode::Up), (Step::Stay, Tab::Queues, 0));
        assert_eq!(press(KeyCode::Char('q')).0, Step::Quit);
    }
}

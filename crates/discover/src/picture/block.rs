//! Rectangles of text, put beside and below each other.

use super::Style;

/// Characters of one style.
#[derive(Clone, Copy)]
pub(super) struct Strokes {
    pub(super) soft: Frame,
    pub(super) round: Frame,
    pub(super) cell: Frame,
    /// Left end, middle and right end of a bar.
    pub(super) bar: [char; 3],
    pub(super) free: char,
    pub(super) busy: char,
    pub(super) times: char,
    pub(super) dot: char,
}

/// Corners from the top left, clockwise, then horizontal and vertical.
#[derive(Clone, Copy)]
pub(super) struct Frame(pub(super) [char; 6]);

impl Strokes {
    pub(super) const fn of(style: Style) -> Self {
        match style {
            Style::Unicode => Self {
                soft: Frame(['┏', '┓', '┛', '┗', '━', '┃']),
                round: Frame(['╭', '╮', '╯', '╰', '─', '│']),
                cell: Frame(['┌', '┐', '┘', '└', '─', '│']),
                bar: ['╞', '═', '╡'],
                free: '○',
                busy: '●',
                times: '×',
                dot: '·',
            },
            Style::Ascii => Self {
                soft: Frame(['+', '+', '+', '+', '=', '|']),
                round: Frame(['.', '.', '\'', '\'', '-', '|']),
                cell: Frame(['+', '+', '+', '+', '-', '|']),
                bar: ['<', '=', '>'],
                free: '.',
                busy: '#',
                times: 'x',
                dot: '|',
            },
        }
    }
}

/// Lines; shorter ones count as filled with blanks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) lines: Vec<String>,
}

impl Block {
    pub(super) const fn of(lines: Vec<String>) -> Self {
        Self { lines }
    }

    pub(super) fn width(&self) -> usize {
        self.lines.iter().map(|l| width(l)).max().unwrap_or(0)
    }

    /// Blanks left and right.
    pub(super) fn padded(mut self, by: usize) -> Self {
        let wide = self.width();
        for line in &mut self.lines {
            *line = format!("{0}{1}{2}{0}", " ".repeat(by), line, " ".repeat(wide - width(line)));
        }
        self
    }

    /// A frame with a title in its upper edge.
    pub(super) fn framed(self, title: &str, Frame([tl, tr, br, bl, h, v]): Frame) -> Self {
        let title = if title.is_empty() { String::new() } else { format!("{h} {title} ") };
        let inner = self.width().max(width(&title));
        let rule = |n: usize| h.to_string().repeat(n);
        let mut lines = vec![format!("{tl}{title}{}{tr}", rule(inner - width(&title)))];
        for line in self.lines {
            lines.push(format!("{v}{line}{}{v}", " ".repeat(inner - width(&line))));
        }
        lines.push(format!("{bl}{}{br}", rule(inner)));
        Self { lines }
    }
}

/// Blocks from left to right, broken into rows no wider than `limit`. Rows of many are made even: five where
/// four fit become three and two.
pub(super) fn flow(blocks: &[Block], limit: usize, gap: usize) -> Block {
    let widest = blocks.iter().map(Block::width).max().unwrap_or(0);
    let all: usize = blocks.iter().map(|b| b.width() + gap).sum();
    let fit = if all <= limit + gap { blocks.len() } else { (limit + gap) / (widest + gap).max(1) };
    let rows = blocks.len().div_ceil(fit.max(1)).max(1);
    let each = blocks.len().div_ceil(rows).max(1);
    let mut lines = Vec::new();
    for row in blocks.chunks(each) {
        lines.extend(beside(row, gap).lines);
    }
    Block { lines }
}

fn beside(blocks: &[Block], gap: usize) -> Block {
    let height = blocks.iter().map(|b| b.lines.len()).max().unwrap_or(0);
    let mut lines = vec![String::new(); height];
    for (i, block) in blocks.iter().enumerate() {
        let wide = block.width();
        for (at, line) in lines.iter_mut().enumerate() {
            let part = block.lines.get(at).map_or("", String::as_str);
            line.push_str(&" ".repeat(if i > 0 { gap } else { 0 }));
            line.push_str(part);
            line.push_str(&" ".repeat(wide - width(part)));
        }
    }
    Block { lines }
}

/// Words in lines of at most `limit` columns; a longer word has a line of its own.
pub(super) fn wrap(words: impl IntoIterator<Item = String>, limit: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in words {
        match lines.last_mut() {
            Some(line) if width(line) + 1 + width(&word) <= limit => {
                line.push(' ');
                line.push_str(&word);
            }
            _ => lines.push(word),
        }
    }
    lines
}

/// A labelled bar of at least `wide` columns.
pub(super) fn bar(label: &str, wide: usize, strokes: Strokes) -> String {
    let [left, middle, right] = strokes.bar;
    let label = format!(" {label} ");
    let rest = wide.saturating_sub(width(&label) + 2).max(2);
    let rule = |n: usize| middle.to_string().repeat(n);
    format!("{left}{}{label}{}{right}", rule(rest / 2), rule(rest - rest / 2))
}

pub(super) fn centred(text: &str, wide: usize) -> String {
    let before = wide.saturating_sub(width(text)) / 2;
    format!("{}{text}", " ".repeat(before))
}

/// Columns: all characters that are drawn here are one column wide (see [`fit`]).
pub(super) fn width(text: &str) -> usize {
    text.chars().count()
}

/// Whether a character is sure to be one column wide.
pub(super) fn is_narrow(c: char, style: Style) -> bool {
    c.is_ascii_graphic()
        || (style == Style::Unicode && c.is_alphabetic() && ('\u{c0}'..'\u{530}').contains(&c))
}

/// A text of others, cut to `limit` columns, with `?` for characters that are not sure to be one column wide.
pub(super) fn fit(text: &str, limit: usize, style: Style) -> String {
    let own = |c: char| c == ' ' || (style == Style::Unicode && matches!(c, '·' | '×'));
    let good = |c: char| if own(c) || is_narrow(c, style) { c } else { '?' };
    let mut short: String = text.chars().take(limit).map(good).collect();
    if text.chars().nth(limit).is_some() {
        short.pop();
        short.push(if style == Style::Unicode { '…' } else { '~' });
    }
    short
}

//! The page: one file with its style, its program, the library that draws, and the figures.

use super::{Report, json};

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const PROGRAM: &str = include_str!("page.js");
/// uPlot 1.6.32, MIT; see vendor/uPlot-LICENSE.
const UPLOT: &str = include_str!("vendor/uPlot.iife.min.js");
const UPLOT_STYLE: &str = include_str!("vendor/uPlot.min.css");
const UPLOT_LICENSE: &str = include_str!("vendor/uPlot-LICENSE");

pub(super) fn page(report: &Report) -> String {
    // What stands in a script ends at the first `</script`, wherever that is: names in a trace may hold one.
    let data = json::text(report).replace('<', "\\u003c");
    let parts = [
        ("{{style}}", STYLE),
        ("{{uplot-style}}", UPLOT_STYLE),
        ("{{uplot-license}}", UPLOT_LICENSE),
        ("{{uplot}}", UPLOT),
        ("{{data}}", &data),
        ("{{program}}", PROGRAM),
    ];
    let mut out = String::with_capacity(PAGE.len() + parts.iter().map(|(_, text)| text.len()).sum::<usize>());
    let mut rest = PAGE;
    // Each stands in the page once, in this order; so what is put in is never looked at for more.
    for (mark, text) in parts {
        let Some((before, after)) = rest.split_once(mark) else { continue };
        out.push_str(before);
        out.push_str(text);
        rest = after;
    }
    out + rest
}

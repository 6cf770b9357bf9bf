//! `dashboard` and `token`.

use owo_colors::OwoColorize as _;
use phalanx_api::protocol::{NewTokenView, TokenView};

use super::table::{Grid, cell, dim};
use super::{Page, clean, field, nothing};

/// Where the dashboard is, and for how long.
pub(crate) fn dashboard(page: &Page, made: &NewTokenView, url: &str) -> String {
    if page.quiet {
        return format!("{url}\n");
    }
    let mut text = format!("{url}\n\n");
    let may = if made.token.read_only { "read, and change nothing" } else { "do what you may do" };
    let until = page.clock(made.token.expires_at);
    field(
        &mut text,
        page,
        "valid",
        &format!("{} (until {until})", page.ahead(made.token.expires_at).trim_start_matches("in ")),
    );
    field(&mut text, page, "it may", may);
    // Other machines reach an address with TLS by themselves.
    if let Some(host) = made.address.strip_prefix("http://") {
        let port = host.rsplit(':').next().unwrap_or_default();
        let tunnel = format!("ssh -L {port}:{host} THIS-HOST, and open the same address there");
        field(&mut text, page, "from afar", &tunnel);
    }
    text
}

/// The text of a token, this once.
pub(crate) fn created(page: &Page, made: &NewTokenView) -> String {
    if page.quiet {
        return format!("{}\n", made.text);
    }
    let mut text = format!("{}\n\n", made.text);
    field(&mut text, page, "name", &clean(&made.token.name));
    field(&mut text, page, "valid until", &page.date(made.token.expires_at));
    // Arguments of processes are everybody's to read; standard input is not.
    let try_it =
        format!(r#"echo "header = \"Authorization: Bearer $TOKEN\"" | curl -K - {}/v1/jobs"#, made.address);
    field(&mut text, page, "try it", &try_it);
    text += &format!("\n{}\n", "It is not shown again.".dimmed());
    text
}

pub(crate) fn list(page: &Page, tokens: &[TokenView]) -> String {
    if tokens.is_empty() {
        return nothing(page, "no tokens");
    }
    let mut grid = Grid::new(page, &["NAME", "USER", "MAY", "CREATED", "VALID UNTIL"]);
    for token in tokens {
        grid.row(vec![
            cell(clean(&token.name)),
            cell(clean(&token.user)),
            cell(if token.read_only { "read" } else { "read and change" }),
            dim(page.date(token.created_at)),
            cell(page.date(token.expires_at)),
        ]);
    }
    grid.render()
}

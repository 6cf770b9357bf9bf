//! `dashboard` and `token`: how browsers and programs come to ask.

use std::process::ExitCode;
use std::time::Duration;

use phalanx_api::protocol::{Answer, NewTokenView, TokenAsk, Verb as Ask};

use super::Session;
use crate::args::{Dashboard, Life, Token};
use crate::failure::Failure;
use crate::output::{self, Items};
use crate::show;

/// Tokens of pages begin so; the time makes each name its own.
const OF_PAGE: &str = "dashboard";

pub(super) fn dashboard(session: &Session, asked: &Dashboard) -> Result<ExitCode, Failure> {
    let made = create(session, format!("{OF_PAGE}-{}", output::now().0), &asked.life)?;
    // Behind the `#` it is never sent to a server. No browser is started with it: arguments of processes are everybody's.
    let url = format!("{}/#token={}", made.address, made.text);
    let body = serde_json::json!({ "url": url, "expires_at": made.token.expires_at });
    session.out.show(
        "Dashboard",
        body,
        |page| show::tokens::dashboard(page, &made, &url),
        || vec![url.clone()],
    )?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn token(session: &Session, asked: Token) -> Result<ExitCode, Failure> {
    match asked {
        Token::Create { name, life } => {
            let made = create(session, name, &life)?;
            let text = || vec![made.text.clone()];
            session.out.show("Token", &made, |page| show::tokens::created(page, &made), text)?;
            Ok(ExitCode::SUCCESS)
        }
        Token::List => {
            let Answer::Tokens(tokens) = session.ask(Ask::Tokens)? else { return Err(Failure::unexpected()) };
            let names = || tokens.iter().map(|token| token.name.clone()).collect();
            let body = Items { items: &tokens };
            session.out.show("TokenList", body, |page| show::tokens::list(page, &tokens), names)?;
            Ok(ExitCode::SUCCESS)
        }
        Token::Revoke { name, uid } => session.done(Ask::RevokeToken { name, uid }),
    }
}

fn create(session: &Session, name: String, life: &Life) -> Result<NewTokenView, Failure> {
    let ask = TokenAsk { name, read_only: life.read_only, for_ms: millis(life.time) };
    match session.ask(Ask::NewToken(ask))? {
        Answer::Token(made) => Ok(made),
        _ => Err(Failure::unexpected()),
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

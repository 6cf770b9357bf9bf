//! The dashboard: files that `make ui` made in `ui/dist`, embedded when a release was built, and read where they are by a
//! debug build. Without them a page says how to get them.

use axum::http::{HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use rust_embed::RustEmbed;

use super::problem::Problem;

#[derive(RustEmbed)]
#[folder = "../../ui/dist"]
#[allow_missing = true]
struct Files;

const INDEX: &str = "index.html";
/// Vite puts a digest into the names of these.
const ASSETS: &str = "assets/";
/// A file of this name never changes.
const FOREVER: &str = "public, max-age=31536000, immutable";

const WITHOUT: &str = "<!doctype html>
<html lang=\"en\">
<meta charset=\"utf-8\">
<title>Phalanx</title>
<h1>Phalanx</h1>
<p>This program was built without its dashboard. To build it: <code>make ui</code> (needs Node 20 and npm), then build
<code>phalanx</code> again.</p>
<p>The API is here: <a href=\"/v1/openapi.json\">/v1/openapi.json</a>.</p>
</html>
";

/// A file of the dashboard. Every other path is a page that the dashboard itself finds.
pub(crate) async fn serve(uri: Uri) -> Response {
    let path = uri.path().trim_start_matches('/');
    if let Some(file) = Files::get(path).filter(|_| is_plain(path) && !path.is_empty()) {
        let lasts = if path.starts_with(ASSETS) { FOREVER } else { "no-cache" };
        return found(path, lasts, file.data.into_owned());
    }
    // Names of jobs and nodes have dots, too.
    let is_page = is_plain(path) && !path.starts_with(ASSETS) && kind_of(path).is_none();
    match Files::get(INDEX) {
        _ if !is_page => Problem::not_found(format!("there is no file {path:?}")).into_response(),
        Some(file) => found(INDEX, "no-cache", file.data.into_owned()),
        None => found(INDEX, "no-cache", WITHOUT.into()),
    }
}

/// It leads nowhere up.
fn is_plain(path: &str) -> bool {
    path.split('/').all(|part| part != ".." && part != ".")
}

fn found(path: &str, lasts: &'static str, body: Vec<u8>) -> Response {
    let headers: [(HeaderName, HeaderValue); 2] = [
        (header::CONTENT_TYPE, HeaderValue::from_static(kind_of(path).unwrap_or("application/octet-stream"))),
        (header::CACHE_CONTROL, HeaderValue::from_static(lasts)),
    ];
    (StatusCode::OK, headers, body).into_response()
}

/// What a file is, which `nosniff` makes necessary to say. `None`: it is no file of a page.
fn kind_of(path: &str) -> Option<&'static str> {
    Some(match path.rsplit_once('.')?.1 {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "ico" => "image/x-icon",
        "woff2" => "font/woff2",
        "txt" => "text/plain; charset=utf-8",
        "json" | "map" | "webmanifest" => "application/json",
        _ => return None,
    })
}

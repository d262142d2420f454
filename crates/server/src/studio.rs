//! The web studio: files that were built beforehand and stand in the program itself. Models' words are shown there, so nothing may
//! run but the studio's own script.

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use rust_embed::{EmbeddedFile, RustEmbed};

use crate::problem::HttpProblem;

#[derive(RustEmbed)]
#[folder = "assets/studio/"]
struct StudioFiles;

/// What a page of the studio may do.
pub const STUDIO_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; \
                          connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const INDEX_FILE: &str = "index.html";

/// A file of the studio, or its first page for every path that is one of its own.
pub async fn serve_studio(request: Request) -> Response {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return HttpProblem::not_found("there is nothing at this path").into_response();
    }
    let path = request.uri().path().trim_start_matches('/');
    if let Some(file) = StudioFiles::get(path).filter(|_| !path.is_empty()) {
        return studio_file_response(path, &file, &request);
    }
    // A path with a dot in its last part means a file, unless it is the page of a session, and everything under `v1` the API.
    let is_file = path.rsplit('/').next().unwrap_or_default().contains('.') && !path.starts_with("s/");
    let is_page = !is_file && path != "v1" && !path.starts_with("v1/");
    match StudioFiles::get(INDEX_FILE).filter(|_| is_page) {
        Some(index) => studio_file_response(INDEX_FILE, &index, &request),
        None => HttpProblem::not_found("there is nothing at this path").into_response(),
    }
}

fn studio_file_response(path: &str, file: &EmbeddedFile, request: &Request) -> Response {
    let tag = file.metadata.sha256_hash().iter().take(16).map(|byte| format!("{byte:02x}")).collect::<String>();
    let tag = format!("\"{tag}\"");
    let known = request.headers().get(header::IF_NONE_MATCH).and_then(|known| known.to_str().ok());
    let mut response = if known.is_some_and(|known| known.split(',').any(|known| known.trim() == tag)) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        Body::from(file.data.clone().into_owned()).into_response()
    };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type_for_path(path)));
    // What is built has the hash of its content in its name; what leads there must be asked for anew.
    let is_hashed = path.starts_with("assets/");
    let cache = if is_hashed { "public, max-age=31536000, immutable" } else { "no-cache" };
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(cache));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(header::ETAG, tag);
    }
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(STUDIO_SECURITY_POLICY));
    headers.insert("cross-origin-opener-policy", HeaderValue::from_static("same-origin"));
    headers.insert("cross-origin-resource-policy", HeaderValue::from_static("same-origin"));
    response
}

/// The media type of a file, by its name.
fn media_type_for_path(path: &str) -> &'static str {
    match path.rsplit('.').next().unwrap_or_default() {
        "html" => "text/html; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "json" | "map" => "application/json",
        "webmanifest" => "application/manifest+json",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "ico" => "image/x-icon",
        "woff2" => "font/woff2",
        "txt" => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

//! Serves the web studio, whose built files are embedded in the program. The studio shows text from models, so its pages may
//! run no script but their own.

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use rust_embed::{EmbeddedFile, RustEmbed};

use crate::problem::HttpProblem;

#[derive(RustEmbed)]
#[folder = "assets/studio/"]
struct StudioFiles;

/// The `Content-Security-Policy` of the studio.
pub(crate) const STUDIO_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; \
                          connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const INDEX_FILE: &str = "index.html";

/// Serves a file of the studio, or its start page for paths that the studio routes itself.
pub(crate) async fn serve_studio(request: Request) -> Response {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return HttpProblem::not_found("there is no such page").into_response();
    }
    let path = request.uri().path().trim_start_matches('/');
    if let Some(file) = StudioFiles::get(path).filter(|_| !path.is_empty()) {
        return studio_file_response(path, &file, &request);
    }
    // A last segment with a dot means a file, except for session pages. Everything under `v1` is the API.
    let is_file = path.rsplit('/').next().unwrap_or_default().contains('.') && !path.starts_with("s/");
    let is_page = !is_file && path != "v1" && !path.starts_with("v1/");
    match StudioFiles::get(INDEX_FILE).filter(|_| is_page) {
        Some(index) => studio_file_response(INDEX_FILE, &index, &request),
        None => HttpProblem::not_found("there is no such page").into_response(),
    }
}

fn studio_file_response(path: &str, file: &EmbeddedFile, request: &Request) -> Response {
    let tag = file.metadata.sha256_hash().iter().take(16).map(|byte| format!("{byte:02x}")).collect::<String>();
    let tag = format!("\"{tag}\"");
    let known_tags = request.headers().get(header::IF_NONE_MATCH).and_then(|known_tags| known_tags.to_str().ok());
    let mut response =
        if known_tags.is_some_and(|known_tags| known_tags.split(',').any(|known_tags| known_tags.trim() == tag)) {
            StatusCode::NOT_MODIFIED.into_response()
        } else {
            Body::from(file.data.clone().into_owned()).into_response()
        };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type_for_path(path)));
    // Built files have a content hash in their names. The start page must be revalidated.
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

/// Returns the media type of a file by its extension.
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

//! The engine over HTTP: requests, live streams, a door for clients made for OpenAI's API, the web studio.
//!
//! Decides who may ask and how answers look; what happens in a conversation is decided elsewhere. It knows no flow, vendor or
//! store, and does not assume to be the only process on the store: what it streams it reads from the journal.

pub mod api;
pub mod app;
pub mod caller;
pub mod event_view;
pub mod extract;
mod files;
mod guard;
pub mod history;
pub mod http_server;
pub mod images;
pub mod keys;
pub mod limits;
pub mod metrics;
pub mod openai;
pub mod openapi;
pub mod options;
pub mod pages;
pub mod problem;
mod rate_limit;
pub mod session_changes;
pub mod stream;
pub mod studio;
pub mod webhooks;

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{NotForContentType, Predicate, SizeAbove};
use utoipa::openapi::OpenApi;
use utoipa_axum::router::OpenApiRouter;

use app::AppState;
use problem::HttpProblem;

pub use http_server::{Error, HttpServer};
pub use options::ServerOptions;

/// Every route that has a description, and the description.
fn build_documented_routes() -> (Router<AppState>, OpenApi) {
    let (router, api) =
        OpenApiRouter::<AppState>::new().merge(api::native_routes()).merge(openai::openai_routes()).split_for_parts();
    (router, openapi::complete_openapi_document(api))
}

/// The API's description.
#[must_use]
pub fn openapi_document() -> OpenApi {
    build_documented_routes().1
}

/// Everything that can be asked for.
pub fn build_router(app: AppState) -> Router {
    let (router, description) = build_documented_routes();
    let reference = pages::render_api_reference(&description);
    let description = serde_json::to_string_pretty(&description).unwrap_or_default();
    let json = move || async move {
        ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], description).into_response()
    };
    let packed = SizeAbove::new(limits::COMPRESSED_BYTES_MIN).and(NotForContentType::SSE);
    router
        .route("/openapi.json", get(json))
        .route("/docs", get(move || async move { pages::html_response(reference) }))
        .route("/errors", get(pages::errors_page))
        .route("/errors/{code}", get(pages::error_page))
        .method_not_allowed_fallback(handle_method_not_allowed)
        .fallback(studio::serve_studio)
        .layer(CatchPanicLayer::custom(panic_response))
        .layer(CompressionLayer::new().compress_when(packed))
        .layer(axum::middleware::from_fn_with_state(app.clone(), guard::guard_request))
        .with_state(app)
}

async fn handle_method_not_allowed(request: Request) -> Response {
    let problem = HttpProblem::new("method-not-allowed", format!("`{}` is not for this path", request.method()));
    if openai::is_openai_path(request.uri().path()) {
        openai::openai_error_response(problem)
    } else {
        problem.into_response()
    }
}

/// A fault of ours is told without its words, which may hold somebody's text.
fn panic_response(_: Box<dyn std::any::Any + Send>) -> Response {
    HttpProblem::new("internal", "something went wrong here that should not; the session is safe, so try again")
        .into_response()
}

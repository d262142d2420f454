//! The engine over HTTP: requests, live streams, a door for clients made for OpenAI's API, the web studio.
//!
//! Decides who may ask and how answers look; what happens in a conversation is decided elsewhere. It knows no flow, vendor or
//! store, and does not assume to be the only process on the store: what it streams it reads from the journal.

pub mod api;
pub mod app;
pub mod caller;
pub mod changes;
pub mod chronicle;
pub mod door;
pub mod extract;
mod files;
mod guard;
pub mod images;
pub mod keys;
pub mod limits;
pub mod metrics;
pub mod openapi;
pub mod options;
mod pace;
pub mod pages;
pub mod problem;
pub mod serve;
pub mod stream;
pub mod studio;
pub mod teller;
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

use app::App;
use problem::Problem;

pub use options::Options;
pub use serve::{Error, Server};

/// Every route that has a description, and the description.
fn described() -> (Router<App>, OpenApi) {
    let (router, api) = OpenApiRouter::<App>::new().merge(api::router()).merge(door::router()).split_for_parts();
    (router, openapi::complete(api))
}

/// The API's description.
#[must_use]
pub fn description() -> OpenApi {
    described().1
}

/// Everything that can be asked for.
pub fn router(app: App) -> Router {
    let (router, description) = described();
    let reference = pages::reference(&description);
    let description = serde_json::to_string_pretty(&description).unwrap_or_default();
    let json = move || async move {
        ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], description).into_response()
    };
    let packed = SizeAbove::new(limits::PACKED_BYTES_MIN).and(NotForContentType::SSE);
    router
        .route("/openapi.json", get(json))
        .route("/docs", get(move || async move { pages::respond(reference) }))
        .route("/errors", get(pages::errors))
        .route("/errors/{code}", get(pages::error))
        .method_not_allowed_fallback(not_with_this_method)
        .fallback(studio::serve)
        .layer(CatchPanicLayer::custom(panicked))
        .layer(CompressionLayer::new().compress_when(packed))
        .layer(axum::middleware::from_fn_with_state(app.clone(), guard::enter))
        .with_state(app)
}

async fn not_with_this_method(request: Request) -> Response {
    let problem = Problem::new("method-not-allowed", format!("`{}` is not for this path", request.method()));
    if door::is_path(request.uri().path()) { door::failed(problem) } else { problem.into_response() }
}

/// A fault of ours is told without its words, which may hold somebody's text.
fn panicked(_: Box<dyn std::any::Any + Send>) -> Response {
    Problem::new("internal", "something went wrong here that should not; the session is safe, so try again")
        .into_response()
}

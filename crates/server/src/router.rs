//! Builds the router: all routes, the pages, the studio as fallback, and the middleware around them.

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

use crate::app::AppState;
use crate::problem::HttpProblem;
use crate::{api, guard, limits, live_updates, openai, openapi, pages, studio};

/// Returns the OpenAPI document of all routes.
#[must_use]
pub fn openapi_document() -> OpenApi {
    build_documented_routes().1
}

/// Builds the router of the whole server.
pub(crate) fn build_router(app: AppState) -> Router {
    let (router, document) = build_documented_routes();
    let reference = pages::render_api_reference(&document);
    // Our own types can always be serialized.
    let document = serde_json::to_string_pretty(&document).unwrap_or_default();
    let json = move || async move {
        ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], document).into_response()
    };
    let is_compressed = SizeAbove::new(limits::COMPRESSED_BYTES_MIN).and(NotForContentType::SSE);
    router
        .route("/openapi.json", get(json))
        .route(live_updates::LIVE_PATH, get(live_updates::get_live_updates))
        .route("/docs", get(move || async move { pages::html_response(reference) }))
        .route("/errors", get(pages::errors_page))
        .route("/errors/{code}", get(pages::error_page))
        .method_not_allowed_fallback(handle_method_not_allowed)
        .fallback(studio::serve_studio)
        .layer(CatchPanicLayer::custom(panic_response))
        .layer(CompressionLayer::new().compress_when(is_compressed))
        .layer(axum::middleware::from_fn_with_state(app.clone(), guard::guard_request))
        .with_state(app)
}

/// Returns the routes that have an OpenAPI description, and the finished document.
fn build_documented_routes() -> (Router<AppState>, OpenApi) {
    let (router, document) =
        OpenApiRouter::<AppState>::new().merge(api::native_routes()).merge(openai::openai_routes()).split_for_parts();
    (router, openapi::complete_openapi_document(document))
}

async fn handle_method_not_allowed(request: Request) -> Response {
    let problem = HttpProblem::new("method-not-allowed", format!("this path does not support `{}`", request.method()));
    if openai::is_openai_path(request.uri().path()) {
        openai::openai_error_response(problem)
    } else {
        problem.into_response()
    }
}

/// Answers after a panic. The panic message is left out, because it may contain conversation text.
fn panic_response(_: Box<dyn std::any::Any + Send>) -> Response {
    tracing::error!("a request handler panicked; this is a bug");
    HttpProblem::new("internal", "the server failed unexpectedly; accepted messages are recorded, so try again")
        .into_response()
}

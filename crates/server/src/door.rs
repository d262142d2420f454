//! stub
use axum::Json;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;

use crate::app::App;
use crate::problem::Problem;

#[derive(Debug, Default)]
pub struct Heard;

#[derive(Debug, Serialize, ToSchema)]
pub struct Failure {
    pub error: String,
}

#[must_use]
pub fn is_path(path: &str) -> bool {
    ["/v1/chat/completions", "/v1/models", "/v1/responses"].iter().any(|door| path.starts_with(door))
}

pub fn failed(problem: Problem) -> Response {
    (problem.status, Json(Failure { error: problem.detail })).into_response()
}

pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
}

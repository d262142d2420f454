//! Serves information about the server: health, metrics, the caller, and the models.

use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use segue_core::ids::ModelName;
use segue_core::limits::SESSION_LIMITS;
use serde::Serialize;
use utoipa::ToSchema;

use super::common_types::MidTurnPolicyView;
use crate::app::AppState;
use crate::caller::Caller;
use crate::problem::HttpProblem;

/// The health of the server.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HealthStatus {
    /// Always `ok`.
    pub status: String,
}

/// Check that the process is alive
#[utoipa::path(get, path = "/health", tag = "server", responses((status = 200, body = HealthStatus)))]
pub(crate) async fn get_health() -> Json<HealthStatus> {
    Json(HealthStatus { status: "ok".to_owned() })
}

/// Check that the server can serve requests
#[utoipa::path(get, path = "/ready", tag = "server", responses((status = 200, body = HealthStatus)))]
pub(crate) async fn get_readiness(State(app): State<AppState>) -> Result<Json<HealthStatus>, HttpProblem> {
    if app.is_shutting_down() {
        return Err(HttpProblem::new("not-ready", "the server is shutting down").with_retry_after(1));
    }
    if !app.readiness.is_ready(&app.engine).await {
        return Err(HttpProblem::new("not-ready", "the store cannot be written").with_retry_after(1));
    }
    Ok(Json(HealthStatus { status: "ok".to_owned() }))
}

/// Get metrics for Prometheus
#[utoipa::path(get, path = "/metrics", tag = "server", responses((status = 200, body = String, content_type = "application/openmetrics-text")))]
pub(crate) async fn get_metrics(State(app): State<AppState>, caller: Caller) -> Result<Response, HttpProblem> {
    caller.require_operator()?;
    // A store that cannot be read now shows as zeros; the readiness check tells.
    let store = app.engine.read_store_metrics().await.unwrap_or_default();
    let text = app.metrics.encode_text(app.engine.active_session_count(), app.engine.lease_counts(), store);
    Ok(([(header::CONTENT_TYPE, crate::metrics::METRICS_CONTENT_TYPE)], text).into_response())
}

/// The server, and who the caller is.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ServerInfo {
    pub version: String,
    /// The flow of a new session that names none.
    pub default_flow: String,
    /// The policy of a new session that names none.
    pub default_mid_turn_policy: MidTurnPolicyView,
    /// Whether some role is played by the rehearsal model. Clients must show this to the user.
    pub uses_rehearsal_model: bool,
    /// Whether every request needs a key.
    pub key_required: bool,
    pub caller: CallerInfo,
    pub limits: ServerLimitsView,
}

/// Who the caller is.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CallerInfo {
    /// `null` without a key.
    pub key_id: Option<String>,
    /// The owner whose sessions the caller sees; `null` for all sessions.
    pub owner: Option<String>,
    /// The flows that the caller may use; `null` for all flows.
    pub flows: Option<Vec<String>>,
    /// Whether the caller has no restrictions.
    pub operator: bool,
}

/// The limits of the server.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ServerLimitsView {
    pub body_bytes_max: usize,
    /// The maximum size of a request that may contain images.
    pub image_body_bytes_max: usize,
    pub message_bytes_max: usize,
    /// Per key.
    pub requests_per_minute_max: u32,
    /// Open streams per key.
    pub streams_max: usize,
    /// Sessions with a running turn.
    pub turns_max: usize,
}

/// Get information about the server
#[utoipa::path(get, path = "/v1/server", tag = "server", responses((status = 200, body = ServerInfo)))]
pub(crate) async fn get_server_info(State(app): State<AppState>, caller: Caller) -> Json<ServerInfo> {
    let (options, limits) = (&app.options, app.options.limits);
    let operator = caller.is_operator();
    Json(ServerInfo {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        default_flow: options.default_flow.to_string(),
        default_mid_turn_policy: options.default_mid_turn_policy.into(),
        uses_rehearsal_model: options.uses_rehearsal_model,
        key_required: options.is_key_required(),
        caller: CallerInfo {
            key_id: caller.key_id,
            owner: caller.owner,
            flows: caller.allowed_flows.map(|flows| flows.iter().map(ToString::to_string).collect()),
            operator,
        },
        limits: ServerLimitsView {
            body_bytes_max: limits.body_bytes_max,
            image_body_bytes_max: limits.image_body_bytes_max,
            message_bytes_max: SESSION_LIMITS.message_bytes_max,
            requests_per_minute_max: limits.requests_per_minute_max,
            streams_max: limits.streams_max,
            turns_max: limits.turns_max,
        },
    })
}

/// The configured models.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ConfiguredModelList {
    /// The model of every role without an assignment of its own.
    pub default: String,
    pub models: Vec<ConfiguredModelView>,
}

/// A configured model.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ConfiguredModelView {
    /// The name in the configuration.
    pub model: String,
    /// `vendor`, `scripted` or `rehearsal`.
    pub kind: String,
    /// A description of the model.
    pub about: String,
    /// The size of the context window.
    pub window_tokens: u32,
    /// `null` if unknown.
    pub price: Option<ModelPriceView>,
}

/// Prices in millionths of a dollar per million tokens.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ModelPriceView {
    pub input: u64,
    pub output: u64,
    /// Input tokens that the vendor serves from its cache.
    pub cached: u64,
}

/// List the models behind the flows
#[utoipa::path(get, path = "/v1/model-cards", tag = "server", responses((status = 200, body = ConfiguredModelList)))]
pub(crate) async fn list_model_cards(State(app): State<AppState>) -> Json<ConfiguredModelList> {
    let models = app.engine.models();
    let default = app.engine.model_assignment().default_model().clone();
    let mut cards: Vec<ConfiguredModelView> = Vec::new();
    let names: Vec<ModelName> = models.iter().map(|(name, _, _)| name.clone()).collect();
    // A registry with a single model accepts every name, so the model is listed under the default name.
    let names = if names.is_empty() { vec![default.clone()] } else { names };
    for name in names {
        let (Ok(model), Ok(card)) = (models.get(&name), models.card(&name)) else { continue };
        let about = model.describe();
        let price =
            card.price.map(|price| ModelPriceView { input: price.input, output: price.output, cached: price.cached });
        let (kind, window_tokens) = (about.kind.to_string(), card.window_tokens);
        cards.push(ConfiguredModelView { model: name.to_string(), kind, about: about.label, window_tokens, price });
    }
    Json(ConfiguredModelList { default: default.to_string(), models: cards })
}

//! The server itself: health, who it takes you for, its models.

use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use segue_core::ids::ModelName;
use segue_core::limits::MESSAGE_BYTES_MAX;
use segue_engine::SessionQuery;
use serde::Serialize;
use utoipa::ToSchema;

use super::common_types::MidTurnPolicyView;
use crate::app::AppState;
use crate::caller::Caller;
use crate::problem::HttpProblem;

/// That it lives.
#[derive(Debug, Serialize, ToSchema)]
pub struct HealthStatus {
    /// `ok`.
    pub status: String,
}

/// Whether the process lives
#[utoipa::path(get, path = "/health", tag = "server", responses((status = 200, body = HealthStatus)))]
pub async fn get_health() -> Json<HealthStatus> {
    Json(HealthStatus { status: "ok".to_owned() })
}

/// Whether it can do its work
#[utoipa::path(get, path = "/ready", tag = "server", responses((status = 200, body = HealthStatus)))]
pub async fn get_readiness(State(app): State<AppState>) -> Result<Json<HealthStatus>, HttpProblem> {
    if app.is_shutting_down() {
        return Err(HttpProblem::new("not-ready", "the server is shutting down").with_retry_after(1));
    }
    let listed = app.engine.list_sessions(&SessionQuery::newest(1)).await;
    listed.map_err(|_| HttpProblem::new("not-ready", "the store cannot be read").with_retry_after(1))?;
    Ok(Json(HealthStatus { status: "ok".to_owned() }))
}

/// What is counted, for Prometheus
#[utoipa::path(get, path = "/metrics", tag = "server", responses((status = 200, body = String, content_type = "application/openmetrics-text")))]
pub async fn get_metrics(State(app): State<AppState>, caller: Caller) -> Result<Response, HttpProblem> {
    caller.require_operator()?;
    let text = app.metrics.encode_text(app.engine.active_session_count());
    Ok(([(header::CONTENT_TYPE, crate::metrics::METRICS_CONTENT_TYPE)], text).into_response())
}

/// The server, and who it takes you for.
#[derive(Debug, Serialize, ToSchema)]
pub struct ServerInfo {
    /// The program's version.
    pub version: String,
    /// The flow of a session that is begun without saying.
    pub default_flow: String,
    /// What happens to a message while a turn runs, where nothing is said.
    pub default_mid_turn_policy: MidTurnPolicyView,
    /// Whether some role is played by a stand-in for a model. Must be shown to the user.
    pub uses_rehearsal_model: bool,
    /// Whether every request needs a key.
    pub key_required: bool,
    /// Who you are here.
    pub caller: CallerInfo,
    /// What the server bears.
    pub limits: ServerLimitsView,
}

/// Who somebody is here.
#[derive(Debug, Serialize, ToSchema)]
pub struct CallerInfo {
    /// The id of your key.
    pub key_id: Option<String>,
    /// Whose sessions you see; everybody's if absent.
    pub owner: Option<String>,
    /// The flows you may use; all if absent.
    pub flows: Option<Vec<String>>,
    /// Whether you may see and do everything.
    pub operator: bool,
}

/// What the server bears.
#[derive(Debug, Serialize, ToSchema)]
pub struct ServerLimitsView {
    /// Bytes of a body.
    pub body_bytes_max: usize,
    /// Bytes of a body that can hold images.
    pub image_body_bytes_max: usize,
    /// Bytes of a message.
    pub message_bytes_max: usize,
    /// Requests a minute of one key.
    pub requests_per_minute_max: u32,
    /// Open streams of one key.
    pub streams_max: usize,
    /// Sessions at work at once.
    pub turns_max: usize,
}

/// The server, and who it takes you for
#[utoipa::path(get, path = "/v1/server", tag = "server", responses((status = 200, body = ServerInfo)))]
pub async fn get_server_info(State(app): State<AppState>, caller: Caller) -> Json<ServerInfo> {
    let (options, bounds) = (&app.options, app.options.limits);
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
            body_bytes_max: bounds.body_bytes_max,
            image_body_bytes_max: bounds.image_body_bytes_max,
            message_bytes_max: MESSAGE_BYTES_MAX,
            requests_per_minute_max: bounds.requests_per_minute_max,
            streams_max: bounds.streams_max,
            turns_max: bounds.turns_max,
        },
    })
}

/// All models.
#[derive(Debug, Serialize, ToSchema)]
pub struct ModelCardList {
    /// The model of every role that nothing else is said about.
    pub default: String,
    /// By name.
    pub models: Vec<ModelCardView>,
}

/// A model.
#[derive(Debug, Serialize, ToSchema)]
pub struct ModelCardView {
    /// What the configuration calls it.
    pub model: String,
    /// `vendor`, `scripted` or `rehearsal`.
    pub kind: String,
    /// What it is.
    pub about: String,
    /// How many tokens fit into prompt and answer together.
    pub window_tokens: u32,
    /// What it costs, if that is known.
    pub price: Option<ModelPriceView>,
}

/// Millionths of a dollar for a million tokens.
#[derive(Debug, Serialize, ToSchema)]
pub struct ModelPriceView {
    /// Sent.
    pub input: u64,
    /// Received.
    pub output: u64,
    /// Sent, and cached by the vendor.
    pub cached: u64,
}

/// The models behind the flows
#[utoipa::path(get, path = "/v1/model-cards", tag = "server", responses((status = 200, body = ModelCardList)))]
pub async fn list_model_cards(State(app): State<AppState>) -> Json<ModelCardList> {
    let models = app.engine.models();
    let default = app.engine.model_assignment().default_model().clone();
    let mut cards: Vec<ModelCardView> = Vec::new();
    let names: Vec<ModelName> = models.iter().map(|(name, _, _)| name.clone()).collect();
    // One model may answer to every name; then it is known by the name it is cast under.
    let names = if names.is_empty() { vec![default.clone()] } else { names };
    for name in names {
        let (Ok(model), Ok(card)) = (models.get(&name), models.card(&name)) else { continue };
        let about = model.describe();
        let price =
            card.price.map(|price| ModelPriceView { input: price.input, output: price.output, cached: price.cached });
        let (kind, window_tokens) = (about.kind.to_string(), card.window_tokens);
        cards.push(ModelCardView { model: name.to_string(), kind, about: about.label, window_tokens, price });
    }
    Json(ModelCardList { default: default.to_string(), models: cards })
}

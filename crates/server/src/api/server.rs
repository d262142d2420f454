//! The server itself: health, who it takes you for, its models.

use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use segue_core::ids::ModelName;
use segue_core::limits::MESSAGE_BYTES_MAX;
use segue_engine::Query;
use serde::Serialize;
use utoipa::ToSchema;

use super::shapes::BusyPolicy;
use crate::app::App;
use crate::caller::Caller;
use crate::problem::Problem;

/// That it lives.
#[derive(Debug, Serialize, ToSchema)]
pub struct Health {
    /// `ok`.
    pub status: String,
}

/// Whether the process lives
#[utoipa::path(get, path = "/health", tag = "server", responses((status = 200, body = Health)))]
pub async fn health() -> Json<Health> {
    Json(Health { status: "ok".to_owned() })
}

/// Whether it can do its work
#[utoipa::path(get, path = "/ready", tag = "server", responses((status = 200, body = Health)))]
pub async fn ready(State(app): State<App>) -> Result<Json<Health>, Problem> {
    if app.is_closing() {
        return Err(Problem::new("not-ready", "the server is shutting down").after_seconds(1));
    }
    let listed = app.engine.list(&Query::newest(1)).await;
    listed.map_err(|_| Problem::new("not-ready", "the store cannot be read").after_seconds(1))?;
    Ok(Json(Health { status: "ok".to_owned() }))
}

/// What is counted, for Prometheus
#[utoipa::path(get, path = "/metrics", tag = "server", responses((status = 200, body = String, content_type = "application/openmetrics-text")))]
pub async fn metrics(State(app): State<App>, caller: Caller) -> Result<Response, Problem> {
    caller.be_operator()?;
    let text = app.metrics.text(app.engine.at_work());
    Ok(([(header::CONTENT_TYPE, crate::metrics::CONTENT_TYPE)], text).into_response())
}

/// The server, and who it takes you for.
#[derive(Debug, Serialize, ToSchema)]
pub struct About {
    /// The program's version.
    pub version: String,
    /// The flow of a session that is begun without saying.
    pub flow: String,
    /// What happens to a message while a turn runs, where nothing is said.
    pub busy: BusyPolicy,
    /// Whether some role is played by a stand-in for a model. Must be shown to the user.
    pub rehearsal: bool,
    /// Whether every request needs a key.
    pub key_needed: bool,
    /// Who you are here.
    pub you: You,
    /// What the server bears.
    pub limits: ServerLimits,
}

/// Who somebody is here.
#[derive(Debug, Serialize, ToSchema)]
pub struct You {
    /// The id of your key.
    pub key: Option<String>,
    /// Whose sessions you see; everybody's if absent.
    pub owner: Option<String>,
    /// The flows you may use; all if absent.
    pub flows: Option<Vec<String>>,
    /// Whether you may see and do everything.
    pub operator: bool,
}

/// What the server bears.
#[derive(Debug, Serialize, ToSchema)]
pub struct ServerLimits {
    /// Bytes of a body.
    pub body_bytes_max: usize,
    /// Bytes of a body that can hold images.
    pub showing_bytes_max: usize,
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
#[utoipa::path(get, path = "/v1/server", tag = "server", responses((status = 200, body = About)))]
pub async fn about(State(app): State<App>, caller: Caller) -> Json<About> {
    let (options, bounds) = (&app.options, app.options.bounds);
    let operator = caller.is_operator();
    Json(About {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        flow: options.flow.to_string(),
        busy: options.busy.into(),
        rehearsal: options.rehearsal,
        key_needed: options.needs_key(),
        you: You {
            key: caller.key,
            owner: caller.owner,
            flows: caller.flows.map(|flows| flows.iter().map(ToString::to_string).collect()),
            operator,
        },
        limits: ServerLimits {
            body_bytes_max: bounds.body_bytes_max,
            showing_bytes_max: bounds.showing_bytes_max,
            message_bytes_max: MESSAGE_BYTES_MAX,
            requests_per_minute_max: bounds.requests_per_minute_max,
            streams_max: bounds.streams_max,
            turns_max: bounds.turns_max,
        },
    })
}

/// All models.
#[derive(Debug, Serialize, ToSchema)]
pub struct Cards {
    /// The model of every role that nothing else is said about.
    pub default: String,
    /// By name.
    pub models: Vec<Card>,
}

/// A model.
#[derive(Debug, Serialize, ToSchema)]
pub struct Card {
    /// What the configuration calls it.
    pub model: String,
    /// `vendor`, `scripted` or `rehearsal`.
    pub kind: String,
    /// What it is.
    pub about: String,
    /// How many tokens fit into prompt and answer together.
    pub window_tokens: u32,
    /// What it costs, if that is known.
    pub price: Option<PriceView>,
}

/// Millionths of a dollar for a million tokens.
#[derive(Debug, Serialize, ToSchema)]
pub struct PriceView {
    /// Sent.
    pub input: u64,
    /// Received.
    pub output: u64,
    /// Sent, and cached by the vendor.
    pub cached: u64,
}

/// The models behind the flows
#[utoipa::path(get, path = "/v1/cards", tag = "server", responses((status = 200, body = Cards)))]
pub async fn cards(State(app): State<App>) -> Json<Cards> {
    let models = app.engine.models();
    let default = app.engine.casting().otherwise().clone();
    let mut cards: Vec<Card> = Vec::new();
    let names: Vec<ModelName> = models.iter().map(|(name, _, _)| name.clone()).collect();
    // One model may answer to every name; then it is known by the name it is cast under.
    let names = if names.is_empty() { vec![default.clone()] } else { names };
    for name in names {
        let (Ok(model), Ok(card)) = (models.get(&name), models.card(&name)) else { continue };
        let about = model.describe();
        let price =
            card.price.map(|price| PriceView { input: price.input, output: price.output, cached: price.cached });
        let (kind, window_tokens) = (about.kind.to_string(), card.window_tokens);
        cards.push(Card { model: name.to_string(), kind, about: about.label, window_tokens, price });
    }
    Json(Cards { default: default.to_string(), models: cards })
}

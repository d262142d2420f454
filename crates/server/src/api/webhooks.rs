//! Webhooks over HTTP, for operators.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::app::AppState;
use crate::caller::{Caller, validate_owner_name};
use crate::extract::JsonBody;
use crate::limits::WEBHOOK_URL_BYTES_MAX;
use crate::problem::HttpProblem;
use crate::webhooks::{
    DeliveryAttempt, Webhook, WebhookEventKind, derive_webhook_secret, send_webhook_ping as send_ping,
};

/// Whom to tell of what.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewWebhook {
    /// Where.
    #[schema(format = "uri", max_length = 2048)]
    pub url: String,
    /// Of what; of everything that can be told if absent.
    #[serde(default)]
    pub events: Option<Vec<WebhookEventKind>>,
    /// In sessions of these flows; of all if absent.
    #[serde(default)]
    pub flows: Option<Vec<String>>,
    /// In sessions of this owner; of everybody if absent.
    #[serde(default)]
    pub owner: Option<String>,
}

/// A webhook that was made.
#[derive(Debug, Serialize, ToSchema)]
pub struct CreatedWebhook {
    /// The webhook.
    #[serde(flatten)]
    pub webhook: Webhook,
    /// What its deliveries are signed with; shown this once.
    pub secret: String,
}

/// All webhooks.
#[derive(Debug, Serialize, ToSchema)]
pub struct WebhookList {
    /// In the order they were made.
    pub webhooks: Vec<Webhook>,
}

/// The latest tries of a webhook.
#[derive(Debug, Serialize, ToSchema)]
pub struct DeliveryAttemptList {
    /// Newest first.
    pub deliveries: Vec<DeliveryAttempt>,
    /// Sessions of which something waits after a failed try.
    pub failing_sessions: usize,
}

/// What came of a ping.
#[derive(Debug, Serialize, ToSchema)]
pub struct PingResult {
    /// What the receiver answered.
    pub status: Option<u16>,
    /// Why it counts as not told.
    pub problem: Option<String>,
}

/// Have somebody told of events
#[utoipa::path(post, path = "/v1/webhooks", tag = "webhooks", request_body = NewWebhook, responses((status = 201, body = CreatedWebhook)))]
pub async fn create_webhook(
    State(app): State<AppState>,
    caller: Caller,
    JsonBody(new): JsonBody<NewWebhook>,
) -> Result<(StatusCode, Json<CreatedWebhook>), HttpProblem> {
    caller.require_operator()?;
    let master = app.options.webhook_secret.as_ref();
    let master = master.ok_or_else(|| {
        let detail = "webhooks are signed; start the server with a long random text in SEGUE_WEBHOOK_SECRET";
        HttpProblem::new("no-webhook-secret", detail)
    })?;
    validate_webhook(&app, &new)?;
    let mut random = [0; 9];
    getrandom::fill(&mut random).map_err(|_| HttpProblem::new("internal", "the system gives no random bytes"))?;
    let id = random.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let webhook = Webhook {
        webhook: format!("wh_{id}"),
        url: new.url,
        events: new.events,
        flows: new.flows,
        owner: new.owner,
        created: app.engine.now().0,
    };
    app.webhooks.add_webhook(webhook.clone())?;
    let secret = derive_webhook_secret(master, &webhook.webhook);
    Ok((StatusCode::CREATED, Json(CreatedWebhook { webhook, secret })))
}

fn validate_webhook(app: &AppState, new: &NewWebhook) -> Result<(), HttpProblem> {
    let url = reqwest::Url::parse(&new.url).ok().filter(|url| {
        matches!(url.scheme(), "http" | "https") && url.host().is_some() && new.url.len() <= WEBHOOK_URL_BYTES_MAX
    });
    if url.is_none() {
        let detail = format!("`url` must be an http or https address of at most {WEBHOOK_URL_BYTES_MAX} bytes");
        return Err(HttpProblem::bad_request(detail).with_extension("field", "url"));
    }
    for flow in new.flows.iter().flatten() {
        if !app.engine.flows().any(|rules| rules.spec().name == flow.as_str()) {
            return Err(HttpProblem::bad_request(format!("there is no flow `{flow}`")).with_extension("field", "flows"));
        }
    }
    if let Some(owner) = &new.owner {
        validate_owner_name(owner).map_err(|why| HttpProblem::bad_request(why).with_extension("field", "owner"))?;
    }
    Ok(())
}

/// Who is told of what
#[utoipa::path(get, path = "/v1/webhooks", tag = "webhooks", responses((status = 200, body = WebhookList)))]
pub async fn list_webhooks(State(app): State<AppState>, caller: Caller) -> Result<Json<WebhookList>, HttpProblem> {
    caller.require_operator()?;
    Ok(Json(WebhookList { webhooks: app.webhooks.list_webhooks()? }))
}

/// Tell somebody no more
#[utoipa::path(delete, path = "/v1/webhooks/{webhook}", tag = "webhooks", params(("webhook" = String, Path, description = "Its id.")),
    responses((status = 204)))]
pub async fn delete_webhook(
    State(app): State<AppState>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<StatusCode, HttpProblem> {
    caller.require_operator()?;
    app.webhooks.remove_webhook(&id)?;
    Ok(StatusCode::NO_CONTENT)
}

/// The latest tries to tell somebody
#[utoipa::path(get, path = "/v1/webhooks/{webhook}/deliveries", tag = "webhooks", params(("webhook" = String, Path, description = "Its id.")),
    responses((status = 200, body = DeliveryAttemptList)))]
pub async fn list_deliveries(
    State(app): State<AppState>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<DeliveryAttemptList>, HttpProblem> {
    caller.require_operator()?;
    app.webhooks.get_webhook(&id)?;
    Ok(Json(DeliveryAttemptList {
        deliveries: app.webhooks.recent_attempts(&id),
        failing_sessions: app.webhooks.failing_session_count(&id),
    }))
}

/// Tell somebody that they are told
#[utoipa::path(post, path = "/v1/webhooks/{webhook}/ping", tag = "webhooks", params(("webhook" = String, Path, description = "Its id.")),
    responses((status = 200, body = PingResult)))]
pub async fn ping_webhook(
    State(app): State<AppState>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<PingResult>, HttpProblem> {
    caller.require_operator()?;
    let (status, problem) = send_ping(&app, &app.webhooks.get_webhook(&id)?).await?;
    Ok(Json(PingResult { status, problem }))
}

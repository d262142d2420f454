//! Manages webhooks. Only operators may use these routes.

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
    NO_WEBHOOK_SECRET_DETAIL, Webhook, WebhookDeliveryAttempt, WebhookEventKind, derive_webhook_secret,
    send_webhook_ping,
};

/// A webhook to create.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewWebhook {
    #[schema(format = "uri", max_length = 2048)]
    pub url: String,
    /// The event kinds to deliver; all by default.
    #[serde(default)]
    pub events: Option<Vec<WebhookEventKind>>,
    /// Only events of sessions of these flows; all flows by default.
    #[serde(default)]
    pub flows: Option<Vec<String>>,
    /// Only events of sessions of this owner; all owners by default.
    #[serde(default)]
    pub owner: Option<String>,
}

/// A new webhook with its secret.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CreatedWebhook {
    #[serde(flatten)]
    pub webhook: Webhook,
    /// The key of the signatures; shown only once.
    pub secret: String,
}

/// The webhooks of the server.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WebhookList {
    /// In the order of creation.
    pub webhooks: Vec<Webhook>,
}

/// The most recent delivery attempts of a webhook.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WebhookDeliveryAttemptList {
    /// Newest first.
    pub deliveries: Vec<WebhookDeliveryAttempt>,
    /// The number of sessions with an event that is being retried.
    pub failing_sessions: usize,
}

/// The result of a ping.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WebhookPingResult {
    /// The status that the receiver returned.
    pub status: Option<u16>,
    /// Why the delivery failed.
    pub problem: Option<String>,
}

/// Create a webhook
#[utoipa::path(post, path = "/v1/webhooks", tag = "webhooks", request_body = NewWebhook, responses((status = 201, body = CreatedWebhook)))]
pub(crate) async fn create_webhook(
    State(app): State<AppState>,
    caller: Caller,
    JsonBody(new): JsonBody<NewWebhook>,
) -> Result<(StatusCode, Json<CreatedWebhook>), HttpProblem> {
    caller.require_operator()?;
    let master = app.options.webhook_secret.as_ref();
    let master = master.ok_or_else(|| HttpProblem::new("no-webhook-secret", NO_WEBHOOK_SECRET_DETAIL))?;
    validate_webhook(&app, &new)?;
    let mut random = [0; 9];
    getrandom::fill(&mut random).map_err(|_| HttpProblem::new("internal", "the system provides no random bytes"))?;
    let id = random.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let webhook = Webhook {
        webhook: format!("wh_{id}"),
        url: new.url,
        events: new.events,
        flows: new.flows,
        owner: new.owner,
        created: app.engine.now().0,
        after_change: app
            .engine
            .session_changes_after(None, 1)
            .await
            .map_err(|error| HttpProblem::from_engine_error(&error, &caller))?
            .next_cursor,
    };
    app.webhooks.add_webhook(webhook.clone()).await?;
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
        if !app.engine.flows().any(|known| known.spec().name == flow.as_str()) {
            return Err(HttpProblem::bad_request(format!("there is no flow `{flow}`")).with_extension("field", "flows"));
        }
    }
    if let Some(owner) = &new.owner {
        validate_owner_name(owner)
            .map_err(|reason| HttpProblem::bad_request(reason).with_extension("field", "owner"))?;
    }
    Ok(())
}

/// List the webhooks
#[utoipa::path(get, path = "/v1/webhooks", tag = "webhooks", responses((status = 200, body = WebhookList)))]
pub(crate) async fn list_webhooks(
    State(app): State<AppState>,
    caller: Caller,
) -> Result<Json<WebhookList>, HttpProblem> {
    caller.require_operator()?;
    Ok(Json(WebhookList { webhooks: app.webhooks.list_webhooks().await? }))
}

/// Delete a webhook
#[utoipa::path(delete, path = "/v1/webhooks/{webhook}", tag = "webhooks", params(("webhook" = String, Path, description = "The id of the webhook.")),
    responses((status = 204)))]
pub(crate) async fn delete_webhook(
    State(app): State<AppState>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<StatusCode, HttpProblem> {
    caller.require_operator()?;
    app.webhooks.remove_webhook(&id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// List the most recent delivery attempts of a webhook
#[utoipa::path(get, path = "/v1/webhooks/{webhook}/deliveries", tag = "webhooks", params(("webhook" = String, Path, description = "The id of the webhook.")),
    responses((status = 200, body = WebhookDeliveryAttemptList)))]
pub(crate) async fn list_deliveries(
    State(app): State<AppState>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<WebhookDeliveryAttemptList>, HttpProblem> {
    caller.require_operator()?;
    let webhook = app.webhooks.get_webhook(&id).await?;
    Ok(Json(WebhookDeliveryAttemptList {
        deliveries: app.webhooks.recent_attempts(&id),
        failing_sessions: app.webhooks.failing_session_count(&webhook).await?,
    }))
}

/// Send a ping to a webhook
#[utoipa::path(post, path = "/v1/webhooks/{webhook}/ping", tag = "webhooks", params(("webhook" = String, Path, description = "The id of the webhook.")),
    responses((status = 200, body = WebhookPingResult)))]
pub(crate) async fn ping_webhook(
    State(app): State<AppState>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<WebhookPingResult>, HttpProblem> {
    caller.require_operator()?;
    let (status, problem) = send_webhook_ping(&app, &app.webhooks.get_webhook(&id).await?).await?;
    Ok(Json(WebhookPingResult { status, problem }))
}

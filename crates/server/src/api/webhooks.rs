//! Webhooks over HTTP, for operators.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::app::App;
use crate::caller::{Caller, check_owner};
use crate::extract::Body;
use crate::limits::WEBHOOK_URL_BYTES_MAX;
use crate::problem::Problem;
use crate::webhooks::{Delivery, EventKind, Webhook, ping as send_ping, secret_of};

/// Whom to tell of what.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewWebhook {
    /// Where.
    #[schema(format = "uri", max_length = 2048)]
    pub url: String,
    /// Of what; of everything that can be told if absent.
    #[serde(default)]
    pub events: Option<Vec<EventKind>>,
    /// In sessions of these flows; of all if absent.
    #[serde(default)]
    pub flows: Option<Vec<String>>,
    /// In sessions of this owner; of everybody if absent.
    #[serde(default)]
    pub owner: Option<String>,
}

/// A webhook that was made.
#[derive(Debug, Serialize, ToSchema)]
pub struct MadeWebhook {
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
pub struct Deliveries {
    /// Newest first.
    pub deliveries: Vec<Delivery>,
    /// Sessions of which something waits after a failed try.
    pub waiting: usize,
}

/// What came of a ping.
#[derive(Debug, Serialize, ToSchema)]
pub struct Pinged {
    /// What the receiver answered.
    pub status: Option<u16>,
    /// Why it counts as not told.
    pub problem: Option<String>,
}

/// Have somebody told of events
#[utoipa::path(post, path = "/v1/webhooks", tag = "webhooks", request_body = NewWebhook, responses((status = 201, body = MadeWebhook)))]
pub async fn create(
    State(app): State<App>,
    caller: Caller,
    Body(new): Body<NewWebhook>,
) -> Result<(StatusCode, Json<MadeWebhook>), Problem> {
    caller.be_operator()?;
    let master = app.options.webhook_secret.as_ref();
    let master = master.ok_or_else(|| {
        let detail = "webhooks are signed; start the server with a long random text in SEGUE_WEBHOOK_SECRET";
        Problem::new("no-webhook-secret", detail)
    })?;
    check(&app, &new)?;
    let mut random = [0; 9];
    getrandom::fill(&mut random).map_err(|_| Problem::new("internal", "the system gives no random bytes"))?;
    let id = random.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let webhook = Webhook {
        webhook: format!("wh_{id}"),
        url: new.url,
        events: new.events,
        flows: new.flows,
        owner: new.owner,
        created: app.engine.now().0,
    };
    app.webhooks.add(webhook.clone())?;
    let secret = secret_of(master, &webhook.webhook);
    Ok((StatusCode::CREATED, Json(MadeWebhook { webhook, secret })))
}

fn check(app: &App, new: &NewWebhook) -> Result<(), Problem> {
    let url = reqwest::Url::parse(&new.url).ok().filter(|url| {
        matches!(url.scheme(), "http" | "https") && url.host().is_some() && new.url.len() <= WEBHOOK_URL_BYTES_MAX
    });
    if url.is_none() {
        let detail = format!("`url` must be an http or https address of at most {WEBHOOK_URL_BYTES_MAX} bytes");
        return Err(Problem::bad_request(detail).with("field", "url"));
    }
    for flow in new.flows.iter().flatten() {
        if !app.engine.flows().any(|rules| rules.spec().name == flow.as_str()) {
            return Err(Problem::bad_request(format!("there is no flow `{flow}`")).with("field", "flows"));
        }
    }
    if let Some(owner) = &new.owner {
        check_owner(owner).map_err(|why| Problem::bad_request(why).with("field", "owner"))?;
    }
    Ok(())
}

/// Who is told of what
#[utoipa::path(get, path = "/v1/webhooks", tag = "webhooks", responses((status = 200, body = WebhookList)))]
pub async fn list(State(app): State<App>, caller: Caller) -> Result<Json<WebhookList>, Problem> {
    caller.be_operator()?;
    Ok(Json(WebhookList { webhooks: app.webhooks.list()? }))
}

/// Tell somebody no more
#[utoipa::path(delete, path = "/v1/webhooks/{webhook}", tag = "webhooks", params(("webhook" = String, Path, description = "Its id.")),
    responses((status = 204)))]
pub async fn delete(State(app): State<App>, caller: Caller, Path(id): Path<String>) -> Result<StatusCode, Problem> {
    caller.be_operator()?;
    app.webhooks.remove(&id)?;
    Ok(StatusCode::NO_CONTENT)
}

/// The latest tries to tell somebody
#[utoipa::path(get, path = "/v1/webhooks/{webhook}/deliveries", tag = "webhooks", params(("webhook" = String, Path, description = "Its id.")),
    responses((status = 200, body = Deliveries)))]
pub async fn deliveries(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<Deliveries>, Problem> {
    caller.be_operator()?;
    app.webhooks.get(&id)?;
    Ok(Json(Deliveries { deliveries: app.webhooks.tries(&id), waiting: app.webhooks.waiting(&id) }))
}

/// Tell somebody that they are told
#[utoipa::path(post, path = "/v1/webhooks/{webhook}/ping", tag = "webhooks", params(("webhook" = String, Path, description = "Its id.")),
    responses((status = 200, body = Pinged)))]
pub async fn ping(State(app): State<App>, caller: Caller, Path(id): Path<String>) -> Result<Json<Pinged>, Problem> {
    caller.be_operator()?;
    let (status, problem) = send_ping(&app, &app.webhooks.get(&id)?).await?;
    Ok(Json(Pinged { status, problem }))
}

//! Sends one signed delivery.

use std::sync::OnceLock;
use std::time::Duration;

use segue_core::ids::UnixMillis;
use serde_json::{Value, json};

use super::{Webhook, derive_signing_key, sign_delivery};
use crate::app::AppState;
use crate::limits::WEBHOOK_RESPONSE_MS_MAX;
use crate::options::WebhookMasterSecret;
use crate::problem::HttpProblem;

static WEBHOOK_CLIENT: OnceLock<Result<reqwest::Client, String>> = OnceLock::new();

fn webhook_client() -> Result<&'static reqwest::Client, String> {
    let client = WEBHOOK_CLIENT.get_or_init(|| {
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            // Another thread may have installed a provider already.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let timeout = Duration::from_millis(WEBHOOK_RESPONSE_MS_MAX);
        let client = reqwest::Client::builder().timeout(timeout).redirect(reqwest::redirect::Policy::none()).no_proxy();
        client.build().map_err(|error| error.to_string())
    });
    client.as_ref().map_err(Clone::clone)
}

/// Builds the body of a delivery.
#[must_use]
pub(crate) fn webhook_payload(kind: &str, at: UnixMillis, data: &Value) -> String {
    let time = i64::try_from(at.0).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok()).unwrap_or_default();
    json!({ "type": kind, "timestamp": time.to_string(), "data": data }).to_string()
}

/// Sends a delivery. Returns the receiver's status, or the reason of the failure.
pub(crate) async fn post_webhook(
    webhook: &Webhook,
    master_secret: &WebhookMasterSecret,
    id: &str,
    now: UnixMillis,
    body: String,
) -> Result<u16, (Option<u16>, String)> {
    let timestamp = now.0 / 1_000;
    let signature = sign_delivery(&derive_signing_key(master_secret, &webhook.webhook), id, timestamp, &body);
    let client = webhook_client().map_err(|error| (None, error))?;
    let request = client
        .post(&webhook.url)
        .header("content-type", "application/json")
        .header("user-agent", concat!("segue/", env!("CARGO_PKG_VERSION")))
        .header("webhook-id", id)
        .header("webhook-timestamp", timestamp)
        .header("webhook-signature", signature)
        .body(body);
    match request.send().await {
        Ok(response) if response.status().is_success() => Ok(response.status().as_u16()),
        Ok(response) => {
            let status = response.status().as_u16();
            Err((Some(status), format!("the receiver returned {status}")))
        }
        // The URL may contain a secret.
        Err(error) => Err((None, root_cause(&error.without_url()))),
    }
}

/// Returns the innermost source of an error, such as "connection refused".
fn root_cause(error: &dyn std::error::Error) -> String {
    std::iter::successors(Some(error), |error| error.source()).last().unwrap_or(error).to_string()
}

/// Sends a ping to a webhook.
///
/// # Errors
/// The server has no webhook secret.
pub(crate) async fn send_webhook_ping(
    app: &AppState,
    webhook: &Webhook,
) -> Result<(Option<u16>, Option<String>), HttpProblem> {
    let master = app.options.webhook_secret.as_ref();
    let master =
        master.ok_or_else(|| HttpProblem::new("no-webhook-secret", super::delivery_loop::NO_WEBHOOK_SECRET_DETAIL))?;
    let now = app.engine.now();
    let id = format!("ping_{}_{}", webhook.webhook, now.0);
    let result =
        post_webhook(webhook, master, &id, now, webhook_payload("ping", now, &json!({ "webhook": webhook.webhook })))
            .await;
    Ok(match result {
        Ok(status) => (Some(status), None),
        Err((status, problem)) => (status, Some(problem)),
    })
}

//! Webhooks: delivers events to other services, whichever process records them. What was delivered is saved, so every event is
//! delivered at least once, and in order within a session. Only one process per store delivers at a time; if it ends, another
//! one continues.
//!
//! Secrets are not stored: a webhook's secret is derived from its id and the server's own secret, which comes from the
//! environment.

mod delivery_loop;
mod delivery_queue;
mod delivery_request;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use segue_core::event::{Event, RetryDecision, ToolRunHoldReason};
use segue_core::ids::SessionId;
use segue_engine::{SessionListChangeCursor, SharedRecords, StoreError};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use utoipa::ToSchema;

use crate::caller::session_owner;
use crate::limits::{WEBHOOK_ATTEMPTS_KEPT_MAX, WEBHOOKS_MAX};
use crate::options::WebhookMasterSecret;
use crate::problem::HttpProblem;
use crate::shared_state::{read_whole_record, update_record};

pub(crate) use delivery_loop::{NO_WEBHOOK_SECRET_DETAIL, run_webhook_delivery};
pub(crate) use delivery_queue::{VersionedWebhookDeliveryQueue, WebhookDeliveryQueue, queue_record_name};
pub(crate) use delivery_request::send_webhook_ping;

/// The name of the record with all webhooks. The queue of a webhook is a record `webhooks/ID`.
pub(crate) const WEBHOOKS_RECORD: &str = "webhooks";

/// The kinds of events that webhooks can receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WebhookEventKind {
    SessionOpened,
    UserMessageReceived,
    ReplySent,
    TurnStarted,
    TurnEnded,
    CallAnswered,
    /// A call was given up.
    CallFailed,
    /// A call waits for an operator's decision.
    CallAwaitingOperator,
    /// A tool run waits for approval.
    ApprovalNeeded,
    /// A tool run of unknown outcome waits for an operator's decision.
    ToolRunAwaitingOperator,
    PhaseEntered,
    PhaseTransitionRefused,
    HandoverCreated,
    SessionClosed,
}

impl WebhookEventKind {
    /// Returns the kind of an event; `None` if it is not delivered.
    #[must_use]
    pub(crate) fn from_event(event: &Event) -> Option<Self> {
        Some(match event {
            Event::SessionOpened(_) => Self::SessionOpened,
            Event::UserMessageReceived(_) => Self::UserMessageReceived,
            Event::ReplySent(_) => Self::ReplySent,
            Event::TurnStarted { .. } => Self::TurnStarted,
            Event::TurnEnded { .. } => Self::TurnEnded,
            Event::CallAnswered(_) => Self::CallAnswered,
            Event::CallFailed { next: RetryDecision::GiveUp, .. }
            | Event::CallOutcomeUnknown { next: RetryDecision::GiveUp, .. } => Self::CallFailed,
            Event::CallOutcomeUnknown { next: RetryDecision::AwaitOperator, .. } => Self::CallAwaitingOperator,
            Event::ToolRunHeld { reason: ToolRunHoldReason::Approval, .. } => Self::ApprovalNeeded,
            // Only the client that sent the message can run its tools, and it knows.
            Event::ToolRunHeld { reason: ToolRunHoldReason::ClientResult, .. } => return None,
            Event::ToolRunHeld { reason: ToolRunHoldReason::UnknownOutcome, .. } => Self::ToolRunAwaitingOperator,
            Event::PhaseEntered(_) => Self::PhaseEntered,
            Event::PhaseTransitionRefused { .. } => Self::PhaseTransitionRefused,
            Event::HandoverCreated(_) => Self::HandoverCreated,
            Event::SessionClosed { .. } => Self::SessionClosed,
            _ => return None,
        })
    }

    /// Returns the serialized name.
    #[must_use]
    pub(crate) fn wire_name(self) -> String {
        crate::api::common_types::serialized_name(&self)
    }
}

/// A webhook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Webhook {
    pub webhook: String,
    pub url: String,
    /// The event kinds to deliver; all if absent.
    #[serde(default)]
    pub events: Option<Vec<WebhookEventKind>>,
    /// Only events of sessions of these flows; all flows if absent.
    #[serde(default)]
    pub flows: Option<Vec<String>>,
    /// Only events of sessions of this owner; all owners if absent.
    #[serde(default)]
    pub owner: Option<String>,
    /// In milliseconds since 1970. Earlier events are not delivered.
    pub created: u64,
    /// The last change of the session list before the webhook was created.
    #[serde(default)]
    #[schema(value_type = u64)]
    pub after_change: SessionListChangeCursor,
}

impl Webhook {
    /// Returns whether events of a session are delivered.
    #[must_use]
    pub(crate) fn matches_session(&self, session: &SessionId, flow: &str) -> bool {
        self.flows.as_ref().is_none_or(|flows| flows.iter().any(|known| known == flow))
            && self.owner.as_deref().is_none_or(|owner| session_owner(session) == Some(owner))
    }

    /// Returns whether events of this kind are delivered.
    #[must_use]
    pub(crate) fn wants_event(&self, kind: WebhookEventKind) -> bool {
        self.events.as_ref().is_none_or(|events| events.contains(&kind))
    }
}

/// An attempt to deliver an event.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct WebhookDeliveryAttempt {
    /// The id that the receiver sees; equal for all attempts of an event.
    pub id: String,
    pub session: String,
    /// The sequence number of the event.
    pub seq: u64,
    /// The kind of the event.
    #[schema(rename = "type")]
    pub r#type: String,
    /// The time of the attempt.
    pub at: u64,
    /// The number of the attempt; the first is 1.
    pub attempt: usize,
    /// The status that the receiver returned.
    pub status: Option<u16>,
    /// Why the delivery failed.
    pub problem: Option<String>,
    /// The time of the next attempt.
    pub retry_at: Option<u64>,
}

/// The webhooks of all servers of a store.
#[derive(Debug)]
pub(crate) struct WebhookStore {
    records: Arc<dyn SharedRecords>,
    recent_attempts: Mutex<HashMap<String, VecDeque<WebhookDeliveryAttempt>>>,
}

impl From<StoreError> for HttpProblem {
    /// The message may quote a URL with a secret, so it is only logged.
    fn from(error: StoreError) -> Self {
        Self::from_shared_state_error(&error, "the webhooks cannot be read or written; see the log of the server")
    }
}

impl WebhookStore {
    /// Creates a store of the webhooks in shared records.
    #[must_use]
    pub(crate) fn new(records: Arc<dyn SharedRecords>) -> Self {
        Self { records, recent_attempts: Mutex::default() }
    }

    /// Returns all webhooks.
    ///
    /// # Errors
    /// They cannot be read.
    pub(crate) async fn list_webhooks(&self) -> Result<Vec<Webhook>, HttpProblem> {
        let record = read_whole_record(self.records.as_ref(), WEBHOOKS_RECORD).await?;
        parse_webhooks(record.as_ref().map(|(_, bytes)| bytes.as_slice()))
    }

    /// Returns a webhook.
    ///
    /// # Errors
    /// There is no webhook with that id.
    pub(crate) async fn get_webhook(&self, id: &str) -> Result<Webhook, HttpProblem> {
        let found = self.list_webhooks().await?.into_iter().find(|webhook| webhook.webhook == id);
        found.ok_or_else(|| no_such_webhook(id))
    }

    /// Adds a webhook.
    ///
    /// # Errors
    /// There are too many webhooks, or they cannot be written.
    pub(crate) async fn add_webhook(&self, webhook: Webhook) -> Result<(), HttpProblem> {
        self.change_webhooks(|all| {
            if all.len() >= WEBHOOKS_MAX {
                let detail = format!("there are {WEBHOOKS_MAX} webhooks, which is the maximum; delete one first");
                return Err(HttpProblem::bad_request(detail));
            }
            all.push(webhook.clone());
            Ok(())
        })
        .await
    }

    /// Removes a webhook.
    ///
    /// # Errors
    /// There is no webhook with that id, or they cannot be written.
    pub(crate) async fn remove_webhook(&self, id: &str) -> Result<(), HttpProblem> {
        self.change_webhooks(|all| {
            let index = all.iter().position(|webhook| webhook.webhook == id).ok_or_else(|| no_such_webhook(id))?;
            all.remove(index);
            Ok(())
        })
        .await?;
        Ok(self.records.delete_record(&delivery_queue::queue_record_name(id)).await?)
    }

    /// Returns the most recent delivery attempts of a webhook, newest first.
    #[must_use]
    pub(crate) fn recent_attempts(&self, id: &str) -> Vec<WebhookDeliveryAttempt> {
        let attempts = self.recent_attempts.lock().unwrap_or_else(PoisonError::into_inner);
        attempts.get(id).map(|attempts| attempts.iter().rev().cloned().collect()).unwrap_or_default()
    }

    /// Returns the number of sessions with an event that is being retried.
    ///
    /// # Errors
    /// The queue cannot be read.
    pub(crate) async fn failing_session_count(&self, webhook: &Webhook) -> Result<usize, HttpProblem> {
        Ok(delivery_queue::VersionedWebhookDeliveryQueue::load(self.records.as_ref(), webhook)
            .await?
            .queue
            .failing_session_count())
    }

    /// Forgets the attempts to deliver events of a session that was deleted.
    fn forget_session(&self, session: &SessionId) {
        let mut attempts = self.recent_attempts.lock().unwrap_or_else(PoisonError::into_inner);
        attempts.values_mut().for_each(|attempts| attempts.retain(|attempt| attempt.session != session.as_str()));
    }

    fn record_attempt(&self, id: &str, attempt: WebhookDeliveryAttempt) {
        let mut attempts = self.recent_attempts.lock().unwrap_or_else(PoisonError::into_inner);
        let attempts = attempts.entry(id.to_owned()).or_default();
        attempts.push_back(attempt);
        if attempts.len() > WEBHOOK_ATTEMPTS_KEPT_MAX {
            attempts.pop_front();
        }
    }

    async fn change_webhooks(
        &self,
        mut change: impl FnMut(&mut Vec<Webhook>) -> Result<(), HttpProblem> + Send,
    ) -> Result<(), HttpProblem> {
        update_record(self.records.as_ref(), WEBHOOKS_RECORD, |bytes| {
            let mut all = parse_webhooks(bytes)?;
            change(&mut all)?;
            // Our own types can always be serialized.
            Ok((serde_json::to_vec_pretty(&all).unwrap_or_default(), ()))
        })
        .await
    }
}

fn parse_webhooks(bytes: Option<&[u8]>) -> Result<Vec<Webhook>, HttpProblem> {
    let Some(bytes) = bytes else { return Ok(Vec::new()) };
    serde_json::from_slice(bytes)
        .map_err(|error| HttpProblem::new("internal", format!("the stored webhooks are invalid: {error}")))
}

fn no_such_webhook(id: &str) -> HttpProblem {
    HttpProblem::not_found(format!("there is no webhook `{id}`"))
}

/// Derives the signing key of a webhook.
#[must_use]
pub(crate) fn derive_signing_key(master_secret: &WebhookMasterSecret, webhook: &str) -> Vec<u8> {
    hmac_sha256(master_secret.0.as_bytes(), webhook.as_bytes())
}

/// Derives the secret that the receiver is given.
#[must_use]
pub(crate) fn derive_webhook_secret(master_secret: &WebhookMasterSecret, webhook: &str) -> String {
    format!("whsec_{}", BASE64_STANDARD.encode(derive_signing_key(master_secret, webhook)))
}

/// Returns the signature of a delivery, as defined by Standard Webhooks.
#[must_use]
pub fn sign_delivery(key: &[u8], id: &str, timestamp: u64, body: &str) -> String {
    format!("v1,{}", BASE64_STANDARD.encode(hmac_sha256(key, format!("{id}.{timestamp}.{body}").as_bytes())))
}

fn hmac_sha256(key: &[u8], message: &[u8]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC accepts keys of any length");
    mac.update(message);
    mac.finalize().into_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example in the Standard Webhooks specification.
    #[test]
    fn a_signature_is_as_the_standard_says() {
        let key = BASE64_STANDARD.decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").expect("base64");
        let body = "{\"test\": 2432232314}";
        assert_eq!(
            sign_delivery(&key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body),
            "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
        );
    }

    #[test]
    fn each_webhook_has_a_secret_of_its_own_that_is_nowhere_kept() {
        let master = WebhookMasterSecret("long and random".into());
        assert_ne!(derive_webhook_secret(&master, "wh_a"), derive_webhook_secret(&master, "wh_b"));
        assert_eq!(derive_webhook_secret(&master, "wh_a"), derive_webhook_secret(&master, "wh_a"));
        assert_eq!(format!("{master:?}"), "WebhookMasterSecret");
    }

    #[test]
    fn a_webhook_watches_what_it_was_made_for() {
        let all = Webhook {
            webhook: "wh".into(),
            url: "http://x".into(),
            events: None,
            flows: None,
            owner: None,
            created: 0,
            after_change: SessionListChangeCursor::default(),
        };
        assert!(all.matches_session(&"fox".into(), "chat") && all.wants_event(WebhookEventKind::ReplySent));
        let some = Webhook {
            events: Some(vec![WebhookEventKind::TurnEnded]),
            flows: Some(vec!["chat".into()]),
            owner: Some("acme".into()),
            ..all
        };
        assert!(some.matches_session(&"acme.fox".into(), "chat"));
        for (session, flow) in [("fox", "chat"), ("acme2.fox", "chat"), ("acme.fox", "team")] {
            assert!(!some.matches_session(&session.into(), flow), "{session} {flow}");
        }
        assert!(!some.wants_event(WebhookEventKind::ReplySent));
    }
}

//! Webhooks: others are told of events as they are recorded, in whichever process that happens. What was told is written down, so an event is
//! told at least once and, within a session, in order; one process of those on a store delivers.
//!
//! Secrets are never kept: that of a webhook follows from its id and from what the server was given in its environment.

mod delivery_cursors;
mod delivery_loop;
mod delivery_request;

use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use segue_core::event::{Event, RetryDecision};
use segue_core::ids::SessionId;
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use utoipa::ToSchema;

use crate::caller::session_owner;
use crate::limits::{WEBHOOK_ATTEMPTS_KEPT_MAX, WEBHOOKS_MAX};
use crate::options::WebhookSecret;
use crate::problem::HttpProblem;

pub use delivery_loop::run_webhook_delivery;
pub use delivery_request::send_webhook_ping;

const WEBHOOKS_FILE: &str = "webhooks.json";

/// Kinds of event that can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WebhookEventKind {
    /// A session began.
    SessionOpened,
    /// A message was accepted.
    MessageReceived,
    /// Something was said to the user.
    ReplySent,
    /// A turn began.
    TurnStarted,
    /// A turn ended.
    TurnEnded,
    /// A model answered.
    CallAnswered,
    /// A call was given up.
    CallFailed,
    /// A call waits for a person's decision.
    CallAwaitingOperator,
    /// A phase was entered.
    PhaseEntered,
    /// A phase was refused.
    PhaseRefused,
    /// A document was handed over.
    HandoverMade,
    /// A session was closed.
    SessionClosed,
}

impl WebhookEventKind {
    /// The kind of an event, if it is one that can be told.
    #[must_use]
    pub fn from_event(event: &Event) -> Option<Self> {
        Some(match event {
            Event::SessionOpened(_) => Self::SessionOpened,
            Event::UserMessageReceived(_) => Self::MessageReceived,
            Event::ReplySent(_) => Self::ReplySent,
            Event::TurnStarted { .. } => Self::TurnStarted,
            Event::TurnEnded { .. } => Self::TurnEnded,
            Event::CallAnswered(_) => Self::CallAnswered,
            Event::CallFailed { next: RetryDecision::GiveUp, .. }
            | Event::CallOutcomeUnknown { next: RetryDecision::GiveUp, .. } => Self::CallFailed,
            Event::CallOutcomeUnknown { next: RetryDecision::AwaitOperator, .. } => Self::CallAwaitingOperator,
            Event::PhaseEntered(_) => Self::PhaseEntered,
            Event::PhaseTransitionRefused(_) => Self::PhaseRefused,
            Event::HandoverCreated(_) => Self::HandoverMade,
            Event::SessionClosed { .. } => Self::SessionClosed,
            _ => return None,
        })
    }

    /// As it is written down.
    #[must_use]
    pub fn wire_name(self) -> String {
        crate::api::common_types::serialized_name(&self)
    }
}

/// Somebody who is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Webhook {
    /// Its id.
    pub webhook: String,
    /// Where it is told.
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
    /// Since when, in milliseconds since 1970.
    pub created: u64,
}

impl Webhook {
    /// Whether it is told of sessions like this.
    #[must_use]
    pub fn matches_session(&self, session: &SessionId, flow: &str) -> bool {
        self.flows.as_ref().is_none_or(|flows| flows.iter().any(|known| known == flow))
            && self.owner.as_deref().is_none_or(|owner| session_owner(session) == Some(owner))
    }

    /// Whether it is told of events like this.
    #[must_use]
    pub fn wants_event(&self, kind: WebhookEventKind) -> bool {
        self.events.as_ref().is_none_or(|events| events.contains(&kind))
    }
}

/// A try to tell.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct DeliveryAttempt {
    /// What the receiver knows it by.
    pub id: String,
    /// The session.
    pub session: String,
    /// The event's place.
    pub seq: u64,
    /// Its kind.
    #[schema(rename = "type")]
    pub r#type: String,
    /// When it was tried.
    pub at: u64,
    /// The how-manieth try.
    pub attempt: usize,
    /// What the receiver answered.
    pub status: Option<u16>,
    /// Why it counts as not told.
    pub problem: Option<String>,
    /// When it is tried again.
    pub retry_at: Option<u64>,
}

/// The webhooks of a server.
#[derive(Debug)]
pub struct WebhookStore {
    folder: PathBuf,
    recent_attempts: Mutex<HashMap<String, VecDeque<DeliveryAttempt>>>,
}

impl WebhookStore {
    /// Those that are written down in a folder.
    #[must_use]
    pub fn from_folder(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), recent_attempts: Mutex::default() }
    }

    /// All of them.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn list_webhooks(&self) -> Result<Vec<Webhook>, HttpProblem> {
        let path = self.folder.join(WEBHOOKS_FILE);
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(HttpProblem::new("internal", format!("cannot read {}: {error}", path.display()))),
        };
        serde_json::from_slice(&bytes)
            .map_err(|error| HttpProblem::new("internal", format!("cannot understand {}: {error}", path.display())))
    }

    /// One of them.
    ///
    /// # Errors
    /// There is none of that id.
    pub fn get_webhook(&self, id: &str) -> Result<Webhook, HttpProblem> {
        let found = self.list_webhooks()?.into_iter().find(|webhook| webhook.webhook == id);
        found.ok_or_else(|| HttpProblem::not_found(format!("there is no webhook `{id}`")))
    }

    /// Adds one.
    ///
    /// # Errors
    /// There are too many, or it cannot be written down.
    pub fn add_webhook(&self, webhook: Webhook) -> Result<(), HttpProblem> {
        let mut all = self.list_webhooks()?;
        if all.len() >= WEBHOOKS_MAX {
            let detail = format!("there are {WEBHOOKS_MAX} webhooks, the most there may be; remove some");
            return Err(HttpProblem::bad_request(detail));
        }
        all.push(webhook);
        self.write_webhooks(&all)
    }

    /// Takes one away.
    ///
    /// # Errors
    /// There is none of that id, or it cannot be written down.
    pub fn remove_webhook(&self, id: &str) -> Result<(), HttpProblem> {
        self.get_webhook(id)?;
        let mut all = self.list_webhooks()?;
        all.retain(|webhook| webhook.webhook != id);
        self.write_webhooks(&all)
    }

    /// The latest tries of one, newest first.
    #[must_use]
    pub fn recent_attempts(&self, id: &str) -> Vec<DeliveryAttempt> {
        let tries = self.recent_attempts.lock().unwrap_or_else(PoisonError::into_inner);
        tries.get(id).map(|tries| tries.iter().rev().cloned().collect()).unwrap_or_default()
    }

    /// Sessions of which something waits to be told to one.
    #[must_use]
    pub fn failing_session_count(&self, id: &str) -> usize {
        delivery_cursors::DeliveryCursors::load(&self.folder).failing_session_count(id)
    }

    fn record_attempt(&self, id: &str, delivery: DeliveryAttempt) {
        let mut tries = self.recent_attempts.lock().unwrap_or_else(PoisonError::into_inner);
        let tries = tries.entry(id.to_owned()).or_default();
        tries.push_back(delivery);
        if tries.len() > WEBHOOK_ATTEMPTS_KEPT_MAX {
            tries.pop_front();
        }
    }

    fn write_webhooks(&self, all: &[Webhook]) -> Result<(), HttpProblem> {
        let text = serde_json::to_string_pretty(all).unwrap_or_default();
        let path = self.folder.join(WEBHOOKS_FILE);
        crate::files::replace_file(&path, text.as_bytes())
            .map_err(|error| HttpProblem::new("internal", format!("cannot write {}: {error}", path.display())))
    }
}

/// What a webhook's deliveries are signed with.
#[must_use]
pub fn derive_signing_key(master_secret: &WebhookSecret, webhook: &str) -> Vec<u8> {
    hmac_sha256(master_secret.0.as_bytes(), webhook.as_bytes())
}

/// The same as its receiver is told it.
#[must_use]
pub fn derive_webhook_secret(master_secret: &WebhookSecret, webhook: &str) -> String {
    format!("whsec_{}", BASE64_STANDARD.encode(derive_signing_key(master_secret, webhook)))
}

/// The signature of a delivery.
#[must_use]
pub fn sign_delivery(key: &[u8], id: &str, timestamp: u64, body: &str) -> String {
    format!("v1,{}", BASE64_STANDARD.encode(hmac_sha256(key, format!("{id}.{timestamp}.{body}").as_bytes())))
}

fn hmac_sha256(key: &[u8], message: &[u8]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key of any length will do");
    mac.update(message);
    mac.finalize().into_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification of Standard Webhooks.
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
        let master = WebhookSecret("long and random".into());
        assert_ne!(derive_webhook_secret(&master, "wh_a"), derive_webhook_secret(&master, "wh_b"));
        assert_eq!(derive_webhook_secret(&master, "wh_a"), derive_webhook_secret(&master, "wh_a"));
        assert_eq!(format!("{master:?}"), "Secret");
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

//! The delivery loop: finds sessions with new events, delivers those that a webhook wants, and schedules retries. A file lock
//! ensures that only one process per store runs it.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use segue_core::event::RecordedEvent;
use segue_core::ids::{Seq, SessionId, UnixMillis};
use segue_engine::{SessionQuery, StoredSessionEntry};
use serde_json::json;

use super::delivery_cursors::{DeliveryCursor, DeliveryCursors};
use super::{DeliveryAttempt, Webhook, WebhookEventKind, delivery_request};
use crate::app::AppState;
use crate::caller::{Caller, session_owner};
use crate::event_view::{EventTextFilter, EventViewBuilder};
use crate::extract::RequestedSession;
use crate::limits::{
    CHANGES_SESSIONS_MAX, WEBHOOK_BATCH_EVENTS_MAX, WEBHOOK_CONCURRENT_DELIVERIES_MAX, WEBHOOK_LOCK_POLL_MS,
    WEBHOOK_POLL_MS,
};
use crate::options::WebhookSecret;

/// The message for a client that wants a webhook while the server has no secret.
pub(crate) const NO_WEBHOOK_SECRET_DETAIL: &str =
    "webhooks need a secret for their signatures; start the server with a long random text in SEGUE_WEBHOOK_SECRET";
const LOCK_FILE: &str = "webhooks.lock";

/// Delivers events until the server shuts down.
pub(crate) async fn run_webhook_delivery(app: AppState) {
    let Some(master) = app.options.webhook_secret.clone() else { return };
    let folder = app.options.folder.clone();
    let Some(_lock) = acquire_delivery_lock(&app, &folder).await else { return };
    tracing::info!("this process delivers webhooks");
    let mut cursors = DeliveryCursors::load(&folder);
    while !app.is_shutting_down() {
        let updated = tokio::select! {
            () = app.wait_for_shutdown() => return,
            updated = deliver_pending_events(&app, &master, &cursors) => updated,
        };
        if updated != cursors {
            cursors = updated;
            // If the cursors cannot be saved, events are delivered again; receivers recognize them by their id.
            if let Err(error) = cursors.save(&folder) {
                tracing::warn!(%error, "cannot save which webhook events were delivered; they may be delivered again");
            }
        }
        tokio::select! {
            () = app.wait_for_shutdown() => return,
            () = tokio::time::sleep(Duration::from_millis(WEBHOOK_POLL_MS)) => {}
        }
    }
}

/// Waits until no other process delivers.
async fn acquire_delivery_lock(app: &AppState, folder: &Path) -> Option<File> {
    loop {
        let file = crate::files::open_lock_file(&folder.join(LOCK_FILE));
        let file = file.inspect_err(|error| tracing::warn!(%error, "cannot open {LOCK_FILE}; no webhook is delivered"));
        if let Some(file) = file.ok().filter(|file| file.try_lock().is_ok()) {
            return Some(file);
        }
        tokio::select! {
            () = app.wait_for_shutdown() => return None,
            () = tokio::time::sleep(Duration::from_millis(WEBHOOK_LOCK_POLL_MS)) => {}
        }
    }
}

async fn deliver_pending_events(
    app: &AppState,
    master_secret: &WebhookSecret,
    cursors: &DeliveryCursors,
) -> DeliveryCursors {
    let mut next = cursors.clone();
    let webhooks = match app.webhooks.list_webhooks() {
        Ok(webhooks) => webhooks,
        Err(_) => {
            // The message may quote the file, and the URLs in it may contain secrets.
            tracing::warn!("cannot read the list of webhooks; nothing is delivered");
            return next;
        }
    };
    if webhooks.is_empty() {
        // A webhook that is created later receives only later events.
        return DeliveryCursors { since: cursors.since, cursors: BTreeMap::new() };
    }
    let rows = list_changed_sessions(app, cursors).await;
    let heads: BTreeMap<SessionId, Seq> = rows.iter().map(|row| (row.session.clone(), row.head)).collect();
    let now = app.engine.now();
    let mut work = Vec::new();
    for webhook in &webhooks {
        for row in rows.iter().filter(|row| webhook.matches_session(&row.session, &row.summary.flow)) {
            let known = cursors.cursors.get(&webhook.webhook).and_then(|by_session| by_session.get(&row.session));
            let cursor = known.copied().unwrap_or_default();
            if row.head > cursor.last_seq && cursor.retry_at <= now {
                // Without a cursor, events before this time are not delivered.
                let from = if known.is_some() { UnixMillis(0) } else { UnixMillis(webhook.created.max(cursors.since)) };
                work.push((webhook.clone(), row.clone(), cursor, from));
            }
        }
    }
    let deliveries = stream::iter(work).map(|(webhook, row, cursor, from)| async move {
        let cursor = deliver_session_events(app, master_secret, &webhook, &row, cursor, from).await;
        (webhook.webhook, row.session, cursor)
    });
    let updates: Vec<(String, SessionId, DeliveryCursor)> =
        deliveries.buffer_unordered(WEBHOOK_CONCURRENT_DELIVERIES_MAX).collect().await;
    for (webhook, session, cursor) in updates {
        next.cursors.entry(webhook).or_default().insert(session, cursor);
    }
    let known: Vec<String> = webhooks.into_iter().map(|webhook| webhook.webhook).collect();
    next.prune(app.engine.now(), &known, &heads);
    next
}

/// Returns the sessions that may have undelivered events.
async fn list_changed_sessions(app: &AppState, cursors: &DeliveryCursors) -> Vec<StoredSessionEntry> {
    let mut rows: Vec<StoredSessionEntry> = Vec::new();
    let mut query = SessionQuery::newest(CHANGES_SESSIONS_MAX);
    // A store that cannot be read now is tried again in the next round.
    loop {
        let page = match app.engine.list_sessions(&query).await {
            Ok(page) => page,
            Err(error) => {
                tracing::warn!(%error, "cannot list the sessions with events for webhooks");
                break;
            }
        };
        let is_recent = |row: &StoredSessionEntry| {
            row.summary.updated_at.0 >= cursors.since
                || cursors.cursors.values().any(|by_session| by_session.contains_key(&row.session))
        };
        let oldest = page.entries.last().map(|row| row.summary.updated_at.0);
        rows.extend(page.entries.into_iter().filter(is_recent));
        let has_more = oldest.is_some_and(|oldest| oldest >= cursors.since);
        match page.next_cursor.filter(|_| has_more) {
            Some(next) => query.after_cursor = Some(next),
            None => break,
        }
    }
    rows
}

/// Delivers the new events of a session, up to the first failure.
async fn deliver_session_events(
    app: &AppState,
    master_secret: &WebhookSecret,
    webhook: &Webhook,
    row: &StoredSessionEntry,
    mut cursor: DeliveryCursor,
    from: UnixMillis,
) -> DeliveryCursor {
    let session_ref = RequestedSession { app: app.clone(), caller: Caller::default(), session: row.session.clone() };
    let mut delivered = 0;
    while delivered < WEBHOOK_BATCH_EVENTS_MAX {
        let read = app.engine.read_events(&row.session, cursor.last_seq, WEBHOOK_BATCH_EVENTS_MAX).await;
        let Ok(events) = read.inspect_err(|error| log_unread_event(webhook, row, error)) else { return cursor };
        if events.is_empty() {
            break;
        }
        for event in events {
            let kind = WebhookEventKind::from_event(&event.event)
                .filter(|kind| webhook.wants_event(*kind) && event.at >= from);
            if let Some(kind) = kind {
                delivered += 1;
                if !deliver_event(&session_ref, master_secret, webhook, row, &event, kind, &mut cursor).await {
                    return cursor;
                }
            }
            cursor = DeliveryCursor { last_seq: event.seq, at: event.at, attempts: 0, retry_at: UnixMillis(0) };
        }
    }
    cursor
}

/// Delivers one event. Returns whether to continue with the next one: the event was delivered or dropped.
async fn deliver_event(
    session_ref: &RequestedSession,
    master_secret: &WebhookSecret,
    webhook: &Webhook,
    row: &StoredSessionEntry,
    event: &RecordedEvent,
    kind: WebhookEventKind,
    cursor: &mut DeliveryCursor,
) -> bool {
    let app = &session_ref.app;
    let now = app.engine.now();
    let views = EventViewBuilder::new(session_ref, EventTextFilter::Conversation, None)
        .render_events(std::slice::from_ref(event))
        .await;
    let views = views.inspect_err(|error| log_unread_event(webhook, row, error));
    let Some(view) = views.ok().and_then(|mut views| views.pop()) else { return false };
    let data = json!({
        "session": row.session,
        "owner": session_owner(&row.session),
        "flow": row.summary.flow,
        "event": view,
    });
    let id = format!("msg_{}_{}_{}", webhook.webhook, row.session, event.seq);
    let body = delivery_request::webhook_payload(&kind.wire_name(), event.at, &data);
    let result = delivery_request::post_webhook(webhook, master_secret, &id, now, body).await;
    let attempt = cursor.attempts + 1;
    let wait = app.options.limits.webhook_retry_delays_ms.get(cursor.attempts).copied();
    let (status, problem) = match &result {
        Ok(status) => (Some(*status), None),
        Err((status, problem)) => (*status, Some(problem.clone())),
    };
    let next = wait.filter(|_| result.is_err()).map(|wait| now.plus_ms(wait));
    app.metrics.record_webhook_delivery(match (&result, next) {
        (Ok(_), _) => "delivered",
        (Err(_), Some(_)) => "failed",
        (Err(_), None) => "given_up",
    });
    if let Some(problem) = &problem {
        let (webhook, session, seq) = (&webhook.webhook, &row.session, event.seq.0);
        match wait {
            Some(retry_ms) => {
                tracing::warn!(webhook, %session, seq, attempt, retry_ms, problem, "webhook delivery failed");
            }
            None => tracing::error!(webhook, %session, seq, attempt, problem, "webhook delivery given up"),
        }
    }
    app.webhooks.record_attempt(
        &webhook.webhook,
        DeliveryAttempt {
            id,
            session: row.session.to_string(),
            seq: event.seq.0,
            r#type: kind.wire_name(),
            at: now.0,
            attempt,
            status,
            problem,
            retry_at: next.map(|next| next.0),
        },
    );
    let Some(next) = next else { return true };
    (cursor.attempts, cursor.retry_at) = (attempt, next);
    false
}

/// Logs that the next event for a webhook cannot be read now; it is tried again in the next round. Only the code of the
/// error is logged, because the message may quote the event.
fn log_unread_event(webhook: &Webhook, row: &StoredSessionEntry, error: &segue_engine::Error) {
    tracing::warn!(webhook = webhook.webhook, session = %row.session, code = error.code(), "cannot read an event to deliver");
}

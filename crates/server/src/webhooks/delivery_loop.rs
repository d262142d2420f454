//! Delivers events: a queue for each webhook reads the store's changes, delivers what the webhook wants, and retries what
//! failed. The queues are independent, so a slow receiver delays no other. The server that delivers holds a slot, of which there
//! is one. If it dies, the slot expires and another server continues with the saved queues.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use futures_util::stream::{self, StreamExt};
use segue_core::event::RecordedEvent;
use segue_core::ids::{SessionUid, UnixMillis};
use segue_engine::{ConcurrencySlotLease, ConcurrencySlotRequest, Error, SessionQuery, StoreError};
use serde_json::json;
use tokio::task::JoinHandle;

use super::delivery_queue::{
    SessionWebhookDeliveryProgress, VersionedWebhookDeliveryQueue, WebhookDeliveryQueue,
    WebhookDeliveryQueueSaveOutcome,
};
use super::{Webhook, WebhookDeliveryAttempt, WebhookEventKind, delivery_request};
use crate::app::AppState;
use crate::caller::{Caller, session_owner};
use crate::event_view::{EventTextFilter, EventViewBuilder};
use crate::extract::CallerSessionRef;
use crate::limits::{
    CHANGES_SESSIONS_MAX, WEBHOOK_BATCH_EVENTS_MAX, WEBHOOK_CONCURRENT_DELIVERIES_MAX, WEBHOOK_DUE_SESSIONS_MAX,
    WEBHOOK_POLL_MS, WEBHOOK_SHUTDOWN_MS_MAX, WEBHOOK_SLOT_MS, WEBHOOK_SLOT_POLL_MS,
};
use crate::options::WebhookMasterSecret;

/// The message for a client that wants a webhook while the server has no secret.
pub(crate) const NO_WEBHOOK_SECRET_DETAIL: &str =
    "webhooks need a secret for their signatures; start the server with a long random text in SEGUE_WEBHOOK_SECRET";
/// The group with the one slot of the server that delivers.
const DELIVERY_SLOT: &str = "webhooks";

/// A task that ends with its handle.
struct AbortOnDropTask(JoinHandle<()>);

impl Drop for AbortOnDropTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Delivers events until the server shuts down, whenever no other server does.
pub(crate) async fn run_webhook_delivery(app: AppState) {
    let Some(master) = app.options.webhook_secret.clone() else { return };
    let Ok(holder) = random_holder_name() else { return };
    let mut delivery: Option<WebhookDeliveryTasks> = None;
    loop {
        let now = Instant::now();
        match hold_delivery_slot(&app, &holder).await {
            Ok(Some(lease)) => {
                let running = delivery.get_or_insert_with(|| WebhookDeliveryTasks::start(&app, &master));
                (running.lease, running.held_until) = (Some(lease), now + Duration::from_millis(WEBHOOK_SLOT_MS));
            }
            Ok(None) => {
                if delivery.take().is_some() {
                    tracing::warn!("another server delivers webhooks now");
                }
            }
            Err(error) => {
                tracing::warn!(%error, "cannot find out which server delivers webhooks");
                // Another server may deliver by now.
                delivery = delivery.filter(|running| running.held_until > Instant::now());
            }
        }
        tokio::select! {
            () = app.wait_for_shutdown() => break,
            () = tokio::time::sleep(Duration::from_millis(WEBHOOK_SLOT_POLL_MS)) => {}
        }
    }
    if let Some(WebhookDeliveryTasks { lease: Some(lease), mut tasks, .. }) = delivery {
        let finished = tokio::time::timeout(Duration::from_millis(WEBHOOK_SHUTDOWN_MS_MAX), &mut tasks.0).await;
        if finished.is_err() {
            tracing::warn!("a receiver of webhooks did not answer before the shutdown; it may get an event again");
        }
        drop(tasks);
        // If it cannot be released, it expires.
        let _ = app.options.shared.records.release_slot(DELIVERY_SLOT, &holder, lease).await;
    }
}

/// The tasks of the server that delivers.
struct WebhookDeliveryTasks {
    lease: Option<ConcurrencySlotLease>,
    held_until: Instant,
    tasks: AbortOnDropTask,
}

impl WebhookDeliveryTasks {
    fn start(app: &AppState, master_secret: &WebhookMasterSecret) -> Self {
        tracing::info!("this process delivers webhooks");
        let tasks = AbortOnDropTask(tokio::spawn(run_delivery_queues(app.clone(), master_secret.clone())));
        Self { lease: None, held_until: Instant::now(), tasks }
    }
}

async fn hold_delivery_slot(app: &AppState, holder: &str) -> Result<Option<ConcurrencySlotLease>, StoreError> {
    let request = ConcurrencySlotRequest {
        group: DELIVERY_SLOT.to_owned(),
        holder: holder.to_owned(),
        slots_max: 1,
        hold_ms: WEBHOOK_SLOT_MS,
    };
    app.options.shared.records.hold_slot(request).await
}

/// Returns a name that no other server has.
fn random_holder_name() -> Result<String, getrandom::Error> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).inspect_err(|error| tracing::error!(%error, "no webhook is delivered"))?;
    Ok(format!("{:016x}", u64::from_le_bytes(random)))
}

/// Runs a queue for each webhook, until the task is dropped. At shutdown, the queues save what they have delivered.
async fn run_delivery_queues(app: AppState, master_secret: WebhookMasterSecret) {
    let mut queues: BTreeMap<String, AbortOnDropTask> = BTreeMap::new();
    while !app.is_shutting_down() {
        match app.webhooks.list_webhooks().await {
            Ok(webhooks) => {
                queues
                    .retain(|id, task| webhooks.iter().any(|webhook| webhook.webhook == *id) && !task.0.is_finished());
                for webhook in webhooks {
                    let id = webhook.webhook.clone();
                    queues.entry(id).or_insert_with(|| {
                        AbortOnDropTask(tokio::spawn(run_delivery_queue(app.clone(), master_secret.clone(), webhook)))
                    });
                }
            }
            // The message may quote the record, and the URLs in it may contain secrets.
            Err(_) => tracing::warn!("cannot read the list of webhooks"),
        }
        wait_for_poll_or_shutdown(&app).await;
    }
    for task in queues.values_mut() {
        // A panic of the task has been reported by the panic hook.
        let _ = (&mut task.0).await;
    }
}

async fn wait_for_poll_or_shutdown(app: &AppState) {
    // Either is a reason to continue.
    let _ = tokio::time::timeout(Duration::from_millis(WEBHOOK_POLL_MS), app.wait_for_shutdown()).await;
}

/// Delivers the events of one webhook until the shutdown, its task is dropped, or another server saves its queue.
async fn run_delivery_queue(app: AppState, master_secret: WebhookMasterSecret, webhook: Webhook) {
    let records = app.options.shared.records.clone();
    let mut saved = loop {
        match VersionedWebhookDeliveryQueue::load(records.as_ref(), &webhook).await {
            Ok(saved) => break saved,
            Err(error) => {
                tracing::warn!(webhook = webhook.webhook, %error, "cannot read which events were delivered");
                wait_for_poll_or_shutdown(&app).await;
                if app.is_shutting_down() {
                    return;
                }
            }
        }
    };
    while !app.is_shutting_down() {
        let queue = &mut saved.queue;
        let before = queue.clone();
        if let Err(error) = queue_changed_sessions(&app, &webhook, queue).await {
            // A store that cannot be read now is tried again in the next round.
            tracing::warn!(webhook = webhook.webhook, %error, "cannot read the sessions with events for a webhook");
        }
        deliver_due_sessions(&app, &master_secret, &webhook, queue).await;
        queue.prune_idle_sessions();
        if *queue != before {
            match saved.save(records.as_ref(), &webhook.webhook).await {
                Ok(WebhookDeliveryQueueSaveOutcome::Saved) => {}
                // If this server still delivers, a new task loads the queue.
                Ok(WebhookDeliveryQueueSaveOutcome::TakenOver) => return,
                // Events are delivered again; receivers recognize them by their id.
                Err(error) => {
                    tracing::warn!(%error, "cannot save which webhook events were delivered; they may be delivered again");
                }
            }
        }
        wait_for_poll_or_shutdown(&app).await;
    }
}

/// Adds sessions that changed to the queue, and removes those that were deleted.
async fn queue_changed_sessions(
    app: &AppState,
    webhook: &Webhook,
    queue: &mut WebhookDeliveryQueue,
) -> Result<(), Error> {
    loop {
        let page = app.engine.session_changes_after(Some(queue.changes), CHANGES_SESSIONS_MAX).await?;
        if page.misses_deletions {
            let existing = list_session_uids(app).await?;
            let (kept, removed) =
                std::mem::take(&mut queue.sessions).into_iter().partition(|(uid, _)| existing.contains(uid));
            queue.sessions = kept;
            let removed: BTreeMap<SessionUid, SessionWebhookDeliveryProgress> = removed;
            removed.values().for_each(|session| app.webhooks.forget_session(&session.session));
        }
        let is_last = page.next_cursor == queue.changes;
        queue.changes = page.next_cursor;
        for change in page.changes {
            if let Some(deleted) = queue.apply_change(webhook, change) {
                app.webhooks.forget_session(&deleted);
            }
        }
        if is_last {
            return Ok(());
        }
    }
}

async fn list_session_uids(app: &AppState) -> Result<BTreeSet<SessionUid>, Error> {
    let mut uids = BTreeSet::new();
    let mut query = SessionQuery::newest(CHANGES_SESSIONS_MAX);
    loop {
        let page = app.engine.list_sessions(&query).await?;
        uids.extend(page.entries.iter().map(|entry| entry.uid));
        match page.next_cursor {
            Some(next) => query.after_cursor = Some(next),
            None => return Ok(uids),
        }
    }
}

async fn deliver_due_sessions(
    app: &AppState,
    master_secret: &WebhookMasterSecret,
    webhook: &Webhook,
    queue: &mut WebhookDeliveryQueue,
) {
    let (now, delays) = (app.engine.now(), app.options.limits.webhook_retry_delays_ms);
    let due = queue.sessions.iter().filter(|(_, session)| session.is_due(now, &delays));
    let mut due: Vec<(SessionUid, SessionWebhookDeliveryProgress)> =
        due.map(|(uid, session)| (*uid, session.clone())).collect();
    // Those that certainly have something to deliver come first, and among them those that have waited for longest.
    due.sort_by_key(|(_, session)| (session.head <= session.last_seq, session.at));
    due.truncate(WEBHOOK_DUE_SESSIONS_MAX);
    let deliveries = stream::iter(due).map(|(uid, session)| async move {
        let session = deliver_session_events(app, master_secret, webhook, uid, session).await;
        (uid, session)
    });
    let updates: Vec<(SessionUid, SessionWebhookDeliveryProgress)> =
        deliveries.buffer_unordered(WEBHOOK_CONCURRENT_DELIVERIES_MAX).collect().await;
    queue.sessions.extend(updates);
}

/// Delivers the new events of a session, up to the first failure or the shutdown.
async fn deliver_session_events(
    app: &AppState,
    master_secret: &WebhookMasterSecret,
    webhook: &Webhook,
    uid: SessionUid,
    mut queued: SessionWebhookDeliveryProgress,
) -> SessionWebhookDeliveryProgress {
    let session_ref = CallerSessionRef { app: app.clone(), caller: Caller::default(), session: queued.session.clone() };
    let mut delivered = 0;
    while delivered < WEBHOOK_BATCH_EVENTS_MAX && !app.is_shutting_down() {
        let read = app.engine.read_events(&queued.session, queued.last_seq, WEBHOOK_BATCH_EVENTS_MAX).await;
        let Ok(events) = read.inspect_err(|error| log_unread_event(webhook, &queued, error)) else { break };
        if events.is_empty() {
            // Everything that was recorded before the webhook is behind.
            queued.from = UnixMillis(0);
            break;
        }
        for event in events {
            if app.is_shutting_down() {
                return queued;
            }
            let kind = WebhookEventKind::from_event(&event.event)
                .filter(|kind| webhook.wants_event(*kind) && event.at >= queued.from);
            if let Some(kind) = kind {
                delivered += 1;
                queued.from = UnixMillis(0);
                if !deliver_event(&session_ref, master_secret, webhook, uid, &mut queued, &event, kind).await {
                    return queued;
                }
            }
            queued.advance_past_event(event.seq, event.at);
        }
    }
    queued
}

/// Delivers one event. Returns whether to continue with the next one: the event was delivered or dropped.
async fn deliver_event(
    session_ref: &CallerSessionRef,
    master_secret: &WebhookMasterSecret,
    webhook: &Webhook,
    uid: SessionUid,
    queued: &mut SessionWebhookDeliveryProgress,
    event: &RecordedEvent,
    kind: WebhookEventKind,
) -> bool {
    let app = &session_ref.app;
    let now = app.engine.now();
    let views = EventViewBuilder::new(session_ref, EventTextFilter::Conversation, None)
        .render_events(std::slice::from_ref(event))
        .await;
    let views = views.inspect_err(|error| log_unread_event(webhook, queued, error));
    let Some(view) = views.ok().and_then(|mut views| views.pop()) else { return false };
    let data = json!({
        "session": queued.session,
        "owner": session_owner(&queued.session),
        "flow": queued.flow,
        "event": view,
    });
    let id = format!("msg_{}_{}_{}", webhook.webhook, uid.0, event.seq);
    let body = delivery_request::webhook_payload(&kind.wire_name(), event.at, &data);
    let result = delivery_request::post_webhook(webhook, master_secret, &id, now, body).await;
    let attempt = queued.attempts + 1;
    let wait = app.options.limits.webhook_retry_delays_ms.get(queued.attempts).copied();
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
        let (webhook, session, seq) = (&webhook.webhook, &queued.session, event.seq.0);
        match wait {
            Some(retry_ms) => {
                tracing::warn!(webhook, %session, seq, attempt, retry_ms, problem, "webhook delivery failed");
            }
            None => tracing::error!(webhook, %session, seq, attempt, problem, "webhook delivery given up"),
        }
    }
    app.webhooks.record_attempt(
        &webhook.webhook,
        WebhookDeliveryAttempt {
            id,
            session: queued.session.to_string(),
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
    (queued.attempts, queued.retry_at) = (attempt, next);
    false
}

/// Logs that the next event for a webhook cannot be read now; it is tried again in the next round. Only the code of the
/// error is logged, because the message may quote the event.
fn log_unread_event(webhook: &Webhook, queued: &SessionWebhookDeliveryProgress, error: &Error) {
    tracing::warn!(webhook = webhook.webhook, session = %queued.session, code = error.code(), "cannot read an event to deliver");
}

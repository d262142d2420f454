//! The round that tells webhooks what is new: which sessions changed, what of that is wanted, and what to do when it cannot be told. One
//! process of those on a store goes this round, by a lock on a file.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::path::Path;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use segue_core::event::Recorded;
use segue_core::ids::{Millis, Seq, SessionId};
use segue_engine::{Query, Row};
use serde_json::json;

use super::state::{Lane, Lanes};
use super::{Delivery, EventKind, Webhook, send};
use crate::app::App;
use crate::caller::{Caller, owner_of};
use crate::extract::Held;
use crate::limits::{
    CHANGES_SESSIONS_MAX, WEBHOOK_CLAIM_MS, WEBHOOK_DELIVERIES_MAX, WEBHOOK_EVENTS_MAX, WEBHOOK_POLL_MS,
};
use crate::options::Secret;
use crate::teller::{Teller, TextsWanted};

/// What whoever wants a webhook is told if there is nothing to sign with.
pub const NO_SECRET: &str = "webhooks are signed; start the server with a long random text in SEGUE_WEBHOOK_SECRET";
const LOCK: &str = "webhooks.lock";

/// Goes the round until the server ends.
pub async fn deliver(app: App) {
    let Some(master) = app.options.webhook_secret.clone() else { return };
    let folder = app.options.folder.clone();
    let Some(_lock) = claim(&app, &folder).await else { return };
    let mut lanes = Lanes::read(&folder);
    while !app.is_closing() {
        let round = tokio::select! {
            () = app.closed() => return,
            round = go_round(&app, &master, &lanes) => round,
        };
        if round != lanes {
            lanes = round;
            // What cannot be written down is told again; the receiver knows it by its id.
            let _ = lanes.write(&folder);
        }
        tokio::select! {
            () = app.closed() => return,
            () = tokio::time::sleep(Duration::from_millis(WEBHOOK_POLL_MS)) => {}
        }
    }
}

/// Waits until no other process delivers.
async fn claim(app: &App, folder: &Path) -> Option<File> {
    loop {
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(folder.join(LOCK)).ok();
        if let Some(file) = file.filter(|file| file.try_lock().is_ok()) {
            return Some(file);
        }
        tokio::select! {
            () = app.closed() => return None,
            () = tokio::time::sleep(Duration::from_millis(WEBHOOK_CLAIM_MS)) => {}
        }
    }
}

async fn go_round(app: &App, master: &Secret, lanes: &Lanes) -> Lanes {
    let mut next = lanes.clone();
    let Ok(webhooks) = app.webhooks.list() else { return next };
    if webhooks.is_empty() {
        // Whoever comes is told from then on.
        return Lanes { since: lanes.since, lanes: BTreeMap::new() };
    }
    let rows = changed(app, lanes).await;
    let heads: BTreeMap<SessionId, Seq> = rows.iter().map(|row| (row.session.clone(), row.head)).collect();
    let now = app.engine.now();
    let mut work = Vec::new();
    for webhook in &webhooks {
        for row in rows.iter().filter(|row| webhook.watches(&row.session, &row.summary.flow)) {
            let known = lanes.lanes.get(&webhook.webhook).and_then(|lanes| lanes.get(&row.session));
            let lane = known.copied().unwrap_or_default();
            if row.head > lane.after && lane.next <= now {
                // Without a lane, what was recorded before this is not told.
                let from = if known.is_some() { Millis(0) } else { Millis(webhook.created.max(lanes.since)) };
                work.push((webhook.clone(), row.clone(), lane, from));
            }
        }
    }
    let told = stream::iter(work).map(|(webhook, row, lane, from)| async move {
        let lane = tell(app, master, &webhook, &row, lane, from).await;
        (webhook.webhook, row.session, lane)
    });
    let told: Vec<(String, SessionId, Lane)> = told.buffer_unordered(WEBHOOK_DELIVERIES_MAX).collect().await;
    for (webhook, session, lane) in told {
        next.lanes.entry(webhook).or_default().insert(session, lane);
    }
    let known: Vec<String> = webhooks.into_iter().map(|webhook| webhook.webhook).collect();
    next.prune(app.engine.now(), &known, &heads);
    next
}

/// Sessions in which something may have been recorded that was not told.
async fn changed(app: &App, lanes: &Lanes) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    let mut query = Query::newest(CHANGES_SESSIONS_MAX);
    // A store that cannot be read now is asked again next time.
    while let Ok(page) = app.engine.list(&query).await {
        let is_recent = |row: &Row| {
            row.summary.updated.0 >= lanes.since || lanes.lanes.values().any(|lanes| lanes.contains_key(&row.session))
        };
        let oldest = page.rows.last().map(|row| row.summary.updated.0);
        rows.extend(page.rows.into_iter().filter(is_recent));
        let goes_on = oldest.is_some_and(|oldest| oldest >= lanes.since);
        match page.next.filter(|_| goes_on) {
            Some(next) => query.before = Some(next),
            None => break,
        }
    }
    rows
}

/// Tells a webhook what is new in a session, as far as it goes.
async fn tell(app: &App, master: &Secret, webhook: &Webhook, row: &Row, mut lane: Lane, from: Millis) -> Lane {
    let held = Held { app: app.clone(), caller: Caller::default(), session: row.session.clone() };
    let mut told = 0;
    while told < WEBHOOK_EVENTS_MAX {
        let Ok(events) = app.engine.events(&row.session, lane.after, WEBHOOK_EVENTS_MAX).await else { return lane };
        if events.is_empty() {
            break;
        }
        for event in events {
            let kind = EventKind::of(&event.event).filter(|kind| webhook.wants(*kind) && event.at >= from);
            if let Some(kind) = kind {
                told += 1;
                if !tell_one(&held, master, webhook, row, &event, kind, &mut lane).await {
                    return lane;
                }
            }
            lane = Lane { after: event.seq, at: event.at, attempts: 0, next: Millis(0) };
        }
    }
    lane
}

/// Tells one event. Whether to go on with the next: it was told, or is given up.
async fn tell_one(
    held: &Held,
    master: &Secret,
    webhook: &Webhook,
    row: &Row,
    event: &Recorded,
    kind: EventKind,
    lane: &mut Lane,
) -> bool {
    let app = &held.app;
    let now = app.engine.now();
    let views = Teller::new(held, TextsWanted::Said, None).tell(std::slice::from_ref(event)).await;
    let Some(view) = views.ok().and_then(|mut views| views.pop()) else { return false };
    let data = json!({
        "session": row.session,
        "owner": owner_of(&row.session),
        "flow": row.summary.flow,
        "event": view,
    });
    let id = format!("msg_{}_{}_{}", webhook.webhook, row.session, event.seq);
    let body = send::body(&kind.name(), event.at, &data);
    let result = send::send(webhook, master, &id, now, body).await;
    let attempt = lane.attempts + 1;
    let wait = app.options.bounds.webhook_waits_ms.get(lane.attempts).copied();
    let (status, problem) = match &result {
        Ok(status) => (Some(*status), None),
        Err((status, problem)) => (*status, Some(problem.clone())),
    };
    let next = wait.filter(|_| result.is_err()).map(|wait| now.after(wait));
    app.metrics.delivery(match (&result, next) {
        (Ok(_), _) => "told",
        (Err(_), Some(_)) => "failed",
        (Err(_), None) => "given_up",
    });
    app.webhooks.tried(
        &webhook.webhook,
        Delivery {
            id,
            session: row.session.to_string(),
            seq: event.seq.0,
            r#type: kind.name(),
            at: now.0,
            attempt,
            status,
            problem,
            next: next.map(|next| next.0),
        },
    );
    let Some(next) = next else { return true };
    (lane.attempts, lane.next) = (attempt, next);
    false
}

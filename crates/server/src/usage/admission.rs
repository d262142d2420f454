//! Admits requests that may cause calls: checks the limits of the caller's key, and makes it pay for the session.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use segue_core::ids::{ModelName, SessionId};
use segue_engine::root_session_name;

use super::{UtcDay, format_time};
use crate::app::AppState;
use crate::caller::Caller;
use crate::extract::CallerSessionRef;
use crate::limits::TURN_REFRESH_MS;
use crate::problem::HttpProblem;

/// The requests that were admitted and whose session may not be active yet.
#[derive(Debug, Default)]
pub(crate) struct AdmittedTurns(Mutex<HashMap<(String, SessionId), usize>>);

/// An admitted request. Its session counts as active until this is dropped.
#[must_use]
pub(crate) struct AdmittedTurnGuard {
    app: AppState,
    /// The key and the session, if the key's turns are limited.
    entry: Option<(String, SessionId)>,
}

impl Drop for AdmittedTurnGuard {
    fn drop(&mut self) {
        let Some(entry) = self.entry.take() else { return };
        let mut turns = self.app.admitted_turns.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = turns.get_mut(&entry) {
            *count -= 1;
            if *count == 0 {
                turns.remove(&entry);
            }
        }
    }
}

/// Admits a request that may cause calls in a session, and makes the caller's key pay for them.
///
/// # Errors
/// A limit of the server or of the key is reached.
pub(crate) async fn admit_turn(session_ref: &CallerSessionRef) -> Result<AdmittedTurnGuard, HttpProblem> {
    let CallerSessionRef { app, caller, session } = session_ref;
    check_server_capacity(app, session)?;
    check_budget(app, caller).await?;
    let admitted = reserve_turn(app, caller, session).await?;
    reserve_shared_turn(app, caller, session).await?;
    assign_payer(app, caller, session).await?;
    Ok(admitted)
}

/// Makes the caller's key pay for a session, or nobody if the caller has no key.
async fn assign_payer(app: &AppState, caller: &Caller, session: &SessionId) -> Result<(), HttpProblem> {
    let stored = app.options.shared.key_usage.set_payer(session, caller.key_id.as_deref(), app.engine.now()).await;
    stored.map_err(|error| usage_problem(&error))
}

/// Checks the models that a request names.
///
/// # Errors
/// The caller's key may not use one of them.
pub(crate) fn check_allowed_models<'m>(
    caller: &Caller,
    models: impl IntoIterator<Item = &'m ModelName>,
) -> Result<(), HttpProblem> {
    match models.into_iter().find(|model| !caller.limits.allows_model(model)) {
        None => Ok(()),
        Some(model) => {
            let allowed = caller.limits.models.iter().flatten().map(ToString::to_string).collect::<Vec<_>>();
            let detail = format!("this key may not use the model `{model}`; it may use: {}", allowed.join(", "));
            Err(HttpProblem::new("model-not-allowed", detail).with_extension("allowed_models", allowed))
        }
    }
}

fn check_server_capacity(app: &AppState, session: &SessionId) -> Result<(), HttpProblem> {
    let max = app.options.limits.turns_max;
    if app.engine.active_session_count() >= max && !app.engine.is_session_active(session) {
        let detail = format!("{max} sessions have a running turn, which is the maximum; try again in a moment");
        return Err(HttpProblem::new("too-many-turns", detail).with_retry_after(1));
    }
    Ok(())
}

async fn check_budget(app: &AppState, caller: &Caller) -> Result<(), HttpProblem> {
    let Some(key) = caller.key_id.as_deref().filter(|_| caller.limits.has_spending_limit()) else { return Ok(()) };
    let now = app.engine.now();
    let usage = app.options.shared.key_usage.read_usage(key, now).await.map_err(|error| usage_problem(&error))?;
    let Some(limit) = caller.limits.find_spent_limit(&usage) else { return Ok(()) };
    let end = UtcDay::from_time(now).end_time();
    let detail = format!("this key has used up {limit}; it resets at {}", format_time(end));
    Err(HttpProblem::new("key-budget-spent", detail)
        .with_extension("resets_at", end.0)
        .with_retry_after(end.ms_since(now).div_ceil(1_000)))
}

/// Counts the sessions that the key keeps busy, and adds this one.
async fn reserve_turn(app: &AppState, caller: &Caller, session: &SessionId) -> Result<AdmittedTurnGuard, HttpProblem> {
    let Some((key, max)) = caller.key_id.clone().zip(caller.limits.turns_at_once) else {
        return Ok(AdmittedTurnGuard { app: app.clone(), entry: None });
    };
    let own = SessionId::from(root_session_name(session.as_str()));
    let mut paid = BTreeSet::new();
    for active in app.engine.active_sessions() {
        let root = SessionId::from(root_session_name(active.as_str()));
        let payer = app.options.shared.key_usage.find_payer(&root, app.engine.now()).await;
        if payer.map_err(|error| usage_problem(&error))?.as_deref() == Some(key.as_str()) {
            paid.insert(root);
        }
    }
    let mut turns = app.admitted_turns.0.lock().unwrap_or_else(PoisonError::into_inner);
    paid.extend(turns.keys().filter(|(payer, _)| *payer == key).map(|(_, session)| session.clone()));
    if !paid.contains(&own) && paid.len() >= max as usize {
        return Err(too_many_turns(max));
    }
    let entry = (key, own);
    *turns.entry(entry.clone()).or_default() += 1;
    Ok(AdmittedTurnGuard { app: app.clone(), entry: Some(entry) })
}

/// Counts the session among those that the key keeps busy on all servers.
async fn reserve_shared_turn(app: &AppState, caller: &Caller, session: &SessionId) -> Result<(), HttpProblem> {
    let Some((key, max)) = caller.key_id.as_deref().zip(caller.limits.turns_at_once) else { return Ok(()) };
    let usage = &app.options.shared.key_usage;
    let reserve = || usage.reserve_turn(key, session, max);
    if reserve().await.map_err(|error| usage_problem(&error))? {
        return Ok(());
    }
    // A turn of this server that has just ended is still counted.
    refresh_turns(app).await;
    if reserve().await.map_err(|error| usage_problem(&error))? { Ok(()) } else { Err(too_many_turns(max)) }
}

/// Keeps counting the turns that run on this server, until it shuts down.
pub(crate) async fn run_turn_refresh(app: AppState) {
    while !app.is_shutting_down() {
        refresh_turns(&app).await;
        tokio::select! {
            () = app.wait_for_shutdown() => return,
            () = tokio::time::sleep(Duration::from_millis(TURN_REFRESH_MS)) => {}
        }
    }
}

async fn refresh_turns(app: &AppState) {
    let to_root = |session: &SessionId| SessionId::from(root_session_name(session.as_str()));
    let mut active: BTreeSet<SessionId> = app.engine.active_sessions().iter().map(to_root).collect();
    {
        let admitted = app.admitted_turns.0.lock().unwrap_or_else(PoisonError::into_inner);
        active.extend(admitted.keys().map(|(_, session)| session.clone()));
    }
    if let Err(error) = app.options.shared.key_usage.refresh_turns(&active).await {
        // The slots last for a while, and the next round tries again.
        tracing::warn!(%error, "cannot tell the other servers which turns are running");
    }
}

fn too_many_turns(max: u32) -> HttpProblem {
    let detail = format!("this key may run {max} turns at once, and they are running; try again when one has ended");
    HttpProblem::new("too-many-turns", detail).with_retry_after(1)
}

fn usage_problem(error: &std::io::Error) -> HttpProblem {
    HttpProblem::from_usage_error(error, "the usage of this key cannot be read or written, so nothing was started")
}

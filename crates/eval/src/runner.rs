//! Holds a conversation with an engine.

use std::time::{Duration, Instant};

use segue_core::decide::OperatorCommand;
use segue_core::event::{Event, ToolRunHoldReason};
use segue_core::ids::{Seq, SessionId};
use segue_engine::{Engine, Error, SessionOptions, SessionSubscription, SessionUpdate, TurnReport, UserMessage};
use segue_flows::assistant::calendar;
use segue_flows::assistant::domain::DomainSchema;
use serde_json::Value;

use crate::conversation::EvalConversationSpec;
use crate::limits::{EVALUATED_TURN_MS_MAX, EVALUATED_WORK_MS_MAX, EVENTS_PAGE_MAX};
use crate::record::EvalConversationRecord;
use crate::simulated_user::ScriptedUser;
use crate::workspace_fixture::SimulatedApproval;

/// Midday of Monday, 12 January 2026, in milliseconds since 1970. The engine of an evaluation shows this time, so that
/// recorded requests do not depend on the day.
pub const EVALUATION_TIME_MS: u64 = 1_768_219_200_000;

/// The progress of a conversation.
#[derive(Debug, Clone)]
pub struct EvalConversationProgress<'p> {
    pub conversation: &'p EvalConversationSpec,
    /// The turn that is running, from 1.
    pub turn: usize,
    /// The phase before the turn; empty if the flow has none.
    pub phase: &'p str,
}

/// Holds a conversation in a session of its own, and returns what the journal recorded. `settings` override those of the
/// conversation.
///
/// # Errors
/// The session could not be opened or read. A turn that fails is no error; the conversation goes on with the next message.
pub async fn hold_conversation(
    engine: &Engine,
    conversation: &EvalConversationSpec,
    session: SessionId,
    settings: &Value,
    mut on_progress: impl FnMut(EvalConversationProgress<'_>),
) -> Result<EvalConversationRecord, Error> {
    let options = SessionOptions {
        session: Some(session),
        settings: merge_settings(&conversation.settings, settings),
        ..SessionOptions::default()
    };
    let session = engine.open_session(&conversation.flow, options).await?;
    let (flow, opened) = engine.load_session(&session).await?;
    let mut record = EvalConversationRecord::new(conversation.clone(), flow.spec());
    let mut updates = engine.subscribe(&session, opened.session.last_seq).await?;
    let started = Instant::now();
    let mut user = ScriptedUser::new(conversation);
    let turn_ms_max = if conversation.workspace.is_some() { EVALUATED_WORK_MS_MAX } else { EVALUATED_TURN_MS_MAX };
    let (mut reply, mut phase) = (String::new(), String::new());
    while let Some(message) = user.next_message(&reply, &phase) {
        record.messages.push(message.to_owned());
        on_progress(EvalConversationProgress { conversation, turn: record.messages.len(), phase: &phase });
        let limit = Duration::from_millis(turn_ms_max);
        let turn = hold_turn(engine, &session, message, &mut updates, conversation.approvals);
        match tokio::time::timeout(limit, turn).await {
            Ok(Ok(report)) => (reply, phase) = (report.replies.join("\n\n"), report.phase),
            Ok(Err(error)) => {
                record.failure = Some(error.to_string());
                break;
            }
            Err(_) => {
                engine.apply_command(&session, OperatorCommand::Cancel { turn: None }).await?;
                record.failure = Some(format!("a turn took more than {} minutes", turn_ms_max / 60_000));
                break;
            }
        }
        if engine.load_session(&session).await?.1.session.closed_reason.is_some() {
            break;
        }
    }
    record.duration_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    read_journal(engine, &session, &mut record).await?;
    Ok(record)
}

/// Sends a message, and decides about the tool runs that wait for a person until its turn has ended.
async fn hold_turn(
    engine: &Engine,
    session: &SessionId,
    message: &str,
    updates: &mut SessionSubscription,
    approvals: SimulatedApproval,
) -> Result<TurnReport, Error> {
    let report = engine.send_and_wait(session, UserMessage::from(message));
    tokio::pin!(report);
    loop {
        tokio::select! {
            report = &mut report => return report,
            update = updates.next_update() => {
                if let SessionUpdate::Event(recorded) = update? {
                    decide_on_held_run(engine, session, &recorded.event, approvals).await;
                }
            }
        }
    }
}

async fn decide_on_held_run(engine: &Engine, session: &SessionId, event: &Event, approvals: SimulatedApproval) {
    let Event::ToolRunHeld { run, reason: ToolRunHoldReason::Approval, .. } = event else { return };
    let command = match approvals {
        SimulatedApproval::Approve => {
            let by = Some("the simulated user".to_owned());
            OperatorCommand::Approve { run: *run, arguments: None, remember: false, by }
        }
        SimulatedApproval::Deny => OperatorCommand::Deny { run: *run, reason: "the user does not allow it".to_owned() },
    };
    // The error may be dropped: the turn has ended in the meantime, so there is nothing left to decide.
    let _ = engine.apply_command(session, command).await;
}

async fn read_journal(engine: &Engine, session: &SessionId, record: &mut EvalConversationRecord) -> Result<(), Error> {
    let mut after = Seq(0);
    loop {
        let events = engine.read_events(session, after, EVENTS_PAGE_MAX).await?;
        let Some(last) = events.last() else { break };
        after = last.seq;
        record.events.extend(events);
    }
    let needed = EvalConversationRecord::needed_texts(&record.events);
    for ids in needed.chunks(EVENTS_PAGE_MAX) {
        let texts = engine.read_texts(session, ids).await?;
        record.texts.extend(ids.iter().copied().zip(texts));
    }
    Ok(())
}

/// Returns the settings of a conversation, with those of the command line in their place.
fn merge_settings(conversation: &Value, overrides: &Value) -> Value {
    let mut merged = conversation.as_object().cloned().unwrap_or_default();
    merged.extend(overrides.as_object().cloned().unwrap_or_default());
    Value::Object(merged)
}

/// Returns a domain whose sample records have the dates of [`EVALUATION_TIME_MS`], so that they are the same every day.
#[must_use]
pub fn with_fixed_dates(mut domain: DomainSchema) -> DomainSchema {
    let today = calendar::days_since_epoch(segue_core::ids::UnixMillis(EVALUATION_TIME_MS), 0);
    for kind in &domain.types {
        for sample in domain.samples.get_mut(&kind.name).into_iter().flatten() {
            let key = sample.get(segue_flows::assistant::domain::SAMPLE_KEY_FIELD).cloned();
            let date = |days: i64| calendar::date_from_epoch_days(today.saturating_add(days));
            *sample = kind.resolve_sample_values(sample, date);
            sample.extend(key.map(|key| (segue_flows::assistant::domain::SAMPLE_KEY_FIELD.to_owned(), key)));
        }
    }
    domain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sample_dates_do_not_depend_on_the_day() {
        let kitchen = DomainSchema::built_in().into_iter().find(|domain| domain.name == "kitchen").expect("built in");
        let fixed = with_fixed_dates(kitchen);
        let cod = fixed.samples["inventory"].iter().find(|record| record["name"] == "cod").expect("a sample");
        assert_eq!(cod["expires"], "2026-01-13");
    }
}

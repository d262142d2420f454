//! The last exchanges of a resumed conversation, shortened.

use std::sync::Arc;

use segue_core::body::BodyId;
use segue_core::event::{Event, RecordedEvent};
use segue_core::ids::{Seq, SessionId};
use segue_core::session::Session;
use segue_engine::{Engine, Error};

use crate::limits::{RECAP_COLUMNS_MAX, RECAP_EVENTS_MAX, RECAP_EXCHANGES_MAX};
use crate::print::text::{to_single_line, truncate_to_width};

/// A line of the recap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RecapLine {
    /// A message of the user, shortened.
    User(String),
    /// A reply, shortened.
    Reply(String),
    /// A reply of the running turn, in full.
    RunningReply(String),
}

/// Returns the newest events up to `head`.
///
/// # Errors
/// Returns an error if the session cannot be read.
pub(crate) async fn load_recent_events(
    engine: &Engine,
    session: &SessionId,
    head: Seq,
) -> Result<Vec<RecordedEvent>, Error> {
    let after = Seq(head.0.saturating_sub(RECAP_EVENTS_MAX));
    engine.read_events(session, after, usize::try_from(head.0 - after.0).unwrap_or(usize::MAX)).await
}

/// Returns the last exchanges among `events`; `session` is the state after them.
///
/// # Errors
/// Returns an error if the session cannot be read.
pub(crate) async fn build_recap(
    engine: &Engine,
    id: &SessionId,
    events: &[RecordedEvent],
    session: &Session,
) -> Result<Vec<RecapLine>, Error> {
    let lines = last_exchanges(events, session);
    let ids: Vec<BodyId> = lines.iter().map(|(_, body)| *body).collect();
    let texts = engine.read_texts(id, &ids).await?;
    Ok(lines.iter().zip(texts).map(|((kind, _), text)| recap_line(*kind, &text)).collect())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RecapLineKind {
    User,
    Reply,
    RunningReply,
}

fn last_exchanges(events: &[RecordedEvent], session: &Session) -> Vec<(RecapLineKind, BodyId)> {
    let running_turn = session.current_turn.as_ref().map(|turn| turn.id);
    let mut lines: Vec<(RecapLineKind, BodyId)> = Vec::new();
    for recorded in events {
        match &recorded.event {
            Event::UserMessageReceived(received) => lines.push((RecapLineKind::User, received.text.body)),
            Event::ReplySent(reply) if reply.turn.is_some() && reply.turn == running_turn => {
                lines.push((RecapLineKind::RunningReply, reply.text.body));
            }
            Event::ReplySent(reply) => lines.push((RecapLineKind::Reply, reply.text.body)),
            _ => {}
        }
    }
    let mut messages = lines.iter().enumerate().rev().filter(|(_, (kind, _))| *kind == RecapLineKind::User);
    let first = messages.nth(RECAP_EXCHANGES_MAX - 1).map_or(0, |(index, _)| index);
    lines.split_off(first)
}

fn recap_line(kind: RecapLineKind, text: &Arc<str>) -> RecapLine {
    match kind {
        RecapLineKind::User => RecapLine::User(truncate_to_width(&to_single_line(text), RECAP_COLUMNS_MAX)),
        RecapLineKind::Reply => RecapLine::Reply(truncate_to_width(&to_single_line(text), RECAP_COLUMNS_MAX)),
        RecapLineKind::RunningReply => RecapLine::RunningReply(text.to_string()),
    }
}

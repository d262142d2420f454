//! The last few exchanges of a conversation that is taken up again, shortened.

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
pub enum RecapLine {
    /// The user's words, shortened.
    User(String),
    /// What was said to the user, shortened.
    Reply(String),
    /// What was said in the turn that still runs: whole, since it is part of what follows.
    RunningReply(String),
}

/// The newest events up to `head`.
///
/// # Errors
/// The session cannot be read.
pub async fn load_recent_events(engine: &Engine, session: &SessionId, head: Seq) -> Result<Vec<RecordedEvent>, Error> {
    let after = Seq(head.0.saturating_sub(RECAP_EVENTS_MAX));
    engine.read_events(session, after, usize::try_from(head.0 - after.0).unwrap_or(usize::MAX)).await
}

/// The last exchanges among these events; `then` is the session as it stood after them.
///
/// # Errors
/// The session cannot be read.
pub async fn build_recap(
    engine: &Engine,
    id: &SessionId,
    events: &[RecordedEvent],
    then: &Session,
) -> Result<Vec<RecapLine>, Error> {
    let lines = last_exchanges(events, then);
    let ids: Vec<BodyId> = lines.iter().map(|(_, body)| *body).collect();
    let texts = engine.read_texts(id, &ids).await?;
    Ok(lines.iter().zip(texts).map(|((who, _), text)| recap_line(*who, &text)).collect())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RecapLineKind {
    User,
    Reply,
    RunningReply,
}

fn last_exchanges(events: &[RecordedEvent], then: &Session) -> Vec<(RecapLineKind, BodyId)> {
    let mut lines: Vec<(RecapLineKind, BodyId)> = Vec::new();
    for recorded in events {
        match &recorded.event {
            Event::UserMessageReceived(received) => lines.push((RecapLineKind::User, received.text.body)),
            Event::ReplySent(said)
                if said.turn.is_some() && said.turn == then.current_turn.as_ref().map(|turn| turn.id) =>
            {
                lines.push((RecapLineKind::RunningReply, said.text.body));
            }
            Event::ReplySent(said) => lines.push((RecapLineKind::Reply, said.text.body)),
            _ => {}
        }
    }
    let mut users = lines.iter().enumerate().rev().filter(|(_, (who, _))| *who == RecapLineKind::User);
    let first = users.nth(RECAP_EXCHANGES_MAX - 1).map_or(0, |(place, _)| place);
    lines.split_off(first)
}

fn recap_line(kind: RecapLineKind, text: &Arc<str>) -> RecapLine {
    match kind {
        RecapLineKind::User => RecapLine::User(truncate_to_width(&to_single_line(text), RECAP_COLUMNS_MAX)),
        RecapLineKind::Reply => RecapLine::Reply(truncate_to_width(&to_single_line(text), RECAP_COLUMNS_MAX)),
        RecapLineKind::RunningReply => RecapLine::RunningReply(text.to_string()),
    }
}

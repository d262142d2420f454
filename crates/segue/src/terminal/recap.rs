//! The last few exchanges of a conversation that is taken up again, shortened.

use std::sync::Arc;

use segue_core::body::BodyId;
use segue_core::event::{Event, Recorded};
use segue_core::ids::{Seq, SessionId};
use segue_core::session::Session;
use segue_engine::{Engine, Error};

use crate::limits::{RECAP_COLUMNS_MAX, RECAP_EVENTS_MAX, RECAP_EXCHANGES_MAX};
use crate::print::text::{fitted, one_line};

/// A line of the recap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recalled {
    /// The user's words, shortened.
    User(String),
    /// What was said to the user, shortened.
    Reply(String),
    /// What was said in the turn that still runs: whole, since it is part of what follows.
    Running(String),
}

/// The newest events up to `head`.
///
/// # Errors
/// The session cannot be read.
pub async fn tail(engine: &Engine, session: &SessionId, head: Seq) -> Result<Vec<Recorded>, Error> {
    let after = Seq(head.0.saturating_sub(RECAP_EVENTS_MAX));
    engine.events(session, after, usize::try_from(head.0 - after.0).unwrap_or(usize::MAX)).await
}

/// The last exchanges among these events; `then` is the session as it stood after them.
///
/// # Errors
/// The session cannot be read.
pub async fn recap(
    engine: &Engine,
    id: &SessionId,
    events: &[Recorded],
    then: &Session,
) -> Result<Vec<Recalled>, Error> {
    let lines = last_exchanges(events, then);
    let ids: Vec<BodyId> = lines.iter().map(|(_, body)| *body).collect();
    let texts = engine.texts(id, &ids).await?;
    Ok(lines.iter().zip(texts).map(|((who, _), text)| recalled(*who, &text)).collect())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    User,
    Reply,
    Running,
}

fn last_exchanges(events: &[Recorded], then: &Session) -> Vec<(Who, BodyId)> {
    let mut lines: Vec<(Who, BodyId)> = Vec::new();
    for recorded in events {
        match &recorded.event {
            Event::MessageReceived(received) => lines.push((Who::User, received.text.body)),
            Event::Said(said) if said.turn.is_some() && said.turn == then.turn.as_ref().map(|turn| turn.id) => {
                lines.push((Who::Running, said.text.body));
            }
            Event::Said(said) => lines.push((Who::Reply, said.text.body)),
            _ => {}
        }
    }
    let mut users = lines.iter().enumerate().rev().filter(|(_, (who, _))| *who == Who::User);
    let first = users.nth(RECAP_EXCHANGES_MAX - 1).map_or(0, |(place, _)| place);
    lines.split_off(first)
}

fn recalled(who: Who, text: &Arc<str>) -> Recalled {
    match who {
        Who::User => Recalled::User(fitted(&one_line(text), RECAP_COLUMNS_MAX)),
        Who::Reply => Recalled::Reply(fitted(&one_line(text), RECAP_COLUMNS_MAX)),
        Who::Running => Recalled::Running(text.to_string()),
    }
}

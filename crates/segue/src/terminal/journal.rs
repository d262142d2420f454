//! Looking back in a journal, newest events first, no further than needed.

use std::sync::Arc;

use segue_core::event::{CallAnswered, CallOpened, Event, Recorded};
use segue_core::ids::{CallId, Seq, SessionId};
use segue_engine::{Engine, Error};

use super::limits::LOOK_BACK_EVENTS_MAX;

/// A call and what came of it.
#[derive(Debug)]
pub struct Made {
    pub opened: Arc<CallOpened>,
    pub answered: Option<CallAnswered>,
}

/// Goes back from `head` until `find` finds something.
///
/// # Errors
/// The session cannot be read.
pub async fn find_back<T>(
    engine: &Engine,
    session: &SessionId,
    head: Seq,
    mut find: impl FnMut(&Recorded) -> Option<T>,
) -> Result<Option<T>, Error> {
    let mut end = head.0;
    while end > 0 {
        let start = end.saturating_sub(LOOK_BACK_EVENTS_MAX);
        let events = engine.events(session, Seq(start), usize::try_from(end - start).unwrap_or(usize::MAX)).await?;
        if let Some(found) = events.iter().rev().find_map(&mut find) {
            return Ok(Some(found));
        }
        end = start;
    }
    Ok(None)
}

/// The call of that number; the last one whose answer the user heard if none is given.
///
/// # Errors
/// The session cannot be read.
pub async fn call(
    engine: &Engine,
    session: &SessionId,
    head: Seq,
    mut wanted: Option<CallId>,
) -> Result<Option<Made>, Error> {
    let mut answer = None;
    find_back(engine, session, head, |recorded| match &recorded.event {
        Event::Said(said) if wanted.is_none() => {
            wanted = said.call;
            None
        }
        Event::CallAnswered(answered) if wanted == Some(answered.call) => {
            answer = Some((**answered).clone());
            None
        }
        Event::CallOpened(opened) if wanted == Some(opened.call) => {
            Some(Made { opened: opened.clone(), answered: answer.take() })
        }
        _ => None,
    })
    .await
}

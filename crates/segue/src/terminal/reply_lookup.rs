//! Searches a journal backwards for the last reply.

use segue_core::event::Event;
use segue_core::ids::{CallId, Seq, SessionId};
use segue_engine::{Engine, Error};

use crate::limits::EVENTS_PAGE_MAX;

/// Returns the call of the last reply to the user.
///
/// # Errors
/// Returns an error if the session cannot be read.
pub(crate) async fn find_last_replied_call(
    engine: &Engine,
    session: &SessionId,
    head: Seq,
) -> Result<Option<CallId>, Error> {
    let mut end = head;
    while end > Seq(0) {
        let start = Seq(end.0.saturating_sub(EVENTS_PAGE_MAX as u64));
        let events = engine.read_events(session, start, EVENTS_PAGE_MAX).await?;
        let found = events.iter().rev().filter(|event| event.seq <= end).find_map(|recorded| match &recorded.event {
            Event::ReplySent(reply) => reply.call,
            _ => None,
        });
        if found.is_some() {
            return Ok(found);
        }
        end = start;
    }
    Ok(None)
}

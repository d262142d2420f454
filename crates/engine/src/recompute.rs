//! One past call once more, beside the timeline, and both answers side by side.

use std::sync::Arc;

use segue_core::body::BodyId;
use segue_core::decide::{Change, Input, Recomputation, frozen};
use segue_core::event::{Event, Next, Recorded};
use segue_core::flow::Rules;
use segue_core::ids::{CallId, Seq, SessionId};
use segue_core::session::State;

use crate::engine::Engine;
use crate::error::Error;
use crate::hub::Update;
use crate::limits::READ_EVENTS_MAX;
use crate::shelf::Shelf;

/// A past call and the same once more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recomputed {
    /// The new call.
    pub call: CallId,
    /// What was answered then, if anything was.
    pub before: Option<String>,
    /// What is answered now, or why nothing is.
    pub now: Result<String, String>,
}

impl Engine {
    /// Makes a past call once more, with a change, and waits for its answer. The session goes on as if nothing had happened;
    /// the answer stands in its journal and is paid for.
    ///
    /// # Errors
    /// There is no such call or model, a setting does not fit, or it cannot be made now.
    pub async fn recompute(&self, session: &SessionId, call: CallId, change: &Change) -> Result<Recomputed, Error> {
        let (rules, state) = self.state(session).await?;
        self.check_settings(rules.spec(), &change.settings)?;
        if let Some(model) = &change.model {
            self.models().get(model).map_err(|failure| Error::NoSuchModel(failure.message))?;
        }
        let no_call = || Error::NoSuchCall { session: session.clone(), call };
        let (before, opening, answer) = self.past_call(session, &rules, call).await?.ok_or_else(no_call)?;
        let again = self.freeze(session, &*rules, (&before, &opening), change).await?.ok_or_else(no_call)?;
        let answer = match answer {
            Some(body) => self.texts(session, &[body]).await?.first().map(ToString::to_string),
            None => None,
        };
        let mut listener = self.subscribe(session, state.session.seq).await?;
        self.give(session, Input::Recompute(Box::new(again))).await?;
        let mut new = None;
        loop {
            let Update::Event(recorded) = listener.next().await? else { continue };
            let over = match recorded.event {
                Event::CallOpened(opened) if new.is_none() => {
                    new = opened.recomputes.as_ref().filter(|again| again.call == call).map(|_| opened.call);
                    continue;
                }
                Event::CallAnswered(answered) if Some(answered.call) == new => {
                    let texts = self.texts(session, &[answered.text.body]).await?;
                    Ok(texts.first().map(ToString::to_string).unwrap_or_default())
                }
                Event::CallFailed { call, failure, next: Next::GiveUp, .. } if Some(call) == new => {
                    Err(failure.to_string())
                }
                Event::CallUnknown { call, next: Next::GiveUp, .. }
                | Event::CallResolved { call, next: Next::GiveUp }
                    if Some(call) == new =>
                {
                    Err("the answer was lost when the process died".to_owned())
                }
                Event::CallCancelled { call, reason } if Some(call) == new => Err(reason),
                _ => continue,
            };
            return Ok(Recomputed { call: new.unwrap_or(call), before: answer, now: over });
        }
    }

    /// The state right before a call was opened, its opening, and its answer.
    async fn past_call(
        &self,
        session: &SessionId,
        rules: &Arc<dyn Rules>,
        call: CallId,
    ) -> Result<Option<(State, Recorded, Option<BodyId>)>, Error> {
        let mut before = State::fresh(&**rules);
        let mut opening: Option<Recorded> = None;
        let mut after = Seq(0);
        loop {
            let events = self.events(session, after, READ_EVENTS_MAX).await?;
            let Some(last) = events.last().map(|event| event.seq) else {
                return Ok(opening.map(|opening| (before, opening, None)));
            };
            after = last;
            for event in events {
                match (&event.event, &opening) {
                    (Event::CallOpened(opened), None) if opened.call == call => opening = Some(event),
                    (_, None) => before.apply(&**rules, &event),
                    (Event::CallAnswered(answered), Some(_)) if answered.call == call => {
                        let answer = Some(answered.text.body);
                        return Ok(opening.map(|opening| (before, opening, answer)));
                    }
                    (_, Some(_)) => {}
                }
            }
        }
    }

    async fn freeze(
        &self,
        session: &SessionId,
        rules: &dyn Rules,
        (before, opening): (&State, &Recorded),
        change: &Change,
    ) -> Result<Option<Recomputation>, Error> {
        let mut shelf = Shelf::default();
        loop {
            let wanted = match frozen(rules, before, opening, change, &shelf) {
                Ok(again) => return Ok(Some(again)),
                Err(wanted) => wanted,
            };
            let missing = shelf.missing(wanted);
            if missing.is_empty() {
                return Ok(None);
            }
            let texts = self.texts(session, &missing).await?;
            missing.into_iter().zip(texts).for_each(|(id, text)| shelf.put(id, text));
        }
    }
}

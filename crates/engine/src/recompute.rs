//! One past call once more, beside the timeline, and both answers side by side.

use std::sync::Arc;

use segue_core::decide::{Change, Input, Recomputation, frozen};
use segue_core::event::{CallAnswered, Event, Next, Recorded};
use segue_core::flow::{About, Rules, Sight, Texts};
use segue_core::ids::{CallId, FragmentName, ModelName, RoleName, Seq, SessionId};
use segue_core::prompt::Usage;
use segue_core::session::State;

use crate::engine::Engine;
use crate::error::Error;
use crate::hub::{Subscription, Update};
use crate::limits::READ_EVENTS_MAX;
use crate::shelf::Shelf;

/// A past call and the same once more.
#[derive(Debug, Clone, PartialEq)]
pub struct Recomputed {
    /// Who was asked.
    pub role: RoleName,
    /// The call as it was made then.
    pub then: Made,
    /// The same, now.
    pub now: Made,
    /// The fragments in which the two prompts differ.
    pub changed: Vec<FragmentName>,
}

/// One making of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct Made {
    /// Its number.
    pub call: CallId,
    /// The model that was asked.
    pub model: ModelName,
    /// What came of it, or why nothing did.
    pub answer: Result<Version, String>,
}

/// An answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Version {
    /// What it says.
    pub text: String,
    /// What it comes to, where it is not meant to be read as it stands.
    pub gist: Option<String>,
    /// Tokens.
    pub usage: Usage,
    /// What it cost, in millionths of a dollar, where that is known.
    pub cost_microusd: Option<u64>,
    /// How long it took.
    pub ms: u64,
}

const NOTHING_ANSWERED: &str = "nothing was answered";

/// A call that is over.
struct PastCall {
    /// The state right before it was opened.
    before: State,
    opening: Recorded,
    /// What happened until it ended.
    since: Vec<Recorded>,
    answer: Option<Box<CallAnswered>>,
}

impl Engine {
    /// Makes a past call once more, with a change, and waits for its answer. The session goes on as if nothing had happened;
    /// the answer stands in its journal and is paid for.
    ///
    /// # Errors
    /// There is no such call or model, a setting does not fit or would change nothing, or the call cannot be made now.
    pub async fn recompute(&self, session: &SessionId, call: CallId, change: &Change) -> Result<Recomputed, Error> {
        let (rules, state) = self.state(session).await?;
        self.check_settings(&*rules, &change.settings)?;
        if let Some(model) = &change.model {
            self.models().get(model).map_err(|failure| Error::NoSuchModel(failure.message))?;
        }
        let no_call = || Error::NoSuchCall { session: session.clone(), call };
        let past = self.past_call(session, &rules, call).await?.ok_or_else(no_call)?;
        let again = self.freeze(session, &*rules, &past, change).await?.ok_or_else(no_call)?;
        let is_set = change.settings.as_object().is_some_and(|settings| !settings.is_empty());
        if is_set && again.changed.is_empty() {
            let opened_by = past.before.session.threads.get(&again.opened.receipt.thread.thread());
            return Err(Error::NothingChanges { call, opened_by: opened_by.map(|thread| thread.opened_by) });
        }
        let then = match &past.answer {
            Some(answered) => Ok(self.version(session, &*rules, &past, answered).await?),
            None => Err(NOTHING_ANSWERED.to_owned()),
        };
        let then = Made { call, model: again.opened.model.clone(), answer: then };
        let (role, model, changed) = (again.opened.role.clone(), again.model.clone(), again.changed.clone());
        let listener = self.subscribe(session, state.session.seq).await?;
        self.give(session, Input::Recompute(Box::new(again))).await?;
        let (call, answer) = self.answer_again(session, call, listener).await?;
        let answer = match answer {
            Ok(answered) => Ok(self.version(session, &*rules, &past, &answered).await?),
            Err(why) => Err(why),
        };
        Ok(Recomputed { role, then, now: Made { call, model, answer }, changed })
    }

    /// A past call and the same once more, as the journal has them; waits for the end of `again`.
    ///
    /// # Errors
    /// There is no such call, or it makes none once more.
    pub async fn recomputed(&self, session: &SessionId, again: CallId) -> Result<Recomputed, Error> {
        let (rules, _) = self.state(session).await?;
        let no_call = |call| Error::NoSuchCall { session: session.clone(), call };
        let opening = self.past_call(session, &rules, again).await?.ok_or_else(|| no_call(again))?.opening;
        let Event::CallOpened(opened) = &opening.event else { return Err(no_call(again)) };
        let Some(recomputes) = &opened.recomputes else { return Err(no_call(again)) };
        let past = self.past_call(session, &rules, recomputes.call).await?.ok_or_else(|| no_call(recomputes.call))?;
        let Event::CallOpened(first) = &past.opening.event else { return Err(no_call(recomputes.call)) };
        let then = match &past.answer {
            Some(answered) => Ok(self.version(session, &*rules, &past, answered).await?),
            None => Err(NOTHING_ANSWERED.to_owned()),
        };
        let listener = self.subscribe(session, Seq(opening.seq.0.saturating_sub(1))).await?;
        let (call, answer) = self.answer_again(session, recomputes.call, listener).await?;
        let answer = match answer {
            Ok(answered) => Ok(self.version(session, &*rules, &past, &answered).await?),
            Err(why) => Err(why),
        };
        Ok(Recomputed {
            role: opened.role.clone(),
            then: Made { call: recomputes.call, model: first.model.clone(), answer: then },
            now: Made { call, model: opened.model.clone(), answer },
            changed: recomputes.changed.clone(),
        })
    }

    /// Waits for the end of the call that makes `of` once more.
    async fn answer_again(
        &self,
        session: &SessionId,
        of: CallId,
        mut listener: Subscription,
    ) -> Result<(CallId, Result<Box<CallAnswered>, String>), Error> {
        let mut new = None;
        loop {
            let Update::Event(recorded) = listener.next().await? else { continue };
            let over = match recorded.event {
                Event::CallOpened(opened) if new.is_none() => {
                    new = opened.recomputes.as_ref().filter(|again| again.call == of).map(|_| opened.call);
                    continue;
                }
                Event::CallAnswered(answered) if Some(answered.call) == new => Ok(answered),
                Event::CallFailed { call, failure, next: Next::GiveUp, .. } if Some(call) == new => {
                    Err(failure.to_string())
                }
                Event::CallUnknown { call, next: Next::GiveUp, .. }
                | Event::CallResolved { call, next: Next::GiveUp }
                    if Some(call) == new =>
                {
                    Err("the answer was lost when the process died".to_owned())
                }
                Event::CallCancelled { call, reason, .. } if Some(call) == new => Err(reason),
                _ => continue,
            };
            return Ok((new.ok_or_else(|| Error::Stopped(session.clone()))?, over));
        }
    }

    async fn version(
        &self,
        session: &SessionId,
        rules: &dyn Rules,
        past: &PastCall,
        answered: &CallAnswered,
    ) -> Result<Version, Error> {
        let texts = self.texts(session, &[answered.text.body]).await?;
        let text = texts.first().map(ToString::to_string).unwrap_or_default();
        let (shelf, about) = (Shelf::default(), About::default());
        let texts = Texts::new(&shelf);
        let sight = Sight { session: &past.before.session, state: &past.before.flow, texts: &texts, about: &about };
        let gist = match &past.opening.event {
            Event::CallOpened(opened) => rules.gist(sight, opened, &text),
            _ => None,
        };
        Ok(Version { text, gist, usage: answered.usage, cost_microusd: answered.cost_microusd, ms: answered.ms })
    }

    async fn past_call(
        &self,
        session: &SessionId,
        rules: &Arc<dyn Rules>,
        call: CallId,
    ) -> Result<Option<PastCall>, Error> {
        let mut before = State::fresh(&**rules);
        let mut opening: Option<Recorded> = None;
        let mut since = Vec::new();
        let mut after = Seq(0);
        loop {
            let events = self.events(session, after, READ_EVENTS_MAX).await?;
            let Some(last) = events.last().map(|event| event.seq) else {
                return Ok(opening.map(|opening| PastCall { before, opening, since, answer: None }));
            };
            after = last;
            for event in events {
                match (&event.event, &opening) {
                    (Event::CallOpened(opened), None) if opened.call == call => opening = Some(event),
                    (_, None) => before.apply(&**rules, &event),
                    (ending, Some(_)) if ending.ends_call(call) => {
                        let answer = match event.event {
                            Event::CallAnswered(answered) => Some(answered),
                            _ => None,
                        };
                        return Ok(opening.map(|opening| PastCall { before, opening, since, answer }));
                    }
                    (_, Some(_)) => since.push(event),
                }
            }
        }
    }

    async fn freeze(
        &self,
        session: &SessionId,
        rules: &dyn Rules,
        past: &PastCall,
        change: &Change,
    ) -> Result<Option<Recomputation>, Error> {
        let mut shelf = Shelf::default();
        loop {
            let wanted = match frozen(rules, &past.before, &past.opening, &past.since, change, &shelf) {
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

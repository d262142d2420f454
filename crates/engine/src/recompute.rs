//! One past call once more, beside the timeline, and both answers side by side.

use std::sync::Arc;

use segue_core::decide::{PreparedRecomputation, RecomputeOptions, SessionInput, prepare_recomputation};
use segue_core::event::{CallAnswered, Event, RecordedEvent, RetryDecision};
use segue_core::flow::{DynFlow, DynFlowContext, EventSubject, TextResolver};
use segue_core::ids::{CallId, FragmentName, ModelName, RoleName, Seq, SessionId};
use segue_core::prompt::TokenUsage;
use segue_core::session::SessionState;

use crate::engine::Engine;
use crate::error::Error;
use crate::limits::READ_EVENTS_MAX;
use crate::subscriptions::{SessionUpdate, Subscription};
use crate::text_cache::TextCache;

/// A past call and the same once more.
#[derive(Debug, Clone, PartialEq)]
pub struct RecomputeResult {
    /// Who was asked.
    pub role: RoleName,
    /// The call as it was made then.
    pub original: CallRun,
    /// The same, now.
    pub rerun: CallRun,
    /// The fragments in which the two prompts differ.
    pub changed_fragments: Vec<FragmentName>,
}

/// One making of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct CallRun {
    /// Its number.
    pub call: CallId,
    /// The model that was asked.
    pub model: ModelName,
    /// What came of it, or why nothing did.
    pub answer: Result<CallAnswer, String>,
}

/// An answer.
#[derive(Debug, Clone, PartialEq)]
pub struct CallAnswer {
    /// What it says.
    pub text: String,
    /// What it comes to, where it is not meant to be read as it stands.
    pub answer_summary: Option<String>,
    /// Tokens.
    pub usage: TokenUsage,
    /// What it cost, in millionths of a dollar, where that is known.
    pub cost_microusd: Option<u64>,
    /// How long it took.
    pub duration_ms: u64,
}

const NO_ANSWER_MESSAGE: &str = "nothing was answered";

/// A call that is over.
struct PastCall {
    /// The state right before it was opened.
    before: SessionState,
    opening: RecordedEvent,
    /// What happened until it ended.
    since: Vec<RecordedEvent>,
    answer: Option<Box<CallAnswered>>,
}

impl Engine {
    /// Makes a past call once more, with a change, and waits for its answer. The session goes on as if nothing had happened;
    /// the answer stands in its journal and is paid for.
    ///
    /// # Errors
    /// There is no such call or model, a setting does not fit or would change nothing, or the call cannot be made now.
    pub async fn recompute_call(
        &self,
        session: &SessionId,
        call: CallId,
        change: &RecomputeOptions,
    ) -> Result<RecomputeResult, Error> {
        let (rules, state) = self.load_session(session).await?;
        self.validate_settings(&*rules, &change.settings)?;
        if let Some(model) = &change.model {
            self.models().get(model).map_err(|failure| Error::NoSuchModel(failure.message))?;
        }
        let no_call = || Error::NoSuchCall { session: session.clone(), call };
        let past = self.find_past_call(session, &rules, call).await?.ok_or_else(no_call)?;
        let again = self.prepare_recomputation(session, &*rules, &past, change).await?.ok_or_else(no_call)?;
        let is_set = change.settings.as_object().is_some_and(|settings| !settings.is_empty());
        if is_set && again.changed_fragments.is_empty() {
            let opened_by = past.before.session.threads.get(&again.opened.receipt.thread.thread_id());
            return Err(Error::NothingChanges { call, opened_by: opened_by.map(|thread| thread.opened_by) });
        }
        let then = match &past.answer {
            Some(answered) => Ok(self.load_answer(session, &*rules, &past, answered).await?),
            None => Err(NO_ANSWER_MESSAGE.to_owned()),
        };
        let then = CallRun { call, model: again.opened.model.clone(), answer: then };
        let (role, model, changed) = (again.opened.role.clone(), again.model.clone(), again.changed_fragments.clone());
        let listener = self.subscribe(session, state.session.last_seq).await?;
        self.submit_input(session, SessionInput::Recompute(Box::new(again))).await?;
        let (call, answer) = self.wait_for_rerun(session, call, listener).await?;
        let answer = match answer {
            Ok(answered) => Ok(self.load_answer(session, &*rules, &past, &answered).await?),
            Err(why) => Err(why),
        };
        Ok(RecomputeResult { role, original: then, rerun: CallRun { call, model, answer }, changed_fragments: changed })
    }

    /// A past call and the same once more, as the journal has them; waits for the end of `again`.
    ///
    /// # Errors
    /// There is no such call, or it makes none once more.
    pub async fn load_recompute_result(&self, session: &SessionId, again: CallId) -> Result<RecomputeResult, Error> {
        let (rules, _) = self.load_session(session).await?;
        let no_call = |call| Error::NoSuchCall { session: session.clone(), call };
        let opening = self.find_past_call(session, &rules, again).await?.ok_or_else(|| no_call(again))?.opening;
        let Event::CallOpened(opened) = &opening.event else { return Err(no_call(again)) };
        let Some(recomputes) = &opened.recomputation else { return Err(no_call(again)) };
        let past =
            self.find_past_call(session, &rules, recomputes.call).await?.ok_or_else(|| no_call(recomputes.call))?;
        let Event::CallOpened(first) = &past.opening.event else { return Err(no_call(recomputes.call)) };
        let then = match &past.answer {
            Some(answered) => Ok(self.load_answer(session, &*rules, &past, answered).await?),
            None => Err(NO_ANSWER_MESSAGE.to_owned()),
        };
        let listener = self.subscribe(session, Seq(opening.seq.0.saturating_sub(1))).await?;
        let (call, answer) = self.wait_for_rerun(session, recomputes.call, listener).await?;
        let answer = match answer {
            Ok(answered) => Ok(self.load_answer(session, &*rules, &past, &answered).await?),
            Err(why) => Err(why),
        };
        Ok(RecomputeResult {
            role: opened.role.clone(),
            original: CallRun { call: recomputes.call, model: first.model.clone(), answer: then },
            rerun: CallRun { call, model: opened.model.clone(), answer },
            changed_fragments: recomputes.changed_fragments.clone(),
        })
    }

    /// Waits for the end of the call that makes `of` once more.
    async fn wait_for_rerun(
        &self,
        session: &SessionId,
        of: CallId,
        mut listener: Subscription,
    ) -> Result<(CallId, Result<Box<CallAnswered>, String>), Error> {
        let mut new = None;
        loop {
            let SessionUpdate::Event(recorded) = listener.next_update().await? else { continue };
            let over = match recorded.event {
                Event::CallOpened(opened) if new.is_none() => {
                    new = opened.recomputation.as_ref().filter(|again| again.call == of).map(|_| opened.call);
                    continue;
                }
                Event::CallAnswered(answered) if Some(answered.call) == new => Ok(answered),
                Event::CallFailed { call, failure, next: RetryDecision::GiveUp, .. } if Some(call) == new => {
                    Err(failure.to_string())
                }
                Event::CallOutcomeUnknown { call, next: RetryDecision::GiveUp, .. }
                | Event::CallResolved { call, next: RetryDecision::GiveUp }
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

    async fn load_answer(
        &self,
        session: &SessionId,
        flow: &dyn DynFlow,
        past: &PastCall,
        answered: &CallAnswered,
    ) -> Result<CallAnswer, Error> {
        let texts = self.read_texts(session, &[answered.text.body]).await?;
        let text = texts.first().map(ToString::to_string).unwrap_or_default();
        let (shelf, about) = (TextCache::default(), EventSubject::default());
        let texts = TextResolver::new(&shelf);
        let sight =
            DynFlowContext { session: &past.before.session, state: &past.before.flow, texts: &texts, subject: &about };
        let gist = match &past.opening.event {
            Event::CallOpened(opened) => flow.summarize_answer(sight, opened, &text),
            _ => None,
        };
        Ok(CallAnswer {
            text,
            answer_summary: gist,
            usage: answered.usage,
            cost_microusd: answered.cost_microusd,
            duration_ms: answered.duration_ms,
        })
    }

    async fn find_past_call(
        &self,
        session: &SessionId,
        flow: &Arc<dyn DynFlow>,
        call: CallId,
    ) -> Result<Option<PastCall>, Error> {
        let mut before = SessionState::new(&**flow);
        let mut opening: Option<RecordedEvent> = None;
        let mut since = Vec::new();
        let mut after = Seq(0);
        loop {
            let events = self.read_events(session, after, READ_EVENTS_MAX).await?;
            let Some(last) = events.last().map(|event| event.seq) else {
                return Ok(opening.map(|opening| PastCall { before, opening, since, answer: None }));
            };
            after = last;
            for event in events {
                match (&event.event, &opening) {
                    (Event::CallOpened(opened), None) if opened.call == call => opening = Some(event),
                    (_, None) => before.apply(&**flow, &event),
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

    async fn prepare_recomputation(
        &self,
        session: &SessionId,
        flow: &dyn DynFlow,
        past: &PastCall,
        change: &RecomputeOptions,
    ) -> Result<Option<PreparedRecomputation>, Error> {
        let mut shelf = TextCache::default();
        loop {
            let wanted = match prepare_recomputation(flow, &past.before, &past.opening, &past.since, change, &shelf) {
                Ok(again) => return Ok(Some(again)),
                Err(wanted) => wanted,
            };
            let missing = shelf.missing_ids(wanted);
            if missing.is_empty() {
                return Ok(None);
            }
            let texts = self.read_texts(session, &missing).await?;
            missing.into_iter().zip(texts).for_each(|(id, text)| shelf.insert(id, text));
        }
    }
}

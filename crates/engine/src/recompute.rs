//! Runs a past call again with a change, outside of the conversation, and compares both answers.

use std::sync::Arc;

use segue_core::decide::{PreparedCallRecomputation, RecomputeCallOverrides, SessionInput, prepare_recomputation};
use segue_core::event::{CallAnswered, Event, RecordedEvent, RetryDecision};
use segue_core::flow::{DecisionTextResolver, DynFlow, EventSubject, FlowContext};
use segue_core::ids::{CallId, FragmentName, ModelName, RoleName, Seq, SessionId};
use segue_core::prompt::TokenUsage;
use segue_core::session::SessionState;
use serde_json::json;

use crate::config::merge_settings;
use crate::engine::Engine;
use crate::error::Error;
use crate::limits::READ_EVENTS_MAX;
use crate::subscriptions::{SessionSubscription, SessionUpdate};
use crate::text_cache::TextCache;

/// A past call and its rerun.
#[derive(Debug, Clone, PartialEq)]
pub struct RecomputedCallComparison {
    pub role: RoleName,
    pub original: ComparedCallRun,
    pub rerun: ComparedCallRun,
    /// The fragments in which the two prompts differ.
    pub changed_fragments: Vec<FragmentName>,
}

/// One run of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct ComparedCallRun {
    pub call: CallId,
    pub model: ModelName,
    /// The answer, or why there is none.
    pub answer: Result<ComparedCallAnswer, String>,
}

/// The answer of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct ComparedCallAnswer {
    pub text: String,
    /// The flow's summary of the answer, if the text itself is not meant to be read.
    pub answer_summary: Option<String>,
    pub usage: TokenUsage,
    /// The cost in millionths of a dollar, if known.
    pub cost_microusd: Option<u64>,
    pub duration_ms: u64,
}

const NO_ANSWER_MESSAGE: &str = "the call was not answered";

/// A call that has ended.
struct CallToRecompute {
    /// The state right before it was opened.
    before: SessionState,
    opening: RecordedEvent,
    /// The events from its opening until it ended.
    events_since: Vec<RecordedEvent>,
    answer: Option<Box<CallAnswered>>,
}

impl Engine {
    /// Runs a past call again with a change and waits for its answer. The conversation is not affected; the new answer
    /// is recorded in the journal and paid for.
    ///
    /// # Errors
    /// The call or model does not exist, a setting is invalid or changes nothing, or the call cannot be made now.
    pub async fn recompute_call(
        &self,
        session: &SessionId,
        call: CallId,
        change: &RecomputeCallOverrides,
    ) -> Result<RecomputedCallComparison, Error> {
        let (flow, state) = self.load_session(session).await?;
        let changes_settings = !change.settings.is_null() && change.settings != json!({});
        if changes_settings {
            // What is not given stays as it was, and a flow may check its settings together.
            let settings = merge_settings(Some(&*state.session.settings), change.settings.clone());
            self.shared().validate_settings(&*flow, &settings)?;
        }
        if let Some(model) = &change.model {
            self.models().get(model).map_err(|failure| Error::NoSuchModel(failure.message))?;
        }
        let no_such_call = || Error::NoSuchCall { session: session.clone(), call };
        let past = self.find_past_call(session, &flow, call).await?.ok_or_else(no_such_call)?;
        let prepared = self.prepare_recomputation(session, &*flow, &past, change).await?.ok_or_else(no_such_call)?;
        if changes_settings && prepared.changed_fragments.is_empty() {
            let opened_by = past.before.session.threads.get(&prepared.opened.receipt.thread.thread_id());
            return Err(Error::NothingChanges { call, opened_by: opened_by.map(|thread| thread.opened_by) });
        }
        let original_answer = match &past.answer {
            Some(answered) => Ok(self.load_answer(session, &*flow, &past, answered).await?),
            None => Err(NO_ANSWER_MESSAGE.to_owned()),
        };
        let original = ComparedCallRun { call, model: prepared.opened.model.clone(), answer: original_answer };
        let (role, model, changed_fragments) =
            (prepared.opened.role.clone(), prepared.model.clone(), prepared.changed_fragments.clone());
        let subscription = self.subscribe(session, state.session.last_seq).await?;
        self.submit_input(session, SessionInput::Recompute(Box::new(prepared))).await?;
        let (call, answer) = self.wait_for_rerun(session, call, subscription).await?;
        let answer = match answer {
            Ok(answered) => Ok(self.load_answer(session, &*flow, &past, &answered).await?),
            Err(reason) => Err(reason),
        };
        Ok(RecomputedCallComparison {
            role,
            original,
            rerun: ComparedCallRun { call, model, answer },
            changed_fragments,
        })
    }

    /// Loads a past call and its rerun from the journal; waits until `rerun` has ended.
    ///
    /// # Errors
    /// There is no such call, or it is not a rerun.
    pub async fn load_recompute_result(
        &self,
        session: &SessionId,
        rerun: CallId,
    ) -> Result<RecomputedCallComparison, Error> {
        let (flow, _) = self.load_session(session).await?;
        let no_such_call = |call| Error::NoSuchCall { session: session.clone(), call };
        let opening = self.find_past_call(session, &flow, rerun).await?.ok_or_else(|| no_such_call(rerun))?.opening;
        let Event::CallOpened(opened) = &opening.event else { return Err(no_such_call(rerun)) };
        let Some(recomputation) = &opened.recomputation else { return Err(no_such_call(rerun)) };
        let past = self
            .find_past_call(session, &flow, recomputation.call)
            .await?
            .ok_or_else(|| no_such_call(recomputation.call))?;
        let Event::CallOpened(original_opened) = &past.opening.event else {
            return Err(no_such_call(recomputation.call));
        };
        let original_answer = match &past.answer {
            Some(answered) => Ok(self.load_answer(session, &*flow, &past, answered).await?),
            None => Err(NO_ANSWER_MESSAGE.to_owned()),
        };
        let subscription = self.subscribe(session, Seq(opening.seq.0.saturating_sub(1))).await?;
        let (call, answer) = self.wait_for_rerun(session, recomputation.call, subscription).await?;
        let answer = match answer {
            Ok(answered) => Ok(self.load_answer(session, &*flow, &past, &answered).await?),
            Err(reason) => Err(reason),
        };
        Ok(RecomputedCallComparison {
            role: opened.role.clone(),
            original: ComparedCallRun {
                call: recomputation.call,
                model: original_opened.model.clone(),
                answer: original_answer,
            },
            rerun: ComparedCallRun { call, model: opened.model.clone(), answer },
            changed_fragments: recomputation.changed_fragments.clone(),
        })
    }

    /// Waits for the end of the call that reruns `original`.
    async fn wait_for_rerun(
        &self,
        session: &SessionId,
        original: CallId,
        mut subscription: SessionSubscription,
    ) -> Result<(CallId, Result<Box<CallAnswered>, String>), Error> {
        let mut rerun_call = None;
        loop {
            let SessionUpdate::Event(recorded) = subscription.next_update().await? else { continue };
            let answer = match recorded.event {
                Event::CallOpened(opened) if rerun_call.is_none() => {
                    rerun_call = opened
                        .recomputation
                        .as_ref()
                        .filter(|recomputation| recomputation.call == original)
                        .map(|_| opened.call);
                    continue;
                }
                Event::CallAnswered(answered) if Some(answered.call) == rerun_call => Ok(answered),
                Event::CallFailed { call, failure, next: RetryDecision::GiveUp, .. } if Some(call) == rerun_call => {
                    Err(failure.to_string())
                }
                Event::CallOutcomeUnknown { call, next: RetryDecision::GiveUp, .. }
                | Event::CallResolved { call, next: RetryDecision::GiveUp }
                    if Some(call) == rerun_call =>
                {
                    Err("the answer was lost when the process died".to_owned())
                }
                Event::CallCancelled { call, reason, .. } if Some(call) == rerun_call => Err(reason),
                _ => continue,
            };
            return Ok((rerun_call.ok_or_else(|| Error::Stopped(session.clone()))?, answer));
        }
    }

    async fn load_answer(
        &self,
        session: &SessionId,
        flow: &dyn DynFlow,
        past: &CallToRecompute,
        answered: &CallAnswered,
    ) -> Result<ComparedCallAnswer, Error> {
        let texts = self.read_texts(session, &[answered.text.body]).await?;
        let text = texts.first().map(ToString::to_string).unwrap_or_default();
        let (cache, subject) = (TextCache::default(), EventSubject::default());
        let texts = DecisionTextResolver::new(&cache);
        let context =
            FlowContext { session: &past.before.session, state: &past.before.flow, texts: &texts, subject: &subject };
        let answer_summary = match &past.opening.event {
            Event::CallOpened(opened) => flow.summarize_answer(context, opened, &text),
            _ => None,
        };
        Ok(ComparedCallAnswer {
            text,
            answer_summary,
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
    ) -> Result<Option<CallToRecompute>, Error> {
        let mut before = SessionState::new(&**flow);
        let mut opening: Option<RecordedEvent> = None;
        let mut events_since = Vec::new();
        let mut after = Seq(0);
        loop {
            let events = self.read_events(session, after, READ_EVENTS_MAX).await?;
            let Some(last) = events.last().map(|event| event.seq) else {
                return Ok(opening.map(|opening| CallToRecompute { before, opening, events_since, answer: None }));
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
                        return Ok(opening.map(|opening| CallToRecompute { before, opening, events_since, answer }));
                    }
                    (_, Some(_)) => events_since.push(event),
                }
            }
        }
    }

    async fn prepare_recomputation(
        &self,
        session: &SessionId,
        flow: &dyn DynFlow,
        past: &CallToRecompute,
        change: &RecomputeCallOverrides,
    ) -> Result<Option<PreparedCallRecomputation>, Error> {
        let mut cache = TextCache::default();
        loop {
            let needed =
                match prepare_recomputation(flow, &past.before, &past.opening, &past.events_since, change, &cache) {
                    Ok(prepared) => return Ok(Some(prepared)),
                    Err(needed) => needed,
                };
            let missing = cache.missing_ids(needed);
            if missing.is_empty() {
                return Ok(None);
            }
            let texts = self.read_texts(session, &missing).await?;
            missing.into_iter().zip(texts).for_each(|(id, text)| cache.insert(id, text));
        }
    }
}

//! Repeats an earlier call from its recorded prompt, with another model or with the fragments that other settings would
//! give. The timeline does not change: no thread, phase or flow sees it. The answer is recorded in the journal, and its
//! cost is counted.

use std::sync::Arc;

use serde_json::Value;

use super::InputRefusal;
use super::draft::DecisionDraft;
use crate::body::{BodyId, BodyVisibility, TextToStore};
use crate::context::{CallThread, FragmentReceipt, PreviousPromptComparison, RenderedFragment};
use crate::event::{CallOpened, CallRerunSpec, Event, RecordedEvent};
use crate::flow::{BodyTextLookup, DecisionTextResolver, DynFlow, EventSubject, FlowContext, FragmentRenderContext};
use crate::ids::{CallId, FragmentName, ModelName};
use crate::session::{SessionState, UnloadedPromptMessage, to_call_request};

/// The changes to a call that is repeated.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RecomputeCallOverrides {
    /// Another model.
    pub model: Option<ModelName>,
    /// Other settings. Settings that are not given stay as they were.
    pub settings: Value,
}

/// An earlier call, ready to be repeated.
#[derive(Debug, Clone, PartialEq)]
pub struct PreparedCallRecomputation {
    /// The original call.
    pub opened: Arc<CallOpened>,
    /// The messages to send.
    pub(crate) messages: Vec<UnloadedPromptMessage>,
    /// The fragments that differ from the original prompt.
    pub changed_fragments: Vec<FragmentName>,
    /// The texts of the changed fragments.
    pub bodies: Vec<TextToStore>,
    pub model: ModelName,
}

/// Builds the prompt of an earlier call with changes. `before` is the state just before the call was opened. `since`
/// are the events after it, at least up to the call's end, because its thread may have been shortened between two
/// attempts.
///
/// # Errors
/// Returns the ids of texts that must be loaded first; empty if `opening` does not open a call.
pub fn prepare_recomputation(
    flow: &dyn DynFlow,
    before: &SessionState,
    opening: &RecordedEvent,
    since: &[RecordedEvent],
    options: &RecomputeCallOverrides,
    texts: &dyn BodyTextLookup,
) -> Result<PreparedCallRecomputation, Vec<BodyId>> {
    let Event::CallOpened(opened) = &opening.event else { return Err(Vec::new()) };
    let mut after = before.clone();
    after.apply(flow, opening);
    since.iter().take_while(|event| !event.event.ends_call(opened.call)).for_each(|event| after.apply(flow, event));
    let plan = after.session.prompt_plan(opened.call).ok_or_else(Vec::new)?;
    let model = options.model.clone().unwrap_or_else(|| plan.opened.model.clone());
    let mut prepared = PreparedCallRecomputation {
        opened: plan.opened.clone(),
        messages: plan.messages(),
        changed_fragments: Vec::new(),
        bodies: Vec::new(),
        model,
    };
    let Value::Object(settings) = &options.settings else { return Ok(prepared) };
    let mut past = before.clone();
    match Arc::make_mut(&mut past.session.settings) {
        Value::Object(known) => known.extend(settings.clone()),
        other => *other = Value::Object(settings.clone()),
    }
    let texts = DecisionTextResolver::new(texts);
    let context =
        FlowContext { session: &past.session, state: &past.flow, texts: &texts, subject: &EventSubject::default() };
    let request = to_call_request(opened);
    let opens_thread = matches!(opened.receipt.thread, CallThread::Opened { .. });
    let fragment_request = FragmentRenderContext {
        call_request: &request,
        call: opened.call,
        turn: opened.turn,
        opens_thread,
        signal_form: opened.signal_form,
        compacted: None,
    };
    let mut replace = |fragments: &[FragmentReceipt], message: Option<&mut UnloadedPromptMessage>| {
        let Some(message) = message else { return };
        let sent = fragments.iter().filter(|fragment| fragment.text.is_some());
        for (fragment, part) in sent.zip(&mut message.parts) {
            let RenderedFragment::New { text, .. } = flow.render_fragment(context, &fragment_request, &fragment.name)
            else {
                continue;
            };
            let text: Arc<str> = text.into();
            let id = BodyId::hash_text(&text);
            // A text that was cut to its budget is not replaced.
            if id != *part && fragment.tokens_before_cut.is_none() {
                *part = id;
                prepared.changed_fragments.push(fragment.name.clone());
                prepared.bodies.push(TextToStore { id, text, kind: BodyVisibility::Internal });
            }
        }
    };
    replace(&opened.receipt.opening, prepared.messages.first_mut());
    replace(&opened.receipt.ask, prepared.messages.last_mut());
    let missing = texts.missing_ids();
    if missing.is_empty() { Ok(prepared) } else { Err(missing) }
}

impl DecisionDraft<'_> {
    pub(crate) fn open_recomputation(&mut self, recomputation: PreparedCallRecomputation) -> Result<(), InputRefusal> {
        if let Some(reason) = &self.session().closed_reason {
            return Err(InputRefusal::Closed { reason: reason.clone() });
        }
        if let Some(why) = self.session_call_limit_error() {
            return Err(InputRefusal::TooManyCalls { why });
        }
        let PreparedCallRecomputation { opened, messages, changed_fragments, bodies, model } = recomputation;
        for body in bodies {
            self.store_uncounted_text(body.text, body.kind);
        }
        let mut receipt = opened.receipt.clone();
        let ratio = self.session().token_ratio(&model);
        receipt.vendor_tokens_estimate = Some(ratio.to_vendor_tokens(receipt.tokens)).filter(|_| !ratio.is_unity());
        receipt.prefix = PreviousPromptComparison::First;
        let call = CallId(self.session().last_ids.call.0 + 1);
        let recomputation = Some(Box::new(CallRerunSpec { call: opened.call, messages, changed_fragments }));
        let repeated =
            CallOpened { call, turn: None, continues: None, model, recomputation, receipt, ..(*opened).clone() };
        self.record_event(Event::CallOpened(Arc::new(repeated)));
        Ok(())
    }
}

//! One past call once more, from its frozen prompt: on another model, or with the fragments that other settings would have
//! given. The timeline does not move: no thread, no phase and no flow learns of it; the answer stands in the journal beside the
//! first, and is paid for like any other.

use std::sync::Arc;

use serde_json::Value;

use super::InputRefusal;
use super::draft::DecisionDraft;
use crate::body::{BodyId, BodyKind, TextBody};
use crate::context::{FragmentReceipt, PrefixMatch, RenderedFragment, ThreadUse};
use crate::event::{CallOpened, CallRecomputation, Event, RecordedEvent};
use crate::flow::{BodyTextLookup, DynFlow, DynFlowContext, EventSubject, FragmentRequest, TextResolver};
use crate::ids::{CallId, FragmentName, ModelName};
use crate::session::{PromptMessageRef, SessionState, to_call_request};

/// What is to be different this time.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RecomputeOptions {
    /// Another model.
    pub model: Option<ModelName>,
    /// Other settings; those not named stay as they were.
    pub settings: Value,
}

/// A past call, ready to be made once more.
#[derive(Debug, Clone, PartialEq)]
pub struct PreparedRecomputation {
    /// The call as it was opened.
    pub opened: Arc<CallOpened>,
    /// What it is sent now.
    pub messages: Vec<PromptMessageRef>,
    /// The fragments in which that differs from what was sent then.
    pub changed_fragments: Vec<FragmentName>,
    /// Their texts.
    pub bodies: Vec<TextBody>,
    /// The model that answers now.
    pub model: ModelName,
}

/// The prompt of a past call with a change made to it. `before` is the state right before the call was opened; `since` are the
/// events after that, up to the call's end or further, since its thread may have been shortened between two tries.
///
/// # Errors
/// Names texts that must be at hand first; none if `opening` opens no call.
pub fn prepare_recomputation(
    flow: &dyn DynFlow,
    before: &SessionState,
    opening: &RecordedEvent,
    since: &[RecordedEvent],
    options: &RecomputeOptions,
    texts: &dyn BodyTextLookup,
) -> Result<PreparedRecomputation, Vec<BodyId>> {
    let Event::CallOpened(opened) = &opening.event else { return Err(Vec::new()) };
    let mut after = before.clone();
    after.apply(flow, opening);
    since.iter().take_while(|event| !event.event.ends_call(opened.call)).for_each(|event| after.apply(flow, event));
    let plan = after.session.prompt_plan(opened.call).ok_or_else(Vec::new)?;
    let model = options.model.clone().unwrap_or_else(|| plan.opened.model.clone());
    let mut again = PreparedRecomputation {
        opened: plan.opened.clone(),
        messages: plan.messages(),
        changed_fragments: Vec::new(),
        bodies: Vec::new(),
        model,
    };
    let Value::Object(settings) = &options.settings else { return Ok(again) };
    let mut past = before.clone();
    match Arc::make_mut(&mut past.session.settings) {
        Value::Object(known) => known.extend(settings.clone()),
        other => *other = Value::Object(settings.clone()),
    }
    let texts = TextResolver::new(texts);
    let sight =
        DynFlowContext { session: &past.session, state: &past.flow, texts: &texts, subject: &EventSubject::default() };
    let wish = to_call_request(opened);
    let opens = matches!(opened.receipt.thread, ThreadUse::Opened { .. });
    let asking = FragmentRequest {
        call_request: &wish,
        call: opened.call,
        turn: opened.turn,
        opens_thread: opens,
        compacted: None,
    };
    let mut replace = |pieces: &[FragmentReceipt], message: Option<&mut PromptMessageRef>| {
        let Some(message) = message else { return };
        let shown = pieces.iter().filter(|piece| piece.text.is_some());
        for (piece, part) in shown.zip(&mut message.parts) {
            let RenderedFragment::New { text, .. } = flow.render_fragment(sight, &asking, &piece.name) else {
                continue;
            };
            let text: Arc<str> = text.into();
            let id = BodyId::hash_text(&text);
            // A text that was cut to its budget stays as it was cut.
            if id != *part && piece.tokens_before_cut.is_none() {
                *part = id;
                again.changed_fragments.push(piece.name.clone());
                again.bodies.push(TextBody { id, text, kind: BodyKind::Internal });
            }
        }
    };
    replace(&opened.receipt.opening, again.messages.first_mut());
    replace(&opened.receipt.ask, again.messages.last_mut());
    let missing = texts.missing_ids();
    if missing.is_empty() { Ok(again) } else { Err(missing) }
}

impl DecisionDraft<'_> {
    pub fn open_recomputation(&mut self, recomputation: PreparedRecomputation) -> Result<(), InputRefusal> {
        if let Some(reason) = &self.session().closed_reason {
            return Err(InputRefusal::Closed { reason: reason.clone() });
        }
        if let Some(why) = self.call_limit_error() {
            return Err(InputRefusal::TooManyCalls { why });
        }
        let PreparedRecomputation { opened, messages, changed_fragments: changed, bodies, model } = recomputation;
        for body in bodies {
            self.store_uncounted_text(body.text, body.kind);
        }
        let mut receipt = opened.receipt.clone();
        let weight = self.session().token_ratio(&model);
        receipt.vendor_tokens_estimate = Some(weight.to_vendor_tokens(receipt.tokens)).filter(|_| !weight.is_unity());
        receipt.prefix = PrefixMatch::First;
        let call = CallId(self.session().last_ids.call.0 + 1);
        let recomputes = Some(Box::new(CallRecomputation { call: opened.call, messages, changed_fragments: changed }));
        let once_more = CallOpened {
            call,
            turn: None,
            continues: None,
            model,
            recomputation: recomputes,
            receipt,
            ..(*opened).clone()
        };
        self.record_event(Event::CallOpened(Arc::new(once_more)));
        Ok(())
    }
}

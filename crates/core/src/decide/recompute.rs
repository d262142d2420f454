//! One past call once more, from its frozen prompt: on another model, or with the fragments that other settings would have
//! given. The timeline does not move: no thread, no phase and no flow learns of it; the answer stands in the journal beside the
//! first, and is paid for like any other.

use std::sync::Arc;

use serde_json::Value;

use super::Refusal;
use super::draft::Draft;
use crate::body::{Body, BodyId, BodyKind};
use crate::context::{Piece, Prefix, Rendered, ThreadUse};
use crate::event::{CallOpened, Event, Recomputes, Recorded};
use crate::flow::{About, Asking, Lookup, Rules, Sight, Texts};
use crate::ids::{CallId, FragmentName, ModelName};
use crate::session::{PlannedMessage, State, wish_of};

/// What is to be different this time.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Change {
    /// Another model.
    pub model: Option<ModelName>,
    /// Other settings; those not named stay as they were.
    pub settings: Value,
}

/// A past call, ready to be made once more.
#[derive(Debug, Clone, PartialEq)]
pub struct Recomputation {
    /// The call as it was opened.
    pub opened: Arc<CallOpened>,
    /// What it is sent now.
    pub messages: Vec<PlannedMessage>,
    /// The fragments in which that differs from what was sent then.
    pub changed: Vec<FragmentName>,
    /// Their texts.
    pub bodies: Vec<Body>,
    /// The model that answers now.
    pub model: ModelName,
}

/// The prompt of a past call with a change made to it. `before` is the state right before the call was opened; `since` are the
/// events after that, up to the call's end or further, since its thread may have been shortened between two tries.
///
/// # Errors
/// Names texts that must be at hand first; none if `opening` opens no call.
pub fn frozen(
    rules: &dyn Rules,
    before: &State,
    opening: &Recorded,
    since: &[Recorded],
    change: &Change,
    texts: &dyn Lookup,
) -> Result<Recomputation, Vec<BodyId>> {
    let Event::CallOpened(opened) = &opening.event else { return Err(Vec::new()) };
    let mut after = before.clone();
    after.apply(rules, opening);
    since.iter().take_while(|event| !event.event.ends_call(opened.call)).for_each(|event| after.apply(rules, event));
    let plan = after.session.plan(opened.call).ok_or_else(Vec::new)?;
    let model = change.model.clone().unwrap_or_else(|| plan.opened.model.clone());
    let mut again = Recomputation {
        opened: plan.opened.clone(),
        messages: plan.messages(),
        changed: Vec::new(),
        bodies: Vec::new(),
        model,
    };
    let Value::Object(settings) = &change.settings else { return Ok(again) };
    let mut past = before.clone();
    match Arc::make_mut(&mut past.session.settings) {
        Value::Object(known) => known.extend(settings.clone()),
        other => *other = Value::Object(settings.clone()),
    }
    let texts = Texts::new(texts);
    let sight = Sight { session: &past.session, state: &past.flow, texts: &texts, about: &About::default() };
    let wish = wish_of(opened);
    let opens = matches!(opened.receipt.thread, ThreadUse::Opened { .. });
    let asking = Asking { wish: &wish, call: opened.call, turn: opened.turn, opens, folding: None };
    let mut replace = |pieces: &[Piece], message: Option<&mut PlannedMessage>| {
        let Some(message) = message else { return };
        let shown = pieces.iter().filter(|piece| piece.text.is_some());
        for (piece, part) in shown.zip(&mut message.parts) {
            let Rendered::New { text, .. } = rules.fragment(sight, &asking, &piece.name) else { continue };
            let text: Arc<str> = text.into();
            let id = BodyId::of(&text);
            // A text that was cut to its budget stays as it was cut.
            if id != *part && piece.cut_from.is_none() {
                *part = id;
                again.changed.push(piece.name.clone());
                again.bodies.push(Body { id, text, kind: BodyKind::Inner });
            }
        }
    };
    replace(&opened.receipt.opening, again.messages.first_mut());
    replace(&opened.receipt.ask, again.messages.last_mut());
    let missing = texts.missing();
    if missing.is_empty() { Ok(again) } else { Err(missing) }
}

impl Draft<'_> {
    pub fn recompute(&mut self, again: Recomputation) -> Result<(), Refusal> {
        if let Some(reason) = &self.session().closed {
            return Err(Refusal::Closed { reason: reason.clone() });
        }
        if let Some(why) = self.over_limit() {
            return Err(Refusal::TooManyCalls { why });
        }
        let Recomputation { opened, messages, changed, bodies, model } = again;
        for body in bodies {
            self.store_body(body.text, body.kind);
        }
        let mut receipt = opened.receipt.clone();
        let weight = self.session().weight(&model);
        receipt.corrected = Some(weight.theirs(receipt.tokens)).filter(|_| !weight.is_even());
        receipt.prefix = Prefix::First;
        let call = CallId(self.session().last.call.0 + 1);
        let recomputes = Some(Box::new(Recomputes { call: opened.call, messages, changed }));
        let once_more = CallOpened { call, turn: None, follows: None, model, recomputes, receipt, ..(*opened).clone() };
        self.record(Event::CallOpened(Arc::new(once_more)));
        Ok(())
    }
}

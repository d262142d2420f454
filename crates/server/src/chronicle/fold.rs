//! What each event adds to an account.

use std::collections::BTreeMap;
use std::sync::Arc;

use segue_core::context::{Layer, Piece, Source, ThreadUse};
use segue_core::event::{CallAnswered, CallOpened, Event, Next, PhaseKey, Recorded};
use segue_core::ids::{CallId, TurnId};
use segue_core::ledger::Tally;
use segue_core::prompt::Usage;

use super::{
    CallEnd, CallNote, Chronicle, Compacted, FactNote, HandoverNote, MessageNote, Move, Moved, Place, RefusalNote,
    SaidNote, ThreadNote, ToolNote, Try, TurnNote,
};

impl Chronicle {
    /// Goes on with an event.
    pub fn tell(&mut self, recorded: &Recorded) {
        if self.first.is_none() {
            self.first = Some(Box::new(recorded.clone()));
        }
        let place = Place { seq: recorded.seq, at: recorded.at };
        (self.seq, self.at) = (recorded.seq, recorded.at);
        match &recorded.event {
            Event::SessionForked { from, at, .. } => self.forked_from = Some((from.clone(), *at)),
            Event::MessageReceived(received) => {
                let note = MessageNote {
                    message: received.message,
                    place,
                    text: received.text,
                    images: received.images.clone(),
                    key: received.key.clone(),
                    busy: received.busy,
                    turn: None,
                };
                self.messages.insert(received.message, note);
            }
            Event::MessagePosted(_) => self.has_mail = true,
            Event::TurnStarted { turn, messages, .. } => self.turn_started(*turn, messages, place),
            Event::TurnEnded { turn, outcome } => {
                if let Some(note) = self.turns.get_mut(turn) {
                    (note.ended, note.outcome) = (Some(place), Some(outcome.clone()));
                }
                self.running = None;
            }
            Event::Said(said) => {
                let note = SaidNote { place, text: said.text, by: said.by.clone(), call: said.call };
                if let Some(turn) = self.of_turn(said.turn) {
                    turn.said.push(note);
                }
            }
            Event::CallOpened(opened) => self.call_opened(opened, place),
            Event::CallAnswered(answered) => self.call_answered(answered, place),
            Event::ThreadCompacted(compacted) => {
                if let Some(thread) = self.threads.get_mut(&compacted.thread) {
                    let (folded, by) = (compacted.folded, compacted.by);
                    let (tokens_before, tokens_after) = (compacted.tokens_before, compacted.tokens_after);
                    thread.compactions.push(Compacted { place, folded, tokens_before, tokens_after, by });
                }
            }
            Event::PhaseEntered(entered) => {
                self.moved(place, &entered.phase, Moved::Entered(entered.transition.clone()));
            }
            Event::PhaseRefused(refused) => {
                self.moved(place, &refused.phase, Moved::Refused(refused.refusal.clone()));
            }
            Event::SkipGranted { phase, grant } => self.moved(place, phase, Moved::Granted(grant.clone())),
            Event::HandoverMade(handover) => {
                let number = self.handovers.len();
                let turn = self.running;
                self.handovers.push(HandoverNote { place, turn, handover: handover.clone(), shown_to: Vec::new() });
                if let Some(turn) = self.of_turn(turn) {
                    turn.handovers.push(number);
                }
            }
            Event::StepRefused { step, why } => {
                let note = RefusalNote { place, step: step.clone(), why: why.clone() };
                if let Some(turn) = self.of_turn(self.running) {
                    turn.refusals.push(note);
                }
            }
            Event::Fact { kind, .. } => {
                let (number, turn) = (self.facts.len(), self.running);
                self.facts.push(FactNote { place, turn, kind: kind.clone() });
                if let Some(turn) = self.of_turn(turn) {
                    turn.facts.push(number);
                }
            }
            event => self.tell_end(event, place),
        }
    }

    /// Tries, tools, and calls that ended without an answer.
    fn tell_end(&mut self, event: &Event, place: Place) {
        let line = || event.line(&|_| String::new());
        match event {
            Event::CallFailed { call, attempt, failure, next } => {
                self.attempted(*call, Try { place, attempt: Some(*attempt), line: line(), next: Some(*next) });
                self.found(*call);
                self.spend(*call, |tally| tally.failed(failure.spent));
                self.given_up(*call, *next, place, failure.to_string());
            }
            Event::CallUnknown { call, attempt, next } => {
                self.attempted(*call, Try { place, attempt: Some(*attempt), line: line(), next: Some(*next) });
                self.lost(*call);
                self.given_up(*call, *next, place, "its answer was lost when the process died".to_owned());
            }
            Event::CallResolved { call, next } => {
                self.attempted(*call, Try { place, attempt: None, line: line(), next: Some(*next) });
                self.given_up(*call, *next, place, "taken as failed by hand".to_owned());
            }
            Event::CallCancelled { call, reason, in_flight } => {
                if let Some(note) = self.calls.get_mut(call) {
                    note.end = Some(CallEnd::Cancelled { place, why: reason.clone(), in_flight: *in_flight });
                }
                if *in_flight {
                    self.lost(*call);
                }
            }
            Event::CallAnsweredLate { call, text, usage, counted_by, cost_microusd } => {
                self.found(*call);
                if let Some(note) = self.calls.get_mut(call) {
                    note.end = Some(CallEnd::Answered {
                        place,
                        text: *text,
                        stop: None,
                        usage: *usage,
                        counted_by: *counted_by,
                        cost_microusd: *cost_microusd,
                        ms: None,
                        late: true,
                    });
                }
                self.spend(*call, |tally| tally.answered_late(*usage, *cost_microusd));
            }
            Event::ToolOpened(opened) => {
                let note = ToolNote {
                    run: opened.run,
                    place,
                    tool: opened.tool.clone(),
                    arguments: opened.arguments.clone(),
                    call: opened.wish.as_ref().map(|(call, _)| *call),
                    agent: opened.agent.clone(),
                    phase: opened.phase.clone(),
                    end: None,
                };
                self.tools.insert(opened.run, note);
                if let Some(turn) = self.of_turn(opened.turn) {
                    turn.tools.push(opened.run);
                }
            }
            Event::ToolAnswered { run, outcome, text, .. } => {
                if let Some(note) = self.tools.get_mut(run) {
                    note.end = Some((place, *outcome, *text));
                }
            }
            _ => {}
        }
    }

    fn turn_started(&mut self, turn: TurnId, messages: &[segue_core::ids::MessageId], place: Place) {
        for message in messages {
            if let Some(note) = self.messages.get_mut(message) {
                note.turn = Some(turn);
            }
        }
        let note = TurnNote {
            turn,
            started_at: place,
            ended: None,
            outcome: None,
            messages: messages.to_vec(),
            said: Vec::new(),
            calls: Vec::new(),
            tools: Vec::new(),
            moves: Vec::new(),
            handovers: Vec::new(),
            facts: Vec::new(),
            refusals: Vec::new(),
            spent: Tally::default(),
        };
        self.turns.insert(turn, note);
        self.running = Some(turn);
    }

    fn call_opened(&mut self, opened: &Arc<CallOpened>, place: Place) {
        let receipt = &opened.receipt;
        if opened.recomputes.is_none() {
            self.thread_used(opened, place);
        }
        let note = CallNote {
            call: opened.call,
            place,
            turn: opened.turn,
            role: opened.role.clone(),
            ask: opened.ask.clone(),
            agent: opened.agent.clone(),
            peer: opened.peer.clone(),
            model: opened.model.clone(),
            sample: opened.sample,
            phase: opened.phase.clone(),
            thread: receipt.thread.thread(),
            opened: match &receipt.thread {
                ThreadUse::Opened { why, .. } => Some(why.clone()),
                ThreadUse::Continued(_) => None,
            },
            tokens: receipt.tokens,
            layers: self.layers(opened),
            window: receipt.window,
            prefix: receipt.prefix.clone(),
            follows: opened.follows,
            compacts: opened.compacts,
            recomputes: opened.recomputes.as_ref().map(|again| (again.call, again.changed.clone())),
            tries: Vec::new(),
            unknown: 0,
            end: None,
        };
        self.calls.insert(opened.call, note);
        if let Some(turn) = self.of_turn(opened.turn) {
            turn.calls.push(opened.call);
        }
        let shown = |piece: &&Piece| piece.text.is_some();
        for piece in receipt.opening.iter().chain(&receipt.ask).filter(shown) {
            if let Some(Source::Handover(shown)) = &piece.source {
                let note = self.handovers.iter_mut().find(|note| note.handover.id == *shown);
                note.into_iter().for_each(|note| note.shown_to.push(opened.call));
            }
        }
    }

    /// What the prompt was made of: the opening that stands since the thread began, what the thread carried, and what is asked.
    fn layers(&self, opened: &CallOpened) -> BTreeMap<Layer, u32> {
        // A call made once more is shown what it was shown then.
        let before = opened.recomputes.as_ref().and_then(|again| self.calls.get(&again.call));
        if let Some(before) = before {
            return before.layers.clone();
        }
        let receipt = &opened.receipt;
        let thread = self.threads.get(&receipt.thread.thread());
        let mut layers = thread.map(|thread| thread.opening.clone()).unwrap_or_default();
        let carried = receipt.carried.tokens.saturating_sub(layers.values().sum());
        if receipt.carried.entries > 0 {
            *layers.entry(Layer::Conversation).or_default() += carried;
        }
        for (layer, tokens) in tokens_by_layer(&receipt.ask) {
            *layers.entry(layer).or_default() += tokens;
        }
        layers
    }

    fn thread_used(&mut self, opened: &CallOpened, place: Place) {
        let receipt = &opened.receipt;
        let here = (place, opened.turn, opened.call);
        if let ThreadUse::Opened { thread, slot, tag, why } = &receipt.thread {
            let before = self.slots.insert(slot.clone(), *thread);
            if let Some(before) = before.and_then(|before| self.threads.get_mut(&before)) {
                before.ended = Some(here);
            }
            let note = ThreadNote {
                thread: *thread,
                slot: slot.clone(),
                tag: tag.clone(),
                why: why.clone(),
                opened: here,
                ended: None,
                opening: tokens_by_layer(&receipt.opening),
                calls: Vec::new(),
                messages: 0,
                tokens: 0,
                compactions: Vec::new(),
            };
            self.threads.insert(*thread, note);
        }
        if let Some(thread) = self.threads.get_mut(&receipt.thread.thread()) {
            thread.calls.push(opened.call);
            thread.messages = receipt.carried.entries;
            thread.tokens = receipt.tokens;
        }
    }

    fn call_answered(&mut self, answered: &CallAnswered, place: Place) {
        let Some(note) = self.calls.get_mut(&answered.call) else { return };
        note.end = Some(CallEnd::Answered {
            place,
            text: answered.text,
            stop: Some(answered.stop),
            usage: answered.usage,
            counted_by: answered.counted_by,
            cost_microusd: answered.cost_microusd,
            ms: Some(answered.ms),
            late: false,
        });
        if note.recomputes.is_none()
            && let Some(thread) = self.threads.get_mut(&note.thread)
        {
            // What was asked and what was answered are part of it now.
            thread.messages += 2;
            thread.tokens = thread.tokens.saturating_add(answered.text.tokens);
        }
        self.spend(answered.call, |tally| {
            tally.answered += 1;
            spent(tally, answered.usage, answered.cost_microusd);
        });
    }

    fn attempted(&mut self, call: CallId, attempt: Try) {
        if let Some(note) = self.calls.get_mut(&call) {
            note.tries.push(attempt);
        }
    }

    fn given_up(&mut self, call: CallId, next: Next, place: Place, why: String) {
        // What was cancelled stays so: that it failed later is one of its tries.
        if next == Next::GiveUp
            && let Some(note) = self.calls.get_mut(&call)
            && note.end.is_none()
        {
            note.end = Some(CallEnd::Failed { place, why });
        }
    }

    /// A try of a call has an unknown end.
    fn lost(&mut self, call: CallId) {
        if let Some(note) = self.calls.get_mut(&call) {
            note.unknown += 1;
        }
        self.spend(call, |tally| tally.unknown += 1);
    }

    /// A call is heard of. If it was cancelled while it was under way, its end is known now.
    fn found(&mut self, call: CallId) {
        let Some(note) = self.calls.get_mut(&call) else { return };
        if let Some(CallEnd::Cancelled { in_flight, .. }) = &mut note.end
            && std::mem::take(in_flight)
        {
            note.unknown = note.unknown.saturating_sub(1);
            self.spend(call, Tally::found);
        }
    }

    fn moved(&mut self, place: Place, key: &PhaseKey, what: Moved) {
        let (number, turn) = (self.moves.len(), self.running);
        self.moves.push(Move { place, turn, key: key.clone(), what });
        if let Some(turn) = self.of_turn(turn) {
            turn.moves.push(number);
        }
    }

    fn of_turn(&mut self, turn: Option<TurnId>) -> Option<&mut TurnNote> {
        self.turns.get_mut(&turn?)
    }

    fn spend(&mut self, call: CallId, spend: impl FnOnce(&mut Tally)) {
        let turn = self.calls.get(&call).and_then(|note| note.turn);
        if let Some(turn) = self.of_turn(turn) {
            spend(&mut turn.spent);
        }
    }
}

fn tokens_by_layer(pieces: &[Piece]) -> BTreeMap<Layer, u32> {
    let mut layers = BTreeMap::new();
    for piece in pieces {
        if let Some(text) = piece.text {
            *layers.entry(piece.layer).or_default() += text.tokens;
        }
    }
    layers
}

fn spent(tally: &mut Tally, usage: Usage, cost_microusd: Option<u64>) {
    tally.input += u64::from(usage.input);
    tally.output += u64::from(usage.output);
    tally.cached += u64::from(usage.cached);
    match cost_microusd {
        Some(cost) => tally.cost_microusd = tally.cost_microusd.saturating_add(cost),
        None => tally.unpriced += 1,
    }
}

//! Opening calls: the one rule that picks a thread, the fragments that make the prompt, the receipt that says why.

use super::Doing;
use super::draft::Draft;
use crate::body::{BodyId, BodyKind, Picture, Text};
use crate::context::{
    Asked, Carried, Fitted, FragmentSpec, Layer, Mark, Piece, Receipt, Rendered, Source, ThreadUse, fit, prefix,
};
use crate::event::{CallDeferred, CallOpened, CallWish, Event, NO_CALL, Next, ToolOpened, ToolOutcome};
use crate::flow::{About, Asking, Folding, RoleSpec, Runs};
use crate::ids::{CallId, FragmentName, ModelName, ThreadId, ToolName, ToolRunId};
use crate::limits::{CALLS_PER_TURN_MAX, DEFERRED_CALLS_MAX, OPEN_CALLS_MAX, WINDOW_RESERVE_TOKENS};
use crate::prompt::{Failure, FailureKind, Output, ToolSpec};
use crate::scope::{Caller, Choice, Slot, Standing, Tag, Visit, choose, wanted};
use crate::signal::json::canonical;
use crate::thread::{Entry, MESSAGE_FRAME_TOKENS, Thread, images_tokens};

/// What a call is for, beyond what the flow wished.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Errand<'f> {
    /// The call whose tool results it brings.
    pub follows: Option<CallId>,
    /// The thread it writes a summary for, and what is folded.
    pub compacts: Option<(ThreadId, &'f Folding)>,
    /// How often a compaction was tried for it already.
    pub compactions: u32,
}

impl Errand<'_> {
    /// What a call that waited is for.
    fn of(wait: &CallDeferred) -> Self {
        Self { follows: wait.follows, compacts: None, compactions: wait.compactions }
    }
}

/// The identity of a call, settled before anything is rendered.
pub(super) struct Bearing<'s> {
    pub role: &'s RoleSpec,
    pub model: ModelName,
    pub visit: Option<Visit>,
    pub slot: Slot,
    pub tag: Tag,
    pub choice: Choice,
}

/// What a call is about to be sent.
struct Shown<'p> {
    opening: &'p [Piece],
    carried: Carried,
    ask: &'p [Piece],
    tools: Option<BodyId>,
    output: Option<BodyId>,
}

impl<'a> Draft<'a> {
    /// Opens a call, or defers it, or refuses it. Gives the call's number if it was opened.
    pub fn call(&mut self, wish: CallWish, errand: Errand<'_>) -> Option<CallId> {
        let step = format!("call of `{}` for `{}`", wish.role, wish.ask);
        let Some(role) = self.spec().roles.get(&wish.role) else {
            self.refuse_step(step, "the flow has no such role");
            return None;
        };
        if errand.follows.is_none() && !role.recipe.asks.contains_key(&wish.ask) {
            self.refuse_step(step, "the role has no such ask");
            return None;
        }
        if let Some(why) = self.over_limit() {
            self.refuse_step(step, why);
            return None;
        }
        if self.env.doing == Doing::Elsewhere {
            self.defer(wish, NO_CALL, errand);
            return None;
        }
        let call = CallId(self.session().last.call.0 + 1);
        let bearing = self.bearing(role, &wish, call, errand);
        if let Some(busy) = self.standing_is_busy(&bearing, errand) {
            self.defer(wish, busy, errand);
            return None;
        }
        self.open_call(wish, call, bearing, errand)
    }

    pub fn over_limit(&self) -> Option<String> {
        let session = self.session();
        if session.calls.len() >= OPEN_CALLS_MAX {
            return Some(format!("{OPEN_CALLS_MAX} calls are open already, the most a session may have"));
        }
        let calls = session.turn.as_ref().filter(|_| self.turn().is_some()).map_or(0, |turn| turn.calls);
        (calls >= CALLS_PER_TURN_MAX).then(|| {
            format!("the turn has made {CALLS_PER_TURN_MAX} calls already, the most it may; does the flow loop?")
        })
    }

    /// The single rule before every call, from authoritative state alone.
    pub fn bearing(&self, role: &'a RoleSpec, wish: &CallWish, call: CallId, errand: Errand<'_>) -> Bearing<'a> {
        let session = self.session();
        let visit = session.visit(self.spec(), &wish.role, wish.agent.as_ref());
        let model = self.model_for(role, wish, visit.as_ref());
        let round = errand.follows.and_then(|follows| session.rounds.get(&follows));
        let worker = wish.peer.as_ref().or(wish.agent.as_ref());
        let mut caller = Caller {
            role: wish.role.clone(),
            agent: wish.agent.clone(),
            peer: wish.peer.clone(),
            model: model.clone(),
            sample: wish.sample,
            turn: self.turn(),
            phase: visit.clone(),
            work: worker.and_then(|worker| session.leases.get(worker)).cloned(),
            root: round.map_or(call, |round| round.root),
            resets: 0,
        };
        let (slot, _) = wanted(&role.scope, &caller);
        caller.resets = session.resets.get(&slot).copied().unwrap_or_default();
        let (slot, tag) = wanted(&role.scope, &caller);
        // A further round of a call's tools belongs to what its root was opened for.
        let choice = match round {
            Some(round) => Choice::Continue(round.thread),
            None => {
                let standing = session.slots.get(&slot).and_then(|id| session.threads.get(id));
                let standing =
                    standing.map(|thread| Standing { thread: thread.id, tag: &thread.tag, opened: thread.opened });
                choose(&role.scope, standing, &tag, self.env.now)
            }
        };
        Bearing { role, model, visit, slot, tag, choice }
    }

    pub fn model_for(&self, role: &RoleSpec, wish: &CallWish, visit: Option<&Visit>) -> ModelName {
        if let Some(model) = wish.model.as_ref().or_else(|| self.session().cast.get(&role.name)) {
            return model.clone();
        }
        let spec = self.spec();
        let phase = visit.and_then(|visit| spec.graphs.get(&visit.graph)?.phase(&visit.phase));
        if let Some(model) = phase.and_then(|phase| phase.model_for(&role.name)) {
            return model.clone();
        }
        self.env.catalog.model_for(&spec.name, &role.name, visit.map(|visit| &visit.phase))
    }

    /// The call that is using the thread. The one whose tool results are brought is not in its own way.
    fn standing_is_busy(&self, bearing: &Bearing<'_>, errand: Errand<'_>) -> Option<CallId> {
        match bearing.choice {
            Choice::Continue(thread) => {
                self.session().threads.get(&thread)?.busy.filter(|busy| errand.follows != Some(*busy))
            }
            Choice::Open(_) => None,
        }
    }

    pub fn defer(&mut self, wish: CallWish, waits_for: CallId, errand: Errand<'_>) {
        if self.session().deferred.len() >= DEFERRED_CALLS_MAX {
            let step = format!("call of `{}` for `{}`", wish.role, wish.ask);
            self.refuse_step(step, format!("{DEFERRED_CALLS_MAX} calls wait already, the most a session may have"));
            return;
        }
        let deferred = self.session().last.deferred + 1;
        let turn = self.turn();
        let Errand { follows, compactions, .. } = errand;
        self.record(Event::CallDeferred(Box::new(CallDeferred {
            deferred,
            turn,
            wish,
            waits_for,
            follows,
            compactions,
        })));
    }

    fn open_call(&mut self, wish: CallWish, call: CallId, bearing: Bearing<'a>, errand: Errand<'_>) -> Option<CallId> {
        let role = bearing.role;
        let folding = errand.compacts.map(|(_, folding)| folding);
        let opens = matches!(bearing.choice, Choice::Open(_));
        let asking = Asking { wish: &wish, call, turn: self.turn(), opens, folding };
        let window = self.window(&bearing.model);
        let weight = self.session().weight(&bearing.model);
        let reply_tokens_max = reply_tokens(role, window);
        let free = window.saturating_sub(reply_tokens_max + WINDOW_RESERVE_TOKENS);
        let opening = if opens { self.render(&role.recipe.opening, &asking) } else { Vec::new() };
        let asks = role.recipe.asks.get(&wish.ask).map_or(&[][..], Vec::as_slice);
        let ask = match errand {
            Errand { follows: Some(_), .. } => Vec::new(),
            // A summary of a part is worth more than none.
            Errand { compacts: Some(_), .. } => {
                self.render_within(asks, &asking, weight.ours(free).saturating_sub(message_tokens(&opening)))
            }
            Errand { .. } => self.render(asks, &asking),
        };
        let tools = self.tools_at_hand(role, bearing.visit.as_ref());
        let carried = self.carried(&bearing.choice);
        let tool_tokens = tools.as_ref().map_or(0, |text| self.env.count.count(text));
        let tokens = carried.tokens + message_tokens(&opening) + message_tokens(&ask) + tool_tokens;
        let corrected = weight.theirs(tokens);
        let taken = message_tokens(&ask) + tool_tokens;
        // Where there is no room by the vendor's count, as far as we know it, there may be some by ours.
        for (needed, space) in [(corrected, weight.ours(free)), (corrected.min(tokens), free)] {
            if needed > free
                && errand.compacts.is_none()
                && let Choice::Continue(thread) = bearing.choice
                && self.compact(thread, role, &wish, (space, taken), errand)
            {
                return None;
            }
        }
        let thread = match bearing.choice {
            Choice::Continue(thread) => ThreadUse::Continued(thread),
            Choice::Open(why) => ThreadUse::Opened {
                thread: ThreadId(self.session().last.thread.0 + 1),
                slot: bearing.slot.clone(),
                tag: bearing.tag,
                why,
            },
        };
        let tools = tools.map(|text| self.store_body(text.into(), BodyKind::Inner));
        let output = match &role.output {
            Output::Text => None,
            Output::Json(schema) => Some(self.store_body(canonical(schema).into(), BodyKind::Inner)),
        };
        let shown = Shown { opening: &opening, carried, ask: &ask, tools, output };
        let prefix = self.prefix(&thread, &bearing.slot, &shown);
        let digest = self.digest(&thread, &shown, &bearing.model, reply_tokens_max);
        let corrected = Some(corrected).filter(|_| !weight.is_even());
        let receipt = Receipt { thread, opening, carried, ask, tokens, corrected, window, prefix, digest };
        let opened = std::sync::Arc::new(CallOpened {
            call,
            turn: self.turn(),
            role: wish.role,
            ask: wish.ask,
            agent: wish.agent,
            peer: wish.peer,
            model: bearing.model,
            sample: wish.sample,
            phase: bearing.visit.map(|visit| visit.phase),
            follows: errand.follows,
            compacts: errand.compacts.map(|(thread, _)| thread),
            recomputes: None,
            note: wish.note,
            tools,
            output,
            reply_tokens_max,
            receipt,
        });
        let has_room = opened.has_room();
        self.record(Event::CallOpened(opened));
        if !has_room {
            let message =
                format!("the prompt has {tokens} tokens, which leaves no room for an answer in a window of {window}");
            let failure = Failure::new(FailureKind::ContextTooLong, message);
            self.record(Event::CallFailed { call, attempt: 1, failure, next: Next::GiveUp });
        }
        Some(call)
    }

    /// The window we plan for with a model.
    pub fn window(&self, model: &ModelName) -> u32 {
        self.session().window(model, self.env.catalog.window_tokens(model))
    }

    fn carried(&self, choice: &Choice) -> Carried {
        let Choice::Continue(thread) = choice else { return Carried::default() };
        let Some(thread) = self.session().threads.get(thread) else { return Carried::default() };
        Carried { entries: u32::try_from(thread.entries.len()).unwrap_or(u32::MAX), tokens: thread.tokens }
    }

    /// Has the flow fill the fragments, fits each to its budget, and notes what became of it.
    fn render(&mut self, specs: &[FragmentSpec], asking: &Asking<'_>) -> Vec<Piece> {
        specs.iter().map(|spec| self.piece(spec, asking)).collect()
    }

    /// The same for a message of at most so many tokens: each fragment has what those before it left.
    fn render_within(&mut self, specs: &[FragmentSpec], asking: &Asking<'_>, tokens_max: u32) -> Vec<Piece> {
        let mut pieces: Vec<Piece> = Vec::with_capacity(specs.len());
        for spec in specs {
            let left = tokens_max.saturating_sub(message_tokens(&pieces).max(MESSAGE_FRAME_TOKENS));
            let tokens_max = spec.tokens_max.map_or(left, |own| own.min(left));
            pieces.push(self.piece(&spec.clone().within(tokens_max, spec.over), asking));
        }
        pieces
    }

    fn piece(&mut self, spec: &FragmentSpec, asking: &Asking<'_>) -> Piece {
        let rendered = self.rules.fragment(self.sight(&About::default()), asking, &spec.name);
        let mut piece = Piece {
            name: spec.name.clone(),
            layer: spec.layer,
            source: None,
            why: String::new(),
            text: None,
            cut_from: None,
            pinned: spec.pinned == crate::context::Pinned::Yes,
            images: Vec::new(),
        };
        // The user's words are stored where they can be found again; all else is machinery.
        let kind = if spec.layer == Layer::Words { BodyKind::Said } else { BodyKind::Inner };
        let (content, text) = match rendered {
            Rendered::Out(why) => {
                piece.why = why;
                return piece;
            }
            Rendered::New { text, source, why } => {
                piece.images = self.shown_with(spec, &source);
                (piece.source, piece.why) = (Some(source), why);
                let content: std::sync::Arc<str> = text.into();
                let tokens = self.env.count.count(&content);
                (content.clone(), Text { body: BodyId::of(&content), tokens })
            }
            Rendered::Stored { text, source, why } => {
                piece.images = self.shown_with(spec, &source);
                (piece.source, piece.why) = (Some(source), why);
                if spec.tokens_max.is_none_or(|max| text.tokens <= max) {
                    piece.text = Some(text);
                    return piece;
                }
                (self.texts.get(text.body), text)
            }
        };
        match fit(spec, &content, text.tokens, self.env.count) {
            Fitted::Whole => {
                self.store_body(content, kind);
                piece.text = Some(text);
            }
            Fitted::Cut(cut) => {
                piece.cut_from = Some(text.tokens);
                piece.text = Some(self.store(cut, BodyKind::Inner));
            }
            Fitted::Out => {
                piece.cut_from = Some(text.tokens);
                piece.images.clear();
                piece.why = format!("left out: {} tokens, more than its budget", text.tokens);
            }
        }
        piece
    }

    /// What a user shows goes where the user's words go.
    fn shown_with(&self, spec: &FragmentSpec, source: &Source) -> Vec<Picture> {
        let (Layer::Words, Source::Message(message)) = (spec.layer, source) else { return Vec::new() };
        let told = self.session().turn.iter().flat_map(|turn| &turn.messages).find(|told| told.message == *message);
        told.map(|told| told.images.clone()).unwrap_or_default()
    }

    /// How the prompt relates to the last one of its thread, or for a new thread to the last one of its slot.
    fn prefix(&self, thread: &ThreadUse, slot: &Slot, shown: &Shown<'_>) -> crate::context::Prefix {
        let stood = self.session().threads.get(&thread.thread());
        let next = Mark {
            call: CallId(self.session().last.call.0 + 1),
            thread: thread.thread(),
            compactions: stood.map_or(0, |thread| thread.compactions),
            carried: shown.carried,
            opening: stood.map_or_else(|| named(shown.opening).into(), |thread| thread.opening.clone()),
            ask: named(shown.ask).into(),
            asked: Asked::InPassing,
            tools: shown.tools,
        };
        let before = stood.map_or_else(|| self.session().marks.get(slot), |thread| thread.mark.as_ref());
        prefix(before.map(|mark| &**mark), &next)
    }

    /// The fingerprint of everything a model is sent: equal prompts have equal ones, and only those.
    fn digest(&self, thread: &ThreadUse, shown: &Shown<'_>, model: &ModelName, reply_tokens_max: u32) -> BodyId {
        let stood = self.session().threads.get(&thread.thread()).map(|thread| thread.digest);
        let opening = named(shown.opening);
        let mut digest = stood.unwrap_or_else(|| Thread::opening_digest(&opening));
        let parts: Vec<Text> = named(shown.ask).into_iter().map(|(_, text)| text).collect();
        if !parts.is_empty() {
            let images = shown.ask.iter().flat_map(|piece| &piece.images).copied().collect();
            digest = digest.chain(Entry { images, ..Entry::asked(CallId(0), parts) }.digest());
        }
        let around = serde_json::to_vec(&(model, shown.tools, shown.output, reply_tokens_max)).unwrap_or_default();
        digest.chain(BodyId::of_bytes(&around))
    }

    /// The tools the role may use in its phase, as JSON.
    fn tools_at_hand(&self, role: &RoleSpec, visit: Option<&Visit>) -> Option<String> {
        let spec = self.spec();
        let tools: Vec<&ToolSpec> = role
            .tools
            .iter()
            .filter(|tool| self.permits(visit, tool))
            .filter_map(|tool| spec.tools.get(tool))
            .map(|tool| &tool.spec)
            .collect();
        if tools.is_empty() {
            return None;
        }
        serde_json::to_value(tools).ok().map(|value| canonical(&value))
    }

    fn permits(&self, visit: Option<&Visit>, tool: &ToolName) -> bool {
        let phase = visit.and_then(|visit| self.spec().graphs.get(&visit.graph)?.phase(&visit.phase));
        phase.is_none_or(|phase| phase.tools.permits(tool))
    }

    /// What the rules themselves make of an event, before the flow is asked.
    pub fn follow(&mut self, event: &Event, about: &About) {
        match event {
            Event::CallAnswered(answered) => {
                let Some(opened) = &about.call else { return };
                self.finish_compaction(opened, Some(answered.text));
                for wish in &answered.tool_calls {
                    self.open_tool_for(opened, wish);
                }
            }
            Event::CallFailed { next: Next::GiveUp, .. }
            | Event::CallUnknown { next: Next::GiveUp, .. }
            | Event::CallResolved { next: Next::GiveUp, .. } => {
                if let Some(opened) = &about.call {
                    self.finish_compaction(opened, None);
                }
            }
            _ => {}
        }
    }

    fn open_tool_for(&mut self, opened: &CallOpened, wish: &crate::prompt::ToolCall) {
        let role = self.spec().roles.get(&opened.role);
        let visit = self.session().visit(self.spec(), &opened.role, opened.agent.as_ref());
        let has = role.is_some_and(|role| role.tools.contains(&wish.name));
        let permitted = self.permits(visit.as_ref(), &wish.name);
        let run = self.open_tool(ToolOpened {
            run: ToolRunId(0),
            turn: opened.turn,
            tool: wish.name.clone(),
            arguments: wish.arguments.clone(),
            wish: Some((opened.call, wish.id.clone())),
            agent: opened.agent.clone(),
            phase: visit.map(|visit| visit.phase),
        });
        if !has {
            self.close_tool(run, ToolOutcome::Refused, format!("there is no tool `{}` for this role", wish.name));
        } else if !permitted {
            self.close_tool(run, ToolOutcome::Refused, format!("`{}` may not be used in this phase", wish.name));
        }
    }

    /// Records a tool run as owed, under the next number.
    pub fn open_tool(&mut self, opened: ToolOpened) -> ToolRunId {
        let run = ToolRunId(self.session().last.tool.0 + 1);
        self.record(Event::ToolOpened(ToolOpened { run, ..opened }));
        run
    }

    /// A tool that the flow runs itself is answered in the same decision, or not at all.
    pub fn answer_forgotten_tools(&mut self) -> bool {
        let mut answered = false;
        for run in std::mem::take(&mut self.unanswered) {
            let Some(opened) = self.session().tools.get(&run) else { continue };
            let runs = self.spec().tools.get(&opened.tool).map_or(Runs::Flow, |tool| tool.runs);
            if runs == Runs::Flow {
                let text = format!("nothing answers to `{}`", opened.tool);
                self.close_tool(run, ToolOutcome::Failed, text);
                answered = true;
            }
        }
        answered
    }

    /// Goes on with a call whose tools have all answered.
    pub fn continue_rounds(&mut self) -> bool {
        let session = self.session();
        let waits = |call: CallId| session.deferred.values().any(|wait| wait.follows == Some(call));
        let complete = session.rounds.iter().find(|(call, round)| round.is_complete() && !waits(**call));
        let Some((call, round)) = complete.map(|(call, round)| (*call, round.clone())) else { return false };
        self.cause = round.turn;
        self.call(round.wish, Errand { follows: Some(call), ..Errand::default() });
        self.drop_round_unless_followed(call);
        true
    }

    fn drop_round_unless_followed(&mut self, call: CallId) {
        let session = self.session();
        let waits = session.deferred.values().any(|wait| wait.follows == Some(call));
        if session.rounds.contains_key(&call) && !waits {
            self.record(Event::RoundDropped { call, reason: "no further call may be opened".to_owned() });
        }
    }

    /// Goes on with a call that waited for another.
    pub fn resume_deferred(&mut self) -> bool {
        let Some(wait) = self.session().deferred.values().find(|wait| self.can_go_on(wait)).cloned() else {
            return false;
        };
        self.cause = wait.turn;
        self.record(Event::CallResumed { deferred: wait.deferred });
        self.call(wait.wish.clone(), Errand::of(&wait));
        wait.follows.into_iter().for_each(|call| self.drop_round_unless_followed(call));
        true
    }

    /// Whether what a call waits for is over. Of several that wait for one thread only the first goes on; the others need
    /// no new event to wait for that one.
    fn can_go_on(&self, wait: &CallDeferred) -> bool {
        let session = self.session();
        if session.calls.contains_key(&wait.waits_for) || session.rounds.contains_key(&wait.waits_for) {
            return false;
        }
        let Some(role) = self.spec().roles.get(&wait.wish.role) else { return true };
        let errand = Errand::of(wait);
        let bearing = self.bearing(role, &wait.wish, CallId(session.last.call.0 + 1), errand);
        self.standing_is_busy(&bearing, errand).is_none()
    }
}

/// The longest answer a role may give in a window: what it asks for, and no more than a quarter.
pub(super) fn reply_tokens(role: &RoleSpec, window: u32) -> u32 {
    role.reply_tokens_max.min(window / 4)
}

/// Tokens of the message that these make.
fn message_tokens(pieces: &[Piece]) -> u32 {
    let mut texts = pieces.iter().filter_map(|piece| piece.text).peekable();
    let frame = if texts.peek().is_some() { MESSAGE_FRAME_TOKENS } else { 0 };
    let images: u32 = pieces.iter().map(|piece| images_tokens(&piece.images)).sum();
    texts.map(|text| text.tokens).sum::<u32>() + images + frame
}

fn named(pieces: &[Piece]) -> Vec<(FragmentName, Text)> {
    pieces.iter().filter_map(|piece| Some((piece.name.clone(), piece.text?))).collect()
}

//! A flow with a role for every scope, which does what the user's message and the models' answers order. Each text it
//! makes says in which call it was born: `‹c7›`.

use segue_core::context::{FragmentSpec, Layer, Rendered, Source};
use segue_core::event::{CallWish, Event, Next, Outcome, Owner, PhaseKey, Recorded};
use segue_core::flow::{Asking, Flow, FlowSpec, RoleSpec, Runs, Step, Summariser, ToolDef, UnknownPolicy, View};
use segue_core::ids::{CallId, FragmentName, TurnId};
use segue_core::phase::guard::{Guard, Proposer};
use segue_core::phase::state::Proposal;
use segue_core::phase::{Attached, Edge, Phase, PhaseGraph, PhaseLimit};
use segue_core::prompt::ToolSpec;
use segue_core::scope::{Scope, Until};
use segue_core::session::Session;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// What separates an answer's words from the orders in it.
pub const ORDERS: &str = " || ";
/// The roles that a wish may name.
pub const ROLES: [&str; 10] = ["fresh", "turn", "session", "phase", "model", "peer", "review", "host", "aged", "coder"];
pub const AGENTS: [&str; 2] = ["ann", "bob"];
pub const MODELS: [&str; 2] = ["plain", "fancy"];
pub const PHASES: [&str; 3] = ["a", "b", "c"];
/// The graphs, with the owner that a proposal names.
pub const GRAPHS: [&str; 4] = ["track", "mood", "steps ann", "steps bob"];
pub const AGED_MS: u64 = 120;

/// What a text orders the flow to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Order {
    Call { role: usize, agent: usize, peer: usize, model: Option<usize>, sample: u16, ask: String, size: usize },
    Lease { agent: usize, work: Option<u8> },
    Go { graph: usize, to: usize },
    Forget { role: usize, agent: usize, peer: usize },
    Cancel { place: usize },
    Timer { after_ms: u64 },
    Run,
    End,
}

pub struct Everything {
    spec: FlowSpec,
}

pub fn marker(call: CallId) -> String {
    format!("‹{call}›")
}

pub fn key(graph: usize) -> PhaseKey {
    let (graph, owner) = match GRAPHS[graph] {
        "track" => ("track", Owner::Session),
        "mood" => ("mood", Owner::Role("host".into())),
        steps => ("steps", Owner::Agent(steps.trim_start_matches("steps ").into())),
    };
    PhaseKey { graph: graph.into(), owner }
}

fn graph(name: &str, attached: Attached) -> PhaseGraph {
    let mut phases: Vec<Phase> = PHASES.map(Phase::named).into();
    phases[1].limit = Some(PhaseLimit { turns_max: Some(2), ms_max: Some(700), exit: "c".into() });
    let edges = PHASES.iter().flat_map(|from| PHASES.iter().map(move |to| (from, to)));
    let edges = edges.map(|(from, to)| Edge { from: (*from).into(), to: (*to).into(), guard: Guard::Always });
    PhaseGraph { name: name.into(), attached, start: "a".into(), phases, edges: edges.collect(), gates: Vec::new() }
}

fn role(name: &str, scope: Scope) -> RoleSpec {
    let task = || FragmentSpec::changing("task", Layer::Task);
    let mut role = RoleSpec::new(name, scope)
        .opens_with(FragmentSpec::stable("instruction", Layer::Instruction))
        .ask("task", [task(), FragmentSpec::changing("message", Layer::Words)])
        .ask("pin", [task().pinned()])
        .ask("same", [FragmentSpec::changing("same", Layer::Task)])
        .may_use("look");
    role.reply_tokens_max = 100;
    role.compaction.tokens_max = 40;
    role
}

impl Everything {
    pub fn new() -> Self {
        let mut scribe =
            RoleSpec::new("scribe", Scope::Fresh).ask("fold", [FragmentSpec::changing("folded", Layer::Task)]);
        scribe.reply_tokens_max = 100;
        let summarised = |mut role: RoleSpec| {
            role.compaction.by = Some(Summariser { role: "scribe".into(), ask: "fold".into() });
            role
        };
        let unknown = |mut role: RoleSpec, policy| {
            role.unknown = policy;
            role
        };
        let opened = || FragmentSpec::changing("opened", Layer::Task);
        let look = ToolSpec { name: "look".into(), description: "look".into(), parameters: json!({"type": "object"}) };
        let spec = FlowSpec::new("everything", "a role for every scope")
            .graph(graph("track", Attached::Session))
            .graph(graph("mood", Attached::Role))
            .graph(graph("steps", Attached::Agent))
            .role(role("fresh", Scope::Fresh))
            .role(summarised(role("turn", Scope::turn()).opens_with(opened())))
            .role(summarised(role("session", Scope::session())))
            .role(role("phase", Scope::phase()).lives_by("track").opens_with(opened()))
            .role(unknown(summarised(role("model", Scope::model())), UnknownPolicy::Ask))
            .role(unknown(summarised(role("peer", Scope::peer()).opens_with(opened())), UnknownPolicy::Fail))
            .role(role("review", Scope::peer_and_work()))
            .role(summarised(role("host", Scope::phase().until(Until::Model)).lives_by("mood")))
            .role(role("aged", Scope::session().aged(AGED_MS)))
            .role(role("coder", Scope::phase().until(Until::Work)).lives_by("steps"))
            .role(scribe)
            .tool(ToolDef { spec: look, runs: Runs::Host, unknown: UnknownPolicy::Retry });
        Self { spec }
    }

    fn obey(&self, session: &Session, order: &Order) -> Option<Step> {
        Some(match order {
            Order::Call { ask, size, .. } => {
                let wish = CallWish { ask: ask.as_str().into(), ..wish(order)? };
                Step::Call(wish.note(json!(size)))
            }
            Order::Forget { .. } => Step::Forget { wish: wish(order)?, reason: "ordered".into() },
            Order::Lease { agent, work } => {
                Step::Lease { agent: AGENTS[*agent].into(), work: work.map(|work| format!("work-{work}").into()) }
            }
            Order::Go { graph, to } => {
                let proposal = Proposal::new(PHASES[*to], Proposer::Engine);
                Step::Propose { phase: key(*graph), proposal }
            }
            Order::Cancel { place } => {
                let call = session.calls.keys().nth(place % session.calls.len().max(1))?;
                Step::Cancel { call: *call, reason: "ordered".into() }
            }
            Order::Timer { after_ms } => Step::SetTimer { name: format!("after {after_ms}"), after_ms: *after_ms },
            Order::Run => Step::RunTool { tool: "look".into(), arguments: json!({}), agent: None },
            Order::End => Step::EndTurn(Outcome::Done),
        })
    }

    fn obey_all(&self, session: &Session, text: &str) -> Vec<Step> {
        let orders = text.split_once(ORDERS).map_or("", |(_, orders)| orders);
        let orders: Vec<Order> = serde_json::from_str(orders).unwrap_or_default();
        orders.iter().filter_map(|order| self.obey(session, order)).collect()
    }
}

/// Who is meant. Only a coder is an individual; only those who keep memory for each peer talk with one.
fn wish(order: &Order) -> Option<CallWish> {
    let (role, agent, peer, model, sample) = match order {
        Order::Call { role, agent, peer, model, sample, .. } => (*role, *agent, *peer, *model, *sample),
        Order::Forget { role, agent, peer } => (*role, *agent, *peer, None, 0),
        _ => return None,
    };
    let mut wish = CallWish::new(ROLES[role], "task");
    match ROLES[role] {
        "coder" => wish = wish.by(&AGENTS[agent].into()),
        "peer" | "review" | "fresh" => wish = wish.with(&AGENTS[peer].into()),
        _ => {}
    }
    if let Some(model) = model {
        wish = wish.on(&MODELS[model].into());
    }
    wish.sample = sample;
    Some(wish)
}

fn is_idle(session: &Session, turn: TurnId) -> bool {
    let mine = |other: Option<TurnId>| other == Some(turn);
    !session.calls.values().any(|open| mine(open.opened.turn))
        && !session.rounds.values().any(|round| mine(round.turn))
        && !session.deferred.values().any(|wait| mine(wait.turn))
}

impl Flow for Everything {
    type State = ();

    fn spec(&self) -> &FlowSpec {
        &self.spec
    }

    fn react(&self, view: &View<'_, ()>, event: &Recorded) -> Vec<Step> {
        let mut steps = match &event.event {
            Event::TurnStarted { .. } => {
                let turn = view.session.turn.as_ref().expect("it has begun");
                let texts = turn.messages.iter().map(|waiting| view.text(waiting.text));
                texts.flat_map(|text| self.obey_all(view.session, &text)).collect()
            }
            Event::CallAnswered(answered) => self.obey_all(view.session, &view.text(answered.text)),
            Event::TimerFired { .. } => {
                vec![Step::Call(CallWish::new("session", "task").note(json!(3)))]
            }
            _ => Vec::new(),
        };
        let ended = match &event.event {
            Event::CallAnswered(answered) => answered.tool_calls.is_empty(),
            Event::CallFailed { next: Next::GiveUp, .. }
            | Event::CallUnknown { next: Next::GiveUp, .. }
            | Event::CallResolved { next: Next::GiveUp, .. }
            | Event::CallCancelled { .. } => true,
            _ => false,
        };
        let running = view.session.turn.as_ref().map(|turn| turn.id);
        let mine = view.about.turn.filter(|turn| running == Some(*turn) && is_idle(view.session, *turn));
        if mine.is_some() && ended && steps.is_empty() {
            steps.push(Step::EndTurn(Outcome::Done));
        }
        steps
    }

    fn fragment(&self, view: &View<'_, ()>, asking: &Asking<'_>, name: &FragmentName) -> Rendered {
        let new = |text: String| Rendered::New { text, source: Source::State, why: "always".into() };
        match name.as_str() {
            "instruction" => new(format!("be {}", asking.wish.role)),
            "opened" => new(format!("opened {}", marker(asking.call))),
            "task" => {
                let size = asking.wish.note.as_u64().unwrap_or(1);
                new(format!("task {} {}", marker(asking.call), "word ".repeat(size as usize)))
            }
            "same" => new("the same as ever".into()),
            "message" => match view.session.turn.as_ref().filter(|turn| Some(turn.id) == asking.turn) {
                Some(turn) => {
                    let last = turn.messages.last().expect("a turn answers messages");
                    Rendered::Stored { text: last.text, source: Source::Message(last.message), why: "said".into() }
                }
                None => Rendered::Out("beside the turns".into()),
            },
            "folded" => {
                let folded = asking.folding.map(|folding| folding.entries.as_slice()).unwrap_or_default();
                new(folded.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>().join(" / "))
            }
            _ => match asking.folding.and_then(|folding| folding.summary.as_ref()) {
                Some(summary) => new(format!("so far: {summary}")),
                None => new("some messages were left out".into()),
            },
        }
    }
}

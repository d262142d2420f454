//! A flow with a role for every scope, which follows orders in the user's messages and the models' answers. Each text
//! contains the call in which it was created: `‹c7›`.

use segue_core::context::{FragmentContentKind, FragmentRetention, FragmentSource, FragmentSpec, RenderedFragment};
use segue_core::event::{
    CallRequest, Event, PhaseGraphKey, PhaseStateOwner, RecordedEvent, RetryDecision, TurnOutcome,
};
use segue_core::flow::{
    Flow, FlowContext, FlowSpec, FlowStep, FlowToolDeclaration, FragmentRenderContext, RoleSpec, SummarizerRole,
    UnknownOutcomePolicy,
};
use segue_core::ids::{CallId, FragmentName, TurnId};
use segue_core::phase::{
    Guard, PhaseEdge, PhaseGraph, PhaseGraphOwnerKind, PhaseLimit, PhaseSpec, PhaseTransitionNote,
    PhaseTransitionProposer,
};
use segue_core::prompt::ModelToolSpec;
use segue_core::scope::{Scope, ThreadEndTrigger};
use segue_core::session::Session;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// The separator between an answer's text and the orders in it.
pub(crate) const ORDERS: &str = " || ";
/// The roles that a request may name.
pub(crate) const ROLES: [&str; 10] =
    ["fresh", "turn", "session", "phase", "model", "peer", "review", "host", "aged", "coder"];
pub(crate) const AGENTS: [&str; 2] = ["ann", "bob"];
pub(crate) const MODELS: [&str; 2] = ["plain", "fancy"];
pub(crate) const PHASES: [&str; 3] = ["a", "b", "c"];
/// The graphs, with the owner that a proposal names.
pub(crate) const GRAPHS: [&str; 4] = ["track", "mood", "steps ann", "steps bob"];
pub(crate) const AGED_MS: u64 = 120;

/// An order in a text.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Order {
    Call { role: usize, agent: usize, peer: usize, model: Option<usize>, sample: u16, ask: String, size: usize },
    Lease { agent: usize, work: Option<u8> },
    Go { graph: usize, to: usize },
    Forget { role: usize, agent: usize, peer: usize },
    Cancel { place: usize },
    Timer { after_ms: u64 },
    Run,
    End,
}

pub(crate) struct Everything {
    spec: FlowSpec,
}

pub(crate) fn marker(call: CallId) -> String {
    format!("‹{call}›")
}

pub(crate) fn key(graph: usize) -> PhaseGraphKey {
    let (graph, owner) = match GRAPHS[graph] {
        "track" => ("track", PhaseStateOwner::Session),
        "mood" => ("mood", PhaseStateOwner::Role("host".into())),
        steps => ("steps", PhaseStateOwner::Agent(steps.trim_start_matches("steps ").into())),
    };
    PhaseGraphKey { graph: graph.into(), owner }
}

fn graph(name: &str, owner_kind: PhaseGraphOwnerKind) -> PhaseGraph {
    let mut phases: Vec<PhaseSpec> = PHASES.map(PhaseSpec::new).into();
    phases[1].limit =
        Some(PhaseLimit { turns_max: Some(2), ms_max: Some(700), includes_waiting: true, ..PhaseLimit::new("c") });
    let edges = PHASES.iter().flat_map(|from| PHASES.iter().map(move |to| (from, to)));
    let edges = edges.map(|(from, to)| PhaseEdge { from: (*from).into(), to: (*to).into(), guard: Guard::Always });
    PhaseGraph { name: name.into(), owner_kind, start: "a".into(), phases, edges: edges.collect(), gates: Vec::new() }
}

fn role(name: &str, scope: Scope) -> RoleSpec {
    let task = || FragmentSpec::changing("task", FragmentContentKind::Task);
    let mut role = RoleSpec::new(name, scope)
        .with_opening_fragment(FragmentSpec::stable("instruction", FragmentContentKind::Instruction))
        .with_ask("task", [task(), FragmentSpec::changing("message", FragmentContentKind::UserWords)])
        .with_ask("pin", [task().with_retention(FragmentRetention::Pinned)])
        .with_ask("same", [FragmentSpec::changing("same", FragmentContentKind::Task)])
        .with_tool("look");
    role.reply_tokens_max = 100;
    role.compaction.summary_tokens_max = 40;
    role
}

impl Everything {
    pub(crate) fn new() -> Self {
        let mut scribe = RoleSpec::new("scribe", Scope::Fresh)
            .with_ask("fold", [FragmentSpec::changing("folded", FragmentContentKind::Task)]);
        scribe.reply_tokens_max = 100;
        let summarised = |mut role: RoleSpec| {
            role.compaction.summarizer = Some(SummarizerRole { role: "scribe".into(), ask: "fold".into() });
            role
        };
        let unknown = |mut role: RoleSpec, policy| {
            role.unknown_outcome = policy;
            role
        };
        let opened = || FragmentSpec::changing("opened", FragmentContentKind::Task);
        let look =
            ModelToolSpec { name: "look".into(), description: "look".into(), parameters: json!({"type": "object"}) };
        let spec = FlowSpec::new("everything", "a role for every scope")
            .with_graph(graph("track", PhaseGraphOwnerKind::Session))
            .with_graph(graph("mood", PhaseGraphOwnerKind::Role))
            .with_graph(graph("steps", PhaseGraphOwnerKind::Agent))
            .with_role(role("fresh", Scope::Fresh))
            .with_role(summarised(
                role("turn", Scope::per_session().ended_by(ThreadEndTrigger::Turn)).with_opening_fragment(opened()),
            ))
            .with_role(summarised(role("session", Scope::per_session())))
            .with_role(role("phase", Scope::per_phase()).with_phase_graph("track").with_opening_fragment(opened()))
            .with_role(unknown(summarised(role("model", Scope::per_model())), UnknownOutcomePolicy::AskOperator))
            .with_role(unknown(
                summarised(role("peer", Scope::per_peer()).with_opening_fragment(opened())),
                UnknownOutcomePolicy::Fail,
            ))
            .with_role(role("review", Scope::per_peer().ended_by(ThreadEndTrigger::WorkItem)))
            .with_role(summarised(
                role("host", Scope::per_phase().ended_by(ThreadEndTrigger::Model)).with_phase_graph("mood"),
            ))
            .with_role(role(
                "aged",
                Scope::Persistent { partitions: [].into(), boundaries: [].into(), age_ms_max: Some(AGED_MS) },
            ))
            .with_role(role("coder", Scope::per_phase().ended_by(ThreadEndTrigger::WorkItem)).with_phase_graph("steps"))
            .with_role(scribe)
            .with_tool(FlowToolDeclaration {
                unknown_outcome: UnknownOutcomePolicy::Retry,
                ..FlowToolDeclaration::for_host(look)
            });
        Self { spec }
    }

    fn step_for_order(&self, session: &Session, order: &Order) -> Option<FlowStep> {
        Some(match order {
            Order::Call { ask, size, .. } => {
                let request = CallRequest { ask: ask.as_str().into(), ..call_request(order)? };
                FlowStep::Call(CallRequest { metadata: json!(size), ..request })
            }
            Order::Forget { .. } => FlowStep::ResetThread { request: call_request(order)?, reason: "ordered".into() },
            Order::Lease { agent, work } => FlowStep::AssignWork {
                agent: AGENTS[*agent].into(),
                work: work.map(|work| format!("work-{work}").into()),
            },
            Order::Go { graph, to } => {
                let (to, note) = (PHASES[*to].into(), PhaseTransitionNote::default());
                FlowStep::ProposePhase { phase: key(*graph), to, by: PhaseTransitionProposer::Engine, note }
            }
            Order::Cancel { place } => {
                let call = session.open_calls.keys().nth(place % session.open_calls.len().max(1))?;
                FlowStep::CancelCall { call: *call, reason: "ordered".into() }
            }
            Order::Timer { after_ms } => FlowStep::SetTimer { name: format!("after {after_ms}"), after_ms: *after_ms },
            Order::Run => FlowStep::RunTool { tool: "look".into(), arguments: json!({}), agent: None },
            Order::End => FlowStep::EndTurn(TurnOutcome::Done),
        })
    }

    fn steps_for_orders(&self, session: &Session, text: &str) -> Vec<FlowStep> {
        let orders = text.split_once(ORDERS).map_or("", |(_, orders)| orders);
        let orders: Vec<Order> = serde_json::from_str(orders).unwrap_or_default();
        orders.iter().filter_map(|order| self.step_for_order(session, order)).collect()
    }
}

/// Returns the request for an order. Only a coder is an agent; only roles with a thread per peer have a peer.
fn call_request(order: &Order) -> Option<CallRequest> {
    let (role, agent, peer, model, sample) = match order {
        Order::Call { role, agent, peer, model, sample, .. } => (*role, *agent, *peer, *model, *sample),
        Order::Forget { role, agent, peer } => (*role, *agent, *peer, None, 0),
        _ => return None,
    };
    let mut request = CallRequest::new(ROLES[role], "task");
    match ROLES[role] {
        "coder" => request.agent = Some(AGENTS[agent].into()),
        "peer" | "review" | "fresh" => request.peer = Some(AGENTS[peer].into()),
        _ => {}
    }
    if let Some(model) = model {
        request.model = Some(MODELS[model].into());
    }
    request.sample = sample;
    Some(request)
}

fn is_idle(session: &Session, turn: TurnId) -> bool {
    let mine = |other: Option<TurnId>| other == Some(turn);
    !session.open_calls.values().any(|open| mine(open.opened.turn))
        && !session.tool_rounds.values().any(|round| mine(round.turn))
        && !session.deferred_calls.values().any(|wait| mine(wait.turn))
}

impl Flow for Everything {
    type State = ();

    fn spec(&self) -> &FlowSpec {
        &self.spec
    }

    fn react(&self, view: &FlowContext<'_, ()>, event: &RecordedEvent) -> Vec<FlowStep> {
        let mut steps = match &event.event {
            Event::TurnStarted { .. } => {
                let turn = view.session.current_turn.as_ref().expect("it has begun");
                let texts = turn.messages.iter().map(|waiting| view.read_text(waiting.text));
                texts.flat_map(|text| self.steps_for_orders(view.session, &text)).collect()
            }
            Event::CallAnswered(answered) => self.steps_for_orders(view.session, &view.read_text(answered.text)),
            Event::TimerFired { .. } => {
                vec![FlowStep::Call(CallRequest { metadata: json!(3), ..CallRequest::new("session", "task") })]
            }
            _ => Vec::new(),
        };
        let ended = match &event.event {
            Event::CallAnswered(answered) => answered.tool_calls.is_empty(),
            Event::CallFailed { next: RetryDecision::GiveUp, .. }
            | Event::CallOutcomeUnknown { next: RetryDecision::GiveUp, .. }
            | Event::CallResolved { next: RetryDecision::GiveUp, .. }
            | Event::CallCancelled { .. } => true,
            _ => false,
        };
        let running = view.session.current_turn.as_ref().map(|turn| turn.id);
        let mine = view.subject.turn.filter(|turn| running == Some(*turn) && is_idle(view.session, *turn));
        if mine.is_some() && ended && steps.is_empty() {
            steps.push(FlowStep::EndTurn(TurnOutcome::Done));
        }
        steps
    }

    fn render_fragment(
        &self,
        view: &FlowContext<'_, ()>,
        fragment_request: &FragmentRenderContext<'_>,
        name: &FragmentName,
    ) -> RenderedFragment {
        let new = |text: String| RenderedFragment::New { text, source: FragmentSource::State, why: "always".into() };
        match name.as_str() {
            "instruction" => new(format!("be {}", fragment_request.call_request.role)),
            "opened" => new(format!("opened {}", marker(fragment_request.call))),
            "task" => {
                let size = fragment_request.call_request.metadata.as_u64().unwrap_or(1);
                new(format!("task {} {}", marker(fragment_request.call), "word ".repeat(size as usize)))
            }
            "same" => new("the same as ever".into()),
            "message" => match view.session.current_turn.as_ref().filter(|turn| Some(turn.id) == fragment_request.turn)
            {
                Some(turn) => {
                    let last = turn.messages.last().expect("a turn answers messages");
                    RenderedFragment::Stored {
                        text: last.text,
                        source: FragmentSource::Message(last.message),
                        why: "said".into(),
                    }
                }
                None => RenderedFragment::Omitted("outside turns".into()),
            },
            "folded" => {
                let folded = fragment_request.compacted.map(|folding| folding.messages.as_slice()).unwrap_or_default();
                new(folded.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>().join(" / "))
            }
            _ => match fragment_request.compacted.and_then(|folding| folding.summary.as_ref()) {
                Some(summary) => new(format!("so far: {summary}")),
                None => new("some messages were left out".into()),
            },
        }
    }
}

//! Random histories, compared with an independent model: no role sees a message from outside its scope, and none inside
//! it is lost. Also checks that prompts are rebuilt exactly and that receipts are true.

mod event_labels;
mod flow;
mod oracle;

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use segue_core::decide::{OperatorCommand, SessionInput, UnknownCallOutcomeResolution};
use segue_core::event::MidTurnPolicy;
use segue_core::ids::CallId;
use segue_core::prompt::{CallFailure, CallFailureKind, ModelReply, Prompt, ToolCall};
use segue_core::tool::ToolResult;
use segue_testkit::SessionHarness;
use serde_json::json;

use event_labels::event_labels;
use flow::{AGENTS, Everything, GRAPHS, MODELS, ORDERS, Order, PHASES, ROLES, key, marker};
use oracle::{Oracle, answer};

/// The next step of a random history. Indices are taken modulo the number of items.
#[derive(Debug, Clone)]
enum Op {
    Say { orders: Vec<Order>, busy: Option<MidTurnPolicy> },
    Answer { place: usize, size: usize, tool_calls: usize, orders: Vec<Order> },
    Fail { place: usize, passing: bool },
    Stale { call: u32, attempt: u32 },
    Tool { place: usize, size: usize, fine: bool },
    Wait { ms: u64, tick: bool },
    Cast { role: usize, model: usize },
    Forget { role: usize, agent: Option<usize>, peer: Option<usize> },
    Propose { graph: usize, to: usize },
    Resolve { retry: bool },
    Window { tokens: u32 },
    Crash,
    Cancel,
    Fork,
}

fn any_call() -> impl Strategy<Value = Order> {
    let who = (0..3usize, 0..AGENTS.len(), 0..AGENTS.len());
    let model = (proptest::option::weighted(0.2, 0..MODELS.len()), prop_oneof![4 => Just(0), 1 => Just(1u16)]);
    let size = prop_oneof![20 => 1..80usize, 1 => 400..900usize];
    let ask = prop_oneof![8 => Just("task"), 1 => Just("pin"), 2 => Just("same")];
    (who, model, ask, size).prop_map(|((role, agent, peer), (model, sample), ask, size)| Order::Call {
        role,
        agent,
        peer,
        model,
        sample,
        ask: ask.to_owned(),
        size,
    })
}

fn any_order() -> impl Strategy<Value = Order> {
    let lease = (0..AGENTS.len(), proptest::option::weighted(0.8, 0..3u8));
    let who = (0..3usize, 0..AGENTS.len(), 0..AGENTS.len());
    prop_oneof![
        12 => any_call(),
        2 => lease.prop_map(|(agent, work)| Order::Lease { agent, work }),
        2 => (0..GRAPHS.len(), 0..PHASES.len()).prop_map(|(graph, to)| Order::Go { graph, to }),
        1 => who.prop_map(|(role, agent, peer)| Order::Forget { role, agent, peer }),
        1 => (0..8usize).prop_map(|place| Order::Cancel { place }),
        1 => (1..300u64).prop_map(|after_ms| Order::Timer { after_ms }),
        1 => Just(Order::Run),
        1 => Just(Order::End),
    ]
}

fn any_op() -> impl Strategy<Value = Op> {
    let orders = || proptest::collection::vec(any_order(), 1..6);
    let few = || proptest::collection::vec(any_order(), 0..2);
    let busy = prop_oneof![
        6 => Just(None),
        1 => Just(Some(MidTurnPolicy::Coalesce)),
        1 => Just(Some(MidTurnPolicy::Reject)),
        1 => Just(Some(MidTurnPolicy::Interrupt)),
    ];
    let tool_calls = prop_oneof![3 => Just(0), 1 => 1..3usize];
    let roles = || 0..3usize;
    let agent = || proptest::option::of(0..AGENTS.len());
    prop_oneof![
        12 => (orders(), busy).prop_map(|(orders, busy)| Op::Say { orders, busy }),
        40 => (0..8usize, 1..200usize, tool_calls, few())
            .prop_map(|(place, size, tool_calls, orders)| Op::Answer { place, size, tool_calls, orders }),
        3 => (0..8usize, any::<bool>()).prop_map(|(place, passing)| Op::Fail { place, passing }),
        3 => (1..30u32, 1..3u32).prop_map(|(call, attempt)| Op::Stale { call, attempt }),
        12 => (0..4usize, 1..150usize, any::<bool>()).prop_map(|(place, size, fine)| Op::Tool { place, size, fine }),
        3 => (1..500u64, any::<bool>()).prop_map(|(ms, tick)| Op::Wait { ms, tick }),
        1 => (roles(), 0..MODELS.len()).prop_map(|(role, model)| Op::Cast { role, model }),
        1 => (roles(), agent(), agent()).prop_map(|(role, agent, peer)| Op::Forget { role, agent, peer }),
        1 => (0..GRAPHS.len(), 0..PHASES.len()).prop_map(|(graph, to)| Op::Propose { graph, to }),
        2 => any::<bool>().prop_map(|retry| Op::Resolve { retry }),
        1 => prop_oneof![Just(1_024u32), Just(1_400), Just(100_000)].prop_map(|tokens| Op::Window { tokens }),
        2 => Just(Op::Crash),
        1 => Just(Op::Cancel),
        1 => Just(Op::Fork),
    ]
}

/// A history in progress, and the model that follows it.
struct Play {
    harness: SessionHarness,
    /// The roles in it. Three roles call often; ten would each call rarely.
    cast: [usize; 3],
    oracle: Oracle,
    noted: usize,
    prompts: BTreeMap<CallId, Prompt>,
}

impl Play {
    fn new(cast: [usize; 3]) -> Self {
        let mut harness = SessionHarness::open(Everything::new());
        harness.set_window(1_024);
        Self { harness, cast, oracle: Oracle::default(), noted: 0, prompts: BTreeMap::new() }
    }

    fn give(&mut self, input: SessionInput) {
        if self.harness.try_input(input).is_ok() {
            self.look();
        }
    }

    /// Passes new events to the model and checks the prompts of new calls.
    fn look(&mut self) {
        let new = self.harness.journal()[self.noted..].to_vec();
        self.noted = self.harness.journal().len();
        for recorded in &new {
            self.oracle.note(&self.harness, recorded);
        }
        let opened: Vec<CallId> =
            self.oracle.expected.keys().copied().filter(|call| !self.prompts.contains_key(call)).collect();
        for call in &opened {
            let is_open = self.harness.session().open_calls.contains_key(call);
            // A call that was closed at once was not sent, but its prompt can be rebuilt.
            let prompt = if is_open { self.harness.prompt_for_call(*call) } else { self.harness.rebuild_prompt(*call) };
            self.prompts.insert(*call, prompt);
        }
        for call in opened {
            self.oracle.check(&self.harness, call, &self.prompts);
        }
    }

    fn play(&mut self, op: &Op) {
        let session = self.harness.session();
        let nth_call = |place: usize| {
            let calls: Vec<(CallId, u32)> =
                session.open_calls.iter().map(|(call, open)| (*call, open.attempt)).collect();
            calls.get(place % calls.len().max(1)).copied()
        };
        match op {
            Op::Say { orders, busy } => {
                let orders = self.written(orders);
                self.give(SessionInput::Message {
                    text: format!("do{ORDERS}{orders}"),
                    idempotency_key: None,
                    mid_turn_policy: *busy,
                    images: Vec::new(),
                });
            }
            Op::Answer { place, size, tool_calls, orders } => {
                if let Some((call, attempt)) = nth_call(*place) {
                    self.answer(call, attempt, *size, *tool_calls, orders);
                }
            }
            Op::Fail { place, passing } => {
                if let Some((call, attempt)) = nth_call(*place) {
                    let kind = if *passing { CallFailureKind::Overload } else { CallFailureKind::Refused };
                    self.give(SessionInput::CallFailure {
                        call,
                        attempt,
                        failure: CallFailure::new(kind, "as it happens"),
                    });
                }
            }
            Op::Stale { call, attempt } => self.answer(CallId(*call), *attempt, 5, 0, &[]),
            Op::Tool { place, size, fine } => {
                let runs: Vec<_> = session.open_tool_runs.values().cloned().collect();
                if let Some(opened) = runs.get(place % runs.len().max(1)) {
                    let born = opened.requested_by.as_ref().map_or_else(String::new, |(call, _)| marker(*call));
                    let text = format!("result {born} {}", "word ".repeat(*size));
                    let result = if *fine { Ok(text) } else { Err(text) };
                    self.give(SessionInput::ToolResult { run: opened.run, result: result.into() });
                }
            }
            Op::Wait { ms, tick } => {
                self.harness.advance_clock(*ms);
                if *tick {
                    self.give(SessionInput::Tick);
                }
            }
            Op::Cast { role, model } => self.harness.assign_model(ROLES[self.cast[*role]], MODELS[*model]),
            Op::Forget { role, agent, peer } => {
                let name = |place: &Option<usize>| place.map(|place| AGENTS[place].into());
                let (agent, peer) = (name(agent), name(peer));
                self.give(SessionInput::Operator(OperatorCommand::Forget {
                    role: ROLES[self.cast[*role]].into(),
                    agent,
                    peer,
                }));
            }
            Op::Propose { graph, to } => {
                let (phase, to) = (key(*graph), PHASES[*to].into());
                self.give(SessionInput::Operator(OperatorCommand::Propose { phase, to, reason: None }));
            }
            Op::Resolve { retry } => {
                let held = session.calls_awaiting_operator().next().map(|(call, _)| *call);
                if let Some(call) = held {
                    let how =
                        if *retry { UnknownCallOutcomeResolution::Retry } else { UnknownCallOutcomeResolution::Fail };
                    self.give(SessionInput::Operator(OperatorCommand::Resolve { call, resolution: how }));
                }
            }
            Op::Window { tokens } => self.harness.set_window(*tokens),
            Op::Crash => {
                self.harness.crash_and_recover();
                self.look();
            }
            Op::Cancel => self.give(SessionInput::Operator(OperatorCommand::Cancel { turn: None })),
            Op::Fork => {
                self.harness.fork();
                self.look();
            }
        }
    }

    /// Returns orders as text, for the roles of this history.
    fn written(&self, orders: &[Order]) -> String {
        let mut orders = orders.to_vec();
        for order in &mut orders {
            if let Order::Call { role, .. } | Order::Forget { role, .. } = order {
                *role = self.cast[*role];
            }
        }
        serde_json::to_string(&orders).expect("orders are JSON")
    }

    fn answer(&mut self, call: CallId, attempt: u32, size: usize, tool_calls: usize, orders: &[Order]) {
        // A summary belongs to no role's scope, so it has no mark.
        let is_summary =
            self.harness.session().open_calls.get(&call).is_some_and(|open| open.opened.compacts_thread.is_some());
        let text = if is_summary { "they talked".to_owned() } else { answer(call, size) };
        let orders = self.written(orders);
        let tool_calls =
            (0..tool_calls).map(|n| ToolCall { id: n.to_string(), name: "look".into(), arguments: json!({}) });
        let reply = ModelReply {
            text: format!("{text}{ORDERS}{orders}"),
            tool_calls: tool_calls.collect(),
            ..ModelReply::default()
        };
        self.give(SessionInput::Answer { call, attempt, reply, cost_microusd: Some(1), duration_ms: 1 });
    }

    /// Answers everything until nothing is pending.
    fn play_out(&mut self) {
        for _ in 0..1_000 {
            let session = self.harness.session();
            let held = session.calls_awaiting_operator().next().map(|(call, _)| *call);
            let run = session.open_tool_runs.keys().next().copied();
            let call = session.open_calls.iter().map(|(call, open)| (*call, open.attempt)).next();
            match (held, run, call) {
                (Some(call), ..) => self.give(SessionInput::Operator(OperatorCommand::Resolve {
                    call,
                    resolution: UnknownCallOutcomeResolution::Retry,
                })),
                (_, Some(run), _) => self.give(SessionInput::ToolResult { run, result: ToolResult::done("done") }),
                (_, _, Some((call, attempt))) => self.answer(call, attempt, 1, 0, &[]),
                (None, None, None) if session.timers.is_empty() => break,
                (None, None, None) => self.play(&Op::Wait { ms: 300, tick: true }),
            }
        }
        assert!(self.harness.session().is_idle(), "every turn ends: {:?}", self.harness.session().current_turn);
    }

    /// Checks what must hold for the whole history.
    fn check(&self) {
        for (call, prompt) in self.harness.rebuild_all_prompts() {
            assert_eq!(Some(&prompt), self.prompts.get(&call), "{call} is rebuilt as it was sent");
        }
        self.oracle.check_digests(&self.prompts);
    }
}

/// A quarter of the usual number of cases, because each history is long and checked closely.
fn some_cases() -> ProptestConfig {
    let usual = ProptestConfig::default();
    ProptestConfig { cases: usual.cases / 4, failure_persistence: None, ..usual }
}

fn history() -> impl Strategy<Value = ([usize; 3], Vec<Op>)> {
    let cast = [0..ROLES.len(), 0..ROLES.len(), 0..ROLES.len()];
    (cast, proptest::collection::vec(any_op(), 1..120))
}

#[test]
fn random_histories_cover_everything_that_threads_depend_on() {
    let mut runner = TestRunner::deterministic();
    let mut seen: BTreeMap<&str, u32> = BTreeMap::new();
    for _ in 0..50 {
        let (cast, ops) = history().new_tree(&mut runner).expect("a history can be made up").current();
        let mut play = Play::new(cast);
        ops.iter().for_each(|op| play.play(op));
        for recorded in play.harness.journal() {
            for what in event_labels(&recorded.event) {
                *seen.entry(what).or_default() += 1;
            }
        }
    }
    let wanted = [
        "continued",
        "fresh",
        "first",
        "aged",
        "turn",
        "phase",
        "model",
        "work",
        "reset",
        "round",
        "summary",
        "trimmed",
        "extends",
        "broken by compaction",
        "deferred",
        "deferred round",
        "dropped",
        "cancelled",
        "unknown",
        "given up",
        "late",
        "interrupted",
        "expired",
        "outside turns",
        "too long",
        "forked",
    ];
    let missing: Vec<&str> = wanted.into_iter().filter(|what| !seen.contains_key(what)).collect();
    assert!(missing.is_empty(), "never happened:  {missing:?}; happened: {seen:#?}");
}

proptest! {
    #![proptest_config(some_cases())]

    #[test]
    fn no_role_sees_messages_from_outside_its_scope_or_loses_messages_inside(
        (cast, ops) in history(),
    ) {
        let mut play = Play::new(cast);
        for op in &ops {
            play.play(op);
        }
        play.play_out();
        play.check();
    }
}

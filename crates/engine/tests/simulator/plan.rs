//! The plan of a run, drawn from its seed: processes, actions of users, and faults.

use std::collections::BTreeMap;

use segue_core::decide::OperatorCommand;
use segue_core::event::{MidTurnPolicy, PhaseGraphKey, PhaseStateOwner};
use segue_flows::assistant::spec::UNDO_COMMAND;
use serde_json::{Value, json};

use crate::assistant::{ASSISTANT_FLOW, SHOP_DOMAIN};
use crate::flows::FLOWS;
use crate::model::ModelBehavior;
use crate::seeded_random::SeededRandom;
use crate::store::{SimAppendFault, StoreFaults};

/// A simulated run.
#[derive(Debug, Clone)]
pub(crate) struct SimPlan {
    pub seed: u64,
    pub flow: &'static str,
    /// The settings of its sessions.
    pub settings: Value,
    pub mid_turn_policy: MidTurnPolicy,
    pub sessions: u64,
    pub model_behavior: ModelBehavior,
    pub store_faults: StoreFaults,
    /// Concurrent calls that a model allows.
    pub calls_max: usize,
    /// The processes in order. The last one runs until all sessions are idle.
    pub processes: Vec<ProcessPlan>,
}

/// One process, from its start to its end.
#[derive(Debug, Clone)]
pub(crate) struct ProcessPlan {
    /// How long it runs, if it does not crash earlier.
    pub ms: u64,
    pub end: ProcessEnd,
    /// Whether another process uses the same disk.
    pub has_rival: bool,
    pub actions: Vec<(u64, SimAction)>,
}

/// How a process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProcessEnd {
    Crash,
    Shutdown,
}

/// An action of a user, operator or subscriber. Sessions are named by their index among the existing ones.
#[derive(Debug, Clone)]
pub(crate) enum SimAction {
    SendMessage {
        session: u64,
        text: String,
        key: Option<String>,
        mid_turn_policy: Option<MidTurnPolicy>,
        mode: SendMode,
        through: TargetProcess,
    },
    Command {
        session: u64,
        command: OperatorCommand,
    },
    Fork {
        session: u64,
        at_percent: Option<u64>,
    },
    Copy {
        session: u64,
    },
    Recompute {
        session: u64,
        call: u32,
        model: Option<&'static str>,
    },
    Delete {
        session: u64,
    },
    Listen {
        session: u64,
        from: ListenFrom,
        slow_ms: u64,
        through: TargetProcess,
    },
}

/// Whether the sender waits for the turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendMode {
    Send,
    SendAndWait,
}

/// The process that an action is sent to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TargetProcess {
    First,
    Rival,
}

/// Where a subscriber begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListenFrom {
    Start,
    Now,
}

impl SimPlan {
    /// Draws the plan of a seed for one of the flows of the first simulation.
    pub(crate) fn random(seed: u64) -> Self {
        Self::random_for(FLOWS[usize::try_from(seed % FLOWS.len() as u64).expect("small")], seed)
    }

    /// Draws the plan of a seed for a flow.
    pub(crate) fn random_for(flow: &'static str, seed: u64) -> Self {
        let mut random = SeededRandom::new(seed);
        let is_large = random.chance_percent(3);
        let is_cramped = flow == "chat" && random.chance_percent(15);
        let model_behavior = ModelBehavior {
            failure_percent: *random.pick(&[0, 5, 15, 30]),
            chunk_gap_ms_max: *random.pick(&[0, 5, 60, 400]),
            words_max: if is_cramped { 300 } else { 8 },
            window_tokens: if is_cramped { 1_024 } else { 100_000 },
        };
        let process_count = if is_large { random.between(2, 8) } else { random.between(1, 3) };
        let actions_max = if is_large { 30 } else { 4 };
        let mut text_count = 0;
        let mid_turn_policy = *random.pick(&[
            MidTurnPolicy::Queue,
            MidTurnPolicy::Queue,
            MidTurnPolicy::Coalesce,
            MidTurnPolicy::Reject,
            MidTurnPolicy::Interrupt,
        ]);
        let processes =
            (0..process_count).map(|_| ProcessPlan::random(&mut random, flow, actions_max, &mut text_count)).collect();
        let store_faults = StoreFaults {
            appends: random_append_faults(&mut random),
            other_failures_percent: *random.pick(&[0, 0, 0, 3, 10]),
            ms_max: *random.pick(&[0, 0, 2, 20]),
        };
        let calls_max = *random.pick(&[64, 2, 1]);
        let (sessions, settings) = (random.between(1, 2), random_settings(&mut random, flow));
        Self { seed, flow, settings, mid_turn_policy, sessions, model_behavior, store_faults, calls_max, processes }
    }

    /// Draws a short plan without faults, to inject one at a given commit.
    pub(crate) fn without_faults(seed: u64, flow: &'static str) -> Self {
        let mut random = SeededRandom::new(seed);
        let model_behavior =
            ModelBehavior { failure_percent: 10, chunk_gap_ms_max: 40, words_max: 8, window_tokens: 100_000 };
        let mut text_count = 0;
        let mut process = ProcessPlan::random(&mut random, flow, 4, &mut text_count);
        process.has_rival = false;
        process.ms = 2_000;
        let mut message = random_message(&mut random, flow, &mut text_count);
        if let SimAction::SendMessage { mode, through, .. } = &mut message {
            (*mode, *through) = (SendMode::SendAndWait, TargetProcess::First);
        }
        let last = ProcessPlan { ms: 1_000, end: ProcessEnd::Crash, has_rival: false, actions: vec![(0, message)] };
        Self {
            seed,
            flow,
            settings: if flow == ASSISTANT_FLOW { json!({"domain": SHOP_DOMAIN}) } else { Value::Null },
            mid_turn_policy: MidTurnPolicy::Queue,
            sessions: 1,
            model_behavior,
            store_faults: StoreFaults { ms_max: 3, ..StoreFaults::default() },
            calls_max: 64,
            processes: vec![process, last],
        }
    }
}

impl ProcessPlan {
    fn random(random: &mut SeededRandom, flow: &str, actions_max: u64, text_count: &mut u64) -> Self {
        let ms = *random.pick(&[50, 300, 1_000, 4_000, 20_000]);
        let has_rival = random.chance_percent(12);
        let count = random.between(1, actions_max);
        let actions = (0..count).map(|_| {
            let after = random.below(ms.min(3_000));
            (after, random_action(random, flow, has_rival, text_count))
        });
        let actions = actions.collect();
        let end = if random.chance_percent(20) { ProcessEnd::Shutdown } else { ProcessEnd::Crash };
        Self { ms, end, has_rival, actions }
    }
}

/// Draws settings that change the order in which a flow works.
fn random_settings(random: &mut SeededRandom, flow: &str) -> Value {
    if flow == ASSISTANT_FLOW {
        return json!({"domain": SHOP_DOMAIN, "turn_narratives": random.chance_percent(80)});
    }
    if flow != "concierge" {
        return Value::Null;
    }
    let mut settings = json!({"samples": random.between(1, 3), "handover_by_turn": random.between(1, 3)});
    let optional_settings = [
        ("quorum", json!(2)),
        ("answer_timeout_ms", json!(300)),
        ("confirm_batches", json!(true)),
        ("synthesis", json!("next_turn")),
        ("batch", json!("every_turn")),
        ("experts", json!(["ant", {"model": "bee", "timeout_ms": 50}])),
    ];
    for (name, value) in optional_settings {
        if random.chance_percent(15) {
            settings[name] = value;
        }
    }
    settings
}

fn random_append_faults(random: &mut SeededRandom) -> BTreeMap<u64, SimAppendFault> {
    let fault_kinds = [
        SimAppendFault::Before,
        SimAppendFault::After,
        SimAppendFault::Full,
        SimAppendFault::DeathBefore,
        SimAppendFault::DeathAfter,
    ];
    let mut faults = BTreeMap::new();
    for _ in 0..*random.pick(&[0, 1, 2, 4]) {
        let first = random.between(1, 30);
        let kind = *random.pick(&fault_kinds);
        // A full disk stays full for a while.
        let count = if kind == SimAppendFault::Full { random.between(1, 5) } else { 1 };
        faults.extend((first..first + count).map(|number| (number, kind)));
    }
    faults
}

fn random_action(random: &mut SeededRandom, flow: &str, has_rival: bool, text_count: &mut u64) -> SimAction {
    let session = random.below(8);
    match random.below(100) {
        0..=59 => {
            let mut message = random_message(random, flow, text_count);
            if let SimAction::SendMessage { through, .. } = &mut message
                && has_rival
                && random.chance_percent(40)
            {
                *through = TargetProcess::Rival;
            }
            message
        }
        60..=61 => {
            let call = u32::try_from(random.between(1, 6)).expect("small");
            SimAction::Recompute { session, call, model: random.chance_percent(50).then_some("bee") }
        }
        62..=77 => SimAction::Command { session, command: random_command(random, flow) },
        78..=79 => SimAction::Fork { session, at_percent: random.chance_percent(50).then(|| random.between(1, 100)) },
        80 => SimAction::Copy { session },
        81 => SimAction::Delete { session },
        _ => {
            let through =
                if has_rival && random.chance_percent(40) { TargetProcess::Rival } else { TargetProcess::First };
            let from = if random.chance_percent(50) { ListenFrom::Start } else { ListenFrom::Now };
            SimAction::Listen { session, from, slow_ms: *random.pick(&[0, 0, 5, 700]), through }
        }
    }
}

fn random_message(random: &mut SeededRandom, flow: &str, text_count: &mut u64) -> SimAction {
    *text_count += 1;
    // Every message has a unique marker, unless its key makes it a repetition.
    let text = match flow {
        "mini-team" => {
            let to = *random.pick(&["ann", "bob", "arch"]);
            let item_kind = *random.pick(&["story", "fact"]);
            format!("{item_kind}-⟦u{text_count}⟧ to {to}")
        }
        _ => format!("⟦u{text_count}⟧ which way? <<<HANDOVER>>> goal: mine <<<END>>>"),
    };
    let key = random.chance_percent(40).then(|| format!("key-{}", random.below(4)));
    let mid_turn_policy = random.chance_percent(25).then(|| {
        *random.pick(&[MidTurnPolicy::Queue, MidTurnPolicy::Coalesce, MidTurnPolicy::Reject, MidTurnPolicy::Interrupt])
    });
    let mode = if random.chance_percent(50) { SendMode::SendAndWait } else { SendMode::Send };
    SimAction::SendMessage { session: random.below(8), text, key, mid_turn_policy, mode, through: TargetProcess::First }
}

fn random_command(random: &mut SeededRandom, flow: &str) -> OperatorCommand {
    if flow == ASSISTANT_FLOW {
        return random_assistant_command(random);
    }
    let phase = match flow {
        "concierge" => PhaseGraphKey { graph: "conversation".into(), owner: PhaseStateOwner::Role("concierge".into()) },
        "mini-concierge" => PhaseGraphKey { graph: "talk".into(), owner: PhaseStateOwner::Role("speaker".into()) },
        "mini-team" => PhaseGraphKey { graph: "coder".into(), owner: PhaseStateOwner::Agent("ann".into()) },
        _ => PhaseGraphKey { graph: "work".into(), owner: PhaseStateOwner::Session },
    };
    let to = (*random.pick(&["explorer", "starter", "executor", "execute", "verify", "end", "waiting"])).into();
    let role = (*random.pick(&["assistant", "speaker", "concierge", "expert", "worker", "coder", "architect"])).into();
    match random.below(12) {
        0..=2 => OperatorCommand::Cancel { turn: None },
        3..=4 => OperatorCommand::Retry { turn: None },
        5..=6 => OperatorCommand::Forget { role, agent: None, peer: None },
        7 => OperatorCommand::Rename { title: "another\u{7} title".to_owned() },
        8 => OperatorCommand::Grant { phase, to },
        9 => OperatorCommand::Propose { phase, to, reason: None },
        10 => OperatorCommand::RollBack { phase, visit: u32::try_from(random.between(1, 3)).expect("small") },
        _ if random.chance_percent(25) => OperatorCommand::Close,
        _ => OperatorCommand::Cancel { turn: None },
    }
}

fn random_assistant_command(random: &mut SeededRandom) -> OperatorCommand {
    match random.below(20) {
        0..=9 => {
            let named = random.chance_percent(20).then(|| random.between(1, 12));
            OperatorCommand::Flow { command: UNDO_COMMAND.to_owned(), arguments: json!({ "run": named }) }
        }
        10..=13 => OperatorCommand::Cancel { turn: None },
        14..=15 => OperatorCommand::Retry { turn: None },
        16..=17 => {
            let role = (*random.pick(&["understand", "think", "act", "reply"])).into();
            OperatorCommand::Forget { role, agent: None, peer: None }
        }
        18 => OperatorCommand::Rename { title: "another title".to_owned() },
        _ if random.chance_percent(25) => OperatorCommand::Close,
        _ => OperatorCommand::Cancel { turn: None },
    }
}

//! What will happen in a run, drawn from its seed: lives of processes, deeds of users, mishaps.

use std::collections::BTreeMap;

use segue_core::decide::OperatorCommand;
use segue_core::event::{MidTurnPolicy, PhaseGraphKey, PhaseGraphOwner};
use serde_json::{Value, json};

use crate::flows::FLOWS;
use crate::model::ModelBehavior;
use crate::seeded_random::SeededRandom;
use crate::store::{SimAppendFault, StoreFaults};

/// A run.
#[derive(Debug, Clone)]
pub struct SimPlan {
    pub seed: u64,
    pub flow: &'static str,
    /// How its sessions are set.
    pub settings: Value,
    pub busy: MidTurnPolicy,
    pub sessions: u64,
    pub model_behavior: ModelBehavior,
    pub store_faults: StoreFaults,
    /// Calls at once that a model takes.
    pub calls_max: usize,
    /// The last one is left alone until everything has come to rest.
    pub processes: Vec<ProcessPlan>,
}

/// One process, from its start to its end.
#[derive(Debug, Clone)]
pub struct ProcessPlan {
    /// Dies after so long, if nothing else ends it.
    pub ms: u64,
    pub end: ProcessEnd,
    /// Whether another process works on the same disk.
    pub has_rival: bool,
    pub actions: Vec<(u64, SimAction)>,
}

/// How a life ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessEnd {
    Crash,
    Shutdown,
}

/// What somebody does. Sessions are named by their place among those there are.
#[derive(Debug, Clone)]
pub enum SimAction {
    SendMessage {
        session: u64,
        text: String,
        key: Option<String>,
        busy: Option<MidTurnPolicy>,
        how: SendMode,
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

/// How a message is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendMode {
    Send,
    SendAndWait,
}

/// To which process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetProcess {
    First,
    Rival,
}

/// Where a listener begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListenFrom {
    Start,
    Now,
}

impl SimPlan {
    /// The run of a seed.
    pub fn random(seed: u64) -> Self {
        let mut dice = SeededRandom::new(seed);
        let flow = FLOWS[usize::try_from(seed % FLOWS.len() as u64).expect("small")];
        let large = dice.chance_percent(3);
        let cramped = flow == "chat" && dice.chance_percent(15);
        let temper = ModelBehavior {
            failure_percent: *dice.pick(&[0, 5, 15, 30]),
            chunk_gap_ms_max: *dice.pick(&[0, 5, 60, 400]),
            words_max: if cramped { 300 } else { 8 },
            window_tokens: if cramped { 1_024 } else { 100_000 },
        };
        let lives = if large { dice.between(2, 8) } else { dice.between(1, 3) };
        let deeds = if large { 30 } else { 4 };
        let mut texts = 0;
        let busy = *dice.pick(&[
            MidTurnPolicy::Queue,
            MidTurnPolicy::Queue,
            MidTurnPolicy::Coalesce,
            MidTurnPolicy::Reject,
            MidTurnPolicy::Interrupt,
        ]);
        let lives = (0..lives).map(|_| ProcessPlan::random(&mut dice, flow, deeds, &mut texts)).collect();
        let trouble = StoreFaults {
            appends: mishaps(&mut dice),
            other_failures_percent: *dice.pick(&[0, 0, 0, 3, 10]),
            ms_max: *dice.pick(&[0, 0, 2, 20]),
        };
        let calls_max = *dice.pick(&[64, 2, 1]);
        let (sessions, settings) = (dice.between(1, 2), settings(&mut dice, flow));
        Self {
            seed,
            flow,
            settings,
            busy,
            sessions,
            model_behavior: temper,
            store_faults: trouble,
            calls_max,
            processes: lives,
        }
    }

    /// A short run in which nothing goes wrong, to be disturbed at one place.
    pub fn without_faults(seed: u64, flow: &'static str) -> Self {
        let mut dice = SeededRandom::new(seed);
        let temper = ModelBehavior { failure_percent: 10, chunk_gap_ms_max: 40, words_max: 8, window_tokens: 100_000 };
        let mut texts = 0;
        let mut life = ProcessPlan::random(&mut dice, flow, 4, &mut texts);
        life.has_rival = false;
        life.ms = 2_000;
        let mut say = say(&mut dice, flow, &mut texts);
        if let SimAction::SendMessage { how, through, .. } = &mut say {
            (*how, *through) = (SendMode::SendAndWait, TargetProcess::First);
        }
        let last = ProcessPlan { ms: 1_000, end: ProcessEnd::Crash, has_rival: false, actions: vec![(0, say)] };
        Self {
            seed,
            flow,
            settings: Value::Null,
            busy: MidTurnPolicy::Queue,
            sessions: 1,
            model_behavior: temper,
            store_faults: StoreFaults { ms_max: 3, ..StoreFaults::default() },
            calls_max: 64,
            processes: vec![life, last],
        }
    }
}

impl ProcessPlan {
    fn random(dice: &mut SeededRandom, flow: &str, deeds_max: u64, texts: &mut u64) -> Self {
        let ms = *dice.pick(&[50, 300, 1_000, 4_000, 20_000]);
        let rival = dice.chance_percent(12);
        let count = dice.between(1, deeds_max);
        let deeds = (0..count).map(|_| {
            let after = dice.below(ms.min(3_000));
            (after, deed(dice, flow, rival, texts))
        });
        let deeds = deeds.collect();
        let end = if dice.chance_percent(20) { ProcessEnd::Shutdown } else { ProcessEnd::Crash };
        Self { ms, end, has_rival: rival, actions: deeds }
    }
}

/// Settings under which a flow does what it does in another order.
fn settings(dice: &mut SeededRandom, flow: &str) -> Value {
    if flow != "concierge" {
        return Value::Null;
    }
    let mut settings = json!({"samples": dice.between(1, 3), "handover_by_turn": dice.between(1, 3)});
    let others = [
        ("quorum", json!(2)),
        ("answer_timeout_ms", json!(300)),
        ("confirm_batches", json!(true)),
        ("synthesis", json!("next_turn")),
        ("batch", json!("every_turn")),
        ("experts", json!(["ant", {"model": "bee", "timeout_ms": 50}])),
    ];
    for (name, value) in others {
        if dice.chance_percent(15) {
            settings[name] = value;
        }
    }
    settings
}

fn mishaps(dice: &mut SeededRandom) -> BTreeMap<u64, SimAppendFault> {
    let kinds = [
        SimAppendFault::Before,
        SimAppendFault::After,
        SimAppendFault::Full,
        SimAppendFault::DeathBefore,
        SimAppendFault::DeathAfter,
    ];
    let mut mishaps = BTreeMap::new();
    for _ in 0..*dice.pick(&[0, 1, 2, 4]) {
        let first = dice.between(1, 30);
        let kind = *dice.pick(&kinds);
        // A full disk stays full for a while.
        let times = if kind == SimAppendFault::Full { dice.between(1, 5) } else { 1 };
        mishaps.extend((first..first + times).map(|place| (place, kind)));
    }
    mishaps
}

fn deed(dice: &mut SeededRandom, flow: &str, rival: bool, texts: &mut u64) -> SimAction {
    let session = dice.below(8);
    match dice.below(100) {
        0..=59 => {
            let mut said = say(dice, flow, texts);
            if let SimAction::SendMessage { through, .. } = &mut said
                && rival
                && dice.chance_percent(40)
            {
                *through = TargetProcess::Rival;
            }
            said
        }
        60..=61 => {
            let call = u32::try_from(dice.between(1, 6)).expect("small");
            SimAction::Recompute { session, call, model: dice.chance_percent(50).then_some("bee") }
        }
        62..=77 => SimAction::Command { session, command: command(dice, flow) },
        78..=79 => SimAction::Fork { session, at_percent: dice.chance_percent(50).then(|| dice.between(1, 100)) },
        80 => SimAction::Copy { session },
        81 => SimAction::Delete { session },
        _ => {
            let through = if rival && dice.chance_percent(40) { TargetProcess::Rival } else { TargetProcess::First };
            let from = if dice.chance_percent(50) { ListenFrom::Start } else { ListenFrom::Now };
            SimAction::Listen { session, from, slow_ms: *dice.pick(&[0, 0, 5, 700]), through }
        }
    }
}

fn say(dice: &mut SeededRandom, flow: &str, texts: &mut u64) -> SimAction {
    *texts += 1;
    // A mark of its own in every message, unless it is the same one again.
    let text = match flow {
        "mini-team" => {
            let to = *dice.pick(&["ann", "bob", "arch"]);
            let what = *dice.pick(&["story", "fact"]);
            format!("{what}-⟦u{texts}⟧ to {to}")
        }
        _ => format!("⟦u{texts}⟧ which way? <<<HANDOVER>>> goal: mine <<<END>>>"),
    };
    let key = dice.chance_percent(40).then(|| format!("key-{}", dice.below(4)));
    let busy = dice.chance_percent(25).then(|| {
        *dice.pick(&[MidTurnPolicy::Queue, MidTurnPolicy::Coalesce, MidTurnPolicy::Reject, MidTurnPolicy::Interrupt])
    });
    let how = if dice.chance_percent(50) { SendMode::SendAndWait } else { SendMode::Send };
    SimAction::SendMessage { session: dice.below(8), text, key, busy, how, through: TargetProcess::First }
}

fn command(dice: &mut SeededRandom, flow: &str) -> OperatorCommand {
    let phase = match flow {
        "concierge" => PhaseGraphKey { graph: "conversation".into(), owner: PhaseGraphOwner::Role("concierge".into()) },
        "mini-concierge" => PhaseGraphKey { graph: "talk".into(), owner: PhaseGraphOwner::Role("speaker".into()) },
        "mini-team" => PhaseGraphKey { graph: "coder".into(), owner: PhaseGraphOwner::Agent("ann".into()) },
        _ => PhaseGraphKey { graph: "work".into(), owner: PhaseGraphOwner::Session },
    };
    let to = (*dice.pick(&["explorer", "starter", "executor", "execute", "verify", "end", "waiting"])).into();
    let role = (*dice.pick(&["assistant", "speaker", "concierge", "expert", "worker", "coder", "architect"])).into();
    match dice.below(12) {
        0..=2 => OperatorCommand::Cancel,
        3..=4 => OperatorCommand::Retry,
        5..=6 => OperatorCommand::Forget { role, agent: None, peer: None },
        7 => OperatorCommand::Rename { title: "another\u{7} title".to_owned() },
        8 => OperatorCommand::Grant { phase, to },
        9 => OperatorCommand::Propose { phase, to, reason: None },
        10 => OperatorCommand::RollBack { phase, visit: u32::try_from(dice.between(1, 3)).expect("small") },
        _ if dice.chance_percent(25) => OperatorCommand::Close,
        _ => OperatorCommand::Cancel,
    }
}

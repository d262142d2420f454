//! What will happen in a run, drawn from its seed: lives of processes, deeds of users, mishaps.

use std::collections::BTreeMap;

use segue_core::decide::Command;
use segue_core::event::{Busy, Owner, PhaseKey};
use serde_json::{Value, json};

use crate::dice::Dice;
use crate::flows::FLOWS;
use crate::model::Temper;
use crate::store::{Mishap, Trouble};

/// A run.
#[derive(Debug, Clone)]
pub struct Plan {
    pub seed: u64,
    pub flow: &'static str,
    /// How its sessions are set.
    pub settings: Value,
    pub busy: Busy,
    pub sessions: u64,
    pub temper: Temper,
    pub trouble: Trouble,
    /// Calls at once that a model takes.
    pub calls_max: usize,
    /// The last one is left alone until everything has come to rest.
    pub lives: Vec<Life>,
}

/// One process, from its start to its end.
#[derive(Debug, Clone)]
pub struct Life {
    /// Dies after so long, if nothing else ends it.
    pub ms: u64,
    pub end: End,
    /// Whether another process works on the same disk.
    pub rival: bool,
    pub deeds: Vec<(u64, Deed)>,
}

/// How a life ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Death,
    Shutdown,
}

/// What somebody does. Sessions are named by their place among those there are.
#[derive(Debug, Clone)]
pub enum Deed {
    Say { session: u64, text: String, key: Option<String>, busy: Option<Busy>, how: How, through: Through },
    Command { session: u64, command: Command },
    Fork { session: u64, at_percent: Option<u64> },
    Copy { session: u64 },
    Recompute { session: u64, call: u32, model: Option<&'static str> },
    Delete { session: u64 },
    Listen { session: u64, from: From, slow_ms: u64, through: Through },
}

/// How a message is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    Send,
    Ask,
}

/// To which process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Through {
    First,
    Rival,
}

/// Where a listener begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    Start,
    Now,
}

impl Plan {
    /// The run of a seed.
    pub fn random(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let flow = FLOWS[usize::try_from(seed % FLOWS.len() as u64).expect("small")];
        let large = dice.percent(3);
        let cramped = flow == "chat" && dice.percent(15);
        let temper = Temper {
            wrong_percent: *dice.pick(&[0, 5, 15, 30]),
            ms_max: *dice.pick(&[0, 5, 60, 400]),
            words_max: if cramped { 300 } else { 8 },
            window_tokens: if cramped { 1_024 } else { 100_000 },
        };
        let lives = if large { dice.between(2, 8) } else { dice.between(1, 3) };
        let deeds = if large { 30 } else { 4 };
        let mut texts = 0;
        let busy = *dice.pick(&[Busy::Queue, Busy::Queue, Busy::Coalesce, Busy::Reject, Busy::Interrupt]);
        let lives = (0..lives).map(|_| Life::random(&mut dice, flow, deeds, &mut texts)).collect();
        let trouble = Trouble {
            appends: mishaps(&mut dice),
            others_percent: *dice.pick(&[0, 0, 0, 3, 10]),
            ms_max: *dice.pick(&[0, 0, 2, 20]),
        };
        let calls_max = *dice.pick(&[64, 2, 1]);
        let (sessions, settings) = (dice.between(1, 2), settings(&mut dice, flow));
        Self { seed, flow, settings, busy, sessions, temper, trouble, calls_max, lives }
    }

    /// A short run in which nothing goes wrong, to be disturbed at one place.
    pub fn quiet(seed: u64, flow: &'static str) -> Self {
        let mut dice = Dice::new(seed);
        let temper = Temper { wrong_percent: 10, ms_max: 40, words_max: 8, window_tokens: 100_000 };
        let mut texts = 0;
        let mut life = Life::random(&mut dice, flow, 4, &mut texts);
        life.rival = false;
        life.ms = 2_000;
        let mut say = say(&mut dice, flow, &mut texts);
        if let Deed::Say { how, through, .. } = &mut say {
            (*how, *through) = (How::Ask, Through::First);
        }
        let last = Life { ms: 1_000, end: End::Death, rival: false, deeds: vec![(0, say)] };
        Self {
            seed,
            flow,
            settings: Value::Null,
            busy: Busy::Queue,
            sessions: 1,
            temper,
            trouble: Trouble { ms_max: 3, ..Trouble::default() },
            calls_max: 64,
            lives: vec![life, last],
        }
    }
}

impl Life {
    fn random(dice: &mut Dice, flow: &str, deeds_max: u64, texts: &mut u64) -> Self {
        let ms = *dice.pick(&[50, 300, 1_000, 4_000, 20_000]);
        let rival = dice.percent(12);
        let count = dice.between(1, deeds_max);
        let deeds = (0..count).map(|_| {
            let after = dice.below(ms.min(3_000));
            (after, deed(dice, flow, rival, texts))
        });
        let deeds = deeds.collect();
        let end = if dice.percent(20) { End::Shutdown } else { End::Death };
        Self { ms, end, rival, deeds }
    }
}

/// Settings under which a flow does what it does in another order.
fn settings(dice: &mut Dice, flow: &str) -> Value {
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
        if dice.percent(15) {
            settings[name] = value;
        }
    }
    settings
}

fn mishaps(dice: &mut Dice) -> BTreeMap<u64, Mishap> {
    let kinds = [Mishap::Before, Mishap::After, Mishap::Full, Mishap::DeathBefore, Mishap::DeathAfter];
    let mut mishaps = BTreeMap::new();
    for _ in 0..*dice.pick(&[0, 1, 2, 4]) {
        let first = dice.between(1, 30);
        let kind = *dice.pick(&kinds);
        // A full disk stays full for a while.
        let times = if kind == Mishap::Full { dice.between(1, 5) } else { 1 };
        mishaps.extend((first..first + times).map(|place| (place, kind)));
    }
    mishaps
}

fn deed(dice: &mut Dice, flow: &str, rival: bool, texts: &mut u64) -> Deed {
    let session = dice.below(8);
    match dice.below(100) {
        0..=59 => {
            let mut said = say(dice, flow, texts);
            if let Deed::Say { through, .. } = &mut said
                && rival
                && dice.percent(40)
            {
                *through = Through::Rival;
            }
            said
        }
        60..=61 => {
            let call = u32::try_from(dice.between(1, 6)).expect("small");
            Deed::Recompute { session, call, model: dice.percent(50).then_some("bee") }
        }
        62..=77 => Deed::Command { session, command: command(dice, flow) },
        78..=79 => Deed::Fork { session, at_percent: dice.percent(50).then(|| dice.between(1, 100)) },
        80 => Deed::Copy { session },
        81 => Deed::Delete { session },
        _ => {
            let through = if rival && dice.percent(40) { Through::Rival } else { Through::First };
            let from = if dice.percent(50) { From::Start } else { From::Now };
            Deed::Listen { session, from, slow_ms: *dice.pick(&[0, 0, 5, 700]), through }
        }
    }
}

fn say(dice: &mut Dice, flow: &str, texts: &mut u64) -> Deed {
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
    let key = dice.percent(40).then(|| format!("key-{}", dice.below(4)));
    let busy = dice.percent(25).then(|| *dice.pick(&[Busy::Queue, Busy::Coalesce, Busy::Reject, Busy::Interrupt]));
    let how = if dice.percent(50) { How::Ask } else { How::Send };
    Deed::Say { session: dice.below(8), text, key, busy, how, through: Through::First }
}

fn command(dice: &mut Dice, flow: &str) -> Command {
    let phase = match flow {
        "concierge" => PhaseKey { graph: "conversation".into(), owner: Owner::Role("concierge".into()) },
        "mini-concierge" => PhaseKey { graph: "talk".into(), owner: Owner::Role("speaker".into()) },
        "mini-team" => PhaseKey { graph: "coder".into(), owner: Owner::Agent("ann".into()) },
        _ => PhaseKey { graph: "work".into(), owner: Owner::Session },
    };
    let to = (*dice.pick(&["explorer", "starter", "executor", "execute", "verify", "end", "waiting"])).into();
    let role = (*dice.pick(&["assistant", "speaker", "concierge", "expert", "worker", "coder", "architect"])).into();
    match dice.below(12) {
        0..=2 => Command::Cancel,
        3..=4 => Command::Retry,
        5..=6 => Command::Forget { role, agent: None, peer: None },
        7 => Command::Rename { title: "another\u{7} title".to_owned() },
        8 => Command::Grant { phase, to },
        9 => Command::Propose { phase, to, reason: None },
        10 => Command::RollBack { phase, visit: u32::try_from(dice.between(1, 3)).expect("small") },
        _ if dice.percent(25) => Command::Close,
        _ => Command::Cancel,
    }
}

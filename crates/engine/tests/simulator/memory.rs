//! Whether every role was shown its own past and nobody else's. Reckoned from the journal anew, without asking core.

use std::collections::BTreeMap;

use segue_core::event::{CallOpened, Event, PhaseKey};
use segue_core::ids::{AgentName, CallId, WorkName};
use segue_core::prompt::Speaker;
use segue_core::scope::{Per, Scope, Slot, Until};
use segue_core::session::Session;

use crate::check::Journal;
use crate::world::Streamed;

/// What two calls must share for one to be shown the words of the other.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Shares {
    parts: Vec<String>,
}

/// Every call of a session, with what it shares and its root.
struct Calls {
    shares: BTreeMap<CallId, Shares>,
    answered: BTreeMap<CallId, u32>,
}

pub fn is_respected(journal: &Journal, streams: &[Streamed]) {
    let calls = calls(journal);
    for stream in streams.iter().filter(|stream| stream.session == journal.session) {
        let own = &calls.shares[&stream.call];
        for message in stream.prompt.messages.iter().filter(|message| message.speaker == Speaker::Assistant) {
            let text = message.text();
            let (call, attempt) = marked(&text).unwrap_or_else(|| panic!("an answer without its mark: {text}"));
            assert_eq!(calls.shares.get(&call), Some(own), "{} is shown what {call} said", stream.call);
            assert_eq!(calls.answered.get(&call), Some(&attempt), "{} is shown a try that was not used", stream.call);
        }
    }
}

/// The call and try that a mark names.
fn marked(text: &str) -> Option<(CallId, u32)> {
    let (_, rest) = text.split_once('⟦')?;
    let (mark, _) = rest.split_once('⟧')?;
    let (call, attempt) = mark.split_once('.')?;
    Some((call.parse().ok()?, attempt.parse().ok()?))
}

fn calls(journal: &Journal) -> Calls {
    let mut calls = Calls { shares: BTreeMap::new(), answered: BTreeMap::new() };
    let mut visits: BTreeMap<PhaseKey, u32> = BTreeMap::new();
    let mut resets: BTreeMap<Slot, u32> = BTreeMap::new();
    let mut leases: BTreeMap<AgentName, WorkName> = BTreeMap::new();
    for recorded in &journal.events {
        match &recorded.event {
            Event::PhaseEntered(entered) if entered.transition.begins_visit() => {
                *visits.entry(entered.phase.clone()).or_default() += 1;
            }
            Event::ThreadReset { slot, .. } => *resets.entry(slot.clone()).or_default() += 1,
            Event::WorkLeased { agent, work: Some(work) } => {
                leases.insert(agent.clone(), work.clone());
            }
            Event::WorkLeased { agent, work: None } => {
                leases.remove(agent);
            }
            Event::CallAnswered(answered) => {
                calls.answered.insert(answered.call, answered.attempt);
            }
            Event::CallOpened(opened) => {
                let shares = match opened.follows.and_then(|root| calls.shares.get(&root)) {
                    // What brings the results of tools goes on where the tools were asked for.
                    Some(shares) => shares.clone(),
                    None => shares(journal, opened, &visits, &resets, &leases),
                };
                calls.shares.insert(opened.call, shares);
            }
            _ => {}
        }
    }
    calls
}

fn shares(
    journal: &Journal,
    opened: &CallOpened,
    visits: &BTreeMap<PhaseKey, u32>,
    resets: &BTreeMap<Slot, u32>,
    leases: &BTreeMap<AgentName, WorkName>,
) -> Shares {
    let spec = journal.rules.spec();
    let mut parts = vec![opened.role.to_string(), format!("{:?}", opened.agent)];
    let model = format!("on {} {}", opened.model, opened.sample);
    match &spec.roles[&opened.role].scope {
        Scope::Fresh => parts.push(format!("only {}", opened.call)),
        Scope::Kept(kept) => {
            parts.extend(kept.per.iter().map(|per| match per {
                Per::Model => model.clone(),
                Per::Peer => format!("with {:?}", opened.peer),
            }));
            parts.extend(kept.until.iter().map(|until| match until {
                Until::Turn => format!("in {:?}", opened.turn),
                Until::Phase => {
                    let key = Session::phase_key(spec, &opened.role, opened.agent.as_ref());
                    format!("visit {:?}", key.and_then(|key| visits.get(&key).copied()))
                }
                Until::Model => model.clone(),
                Until::Work => {
                    let worker = opened.peer.as_ref().or(opened.agent.as_ref());
                    format!("work {:?}", worker.and_then(|worker| leases.get(worker)))
                }
            }));
        }
    }
    parts.push(format!("reset {:?}", resets.get(&slot_of(journal, opened))));
    Shares { parts }
}

/// Where the thread of a call stands.
fn slot_of(journal: &Journal, opened: &CallOpened) -> Slot {
    let scope = &journal.rules.spec().roles[&opened.role].scope;
    let beside = |per: Per| match scope {
        Scope::Fresh => true,
        Scope::Kept(kept) => kept.per.contains(&per),
    };
    Slot {
        role: opened.role.clone(),
        agent: opened.agent.clone(),
        peer: opened.peer.clone().filter(|_| beside(Per::Peer)),
        model: beside(Per::Model).then(|| (opened.model.clone(), opened.sample)),
    }
}

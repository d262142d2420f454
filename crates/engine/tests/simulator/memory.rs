//! Whether every role was shown its own past and nobody else's. Reckoned from the journal anew, without asking core.

use std::collections::BTreeMap;

use segue_core::event::{CallOpened, Event, PhaseGraphKey};
use segue_core::ids::{AgentName, CallId, WorkItemName};
use segue_core::prompt::ChatRole;
use segue_core::scope::{Scope, ThreadBoundary, ThreadPartition, ThreadSlot};
use segue_core::session::Session;

use crate::check::CheckedJournal;
use crate::world::StartedCall;

/// What two calls must share for one to be shown the words of the other.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ThreadSharingKey {
    parts: Vec<String>,
}

/// Every call of a session, with what it shares and its root.
struct AnsweredCalls {
    shares: BTreeMap<CallId, ThreadSharingKey>,
    answered: BTreeMap<CallId, u32>,
}

pub fn check_memory_scopes(journal: &CheckedJournal, streams: &[StartedCall]) {
    let calls = calls(journal);
    for stream in streams.iter().filter(|stream| stream.session == journal.session) {
        let own = &calls.shares[&stream.call];
        for message in stream.prompt.messages.iter().filter(|message| message.chat_role == ChatRole::Assistant) {
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

fn calls(journal: &CheckedJournal) -> AnsweredCalls {
    let mut calls = AnsweredCalls { shares: BTreeMap::new(), answered: BTreeMap::new() };
    let mut visits: BTreeMap<PhaseGraphKey, u32> = BTreeMap::new();
    let mut resets: BTreeMap<ThreadSlot, u32> = BTreeMap::new();
    let mut leases: BTreeMap<AgentName, WorkItemName> = BTreeMap::new();
    for recorded in &journal.events {
        match &recorded.event {
            Event::PhaseEntered(entered) if entered.transition.begins_visit() => {
                *visits.entry(entered.graph_key.clone()).or_default() += 1;
            }
            Event::ThreadReset { slot, .. } => *resets.entry(slot.clone()).or_default() += 1,
            Event::WorkItemAssigned { agent, work_item: Some(work) } => {
                leases.insert(agent.clone(), work.clone());
            }
            Event::WorkItemAssigned { agent, work_item: None } => {
                leases.remove(agent);
            }
            Event::CallAnswered(answered) => {
                calls.answered.insert(answered.call, answered.attempt);
            }
            Event::CallOpened(opened) => {
                // What brings the results of tools goes on where the tools were asked for; a call made once more is shown
                // what it was shown.
                let again = opened.recomputation.as_ref().map(|again| again.call);
                let shares = match opened.continues.or(again).and_then(|root| calls.shares.get(&root)) {
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
    journal: &CheckedJournal,
    opened: &CallOpened,
    visits: &BTreeMap<PhaseGraphKey, u32>,
    resets: &BTreeMap<ThreadSlot, u32>,
    leases: &BTreeMap<AgentName, WorkItemName>,
) -> ThreadSharingKey {
    let spec = journal.flow.spec();
    let mut parts = vec![opened.role.to_string(), format!("{:?}", opened.agent)];
    let model = format!("on {} {}", opened.model, opened.sample);
    match &spec.roles[&opened.role].scope {
        Scope::Fresh => parts.push(format!("only {}", opened.call)),
        Scope::Persistent(kept) => {
            parts.extend(kept.partitions.iter().map(|per| match per {
                ThreadPartition::Model => model.clone(),
                ThreadPartition::Peer => format!("with {:?}", opened.peer),
            }));
            parts.extend(kept.boundaries.iter().map(|until| match until {
                ThreadBoundary::Turn => format!("in {:?}", opened.turn),
                ThreadBoundary::Phase => {
                    let key = Session::phase_graph_key_for_role(spec, &opened.role, opened.agent.as_ref());
                    format!("visit {:?}", key.and_then(|key| visits.get(&key).copied()))
                }
                ThreadBoundary::Model => model.clone(),
                ThreadBoundary::WorkItem => {
                    let worker = opened.peer.as_ref().or(opened.agent.as_ref());
                    format!("work {:?}", worker.and_then(|worker| leases.get(worker)))
                }
            }));
        }
    }
    parts.push(format!("reset {:?}", resets.get(&slot_of(journal, opened))));
    ThreadSharingKey { parts }
}

/// Where the thread of a call stands.
fn slot_of(journal: &CheckedJournal, opened: &CallOpened) -> ThreadSlot {
    let scope = &journal.flow.spec().roles[&opened.role].scope;
    let beside = |per: ThreadPartition| match scope {
        Scope::Fresh => true,
        Scope::Persistent(kept) => kept.partitions.contains(&per),
    };
    ThreadSlot {
        role: opened.role.clone(),
        agent: opened.agent.clone(),
        peer: opened.peer.clone().filter(|_| beside(ThreadPartition::Peer)),
        model: beside(ThreadPartition::Model).then(|| (opened.model.clone(), opened.sample)),
    }
}

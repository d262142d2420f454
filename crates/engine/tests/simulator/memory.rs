//! Checks that each prompt contains only answers of the role's own thread. Computed from the journal, independently of
//! core.

use std::collections::BTreeMap;

use segue_core::event::{CallOpened, Event, PhaseGraphKey, PhaseStateOwner};
use segue_core::flow::FlowSpec;
use segue_core::ids::{AgentName, CallId, WorkItemName};
use segue_core::phase::PhaseGraphOwnerKind;
use segue_core::prompt::ChatRole;
use segue_core::scope::{Scope, ThreadEndTrigger, ThreadKey, ThreadPartitionCriterion};

use crate::check::CheckedJournal;
use crate::world::StartedCall;

/// The values that two calls must share to be in the same thread.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ThreadSharingKey {
    parts: Vec<String>,
}

/// The sharing key of every call, and the attempt that was answered.
struct AnsweredCalls {
    sharing_keys: BTreeMap<CallId, ThreadSharingKey>,
    answered: BTreeMap<CallId, u32>,
}

pub(crate) fn check_memory_scopes(journal: &CheckedJournal, streams: &[StartedCall]) {
    let answered_calls = collect_calls(journal);
    for started_call in streams.iter().filter(|started_call| started_call.session == journal.session) {
        let own_key = &answered_calls.sharing_keys[&started_call.call];
        for message in started_call.prompt.messages.iter().filter(|message| message.chat_role == ChatRole::Assistant) {
            let text = message.text();
            let (call, attempt) =
                parse_answer_marker(&text).unwrap_or_else(|| panic!("an answer without a marker: {text}"));
            assert_eq!(
                answered_calls.sharing_keys.get(&call),
                Some(own_key),
                "the prompt of {} contains the answer of {call}",
                started_call.call
            );
            assert_eq!(
                answered_calls.answered.get(&call),
                Some(&attempt),
                "the prompt of {} contains an unused attempt",
                started_call.call
            );
        }
    }
}

/// Returns the call and attempt that an answer's marker names.
fn parse_answer_marker(text: &str) -> Option<(CallId, u32)> {
    let (_, rest) = text.split_once('⟦')?;
    let (marker, _) = rest.split_once('⟧')?;
    let (call, attempt) = marker.split_once('.')?;
    Some((call.parse().ok()?, attempt.parse().ok()?))
}

fn collect_calls(journal: &CheckedJournal) -> AnsweredCalls {
    let mut answered_calls = AnsweredCalls { sharing_keys: BTreeMap::new(), answered: BTreeMap::new() };
    let mut visits: BTreeMap<PhaseGraphKey, u32> = BTreeMap::new();
    let mut resets: BTreeMap<ThreadKey, u32> = BTreeMap::new();
    let mut work_assignments: BTreeMap<AgentName, WorkItemName> = BTreeMap::new();
    for recorded in &journal.events {
        match &recorded.event {
            Event::PhaseEntered(entered) if entered.transition.is_visit_start() => {
                *visits.entry(entered.graph_key.clone()).or_default() += 1;
            }
            Event::ThreadReset { slot, .. } => *resets.entry(slot.clone()).or_default() += 1,
            Event::WorkItemAssigned { agent, work_item: Some(work) } => {
                work_assignments.insert(agent.clone(), work.clone());
            }
            Event::WorkItemAssigned { agent, work_item: None } => {
                work_assignments.remove(agent);
            }
            Event::CallAnswered(answered) => {
                answered_calls.answered.insert(answered.call, answered.attempt);
            }
            Event::CallOpened(opened) => {
                // A call with tool results continues the call that requested them; a rerun has the thread of its
                // original.
                let original = opened.recomputation.as_ref().map(|recomputation| recomputation.call);
                let sharing_key =
                    match opened.continues.or(original).and_then(|root| answered_calls.sharing_keys.get(&root)) {
                        Some(sharing_key) => sharing_key.clone(),
                        None => compute_sharing_key(journal, opened, &visits, &resets, &work_assignments),
                    };
                answered_calls.sharing_keys.insert(opened.call, sharing_key);
            }
            _ => {}
        }
    }
    answered_calls
}

fn compute_sharing_key(
    journal: &CheckedJournal,
    opened: &CallOpened,
    visits: &BTreeMap<PhaseGraphKey, u32>,
    resets: &BTreeMap<ThreadKey, u32>,
    work_assignments: &BTreeMap<AgentName, WorkItemName>,
) -> ThreadSharingKey {
    let spec = journal.flow.spec();
    let mut parts = vec![opened.role.to_string(), format!("{:?}", opened.agent)];
    let model = format!("on {} {}", opened.model, opened.sample);
    match &spec.roles[&opened.role].scope {
        Scope::Fresh => parts.push(format!("only {}", opened.call)),
        Scope::Persistent { partitions, boundaries, .. } => {
            parts.extend(partitions.iter().map(|partition| match partition {
                ThreadPartitionCriterion::Model => model.clone(),
                ThreadPartitionCriterion::Peer => format!("with {:?}", opened.peer),
            }));
            parts.extend(boundaries.iter().map(|boundary| match boundary {
                ThreadEndTrigger::Turn => format!("in {:?}", opened.turn),
                ThreadEndTrigger::Phase => {
                    format!("visit {:?}", phase_graph_key(spec, opened).and_then(|key| visits.get(&key).copied()))
                }
                ThreadEndTrigger::Model => model.clone(),
                ThreadEndTrigger::WorkItem => {
                    let worker = opened.peer.as_ref().or(opened.agent.as_ref());
                    format!("work {:?}", worker.and_then(|worker| work_assignments.get(worker)))
                }
            }));
        }
    }
    parts.push(format!("reset {:?}", resets.get(&thread_slot(journal, opened))));
    ThreadSharingKey { parts }
}

/// Returns the key of the phase graph that a call's role follows.
fn phase_graph_key(spec: &FlowSpec, opened: &CallOpened) -> Option<PhaseGraphKey> {
    let graph = spec.graphs.get(spec.roles[&opened.role].graph.as_ref()?)?;
    let owner = match (graph.owner_kind, &opened.agent) {
        (PhaseGraphOwnerKind::Session, _) => PhaseStateOwner::Session,
        (PhaseGraphOwnerKind::Agent, Some(agent)) => PhaseStateOwner::Agent(agent.clone()),
        (PhaseGraphOwnerKind::Role | PhaseGraphOwnerKind::Agent, _) => PhaseStateOwner::Role(opened.role.clone()),
    };
    Some(PhaseGraphKey { graph: graph.name.clone(), owner })
}

/// Returns the slot of a call's thread.
fn thread_slot(journal: &CheckedJournal, opened: &CallOpened) -> ThreadKey {
    let scope = &journal.flow.spec().roles[&opened.role].scope;
    let is_partitioned_by = |partition: ThreadPartitionCriterion| match scope {
        Scope::Fresh => true,
        Scope::Persistent { partitions, .. } => partitions.contains(&partition),
    };
    ThreadKey {
        role: opened.role.clone(),
        agent: opened.agent.clone(),
        peer: opened.peer.clone().filter(|_| is_partitioned_by(ThreadPartitionCriterion::Peer)),
        model: is_partitioned_by(ThreadPartitionCriterion::Model).then(|| (opened.model.clone(), opened.sample)),
    }
}

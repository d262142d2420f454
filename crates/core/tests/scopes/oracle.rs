//! An independent model of what each role remembers, computed from the journal without the module that decides it: a
//! table of each role's scope, and lists of messages.

use std::collections::{BTreeMap, BTreeSet};

use segue_core::context::{CallThread, PreviousPromptComparison};
use segue_core::event::{CallOpened, Event, PhaseGraphKey, RecordedEvent};
use segue_core::ids::{CallId, ThreadId, TurnId, UnixMillis};
use segue_core::phase::PhaseTransitionCause;
use segue_core::prompt::{ChatRole, Prompt, PromptMessage, ToolCall};
use segue_testkit::{SessionHarness, WordCounter};

use crate::flow::{AGED_MS, key, marker};

/// Everything that a role's memory can depend on, for one call.
#[derive(Debug, Clone, PartialEq)]
struct Place {
    role: String,
    agent: Option<String>,
    peer: Option<String>,
    model: (String, u16),
    turn: Option<TurnId>,
    visit: Option<u32>,
    work: Option<String>,
    resets: u32,
    at: UnixMillis,
    /// The first call in the chain of tool rounds.
    root: CallId,
}

/// What separates memories: role, agent, and peer or model where the role has one memory for each.
type Slot = (String, Option<String>, Option<String>, Option<(String, u16)>);

/// One message in a prompt.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Said {
    speaker: ChatRole,
    text: String,
    tool_calls: Vec<ToolCall>,
    answers: Option<String>,
}

#[derive(Debug)]
struct Memory {
    thread: ThreadId,
    opened: Place,
    system: String,
    said: Vec<Said>,
    /// The asks that must not be folded.
    pinned: BTreeSet<String>,
    compactions: u32,
}

#[derive(Debug, Default)]
struct Round {
    tool_calls: Vec<String>,
    results: BTreeMap<usize, String>,
    runs: BTreeMap<u32, usize>,
}

/// The journal, as far as it concerns memory.
#[derive(Debug, Default)]
pub(crate) struct Oracle {
    leases: BTreeMap<String, String>,
    visits: Vec<(PhaseGraphKey, u32)>,
    resets: BTreeMap<Slot, u32>,
    places: BTreeMap<CallId, Place>,
    calls: BTreeMap<CallId, std::sync::Arc<CallOpened>>,
    memory_of: BTreeMap<CallId, usize>,
    memories: Vec<Memory>,
    standing: BTreeMap<Slot, usize>,
    rounds: BTreeMap<CallId, Round>,
    /// The expected prompt of each call.
    pub expected: BTreeMap<CallId, Vec<Said>>,
    /// The last call of each slot and of each memory.
    last_of: BTreeMap<Slot, CallId>,
    last_in: BTreeMap<usize, CallId>,
    before: BTreeMap<CallId, Option<CallId>>,
    /// How often the memory had been compacted before each call.
    compactions_before: BTreeMap<CallId, u32>,
}

/// Returns whether a role has one memory for each peer and for each model.
fn partitions(role: &str) -> (bool, bool) {
    match role {
        "fresh" | "scribe" => (true, true),
        "model" => (false, true),
        "peer" | "review" => (true, false),
        _ => (false, false),
    }
}

/// Returns true if a memory from `then` is still valid at `now`, in the same slot.
fn remembers(then: &Place, now: &Place) -> bool {
    let lasting = match now.role.as_str() {
        "fresh" | "scribe" => then.root == now.root,
        "turn" => then.turn == now.turn,
        "phase" => then.visit == now.visit,
        "review" => then.work == now.work,
        "host" => then.visit == now.visit && then.model == now.model,
        "aged" => now.at.0 - then.at.0 <= AGED_MS,
        "coder" => then.visit == now.visit && then.work == now.work,
        "session" | "model" | "peer" => true,
        other => panic!("the scope of {other} is not in the table"),
    };
    lasting && then.resets == now.resets
}

fn slot(place: &Place) -> Slot {
    let (peers, models) = partitions(&place.role);
    let peer = place.peer.clone().filter(|_| peers);
    (place.role.clone(), place.agent.clone(), peer, models.then(|| place.model.clone()))
}

/// Returns the calls in which the words of a text were created.
pub(crate) fn births(text: &str) -> BTreeSet<CallId> {
    text.split('‹').skip(1).filter_map(|rest| rest.split('›').next()?.parse().ok()).collect()
}

impl Oracle {
    /// Processes an event.
    pub(crate) fn note(&mut self, harness: &SessionHarness, recorded: &RecordedEvent) {
        match &recorded.event {
            Event::WorkItemAssigned { agent, work_item: work } => {
                match work {
                    Some(work) => self.leases.insert(agent.to_string(), work.to_string()),
                    None => self.leases.remove(agent.as_str()),
                };
            }
            Event::PhaseEntered(entered) if entered.transition.cause != PhaseTransitionCause::SamePhase => {
                match self.visits.iter_mut().find(|(phase, _)| *phase == entered.graph_key) {
                    Some((_, visit)) => *visit += 1,
                    None => self.visits.push((entered.graph_key.clone(), 2)),
                }
            }
            Event::ThreadReset { slot, .. } => {
                let model = slot.model.as_ref().map(|(model, sample)| (model.to_string(), *sample));
                let name = |name: &Option<segue_core::ids::AgentName>| name.as_ref().map(ToString::to_string);
                let slot = (slot.role.to_string(), name(&slot.agent), name(&slot.peer), model);
                *self.resets.entry(slot).or_default() += 1;
            }
            Event::CallOpened(opened) => self.opened(harness, opened, recorded.at),
            Event::CallAnswered(answered) => {
                let opened = self.calls[&answered.call].clone();
                let memory = &mut self.memories[self.memory_of[&answered.call]];
                if let Some(asked) = asked(harness, &opened) {
                    if opened.ask == "pin" {
                        memory.pinned.insert(asked.clone());
                    }
                    memory.said.push(said(ChatRole::User, asked));
                }
                let mut answer = said(ChatRole::Assistant, text(harness, answered.text));
                answer.tool_calls.clone_from(&answered.tool_calls);
                memory.said.push(answer);
                if !answered.tool_calls.is_empty() {
                    let tool_calls = answered.tool_calls.iter().map(|call| call.id.clone()).collect();
                    self.rounds.insert(answered.call, Round { tool_calls, ..Round::default() });
                }
            }
            Event::ToolRunOpened(opened) => {
                if let Some((call, _)) = &opened.requested_by {
                    let round = self.rounds.get_mut(call).expect("its answer came before");
                    let place = round.runs.len();
                    round.runs.insert(opened.run.0, place);
                }
            }
            Event::ToolRunEnded { run, text: result, .. } => self.result(run.0, text(harness, *result)),
            Event::ThreadCompacted(compacted) => self.compacted(harness, compacted),
            _ => {}
        }
    }

    fn place(&self, opened: &CallOpened, at: UnixMillis) -> Place {
        let agent = opened.agent.as_ref().map(ToString::to_string);
        let peer = opened.peer.as_ref().map(ToString::to_string);
        let role = opened.role.to_string();
        let graph = match (role.as_str(), agent.as_deref()) {
            ("phase", _) => Some(key(0)),
            ("host", _) => Some(key(1)),
            ("coder", Some("ann")) => Some(key(2)),
            ("coder", _) => Some(key(3)),
            _ => None,
        };
        let visit =
            |phase: &PhaseGraphKey| self.visits.iter().find(|(known, _)| known == phase).map_or(1, |(_, visit)| *visit);
        let root = match opened.continues {
            Some(before) => self.places[&before].root,
            None => opened.call,
        };
        let mut place = Place {
            visit: graph.as_ref().map(visit),
            work: peer.as_ref().or(agent.as_ref()).and_then(|worker| self.leases.get(worker)).cloned(),
            model: (opened.model.to_string(), opened.sample),
            turn: opened.turn,
            role,
            agent,
            peer,
            resets: 0,
            at,
            root,
        };
        place.resets = self.resets.get(&slot(&place)).copied().unwrap_or_default();
        place
    }

    fn opened(&mut self, harness: &SessionHarness, opened: &std::sync::Arc<CallOpened>, at: UnixMillis) {
        let call = opened.call;
        let place = self.place(opened, at);
        let slot = slot(&place);
        self.places.insert(call, place.clone());
        self.calls.insert(call, opened.clone());
        let known = match opened.continues {
            // A further tool round continues in the memory of its root call, whatever has changed since.
            Some(before) => Some(self.memory_of[&before]),
            None => {
                let standing = self.standing.get(&slot).copied();
                standing.filter(|memory| remembers(&self.memories[*memory].opened, &place))
            }
        };
        let memory = known.unwrap_or_else(|| {
            let system = opened.receipt.opening.iter().filter_map(|piece| piece.text);
            let system = system.map(|piece| text(harness, piece)).collect::<Vec<_>>().join("\n\n");
            let thread = opened.receipt.thread.thread_id();
            assert!(self.memories.iter().all(|memory| memory.thread != thread), "{call} opens a thread of its own");
            self.memories.push(Memory {
                thread,
                opened: place,
                system,
                said: Vec::new(),
                pinned: BTreeSet::new(),
                compactions: 0,
            });
            self.memories.len() - 1
        });
        match (&opened.receipt.thread, known) {
            (CallThread::Continued(thread), Some(memory)) => {
                assert_eq!(*thread, self.memories[memory].thread, "{call}")
            }
            (CallThread::Opened { .. }, None) => {}
            (found, _) => panic!("{call} has {found:?} where {known:?} was expected"),
        }
        if opened.continues.is_none() {
            self.standing.insert(slot.clone(), memory);
        }
        self.memory_of.insert(call, memory);
        let place_of_memory = memory;
        let memory = &self.memories[memory];
        assert_eq!(opened.receipt.carried.entries as usize, memory.said.len(), "{call} says how much it carries");
        let system = Some(said(ChatRole::System, memory.system.clone())).filter(|said| !said.text.is_empty());
        let asked = asked(harness, opened).map(|asked| said(ChatRole::User, asked));
        self.expected.insert(call, system.into_iter().chain(memory.said.iter().cloned()).chain(asked).collect());
        let last = match known {
            Some(memory) => self.last_in.get(&memory),
            None => self.last_of.get(&slot),
        };
        self.before.insert(call, last.copied());
        self.compactions_before.insert(call, self.memories[place_of_memory].compactions);
        self.last_in.insert(place_of_memory, call);
        if partitions(&opened.role.to_string()) == (true, true) || self.standing.get(&slot) == Some(&place_of_memory) {
            self.last_of.insert(slot, call);
        }
    }

    fn result(&mut self, run: u32, result: String) {
        let Some((call, round)) = self.rounds.iter_mut().find(|(_, round)| round.runs.contains_key(&run)) else {
            return;
        };
        round.results.insert(round.runs[&run], result);
        if round.results.len() < round.tool_calls.len() {
            return;
        }
        let memory = &mut self.memories[self.memory_of[call]];
        for (place, result) in &round.results {
            let answers = Some(round.tool_calls[*place].clone());
            memory.said.push(Said { answers, ..said(ChatRole::Tool, result.clone()) });
        }
    }

    fn compacted(&mut self, harness: &SessionHarness, compacted: &segue_core::event::ThreadCompacted) {
        let memory =
            self.memories.iter_mut().find(|memory| memory.thread == compacted.thread).expect("the memory exists");
        let kept: BTreeSet<usize> = compacted.kept_indices.iter().map(|place| *place as usize).collect();
        assert_eq!(kept.len() + compacted.folded_entries as usize, memory.said.len(), "each is folded or kept");
        let stood = std::mem::take(&mut memory.said);
        memory.compactions += 1;
        for (place, said) in stood.iter().enumerate() {
            assert!(kept.contains(&place) || !memory.pinned.contains(&said.text), "pinned messages stay");
            let with_call = stood[..place].iter().rposition(|earlier| earlier.speaker == ChatRole::Assistant);
            if let Some(call_index) = with_call.filter(|_| said.speaker == ChatRole::Tool) {
                assert_eq!(kept.contains(&place), kept.contains(&call_index), "a result stays with its tool call");
            }
        }
        for words in &compacted.user_texts {
            let words = text(harness, *words);
            assert!(
                stood.iter().any(|said| said.text.contains(&words)),
                "the kept words are from this memory: {words}"
            );
        }
        let summary: Vec<String> = compacted.summary.iter().map(|part| text(harness, *part)).collect();
        memory.said.push(said(ChatRole::User, summary.join("\n\n")));
        memory
            .said
            .extend(stood.into_iter().enumerate().filter(|(place, _)| kept.contains(place)).map(|(_, said)| said));
    }

    /// Checks the prompt of a call and its receipt.
    pub(crate) fn check(&self, harness: &SessionHarness, call: CallId, prompts: &BTreeMap<CallId, Prompt>) {
        let (prompt, opened) = (&prompts[&call], &self.calls[&call]);
        let shown: Vec<Said> = prompt.messages.iter().map(as_said).collect();
        assert_eq!(
            shown, self.expected[&call],
            "{call} of {} is shown what it remembers, all of it, in order",
            opened.role
        );
        // A further tool round belongs to the memory of its root call.
        let place = |call: &CallId| &self.places[&self.places[call].root];
        let now = place(&call);
        for said in &shown {
            for birth in births(&said.text) {
                let then = place(&birth);
                if let Some(thread) = opened.compacts_thread {
                    let compacted =
                        self.memories.iter().find(|memory| memory.thread == thread).expect("the memory exists");
                    assert_eq!(slot(then), slot(&compacted.opened), "{call} summarises one memory");
                    continue;
                }
                assert_eq!(slot(then), slot(now), "{call} is shown words of {birth}, created in another slot");
                assert!(remembers(then, now), "{call} is shown words of {birth}, from outside its scope");
            }
        }
        let own = opened.continues.is_some() || opened.ask == "same" || opened.compacts_thread.is_some();
        assert!(
            own || shown.last().is_some_and(|said| births(&said.text).contains(&call)),
            "{call} asks its own question"
        );
        self.check_receipt(harness, opened, prompts);
    }

    fn check_receipt(&self, harness: &SessionHarness, opened: &CallOpened, prompts: &BTreeMap<CallId, Prompt>) {
        let (call, prompt) = (opened.call, &prompts[&opened.call]);
        let tools = opened.tools_body.map_or(0, |tools| count(&harness.stored_text(tools)));
        let tokens: u32 = prompt.messages.iter().map(message_tokens).sum();
        assert_eq!(opened.receipt.tokens, tokens + tools, "{call} counts what it is sent");
        let verdict = match self.before[&call] {
            None => PreviousPromptComparison::First,
            Some(before) => {
                let stood = &prompts[&before];
                let shortened = self.memory_of[&before] == self.memory_of[&call]
                    && self.compactions_before[&before] != self.compactions_before[&call];
                // A compaction may by chance leave the same words in place; it is the cause nevertheless.
                if stood.tools == prompt.tools && prompt.messages.starts_with(&stood.messages) && !shortened {
                    PreviousPromptComparison::Extends(before)
                } else {
                    let PreviousPromptComparison::Broken { from, kept_tokens: kept, cause: by } =
                        &opened.receipt.prefix
                    else {
                        panic!("{call} does not extend {before}, and says {:?}", opened.receipt.prefix);
                    };
                    assert_eq!(*from, before);
                    assert!(!shortened || stood.tools != prompt.tools || *by == "compaction", "{call}");
                    assert!(*kept <= opened.receipt.tokens, "{call}, broken by {by}");
                    return;
                }
            }
        };
        assert_eq!(opened.receipt.prefix, verdict, "{call}");
    }

    /// Checks that equal prompts have equal digests, and different prompts different ones.
    pub(crate) fn check_digests(&self, prompts: &BTreeMap<CallId, Prompt>) {
        for (one, prompt) in prompts {
            for (other, another) in prompts.range(..one) {
                let same = self.calls[one].receipt.digest == self.calls[other].receipt.digest;
                assert_eq!(same, prompt == another, "{one} and {other}");
            }
        }
    }
}

fn said(speaker: ChatRole, text: String) -> Said {
    Said { speaker, text, tool_calls: Vec::new(), answers: None }
}

fn as_said(message: &PromptMessage) -> Said {
    let (tool_calls, answers) = (message.tool_calls.clone(), message.tool_call_id.clone());
    Said { speaker: message.chat_role, text: message.text(), tool_calls, answers }
}

fn text(harness: &SessionHarness, text: segue_core::body::TextRef) -> String {
    harness.stored_text(text.body).to_string()
}

/// Returns the ask of a call as one text.
fn asked(harness: &SessionHarness, opened: &CallOpened) -> Option<String> {
    let parts: Vec<String> =
        opened.receipt.ask.iter().filter_map(|piece| piece.text).map(|piece| text(harness, piece)).collect();
    (!parts.is_empty()).then(|| parts.join("\n\n"))
}

fn count(text: &str) -> u32 {
    segue_core::context::TokenCounter::count_tokens(&WordCounter, text)
}

/// Each part by our count, four for overhead, and for each tool call a quarter of its arguments' bytes and eight.
fn message_tokens(message: &PromptMessage) -> u32 {
    let parts: u32 = message.parts.iter().map(|part| count(part)).sum();
    let tool_calls: usize = message.tool_calls.iter().map(|call| call.arguments.to_string().len() / 4 + 8).sum();
    parts + 4 + u32::try_from(tool_calls).expect("short")
}

/// The words of an answer to `call`.
pub(crate) fn answer(call: CallId, size: usize) -> String {
    format!("answer {} {}", marker(call), "word ".repeat(size))
}

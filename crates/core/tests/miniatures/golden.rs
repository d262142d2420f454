//! Journals of every format ever written, read again. See `tests/golden/README.md`.
#![expect(clippy::disallowed_methods, reason = "golden journals are files; core itself touches none")]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Once;

use segue_core::codec;
use segue_core::decide::{Command, Input};
use segue_core::event::{Event, Recorded};
use segue_core::flow::Rules;
use segue_core::ids::{CallId, Millis, Seq};
use segue_core::prompt::{Failure, FailureKind, Image, Media, Reply, Usage};
use segue_core::session::State;
use segue_testkit::Stage;
use segue_testkit::miniatures::{Concierge, Nodes, Project, Team};
use serde_json::{Value, json};

use super::all::{All, play_all};
use super::{commanded, project};

/// A journal of format 1: its name, the rules it was written by, and the play that wrote it.
struct Golden {
    name: &'static str,
    rules: fn() -> Box<dyn Rules>,
    play: fn() -> Stage,
}

const FORMAT_1: [Golden; 12] = [
    Golden { name: "concierge", rules: || Box::new(Concierge::new()), play: concierge },
    Golden { name: "nodes", rules: || Box::new(Nodes::new()), play: nodes },
    Golden { name: "project", rules: || Box::new(Project::new()), play: project },
    Golden { name: "team", rules: || Box::new(Team::new()), play: team },
    Golden { name: "all", rules: || Box::new(All::new()), play: play_all },
    Golden { name: "commanded", rules: || Box::new(commanded::flow()), play: commanded::play },
    Golden { name: "vendors", rules: || Box::new(Concierge::new()), play: vendors },
    Golden { name: "again", rules: || Box::new(Concierge::new()), play: again },
    Golden { name: "outcomes", rules: || Box::new(Project::new()), play: outcomes },
    Golden { name: "weights", rules: || Box::new(Concierge::new()), play: weights },
    Golden { name: "cancelled", rules: || Box::new(Concierge::new()), play: cancelled },
    Golden { name: "copied", rules: || Box::new(Team::new()), play: copied },
];

fn concierge() -> Stage {
    let mut stage = Stage::open(Concierge::new());
    stage.say("which way?").answer("expert", "left").fail("expert", FailureKind::Overload).crash();
    stage.fail("expert", FailureKind::Refused).answer("expert", "straight");
    stage.answer("mapper", "two ways").answer("speaker", "Left or straight?");
    stage.say("home by six").answer("speaker", "Then left.").answer("speaker", "<<<HANDOVER>>>\ngoal: home\n<<<END>>>");
    stage.say("why left?").answer("speaker", "It is short.");
    stage.cast("speaker", "dog");
    stage.say("and now?").answer("speaker", "Go.");
    stage
}

/// A turn that failed and was tried again.
fn again() -> Stage {
    let mut stage = Stage::open(Concierge::new());
    stage.say("which way?").answer("expert", "left").answer("expert", "right").answer("expert", "straight");
    stage.answer("mapper", "three ways").fail("speaker", FailureKind::Refused).command(Command::Retry);
    stage.answer("speaker", "Left.");
    stage
}

/// Calls that were stopped: not begun, under way and heard of after all, under way and never heard of again.
fn cancelled() -> Stage {
    let mut stage = Stage::open(Concierge::new());
    stage.say("which way?").answer("expert", "left").fail("expert", FailureKind::Overload).command(Command::Cancel);
    let reply = Reply { text: "too late".into(), ..Reply::default() };
    stage.give(Input::Answer { call: CallId(3), attempt: 1, reply, cost_microusd: Some(10), ms: 5 });
    stage.say("well?").command(Command::Cancel);
    let failure = Failure::new(FailureKind::Network, "cut off");
    stage.give(Input::Failure { call: CallId(4), attempt: 1, failure });
    stage.say("and now?").command(Command::Cancel);
    stage
}

fn nodes() -> Stage {
    let mut stage = Stage::open(Nodes::new());
    stage.say("plan meals").answer("understand", "ok").answer("think", "{\"steps\": 2}");
    stage.answer("act", "rice beans").answer("act", "a b c d e f g").answer("reply", "Rice?");
    stage.answer("summarize", "1 2 3 4 5 6 7 8 9").say("no rice").answer("understand", "ok").answer("think", "none");
    stage.answer("reply", "Beans.").fail("summarize", FailureKind::Refused);
    stage
}

fn project() -> Stage {
    let mut stage = Stage::open(Project::new());
    stage.say("build it").answer("router", r#"{"agents": ["ann", "bob"], "phase": "execute"}"#);
    stage.wants_tool("worker", "look", json!({"at": "src"})).wants_tool("worker", "complete", json!({}));
    stage.tool("look", Ok("two files")).answer("worker", "bob is done");
    stage.wants_tool("worker", "complete", json!({})).answer("worker", "ann is done");
    stage.answer("router", r#"{"agents": [], "phase": "end"}"#);
    stage.command(Command::RollBack { phase: project::work(), visit: 1 });
    stage.answer("router", r#"{"agents": ["ann"], "phase": "execute"}"#);
    stage.wants_tool("worker", "complete", json!({})).answer("worker", "done again");
    stage.command(Command::Grant { phase: project::work(), to: "end".into() });
    stage.answer("router", r#"{"agents": [], "phase": "end"}"#);
    stage
}

/// Tools that did not do what was asked, with models told so.
fn outcomes() -> Stage {
    let mut stage = Stage::open(Project::new());
    stage.say("build it").answer("router", r#"{"agents": ["ann"], "phase": "execute"}"#);
    stage.wants_tool("worker", "look", json!({"at": "src"})).tool("look", Err("no such folder"));
    stage.wants_tool("worker", "look", json!({"at": "."})).tool("look", Ok("two files"));
    stage.wants_tool("worker", "guess", json!({})).answer("worker", "ann gave up");
    stage
}

/// Vendors that count more tokens than we do, one of them after it sent an answer back.
fn weights() -> Stage {
    let mut stage = Stage::open(Concierge::new());
    stage.say(&format!("which way? {}", "word ".repeat(600)));
    let input = |input| Some(Usage { input, output: 9, ..Usage::default() });
    let told = |text: &str, usage, sent_back| Reply { text: text.into(), usage, sent_back, ..Reply::default() };
    stage.reply("expert", told("left", input(900), None)).reply("expert", told("right", input(1_900), input(900)));
    stage.answer("expert", "straight").answer("mapper", "three ways").reply("speaker", told("Left.", input(990), None));
    stage.say("and then?").answer("speaker", "Right.");
    stage
}

fn team() -> Stage {
    let mut stage = Stage::open(Team::new());
    stage.say("story-1 to ann").say("story-2 to bob").say("fact to ann");
    stage.answer("coder", "plan one?").answer("architect", "change it").crash();
    stage.answer("coder", "plan bob?").answer("architect", "fine, bob").answer("coder", "plan two?");
    stage.answer("architect", "good").answer("coder", "done").answer("coder", "done").say("story-3 to ann");
    stage
}

/// A copy made by hand while agents were at work, taken up later.
fn copied() -> Stage {
    let mut stage = Stage::open(Team::new());
    stage.say("story-1 to ann").say("story-2 to bob").answer("coder", "plan one?").fail("coder", FailureKind::Overload);
    let mut copy = stage.copy_by_hand_at(stage.journal().len());
    copy.crash().answer("coder", "plan bob?").answer("architect", "good").answer("architect", "fine, bob");
    copy
}

/// What only real vendors bring about: images, seals, another model that steps in, a prompt they find too long.
fn vendors() -> Stage {
    let mut stage = Stage::open(Concierge::new());
    stage.fallback("speaker", "spare");
    let images = vec![Image { media: Media::Png, data: "aWk=".into() }];
    stage.give(Input::Message { text: "what is this?".into(), key: None, busy: None, images });
    stage.answer("expert", "a dog").answer("expert", "a cat").answer("expert", "a dog").answer("mapper", "two views");
    stage.fail("speaker", FailureKind::BadKey);
    let (text, seal) = ("A dog.".into(), Some("{\"acme\":1}".into()));
    stage.reply("speaker", Reply { text, seal, ..Reply::default() });
    for turn in 0..6 {
        stage.say(&format!("and number {turn}? {}", "word ".repeat(400)));
        if turn == 5 {
            stage.fail("speaker", FailureKind::ContextTooLong);
        }
        stage.answer("speaker", &format!("Dog {turn}. {}", "word ".repeat(400)));
    }
    stage
}

fn place(name: &str, ending: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/format-1").join(format!("{name}{ending}"))
}

fn found(path: &Path) -> String {
    static WRITTEN: Once = Once::new();
    WRITTEN.call_once(|| FORMAT_1.iter().for_each(write_if_new));
    fs::read_to_string(path).unwrap_or_else(|error| {
        panic!("{} is gone ({error}); golden journals are kept for ever, see tests/golden/README.md", path.display())
    })
}

/// Writes what is not there yet, if that is asked for in so many words.
fn write_if_new(golden: &Golden) {
    if std::env::var("SEGUE_GOLDEN").as_deref() != Ok("write") || place(golden.name, ".jsonl").exists() {
        return;
    }
    let stage = (golden.play)();
    fs::write(place(golden.name, ".jsonl"), stage.journal_lines()).expect("the folder can be written to");
    let state = State::fold(&*(golden.rules)(), stage.journal());
    fs::write(place(golden.name, ".state.txt"), summary(&state)).expect("the folder can be written to");
}

/// A line's place, time and event, the last as it was written.
fn parts(line: &str) -> (Seq, Millis, &str) {
    let frame: Value = serde_json::from_str(line).expect("a line is JSON");
    let number = |name: &str| frame[name].as_u64().expect("a line has its place and time");
    let (_, event) = line.split_once(r#""event":"#).expect("a line has an event");
    let event = event.strip_suffix('}').expect("and nothing after it");
    (Seq(number("seq")), Millis(number("at")), event)
}

fn journal(text: &str) -> Vec<Recorded> {
    let read = |line: &str| {
        let (seq, at, event) = parts(line);
        let recorded = codec::decode(seq, at, event.as_bytes()).unwrap_or_else(|error| panic!("{error}\n{line}"));
        let written = codec::encode(&recorded.event);
        assert_eq!(String::from_utf8_lossy(&written), event, "what is read is written the same");
        recorded
    };
    text.lines().map(read).collect()
}

/// The state in a few lines that mean something to a reader.
fn summary(state: &State) -> String {
    let session = &state.session;
    let mut out = String::new();
    let mut line = |text: String| writeln!(out, "{text}").expect("a string takes everything");
    line(format!("seq {} at {}", session.seq, session.at.0));
    line(format!("id {:?} title {:?} busy {:?} closed {:?}", session.id, session.title, session.busy, session.closed));
    line(format!("turn {:?} queue {}", session.turn.as_ref().map(|turn| turn.id), session.queue.len()));
    line(format!("last {:?}", session.last));
    for (call, open) in &session.calls {
        line(format!("call {call} of {} try {} {:?}", open.opened.role, open.attempt, open.status));
    }
    for (id, thread) in &session.threads {
        let (entries, tokens, digest) = (thread.entries.len(), thread.tokens, thread.digest);
        line(format!("thread {id} of {} {entries} entries {tokens} tokens {digest}", thread.slot.role));
    }
    for (key, stand) in &session.phases {
        let now = &stand.now;
        line(format!(
            "phase {key}: {} visit {} turns {} gates {:?}",
            now.current, now.visit, now.turns, now.open_gates
        ));
    }
    for (agent, work) in &session.leases {
        line(format!("{agent} works on {work}"));
    }
    for (agent, inbox) in &session.inboxes {
        line(format!("{agent} has {} letters", inbox.len()));
    }
    for handover in &*session.handovers {
        line(format!("handover {} {} {:?}", handover.id, handover.kind, handover.how));
    }
    for (model, weight) in session.weights.iter().filter(|(_, weight)| !weight.is_even()) {
        line(format!("a token weighs {} with {model}", weight.permille()));
    }
    let timers: Vec<&str> = session.timers.values().map(|timer| timer.name.as_str()).collect();
    line(format!("timers {timers:?} resets {:?}", session.resets.values().collect::<Vec<_>>()));
    let total = session.ledger.total;
    line(format!(
        "answered {} failed {} unknown {} late {} in {} out {} cost {:?}",
        total.answered,
        total.failed,
        total.unknown,
        total.late,
        total.input,
        total.output,
        total.cost()
    ));
    out
}

#[test]
fn every_golden_journal_is_read_written_the_same_and_folds_to_the_state_it_had() {
    for golden in &FORMAT_1 {
        let journal = journal(&found(&place(golden.name, ".jsonl")));
        assert!(journal.iter().enumerate().all(|(n, recorded)| recorded.seq.0 == n as u64 + 1), "{}", golden.name);
        let rules = (golden.rules)();
        let state = State::fold(&*rules, &journal);
        assert_eq!(summary(&state), found(&place(golden.name, ".state.txt")), "{}", golden.name);
        let snapshot = codec::encode_snapshot(&*rules, &state).expect("a state can be written down");
        assert!(codec::decode_snapshot(&*rules, &snapshot).is_some_and(|read| read.session == state.session));
    }
}

#[test]
fn no_golden_journal_lies_there_unread() {
    let files = fs::read_dir(place("", "")).expect("the folder is there");
    let known: BTreeSet<String> = FORMAT_1
        .iter()
        .flat_map(|golden| [".jsonl", ".state.txt"].map(|ending| format!("{}{ending}", golden.name)))
        .collect();
    let found: BTreeSet<String> =
        files.map(|file| file.expect("it can be read").file_name().to_string_lossy().into_owned()).collect();
    assert_eq!(found, known);
}

/// Every kind of event. Whoever adds one is stopped here by the compiler: it needs a new golden journal.
fn kind(event: &Event) -> &'static str {
    match event {
        Event::SessionOpened(_) => "session_opened",
        Event::SessionForked { .. } => "session_forked",
        Event::SessionRenamed { .. } => "session_renamed",
        Event::SessionClosed { .. } => "session_closed",
        Event::MessageReceived(_) => "message_received",
        Event::MessagePosted(_) => "message_posted",
        Event::MessageTaken { .. } => "message_taken",
        Event::TurnStarted { .. } => "turn_started",
        Event::Said(_) => "said",
        Event::TurnEnded { .. } => "turn_ended",
        Event::CallOpened(_) => "call_opened",
        Event::CallDeferred(_) => "call_deferred",
        Event::CallResumed { .. } => "call_resumed",
        Event::CallDropped { .. } => "call_dropped",
        Event::CallAnswered(_) => "call_answered",
        Event::CallFailed { .. } => "call_failed",
        Event::CallMoved { .. } => "call_moved",
        Event::CallUnknown { .. } => "call_unknown",
        Event::CallTakenUp { .. } => "call_taken_up",
        Event::CallResolved { .. } => "call_resolved",
        Event::CallCancelled { .. } => "call_cancelled",
        Event::CallAnsweredLate { .. } => "call_answered_late",
        Event::ThreadReset { .. } => "thread_reset",
        Event::ThreadCompacted(_) => "thread_compacted",
        Event::PhaseEntered(_) => "phase_entered",
        Event::PhaseRefused(_) => "phase_refused",
        Event::SkipGranted { .. } => "skip_granted",
        Event::HandoverMade(_) => "handover_made",
        Event::HandoverAsked { .. } => "handover_asked",
        Event::ToolOpened(_) => "tool_opened",
        Event::ToolAnswered { .. } => "tool_answered",
        Event::RoundDropped { .. } => "round_dropped",
        Event::TimerSet { .. } => "timer_set",
        Event::TimerFired { .. } => "timer_fired",
        Event::TimerStopped { .. } => "timer_stopped",
        Event::WorkLeased { .. } => "work_leased",
        Event::Commanded { .. } => "commanded",
        Event::StepRefused { .. } => "step_refused",
        Event::Fact { .. } => "fact",
    }
}

const KINDS: usize = 39;

#[test]
fn every_kind_of_event_is_in_a_golden_journal() {
    let mut kinds = BTreeSet::new();
    for golden in &FORMAT_1 {
        for recorded in journal(&found(&place(golden.name, ".jsonl"))) {
            let written: Value = serde_json::from_slice(&codec::encode(&recorded.event)).expect("an event is JSON");
            assert_eq!(written["is"], kind(&recorded.event), "an event is written under its name");
            kinds.insert(kind(&recorded.event));
        }
    }
    assert_eq!(kinds.len(), KINDS, "{kinds:?}");
}

#[test]
fn no_journal_without_one_of_its_fields_brings_us_down() {
    fn without_each(value: &Value, found: &mut Vec<Value>) {
        let Value::Object(fields) = value else { return };
        for (name, field) in fields {
            let mut without = fields.clone();
            without.remove(name);
            found.push(Value::Object(without));
            let mut inner = Vec::new();
            without_each(field, &mut inner);
            for changed in inner {
                let mut with = fields.clone();
                with.insert(name.clone(), changed);
                found.push(Value::Object(with));
            }
        }
    }
    let rules = All::new();
    let mut state = State::fresh(&rules);
    for line in found(&place("all", ".jsonl")).lines() {
        let (seq, at, event) = parts(line);
        let mut broken = Vec::new();
        without_each(&serde_json::from_str(event).expect("an event is JSON"), &mut broken);
        for value in broken {
            match codec::decode(seq, at, value.to_string().as_bytes()) {
                Ok(recorded) => state.apply(&rules, &recorded),
                Err(error) => assert!(matches!(error, codec::Error::Unreadable { .. }), "{error}"),
            }
        }
    }
}

#[test]
fn folding_is_total_whatever_the_order() {
    let rules = All::new();
    let journal = journal(&found(&place("all", ".jsonl")));
    let mut state = State::fold(&rules, journal.iter().rev());
    for stride in [2, 3, 5, 7, 11, 13] {
        for start in 0..stride {
            let sparse = journal.iter().skip(start).step_by(stride);
            sparse.for_each(|recorded| state.apply(&rules, recorded));
        }
    }
    assert!(!state.session.owed(&rules.spec().clone()).is_empty() || state.session.is_idle());
}

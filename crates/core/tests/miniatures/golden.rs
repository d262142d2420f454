//! Reads golden journals of every format. See `tests/golden/README.md`.
#![expect(clippy::disallowed_methods, reason = "golden journals are files; core itself touches none")]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Once;

use segue_core::codec;
use segue_core::decide::{OperatorCommand, SessionInput};
use segue_core::event::{Event, RecordedEvent};
use segue_core::flow::DynFlow;
use segue_core::ids::{CallId, Seq, UnixMillis};
use segue_core::prompt::{CallFailure, CallFailureKind, ImageMediaType, ModelReply, PromptImage, TokenUsage};
use segue_core::session::{LastAssignedIds, SessionState};
use segue_testkit::SessionHarness;
use segue_testkit::sample_flows::{MiniConciergeFlow, MiniFiveNodeFlow, MiniProjectFlow, MiniTeamFlow};
use serde_json::{Value, json};

use super::all::{All, play_all};
use super::{client_tools, commanded, exchange, held_tools, project, rounds};

/// A journal of format 1: its name, its flow, and the script that produced it.
struct Golden {
    name: &'static str,
    flow: fn() -> Box<dyn DynFlow>,
    play: fn() -> SessionHarness,
}

const FORMAT_1: [Golden; 16] = [
    Golden { name: "concierge", flow: || Box::new(MiniConciergeFlow::new()), play: concierge },
    Golden { name: "nodes", flow: || Box::new(MiniFiveNodeFlow::new()), play: nodes },
    Golden { name: "project", flow: || Box::new(MiniProjectFlow::new()), play: project },
    Golden { name: "team", flow: || Box::new(MiniTeamFlow::new()), play: team },
    Golden { name: "all", flow: || Box::new(All::new()), play: play_all },
    Golden { name: "commanded", flow: || Box::new(commanded::flow()), play: commanded::play },
    Golden { name: "vendors", flow: || Box::new(MiniConciergeFlow::new()), play: vendors },
    Golden { name: "retried", flow: || Box::new(MiniConciergeFlow::new()), play: retried },
    Golden { name: "outcomes", flow: || Box::new(MiniProjectFlow::new()), play: outcomes },
    Golden { name: "token_ratios", flow: || Box::new(MiniConciergeFlow::new()), play: token_ratios },
    Golden { name: "cancelled", flow: || Box::new(MiniConciergeFlow::new()), play: cancelled },
    Golden { name: "exchange", flow: || Box::new(exchange::flow()), play: exchange::play },
    Golden { name: "copied", flow: || Box::new(MiniTeamFlow::new()), play: copied },
    Golden { name: "held_tools", flow: || Box::new(held_tools::flow()), play: held_tools::play },
    Golden { name: "client_tools", flow: || Box::new(client_tools::flow()), play: client_tools::play },
    Golden { name: "rounds", flow: || Box::new(rounds::flow()), play: rounds::play },
];

fn concierge() -> SessionHarness {
    let mut harness = SessionHarness::open(MiniConciergeFlow::new());
    harness
        .send_message("which way?")
        .answer_call("expert", "left")
        .fail_call("expert", CallFailureKind::Overload)
        .crash_and_recover();
    harness.fail_call("expert", CallFailureKind::Refused).answer_call("expert", "straight");
    harness.answer_call("mapper", "two ways").answer_call("speaker", "Left or straight?");
    harness
        .send_message("home by six")
        .answer_call("speaker", "Then left.")
        .answer_call("speaker", "<<<HANDOVER>>>\ngoal: home\n<<<END>>>");
    harness.send_message("why left?").answer_call("speaker", "It is short.");
    harness.assign_model("speaker", "dog");
    harness.send_message("and now?").answer_call("speaker", "Go.");
    harness
}

/// A turn that failed and was retried.
fn retried() -> SessionHarness {
    let mut harness = SessionHarness::open(MiniConciergeFlow::new());
    harness
        .send_message("which way?")
        .answer_call("expert", "left")
        .answer_call("expert", "right")
        .answer_call("expert", "straight");
    harness
        .answer_call("mapper", "three ways")
        .fail_call("speaker", CallFailureKind::Refused)
        .run_command(OperatorCommand::Retry { turn: None });
    harness.answer_call("speaker", "Left.");
    harness
}

/// Cancelled calls: not started, in flight with a late outcome, and in flight without one.
fn cancelled() -> SessionHarness {
    let mut harness = SessionHarness::open(MiniConciergeFlow::new());
    harness
        .send_message("which way?")
        .answer_call("expert", "left")
        .fail_call("expert", CallFailureKind::Overload)
        .run_command(OperatorCommand::Cancel { turn: None });
    let reply = ModelReply { text: "too late".into(), ..ModelReply::default() };
    harness.apply_input(SessionInput::Answer {
        call: CallId(3),
        attempt: 1,
        reply,
        cost_microusd: Some(10),
        duration_ms: 5,
    });
    harness.send_message("well?").run_command(OperatorCommand::Cancel { turn: None });
    let failure = CallFailure::new(CallFailureKind::Network, "cut off");
    harness.apply_input(SessionInput::CallFailure { call: CallId(4), attempt: 1, failure });
    harness.send_message("and now?").run_command(OperatorCommand::Cancel { turn: None });
    harness
}

fn nodes() -> SessionHarness {
    let mut harness = SessionHarness::open(MiniFiveNodeFlow::new());
    harness.send_message("plan meals").answer_call("understand", "ok").answer_call("think", "{\"steps\": 2}");
    harness.answer_call("act", "rice beans").answer_call("act", "a b c d e f g").answer_call("reply", "Rice?");
    harness
        .answer_call("summarize", "1 2 3 4 5 6 7 8 9")
        .send_message("no rice")
        .answer_call("understand", "ok")
        .answer_call("think", "none");
    harness.answer_call("reply", "Beans.").fail_call("summarize", CallFailureKind::Refused);
    harness
}

fn project() -> SessionHarness {
    let mut harness = SessionHarness::open(MiniProjectFlow::new());
    harness.send_message("build it").answer_call("router", r#"{"agents": ["ann", "bob"], "phase": "execute"}"#);
    harness.answer_with_tool_call("worker", "look", json!({"at": "src"})).answer_with_tool_call(
        "worker",
        "complete",
        json!({}),
    );
    harness.finish_tool("look", Ok("two files")).answer_call("worker", "bob is done");
    harness.answer_with_tool_call("worker", "complete", json!({})).answer_call("worker", "ann is done");
    harness.answer_call("router", r#"{"agents": [], "phase": "end"}"#);
    harness.run_command(OperatorCommand::RollBack { phase: project::work(), visit: 1 });
    harness.answer_call("router", r#"{"agents": ["ann"], "phase": "execute"}"#);
    harness.answer_with_tool_call("worker", "complete", json!({})).answer_call("worker", "done again");
    harness.run_command(OperatorCommand::Grant { phase: project::work(), to: "end".into() });
    harness.answer_call("router", r#"{"agents": [], "phase": "end"}"#);
    harness
}

/// Tools that failed, with models told so.
fn outcomes() -> SessionHarness {
    let mut harness = SessionHarness::open(MiniProjectFlow::new());
    harness.send_message("build it").answer_call("router", r#"{"agents": ["ann"], "phase": "execute"}"#);
    harness.answer_with_tool_call("worker", "look", json!({"at": "src"})).finish_tool("look", Err("no such folder"));
    harness.answer_with_tool_call("worker", "look", json!({"at": "."})).finish_tool("look", Ok("two files"));
    harness.answer_with_tool_call("worker", "guess", json!({})).answer_call("worker", "ann gave up");
    harness
}

/// Vendors that count more tokens than we do, one of them after it rejected an answer.
fn token_ratios() -> SessionHarness {
    let mut harness = SessionHarness::open(MiniConciergeFlow::new());
    harness.send_message(&format!("which way? {}", "word ".repeat(600)));
    let input = |input| Some(TokenUsage { input_tokens: input, output_tokens: 9, ..TokenUsage::default() });
    let reply = |text: &str, usage, rejected_usage| ModelReply {
        text: text.into(),
        usage,
        rejected_usage,
        ..ModelReply::default()
    };
    harness
        .reply_to_call("expert", reply("left", input(900), None))
        .reply_to_call("expert", reply("right", input(1_900), input(900)));
    harness
        .answer_call("expert", "straight")
        .answer_call("mapper", "three ways")
        .reply_to_call("speaker", reply("Left.", input(990), None));
    harness.send_message("and then?").answer_call("speaker", "Right.");
    harness
}

fn team() -> SessionHarness {
    let mut harness = SessionHarness::open(MiniTeamFlow::new());
    harness.send_message("story-1 to ann").send_message("story-2 to bob").send_message("fact to ann");
    harness.answer_call("coder", "plan one?").answer_call("architect", "change it").crash_and_recover();
    harness.answer_call("coder", "plan bob?").answer_call("architect", "fine, bob").answer_call("coder", "plan two?");
    harness
        .answer_call("architect", "good")
        .answer_call("coder", "done")
        .answer_call("coder", "done")
        .send_message("story-3 to ann");
    harness
}

/// A deferred fork made while agents were working, resumed later.
fn copied() -> SessionHarness {
    let mut harness = SessionHarness::open(MiniTeamFlow::new());
    harness
        .send_message("story-1 to ann")
        .send_message("story-2 to bob")
        .answer_call("coder", "plan one?")
        .fail_call("coder", CallFailureKind::Overload);
    let mut copy = harness.fork_deferred_at(harness.journal().len());
    copy.crash_and_recover()
        .answer_call("coder", "plan bob?")
        .answer_call("architect", "good")
        .answer_call("architect", "fine, bob");
    copy
}

/// Behaviour of real vendors: images, vendor state, a fallback model, a prompt that is too long.
fn vendors() -> SessionHarness {
    let mut harness = SessionHarness::open(MiniConciergeFlow::new());
    harness.set_fallback_model("speaker", "spare");
    let images = vec![PromptImage { media_type: ImageMediaType::Png, data: "aWk=".into() }];
    harness.apply_input(SessionInput::Message {
        text: "what is this?".into(),
        idempotency_key: None,
        mid_turn_policy: None,
        images,
    });
    harness
        .answer_call("expert", "a dog")
        .answer_call("expert", "a cat")
        .answer_call("expert", "a dog")
        .answer_call("mapper", "two views");
    harness.fail_call("speaker", CallFailureKind::InvalidApiKey);
    let (text, vendor_state) = ("A dog.".into(), Some("{\"acme\":1}".into()));
    harness.reply_to_call("speaker", ModelReply { text, vendor_state, ..ModelReply::default() });
    for turn in 0..6 {
        harness.send_message(&format!("and number {turn}? {}", "word ".repeat(400)));
        if turn == 5 {
            harness.fail_call("speaker", CallFailureKind::ContextTooLong);
        }
        harness.answer_call("speaker", &format!("Dog {turn}. {}", "word ".repeat(400)));
    }
    harness
}

fn golden_path(name: &str, ending: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/format-1").join(format!("{name}{ending}"))
}

fn read_golden(path: &Path) -> String {
    static WRITTEN: Once = Once::new();
    WRITTEN.call_once(|| FORMAT_1.iter().for_each(write_if_new));
    fs::read_to_string(path).unwrap_or_else(|error| {
        panic!("{} is missing ({error}); golden journals are kept forever, see tests/golden/README.md", path.display())
    })
}

/// Writes files that do not exist yet, if the environment variable asks for it.
fn write_if_new(golden: &Golden) {
    if std::env::var("SEGUE_GOLDEN").as_deref() != Ok("write") || golden_path(golden.name, ".jsonl").exists() {
        return;
    }
    let harness = (golden.play)();
    fs::write(golden_path(golden.name, ".jsonl"), harness.journal_json_lines()).expect("the folder can be written to");
    let state = SessionState::fold(&*(golden.flow)(), harness.journal());
    fs::write(golden_path(golden.name, ".state.txt"), summary(&state)).expect("the folder can be written to");
}

/// Returns the sequence number, time and encoded event of a line.
fn parts(line: &str) -> (Seq, UnixMillis, &str) {
    let frame: Value = serde_json::from_str(line).expect("a line is JSON");
    let number = |name: &str| frame[name].as_u64().expect("a line has a sequence number and a time");
    let (_, event) = line.split_once(r#""event":"#).expect("a line has an event");
    let event = event.strip_suffix('}').expect("and nothing after it");
    (Seq(number("seq")), UnixMillis(number("at")), event)
}

fn journal(text: &str) -> Vec<RecordedEvent> {
    let read = |line: &str| {
        let (seq, at, event) = parts(line);
        let recorded = codec::decode_event(seq, at, event.as_bytes()).unwrap_or_else(|error| panic!("{error}\n{line}"));
        let written = codec::encode_event(&recorded.event);
        assert_eq!(String::from_utf8_lossy(&written), event, "decoding and encoding give the same bytes");
        recorded
    };
    text.lines().map(read).collect()
}

/// Describes the state in a few lines.
fn summary(state: &SessionState) -> String {
    let session = &state.session;
    let mut out = String::new();
    let mut line = |text: String| writeln!(out, "{text}").expect("writing to a string cannot fail");
    line(format!("seq {} at {}", session.last_seq, session.last_event_at.0));
    line(format!(
        "id {:?} title {:?} mid-turn policy {:?} closed {:?}",
        session.id, session.title, session.mid_turn_policy, session.closed_reason
    ));
    line(format!(
        "turn {:?} queue {}",
        session.current_turn.as_ref().map(|turn| turn.id),
        session.queued_messages.len()
    ));
    let LastAssignedIds { message, turn, call, thread, tool_run, timer, handover, deferred_call, child, ask } =
        session.last_ids;
    line(format!(
        "last LastAssignedIds {{ message: {message:?}, turn: {turn:?}, call: {call:?}, thread: {thread:?}, \
         tool_run: {tool_run:?}, timer: {timer:?}, handover: {handover:?}, deferred_call: {deferred_call} }}"
    ));
    if child.0 + ask.0 > 0 {
        line(format!("last {child} {ask}"));
    }
    for (call, open) in &session.open_calls {
        line(format!("call {call} of {} try {} {:?}", open.opened.role, open.attempt, open.status));
    }
    for (id, thread) in &session.threads {
        let entries =
            serde_json::to_value(&**thread).expect("a thread is JSON")["entries"].as_array().map_or(0, Vec::len);
        let (tokens, digest) = (thread.tokens, thread.digest);
        line(format!("thread {id} of {} {entries} entries {tokens} tokens {digest}", thread.slot.role));
    }
    for (key, status) in &session.phase_graphs {
        let now = &status.state;
        line(format!(
            "phase {key}: {} visit {} turns {} gates {:?}",
            now.current, now.visit, now.turns_started, now.open_gates
        ));
    }
    for (agent, work) in &session.work_assignments {
        line(format!("{agent} works on {work}"));
    }
    for (agent, inbox) in &session.inboxes {
        line(format!("{agent} has {} messages", inbox.len()));
    }
    for handover in &*session.handovers {
        line(format!("handover {} {} {:?}", handover.id, handover.kind, handover.provenance));
    }
    for model in session.ledger.by_model.keys() {
        let ratio = session.token_ratio_permille(model);
        if ratio != 1_000 {
            line(format!("token ratio {ratio} of {model}"));
        }
    }
    for (child, open) in &session.open_children {
        line(format!("{child} is open, session {}, told to close: {}", open.spawned.session, open.close_requested));
    }
    for (ask, received) in &session.received_asks {
        line(format!("{ask} of {} waits for a reply", received.from));
    }
    if let Some(claim) = &session.claim {
        line(format!("claim {} of {}", claim.name, claim.workspace));
    }
    let descendants = session.ledger.descendants;
    if descendants.descendants > 0 {
        line(format!("descendants {} with {} calls", descendants.descendants, descendants.calls));
    }
    let timers: Vec<&str> = session.timers.values().map(|timer| timer.name.as_str()).collect();
    line(format!("timers {timers:?} resets {:?}", session.slot_resets.values().collect::<Vec<_>>()));
    let total = session.ledger.total;
    line(format!(
        "answered {} failed {} unknown {} late {} in {} out {} cost {:?}",
        total.answered_calls,
        total.failed_attempts,
        total.unknown_attempts,
        total.late_answers,
        total.input_tokens,
        total.output_tokens,
        total.exact_cost_microusd()
    ));
    out
}

#[test]
fn golden_journals_are_decoded_encoded_and_applied_as_before() {
    for golden in &FORMAT_1 {
        let journal = journal(&read_golden(&golden_path(golden.name, ".jsonl")));
        assert!(journal.iter().enumerate().all(|(n, recorded)| recorded.seq.0 == n as u64 + 1), "{}", golden.name);
        let flow = (golden.flow)();
        let state = SessionState::fold(&*flow, &journal);
        assert_eq!(summary(&state), read_golden(&golden_path(golden.name, ".state.txt")), "{}", golden.name);
        let snapshot = codec::encode_snapshot(&*flow, &state).expect("a state can be encoded");
        assert!(codec::decode_snapshot(&*flow, &snapshot).is_some_and(|read| read.session == state.session));
    }
}

#[test]
fn every_golden_file_is_tested() {
    let files = fs::read_dir(golden_path("", "")).expect("the folder is there");
    let known: BTreeSet<String> = FORMAT_1
        .iter()
        .flat_map(|golden| [".jsonl", ".state.txt"].map(|ending| format!("{}{ending}", golden.name)))
        .collect();
    let found: BTreeSet<String> =
        files.map(|file| file.expect("it can be read").file_name().to_string_lossy().into_owned()).collect();
    assert_eq!(found, known);
}

/// Every kind of event. A new one fails to compile here, because it needs a new golden journal.
fn kind(event: &Event) -> &'static str {
    match event {
        Event::SessionOpened(_) => "session_opened",
        Event::SessionForked { .. } => "session_forked",
        Event::SessionRenamed { .. } => "session_renamed",
        Event::SessionClosed { .. } => "session_closed",
        Event::UserMessageReceived(_) => "user_message_received",
        Event::AgentMessageSent(_) => "agent_message_sent",
        Event::AgentMessageReceived { .. } => "agent_message_received",
        Event::TurnStarted { .. } => "turn_started",
        Event::TurnOptionsChanged { .. } => "turn_options_changed",
        Event::ReplySent(_) => "reply_sent",
        Event::TurnEnded { .. } => "turn_ended",
        Event::CallOpened(_) => "call_opened",
        Event::CallDeferred(_) => "call_deferred",
        Event::DeferredCallResumed { .. } => "deferred_call_resumed",
        Event::DeferredCallDropped { .. } => "deferred_call_dropped",
        Event::CallAnswered(_) => "call_answered",
        Event::CallFailed { .. } => "call_failed",
        Event::CallFailedOver { .. } => "call_failed_over",
        Event::CallOutcomeUnknown { .. } => "call_outcome_unknown",
        Event::InheritedCallStarted { .. } => "inherited_call_started",
        Event::CallResolved { .. } => "call_resolved",
        Event::CallCancelled { .. } => "call_cancelled",
        Event::CallAnsweredLate { .. } => "call_answered_late",
        Event::ThreadReset { .. } => "thread_reset",
        Event::ThreadCompacted(_) => "thread_compacted",
        Event::PhaseEntered(_) => "phase_entered",
        Event::PhaseTransitionRefused { .. } => "phase_transition_refused",
        Event::PhaseRoundCounted { .. } => "phase_round_counted",
        Event::SkipGranted { .. } => "skip_granted",
        Event::HandoverCreated(_) => "handover_created",
        Event::HandoverRepairRequested { .. } => "handover_repair_requested",
        Event::ToolRunOpened(_) => "tool_run_opened",
        Event::ToolRunHeld { .. } => "tool_run_held",
        Event::ToolRunApproved { .. } => "tool_run_approved",
        Event::ToolRunDenied { .. } => "tool_run_denied",
        Event::ToolRunResolved { .. } => "tool_run_resolved",
        Event::ToolApprovalRuleAdded(_) => "tool_approval_rule_added",
        Event::ToolRunEnded { .. } => "tool_run_ended",
        Event::ToolRoundDropped { .. } => "tool_round_dropped",
        Event::TimerSet { .. } => "timer_set",
        Event::TimerFired { .. } => "timer_fired",
        Event::TimerStopped { .. } => "timer_stopped",
        Event::WorkItemAssigned { .. } => "work_item_assigned",
        Event::CommandIssued { .. } => "command_issued",
        Event::StepRefused { .. } => "step_refused",
        Event::FlowFactRecorded { .. } => "flow_fact_recorded",
        Event::SubmissionHandled { .. } => "submission_handled",
        Event::ChildSpawned(_) => "child_spawned",
        Event::ChildCloseRequested { .. } => "child_close_requested",
        Event::ChildEnded { .. } => "child_ended",
        Event::ChildUsageReported { .. } => "child_usage_reported",
        Event::ResultSet { .. } => "result_set",
        Event::ResultReported => "result_reported",
        Event::AskSent(_) => "ask_sent",
        Event::AskEnded { .. } => "ask_ended",
        Event::AskReceived(_) => "ask_received",
        Event::AskReplied { .. } => "ask_replied",
        Event::ReceivedAskDropped { .. } => "received_ask_dropped",
        Event::ReplyUndelivered { .. } => "reply_undelivered",
        Event::ClaimRequested { .. } => "claim_requested",
        Event::ClaimReleased { .. } => "claim_released",
    }
}

const KINDS: usize = 61;

#[test]
fn every_kind_of_event_is_in_a_golden_journal() {
    let mut kinds = BTreeSet::new();
    for golden in &FORMAT_1 {
        for recorded in journal(&read_golden(&golden_path(golden.name, ".jsonl"))) {
            let written: Value =
                serde_json::from_slice(&codec::encode_event(&recorded.event)).expect("an event is JSON");
            assert_eq!(written["type"], kind(&recorded.event), "the type of an event is its name");
            kinds.insert(kind(&recorded.event));
        }
    }
    assert_eq!(kinds.len(), KINDS, "{kinds:?}");
}

#[test]
fn missing_fields_never_panic() {
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
    let flow = All::new();
    let mut state = SessionState::new(&flow);
    for line in read_golden(&golden_path("all", ".jsonl")).lines() {
        let (seq, at, event) = parts(line);
        let mut broken = Vec::new();
        without_each(&serde_json::from_str(event).expect("an event is JSON"), &mut broken);
        for value in broken {
            match codec::decode_event(seq, at, value.to_string().as_bytes()) {
                Ok(recorded) => state.apply(&flow, &recorded),
                Err(error) => assert!(matches!(error, codec::Error::Unreadable { .. }), "{error}"),
            }
        }
    }
}

#[test]
fn applying_events_in_any_order_never_panics() {
    let flow = All::new();
    let journal = journal(&read_golden(&golden_path("all", ".jsonl")));
    let mut state = SessionState::fold(&flow, journal.iter().rev());
    for stride in [2, 3, 5, 7, 11, 13] {
        for start in 0..stride {
            let sparse = journal.iter().skip(start).step_by(stride);
            sparse.for_each(|recorded| state.apply(&flow, recorded));
        }
    }
    assert!(!state.session.pending_effects(&flow.spec().clone()).is_empty() || state.session.is_idle());
}

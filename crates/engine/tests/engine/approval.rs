//! Tool runs that wait for a person.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use segue_core::decide::{InputRefusal, OperatorCommand};
use segue_core::event::{Event, ToolRunHoldReason, ToolRunOutcome, UnknownToolRunOutcomeResolution};
use segue_core::flow::{DynFlow, FlowToolApprovalPolicy, FlowToolDeclaration, UnknownOutcomePolicy};
use segue_core::ids::{SessionId, ToolRunId};
use segue_core::prompt::ModelToolSpec;
use segue_core::tool::ToolResult;
use segue_engine::limits::PARKED_LEASE_MS_MAX;
use segue_engine::tools::{Tool, ToolInvocation, ToolRegistry, ToolRunContext};
use segue_engine::{Engine, EngineConfig, Error, PendingWorkStatus, SessionQuery, UserMessage};
use segue_store::memory::{InMemoryStore, InMemoryStoreDisk};
use segue_testkit::ClosureFlow;

use crate::harness::{
    ReceivedCalls, advance_ms, engine_config, load_state, open_named_session, open_session, read_events,
    send_in_background, speaker_role,
};

fn chat_with_tool(approval: FlowToolApprovalPolicy, unknown_outcome: UnknownOutcomePolicy) -> Arc<dyn DynFlow> {
    let parameters = serde_json::json!({"type": "object"});
    let spec = ModelToolSpec { name: "look".into(), description: "looks".to_owned(), parameters };
    let look = FlowToolDeclaration { approval, unknown_outcome, ..FlowToolDeclaration::for_host(spec) };
    let spec = ClosureFlow::spec_with_role(speaker_role().with_tool("look")).with_tool(look);
    Arc::new(ClosureFlow::new(spec, ClosureFlow::react_as_chat))
}

/// Returns its arguments. The first runs hang, if the test wants that.
#[derive(Debug, Default)]
struct CountingTool {
    runs: AtomicU32,
    hanging_runs: u32,
}

#[async_trait]
impl Tool for CountingTool {
    async fn run(&self, request: ToolInvocation, _: ToolRunContext) -> ToolResult {
        if self.runs.fetch_add(1, Ordering::Relaxed) < self.hanging_runs {
            std::future::pending::<()>().await;
        }
        ToolResult::done(format!("looked with {}", request.opened.arguments))
    }
}

async fn start(disk: &InMemoryStoreDisk, flow: Arc<dyn DynFlow>, tool: &Arc<CountingTool>) -> (Engine, ReceivedCalls) {
    let (base, calls) = engine_config(InMemoryStore::open(disk), flow);
    let tools = ToolRegistry::default().with_tool("look", tool.clone());
    (Engine::start(EngineConfig { tools, ..base }).await.expect("it starts"), calls)
}

fn approved_chat() -> Arc<dyn DynFlow> {
    chat_with_tool(FlowToolApprovalPolicy::Required, UnknownOutcomePolicy::Fail)
}

fn approve(run: u32) -> OperatorCommand {
    OperatorCommand::Approve { run: ToolRunId(run), arguments: None, remember: false, by: None }
}

#[tokio::test(start_paused = true)]
async fn caller_of_a_turn_that_waits_for_approval_gets_its_report() {
    let tool = Arc::new(CountingTool::default());
    let (engine, mut calls) = start(&InMemoryStoreDisk::new(), approved_chat(), &tool).await;
    let session = open_session(&engine).await;
    let pending_turn = send_in_background(&engine, &session, "what is there?");
    calls.next().await.call_tool("look");
    advance_ms(60_000).await;
    assert_eq!((tool.runs.load(Ordering::Relaxed), engine.active_session_count()), (0, 0));
    engine.apply_command(&session, approve(1)).await.expect("it waits for approval");
    let call = calls.next().await;
    assert_eq!(call.last_message(), "looked with {\"at\":1}");
    call.answer("I see");
    let report = pending_turn.await.expect("the task does not panic").expect("it is answered");
    assert_eq!(report.replies, ["I see"]);
}

#[tokio::test(start_paused = true)]
async fn caller_of_a_waiting_turn_is_told_that_the_engine_shuts_down() {
    let tool = Arc::new(CountingTool::default());
    let (engine, mut calls) = start(&InMemoryStoreDisk::new(), approved_chat(), &tool).await;
    let session = open_session(&engine).await;
    let pending_turn = send_in_background(&engine, &session, "what is there?");
    calls.next().await.call_tool("look");
    advance_ms(60_000).await;
    engine.shutdown().await;
    let report = tokio::time::timeout(Duration::from_secs(60), pending_turn).await.expect("it does not hang");
    assert!(matches!(report.expect("the task does not panic"), Err(Error::ShuttingDown)));
}

#[tokio::test(start_paused = true)]
async fn r9_second_decision_about_a_run_is_refused() {
    let tool = Arc::new(CountingTool::default());
    let (engine, mut calls) = start(&InMemoryStoreDisk::new(), approved_chat(), &tool).await;
    let session = open_session(&engine).await;
    let _pending_turn = send_in_background(&engine, &session, "what is there?");
    calls.next().await.call_tool("look");
    advance_ms(10).await;
    engine.apply_command(&session, approve(1)).await.expect("it waits for approval");
    let deny = OperatorCommand::Deny { run: ToolRunId(1), reason: String::new() };
    let late = engine.apply_command(&session, deny).await;
    assert!(matches!(late, Err(Error::Refused(InputRefusal::ToolRunNotHeld { .. }))), "{late:?}");
    calls.next().await.answer("I see");
}

#[tokio::test(start_paused = true)]
async fn r10_sessions_that_wait_for_approval_hold_no_task_no_lease_and_no_due_row() {
    const SESSIONS: usize = 10_000;
    let (disk, tool) = (InMemoryStoreDisk::new(), Arc::new(CountingTool::default()));
    let (engine, mut calls) = start(&disk, approved_chat(), &tool).await;
    let mut sessions: Vec<SessionId> = Vec::new();
    for number in 0..SESSIONS {
        let session = open_named_session(&engine, &format!("s{number}")).await;
        engine.send_message(&session, UserMessage::from("what is there?")).await.expect("it is accepted");
        calls.next().await.call_tool("look");
        sessions.push(session);
    }
    advance_ms(4 * PARKED_LEASE_MS_MAX).await;
    assert_eq!(engine.active_session_count(), 0, "no session has a task");
    let listed = engine.list_sessions(&SessionQuery::newest(SESSIONS)).await.expect("it can be read").entries;
    let due = listed.iter().filter(|entry| entry.summary.pending_work != PendingWorkStatus::None);
    assert_eq!((listed.len(), due.count()), (SESSIONS, 0), "no session is due");
    // Another process can acquire every lease, although the first one is alive. It starts nothing by itself.
    let (other, mut other_calls) = start(&disk, approved_chat(), &tool).await;
    advance_ms(1_000).await;
    assert_eq!((other.active_session_count(), tool.runs.load(Ordering::Relaxed)), (0, 0));
    for session in &sessions {
        other.apply_command(session, approve(1)).await.unwrap_or_else(|error| panic!("{session}: {error}"));
        other_calls.next().await.answer("I see");
    }
    advance_ms(1_000).await;
    assert_eq!(tool.runs.load(Ordering::Relaxed) as usize, SESSIONS, "each run was made once");
    assert!(load_state(&other, &sessions[SESSIONS - 1]).await.session.is_idle());
}

#[tokio::test(start_paused = true)]
async fn held_run_survives_a_crash_and_is_not_started_by_it() {
    let (disk, tool) = (InMemoryStoreDisk::new(), Arc::new(CountingTool::default()));
    let (one, mut calls) = start(&disk, approved_chat(), &tool).await;
    let session = open_session(&one).await;
    let _pending_turn = send_in_background(&one, &session, "what is there?");
    calls.next().await.call_tool("look");
    advance_ms(10).await;
    one.shutdown().await;
    let (two, mut calls) = start(&disk, approved_chat(), &tool).await;
    advance_ms(60_000).await;
    assert_eq!(tool.runs.load(Ordering::Relaxed), 0);
    let deny = OperatorCommand::Deny { run: ToolRunId(1), reason: "it is dark".to_owned() };
    two.apply_command(&session, deny).await.expect("it waits for approval");
    let call = calls.next().await;
    assert_eq!(call.last_message(), "a person denied this tool call: it is dark");
    call.answer("then not");
}

#[tokio::test(start_paused = true)]
async fn r7_import_denies_what_waits_and_forgets_what_was_allowed() {
    let tool = Arc::new(CountingTool::default());
    let (engine, mut calls) = start(&InMemoryStoreDisk::new(), approved_chat(), &tool).await;
    let session = open_session(&engine).await;
    let _pending_turn = send_in_background(&engine, &session, "what is there?");
    calls.next().await.call_tool("look");
    advance_ms(10).await;
    let waiting = crate::transfer::export_lines(&engine, &session).await;
    let allow = OperatorCommand::Approve { run: ToolRunId(1), arguments: None, remember: true, by: None };
    engine.apply_command(&session, allow).await.expect("it waits for approval");
    calls.next().await.answer("I see");
    advance_ms(10).await;
    let allowed = crate::transfer::export_lines(&engine, &session).await;
    for lines in [waiting, allowed] {
        let (other, _calls) = start(&InMemoryStoreDisk::new(), approved_chat(), &tool).await;
        let copy = other.import_session(lines.into_iter(), None).await.expect("it can be imported");
        let session = load_state(&other, &copy).await.session;
        assert!(session.held_tool_runs.is_empty() && session.allowed_tool_uses.is_empty() && session.is_idle());
    }
    assert_eq!(tool.runs.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn tool_run_of_unknown_outcome_waits_for_an_operator() {
    let flow = || chat_with_tool(FlowToolApprovalPolicy::NotRequired, UnknownOutcomePolicy::AskOperator);
    let disk = InMemoryStoreDisk::new();
    let tool = Arc::new(CountingTool { runs: AtomicU32::new(0), hanging_runs: 1 });
    let (one, mut calls) = start(&disk, flow(), &tool).await;
    let session = open_session(&one).await;
    let _pending_turn = send_in_background(&one, &session, "what is there?");
    calls.next().await.call_tool("look");
    advance_ms(10).await;
    one.shutdown().await;
    let (two, mut calls) = start(&disk, flow(), &tool).await;
    advance_ms(60_000).await;
    let held = |event: &&Event| matches!(event, Event::ToolRunHeld { reason: ToolRunHoldReason::UnknownOutcome, .. });
    assert_eq!(read_events(&two, &session).await.iter().filter(held).count(), 1);
    assert_eq!((two.active_session_count(), tool.runs.load(Ordering::Relaxed)), (0, 1), "it is not repeated");
    let again = OperatorCommand::ResolveToolRun {
        run: ToolRunId(1),
        resolution: UnknownToolRunOutcomeResolution::RunAgain,
        text: None,
    };
    two.apply_command(&session, again).await.expect("it waits for a decision");
    let call = calls.next().await;
    assert_eq!(call.last_message(), "looked with {\"at\":1}");
    call.answer("I see");
    let events = read_events(&two, &session).await;
    let done = |event: &&Event| matches!(event, Event::ToolRunEnded { outcome: ToolRunOutcome::Done, .. });
    assert_eq!(events.iter().filter(done).count(), 1);
}

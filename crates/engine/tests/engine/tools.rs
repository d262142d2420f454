//! Running tools.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use segue_core::event::{Event, ToolRunOutcome};
use segue_core::flow::{DynFlow, FlowToolDeclaration, UnknownOutcomePolicy};
use segue_core::ids::{Seq, ToolRunId};
use segue_core::limits::SESSION_LIMITS;
use segue_core::prompt::ModelToolSpec;
use segue_core::tool::ToolResult;
use segue_engine::limits::{TOOL_PROGRESS_BYTES_MAX, TOOL_PROGRESS_MS_MIN};
use segue_engine::tools::{Tool, ToolInvocation, ToolRegistry, ToolRunContext};
use segue_engine::{Engine, EngineConfig, SessionUpdate};
use segue_store::memory::{InMemoryStore, InMemoryStoreDisk};
use segue_testkit::ClosureFlow;

use crate::harness::{
    FaultyStore, ReceivedCalls, advance_ms, engine_config, open_session, read_events, send_in_background, speaker_role,
};

/// A chat whose role has the tool `look`.
fn chat_with_tool(unknown: UnknownOutcomePolicy) -> Arc<dyn DynFlow> {
    let parameters = serde_json::json!({"type": "object"});
    let spec = ModelToolSpec { name: "look".into(), description: "looks".to_owned(), parameters };
    let spec = ClosureFlow::spec_with_role(speaker_role().with_tool("look"))
        .with_tool(FlowToolDeclaration { unknown_outcome: unknown, ..FlowToolDeclaration::for_host(spec) });
    Arc::new(ClosureFlow::new(spec, ClosureFlow::react_as_chat))
}

/// A tool that behaves as the test requests.
#[derive(Debug)]
enum LookTool {
    Returns(&'static str),
    Fails,
    Panics,
    Hangs(Arc<AtomicU32>),
    /// Reports its progress 100 times within a second, then waits as long as it may.
    Reports,
    /// Sends its context, then waits as long as it may.
    SendsContext(tokio::sync::mpsc::UnboundedSender<ToolRunContext>),
}

#[async_trait]
impl Tool for LookTool {
    async fn run(&self, request: ToolInvocation, context: ToolRunContext) -> ToolResult {
        match self {
            Self::Returns(what) => ToolResult::done(format!("{what} at {}", request.opened.arguments["at"])),
            Self::Fails => ToolResult::failed("it is dark"),
            // Does not call the panic hook, so that the test prints nothing.
            Self::Panics => std::panic::resume_unwind(Box::new("the tool panics")),
            Self::Hangs(runs) => {
                runs.fetch_add(1, Ordering::Relaxed);
                std::future::pending().await
            }
            Self::Reports => {
                for number in 1..=100 {
                    context.progress.report(&format!("{} step {number}", "x".repeat(TOOL_PROGRESS_BYTES_MAX)));
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                context.progress.report("almost");
                std::future::pending().await
            }
            Self::SendsContext(contexts) => {
                contexts.send(context).expect("the test receives it");
                std::future::pending().await
            }
        }
    }
}

async fn engine_with(
    disk: &InMemoryStoreDisk,
    unknown: UnknownOutcomePolicy,
    tool: Option<LookTool>,
) -> (Engine, ReceivedCalls) {
    let (base, calls) = engine_config(InMemoryStore::open(disk), chat_with_tool(unknown));
    let tools = tool.into_iter().fold(ToolRegistry::default(), |tools, tool| tools.with_tool("look", Arc::new(tool)));
    (Engine::start(EngineConfig { tools, ..base }).await.expect("it starts"), calls)
}

#[tokio::test(start_paused = true)]
async fn the_model_is_shown_the_result_or_the_error_of_a_tool() {
    let missing = "the tool `look` is not connected";
    let cases = [
        (Some(LookTool::Returns("two files")), "two files at 1"),
        (Some(LookTool::Fails), "it is dark"),
        (Some(LookTool::Panics), "the tool panicked"),
        (None, missing),
    ];
    for (tool, expected) in cases {
        let (engine, mut calls) = engine_with(&InMemoryStoreDisk::new(), UnknownOutcomePolicy::Retry, tool).await;
        let session = open_session(&engine).await;
        let pending_turn = send_in_background(&engine, &session, "what is there?");
        calls.next().await.call_tool("look");
        let call = calls.next().await;
        assert_eq!(call.last_message(), expected);
        call.answer("I see");
        assert_eq!(pending_turn.await.expect("the task does not panic").expect("it is answered").replies, ["I see"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_hangs_is_stopped() {
    let (engine, mut calls) =
        engine_with(&InMemoryStoreDisk::new(), UnknownOutcomePolicy::Retry, Some(LookTool::Hangs(Arc::default())))
            .await;
    let session = open_session(&engine).await;
    let _pending_turn = send_in_background(&engine, &session, "what is there?");
    let first = calls.next().await;
    let started = first.at;
    first.call_tool("look");
    let call = calls.next().await;
    assert_eq!(call.at - started, Duration::from_millis(SESSION_LIMITS.tool_run_ms_default));
    assert!(call.last_message().contains("did not answer within 600 s"), "{}", call.last_message());
}

#[tokio::test(start_paused = true)]
async fn a_tool_is_stopped_with_its_turn() {
    let runs = Arc::new(AtomicU32::new(0));
    let (engine, mut calls) =
        engine_with(&InMemoryStoreDisk::new(), UnknownOutcomePolicy::Retry, Some(LookTool::Hangs(runs.clone()))).await;
    let session = open_session(&engine).await;
    let _pending_turn = send_in_background(&engine, &session, "what is there?");
    calls.next().await.call_tool("look");
    crate::harness::advance_ms(10).await;
    engine
        .apply_command(&session, segue_core::decide::OperatorCommand::Cancel { turn: None })
        .await
        .expect("it is stopped");
    crate::harness::advance_ms(10).await;
    assert_eq!(runs.load(Ordering::Relaxed), 1);
    assert_eq!(Arc::strong_count(&runs), 2, "only the tool itself holds it, not a run");
    let events = read_events(&engine, &session).await;
    let cancelled = |event: &&Event| matches!(event, Event::ToolRunEnded { outcome: ToolRunOutcome::Cancelled, .. });
    assert_eq!(events.iter().filter(cancelled).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_tool_run_interrupted_by_a_crash_is_repeated_only_if_the_policy_allows() {
    for (unknown, repeated) in [(UnknownOutcomePolicy::Retry, 1), (UnknownOutcomePolicy::Fail, 0)] {
        let disk = InMemoryStoreDisk::new();
        let (one, mut calls) = engine_with(&disk, unknown, Some(LookTool::Hangs(Arc::default()))).await;
        let session = open_session(&one).await;
        let _pending_turn = send_in_background(&one, &session, "what is there?");
        calls.next().await.call_tool("look");
        crate::harness::advance_ms(10).await;
        one.shutdown().await;
        let (two, mut calls) = engine_with(&disk, unknown, Some(LookTool::Returns("two files"))).await;
        let call = calls.next().await;
        assert_eq!(call.last_message() == "two files at 1", repeated == 1, "{}", call.last_message());
        let events = read_events(&two, &session).await;
        let lost = |event: &&Event| matches!(event, Event::ToolRunEnded { outcome: ToolRunOutcome::Unknown, .. });
        assert_eq!(events.iter().filter(lost).count(), 1 - repeated);
        call.answer("I see");
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_run_that_was_pending_in_an_export_is_not_repeated_by_the_import() {
    let (one, mut calls) =
        engine_with(&InMemoryStoreDisk::new(), UnknownOutcomePolicy::Retry, Some(LookTool::Hangs(Arc::default())))
            .await;
    let session = open_session(&one).await;
    let _pending_turn = send_in_background(&one, &session, "what is there?");
    calls.next().await.call_tool("look");
    crate::harness::advance_ms(10).await;
    let lines = crate::transfer::export_lines(&one, &session).await;
    for name in [None, Some("copy".into())] {
        let runs = Arc::new(AtomicU32::new(0));
        let tool = Some(LookTool::Hangs(runs.clone()));
        let (other, _calls) = engine_with(&InMemoryStoreDisk::new(), UnknownOutcomePolicy::Retry, tool).await;
        let imported = other.import_session(lines.clone().into_iter(), name).await.expect("it can be imported");
        crate::harness::advance_ms(10).await;
        assert_eq!(runs.load(Ordering::Relaxed), 0, "{imported}: the exported session runs the tool");
        let events = read_events(&other, &imported).await;
        let cancelled =
            |event: &&Event| matches!(event, Event::ToolRunEnded { outcome: ToolRunOutcome::Cancelled, .. });
        assert_eq!(events.iter().filter(cancelled).count(), 1, "{imported}");
        let forked = |event: &&Event| matches!(event, Event::SessionForked { .. });
        assert_eq!(events.iter().filter(forked).count(), 1, "{imported}");
    }
}

#[tokio::test(start_paused = true)]
async fn r18_progress_is_shown_live_within_bounds_and_never_recorded() {
    let (engine, mut calls) =
        engine_with(&InMemoryStoreDisk::new(), UnknownOutcomePolicy::Retry, Some(LookTool::Reports)).await;
    let session = open_session(&engine).await;
    let mut early = engine.subscribe(&session, Seq(0)).await.expect("it exists");
    let _pending_turn = send_in_background(&engine, &session, "what is there?");
    calls.next().await.call_tool("look");
    let mut reports: Vec<Arc<str>> = Vec::new();
    while reports.last().is_none_or(|report| &**report != "almost") {
        match early.next_update().await.expect("it can be read") {
            SessionUpdate::ToolProgress { run: ToolRunId(1), text } => reports.push(text),
            SessionUpdate::ToolProgress { run, .. } => panic!("{run} does not exist"),
            SessionUpdate::Event(_) | SessionUpdate::TextDelta { .. } => {}
        }
    }
    let possible = usize::try_from(1_000 / TOOL_PROGRESS_MS_MIN).expect("small") + 2;
    assert!((3..=possible).contains(&reports.len()), "100 reports in a second are {} updates", reports.len());
    assert!(reports.iter().all(|report| report.len() <= TOOL_PROGRESS_BYTES_MAX));
    assert!(reports[1].contains(" step "), "the end of a long report is shown");

    let mut late = engine.subscribe(&session, Seq(0)).await.expect("it exists");
    let shown_late = loop {
        if let SessionUpdate::ToolProgress { text, .. } = late.next_update().await.expect("it can be read") {
            break text;
        }
    };
    assert_eq!(&*shown_late, "almost", "a late subscriber sees the newest report");

    let call = calls.next().await;
    assert!(call.last_message().contains("did not answer"), "{}", call.last_message());
    let recorded = format!("{:?}", read_events(&engine, &session).await);
    assert!(!recorded.contains("almost") && !recorded.contains(" step "), "{recorded}");
    let mut afterwards = engine.subscribe(&session, Seq(0)).await.expect("it exists");
    let until_opened = async {
        loop {
            match afterwards.next_update().await.expect("it can be read") {
                SessionUpdate::ToolProgress { text, .. } => panic!("the run has ended: {text}"),
                SessionUpdate::Event(event) if matches!(event.event, Event::ToolRunEnded { .. }) => return,
                SessionUpdate::Event(_) | SessionUpdate::TextDelta { .. } => {}
            }
        }
    };
    until_opened.await;
    call.answer("I see");
}

#[tokio::test(start_paused = true)]
async fn cancellation_token_of_a_run_is_cancelled_when_the_run_is_over() {
    for is_cancelled_by_user in [true, false] {
        let (contexts, mut received) = tokio::sync::mpsc::unbounded_channel();
        let tool = Some(LookTool::SendsContext(contexts));
        let (engine, mut calls) = engine_with(&InMemoryStoreDisk::new(), UnknownOutcomePolicy::Retry, tool).await;
        let session = open_session(&engine).await;
        let _pending_turn = send_in_background(&engine, &session, "what is there?");
        calls.next().await.call_tool("look");
        let context = received.recv().await.expect("the tool runs");
        assert_eq!(context.run_ms_max, SESSION_LIMITS.tool_run_ms_default);
        assert!(!context.cancellation.is_cancelled());
        let cancelled = context.cancellation.clone();
        if is_cancelled_by_user {
            let cancel = segue_core::decide::OperatorCommand::Cancel { turn: None };
            engine.apply_command(&session, cancel).await.expect("a turn is running");
        }
        let limit_ms = if is_cancelled_by_user { 10 } else { SESSION_LIMITS.tool_run_ms_default + 10 };
        let waited = tokio::time::timeout(Duration::from_millis(limit_ms), cancelled.cancelled()).await;
        assert!(waited.is_ok(), "by the user: {is_cancelled_by_user}");
    }
}

#[tokio::test(start_paused = true)]
async fn r13_a_tool_that_changes_something_is_stopped_before_another_process_can_take_over() {
    for (policy, is_stopped) in [(UnknownOutcomePolicy::Fail, true), (UnknownOutcomePolicy::Retry, false)] {
        let (store, faults) = FaultyStore::open(&InMemoryStoreDisk::with_expiring_leases(4_000));
        let (config, mut calls) = engine_config(store, chat_with_tool(policy));
        let (contexts, mut received) = tokio::sync::mpsc::unbounded_channel();
        let tools = ToolRegistry::default().with_tool("look", Arc::new(LookTool::SendsContext(contexts)));
        let engine = Engine::start(EngineConfig { tools, ..config }).await.expect("the engine starts");
        let session = open_session(&engine).await;
        engine.send_message(&session, "look".into()).await.expect("accepted");
        calls.next().await.call_tool("look");
        let context = received.recv().await.expect("the tool runs");
        faults.failing_renewals.store(u64::MAX, Ordering::Relaxed);
        advance_ms(1_500).await;
        assert!(!context.cancellation.is_cancelled(), "a failed renewal is no loss");
        advance_ms(2_400).await;
        assert_eq!(context.cancellation.is_cancelled(), is_stopped, "{policy:?}");
    }
}

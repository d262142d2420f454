//! The tool host.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use segue_core::event::{Event, ToolOutcome};
use segue_core::flow::{DynFlow, ToolDeclaration, ToolRunner, UnknownOutcomePolicy};
use segue_core::prompt::ToolSpec;
use segue_engine::limits::TOOL_RUN_MS_MAX;
use segue_engine::tools::{Tool, ToolRegistry, ToolRequest};
use segue_engine::{Engine, EngineConfig};
use segue_store::memory::{MemoryDisk, MemoryStore};
use segue_testkit::ClosureFlow;

use crate::lab::{Calls, ask, events, open, setup, speaker};

/// A chat whose speaker may look.
fn looking(unknown: UnknownOutcomePolicy) -> Arc<dyn DynFlow> {
    let parameters = serde_json::json!({"type": "object"});
    let spec = ToolSpec { name: "look".into(), description: "looks".to_owned(), parameters };
    let spec = ClosureFlow::spec_with_role(speaker().with_tool("look")).with_tool(ToolDeclaration {
        spec,
        runner: ToolRunner::Host,
        unknown_outcome: unknown,
    });
    Arc::new(ClosureFlow::new(spec, ClosureFlow::react_as_chat))
}

/// Looks, as it is told to.
#[derive(Debug)]
enum Look {
    Sees(&'static str),
    Fails,
    Breaks,
    Hangs(Arc<AtomicU32>),
}

#[async_trait]
impl Tool for Look {
    async fn run(&self, request: ToolRequest) -> Result<String, String> {
        match self {
            Self::Sees(what) => Ok(format!("{what} at {}", request.opened.arguments["at"])),
            Self::Fails => Err("it is dark".to_owned()),
            // No hook is told of it, so the test is quiet.
            Self::Breaks => std::panic::resume_unwind(Box::new("the tool breaks down")),
            Self::Hangs(runs) => {
                runs.fetch_add(1, Ordering::Relaxed);
                std::future::pending().await
            }
        }
    }
}

async fn engine_with(disk: &MemoryDisk, unknown: UnknownOutcomePolicy, tool: Option<Look>) -> (Engine, Calls) {
    let (base, calls) = setup(MemoryStore::open(disk), looking(unknown));
    let tools = tool.into_iter().fold(ToolRegistry::default(), |tools, tool| tools.with_tool("look", Arc::new(tool)));
    (Engine::start(EngineConfig { tools, ..base }).await.expect("it starts"), calls)
}

#[tokio::test(start_paused = true)]
async fn what_comes_of_a_tool_is_told_to_the_model_whatever_it_is() {
    let missing = "the tool `look` is not connected";
    let cases = [
        (Some(Look::Sees("two files")), "two files at 1"),
        (Some(Look::Fails), "it is dark"),
        (Some(Look::Breaks), "the tool broke down"),
        (None, missing),
    ];
    for (tool, told) in cases {
        let (engine, mut calls) = engine_with(&MemoryDisk::new(), UnknownOutcomePolicy::Retry, tool).await;
        let session = open(&engine).await;
        let asked = ask(&engine, &session, "what is there?");
        calls.next().await.want("look");
        let call = calls.next().await;
        assert_eq!(call.last(), told);
        call.answer("I see");
        assert_eq!(asked.await.expect("it lives").expect("it is answered").replies, ["I see"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_never_comes_back_is_stopped() {
    let (engine, mut calls) =
        engine_with(&MemoryDisk::new(), UnknownOutcomePolicy::Retry, Some(Look::Hangs(Arc::default()))).await;
    let session = open(&engine).await;
    let _asked = ask(&engine, &session, "what is there?");
    let first = calls.next().await;
    let started = first.at;
    first.want("look");
    let call = calls.next().await;
    assert_eq!(call.at - started, Duration::from_millis(TOOL_RUN_MS_MAX));
    assert!(call.last().contains("did not answer within 600 s"), "{}", call.last());
}

#[tokio::test(start_paused = true)]
async fn a_tool_is_stopped_with_its_turn() {
    let runs = Arc::new(AtomicU32::new(0));
    let (engine, mut calls) =
        engine_with(&MemoryDisk::new(), UnknownOutcomePolicy::Retry, Some(Look::Hangs(runs.clone()))).await;
    let session = open(&engine).await;
    let _asked = ask(&engine, &session, "what is there?");
    calls.next().await.want("look");
    crate::lab::pass(10).await;
    engine.apply_command(&session, segue_core::decide::OperatorCommand::Cancel).await.expect("it is stopped");
    crate::lab::pass(10).await;
    assert_eq!(runs.load(Ordering::Relaxed), 1);
    assert_eq!(Arc::strong_count(&runs), 2, "the tool itself holds it, and no run of it");
    let events = events(&engine, &session).await;
    let cancelled = |event: &&Event| matches!(event, Event::ToolRunEnded { outcome: ToolOutcome::Cancelled, .. });
    assert_eq!(events.iter().filter(cancelled).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_was_under_way_when_the_process_died_is_repeated_only_if_that_does_no_harm() {
    for (unknown, repeated) in [(UnknownOutcomePolicy::Retry, 1), (UnknownOutcomePolicy::Fail, 0)] {
        let disk = MemoryDisk::new();
        let (one, mut calls) = engine_with(&disk, unknown, Some(Look::Hangs(Arc::default()))).await;
        let session = open(&one).await;
        let _asked = ask(&one, &session, "what is there?");
        calls.next().await.want("look");
        crate::lab::pass(10).await;
        one.shutdown().await;
        let (two, mut calls) = engine_with(&disk, unknown, Some(Look::Sees("two files"))).await;
        let call = calls.next().await;
        assert_eq!(call.last() == "two files at 1", repeated == 1, "{}", call.last());
        let events = events(&two, &session).await;
        let lost = |event: &&Event| matches!(event, Event::ToolRunEnded { outcome: ToolOutcome::Unknown, .. });
        assert_eq!(events.iter().filter(lost).count(), 1 - repeated);
        call.answer("I see");
    }
}

//! Tests of the sample flow with a router, two agents, guarded phases, a tool and a gate.

use expect_test::expect;
use segue_core::decide::OperatorCommand;
use segue_core::event::{PhaseGraphKey, PhaseStateOwner};
use segue_testkit::SessionHarness;
use segue_testkit::sample_flows::MiniProjectFlow;
use serde_json::json;

pub(crate) fn work() -> PhaseGraphKey {
    PhaseGraphKey { graph: "work".into(), owner: PhaseStateOwner::Session }
}

#[test]
fn two_agents_work_at_once_and_the_router_waits_for_both() {
    let mut harness = SessionHarness::open(MiniProjectFlow::new());
    harness.send_message("build it").answer_call("router", r#"{"agents": ["ann", "bob"], "phase": "execute"}"#);
    assert_eq!(harness.open_call_roles(), ["worker", "worker"]);
    harness.take_new_event_lines();
    harness.answer_with_tool_call("worker", "look", json!({"at": "src"}));
    harness.answer_with_tool_call("worker", "complete", json!({}));
    harness.finish_tool("look", Ok("two files"));
    expect![[r#"
        c2 answered:  [calls look]
        x1 look {"at":"src"}
        c3 answered:  [calls complete]
        x2 complete {}
        x2 done: noted
        completed "bob"
        c4 worker bob asked work on plain in execute, th3 continued (3 messages)
        x1 done: two files
        c5 worker ann asked work on plain in execute, th2 continued (3 messages)
    "#]]
    .assert_eq(&harness.take_new_event_lines());
    harness.answer_call("worker", "bob is done");
    assert_eq!(harness.open_call_roles(), ["worker"], "the router is not asked while ann works");
    assert_eq!(
        harness.prompt_lines("worker"),
        "System: be ann\nUser: [execute]⏎⏎build it\nAssistant: \nTool: two files\n"
    );
    harness.answer_with_tool_call("worker", "complete", json!({})).answer_call("worker", "ann is done");
    assert_eq!(harness.open_call_roles(), ["router"]);
}

#[test]
fn open_gate_blocks_the_end_until_it_is_satisfied_and_the_router_is_told() {
    let mut harness = SessionHarness::open(MiniProjectFlow::new());
    harness.send_message("build it").answer_call("router", r#"{"agents": [], "phase": "execute"}"#);
    // Without agents nothing is pending, and the turn does not hang.
    assert!(harness.session().is_idle());
    harness.send_message("finish").answer_call("router", r#"{"agents": [], "phase": "end"}"#);
    expect![[r#"
        System: be router
        User: finish
        Assistant: {"agents": [], "phase": "end"}
        User: `end` cannot be entered from `execute`: gate `tested` is open, so after `execute` `verify` must be completed first (only the user can grant a skip); allowed now: `verify`⏎⏎finish
    "#]]
        .assert_eq(&harness.prompt_lines("router"));
    harness.run_command(OperatorCommand::Grant { phase: work(), to: "end".into() });
    harness.answer_call("router", r#"{"agents": [], "phase": "end"}"#);
    assert_eq!(harness.session().closed_reason.as_deref(), Some("the project is done"));
}

#[test]
fn a_tool_that_the_phase_forbids_is_refused_and_the_model_is_told() {
    let mut harness = SessionHarness::open(MiniProjectFlow::new());
    harness.send_message("look around").answer_call("router", r#"{"agents": ["ann"]}"#);
    assert_eq!(harness.prompt_for_role("worker").tools.len(), 1, "chat leaves only `complete`");
    harness.answer_with_tool_call("worker", "look", json!({}));
    assert!(harness.prompt_lines("worker").ends_with("Tool: `look` may not be used in this phase\n"));
}

#[test]
fn a_phase_can_be_rolled_back_and_nothing_is_deleted() {
    let mut harness = SessionHarness::open(MiniProjectFlow::new());
    harness.send_message("build it").answer_call("router", r#"{"agents": [], "phase": "execute"}"#);
    let before = harness.journal().len();
    harness.run_command(OperatorCommand::RollBack { phase: work(), visit: 1 });
    let now = &harness.session().phase_graphs[&work()].state;
    assert_eq!((now.current.as_str(), now.visit, now.open_gates.len()), ("chat", 3, 0));
    assert_eq!(harness.journal().len(), before + 1);
}

//! Tool runs that wait for a person, and a result with data and an artifact.

use segue_core::decide::{OperatorCommand, SessionInput};
use segue_core::flow::{FlowToolApprovalPolicy, FlowToolDeclaration, UnknownOutcomePolicy};
use segue_core::ids::ToolRunId;
use segue_core::prompt::ModelToolSpec;
use segue_core::scope::Scope;
use segue_core::tool::{ToolArtifact, ToolArtifactKind, ToolResult};
use segue_testkit::{ClosureFlow, SessionHarness};
use serde_json::{Value, json};

/// A chat whose role writes files: each run is approved first, and one that a crash interrupts is decided by a person.
pub(crate) fn flow() -> ClosureFlow {
    let spec =
        ModelToolSpec { name: "write".into(), description: "writes".into(), parameters: json!({"type": "object"}) };
    let write = FlowToolDeclaration {
        approval: FlowToolApprovalPolicy::Required,
        unknown_outcome: UnknownOutcomePolicy::AskOperator,
        ..FlowToolDeclaration::for_host(spec)
    };
    let role = ClosureFlow::test_role("speaker", Scope::per_session()).with_tool("write");
    ClosureFlow::new(ClosureFlow::spec_with_role(role).with_tool(write), ClosureFlow::react_as_chat)
}

fn approve(run: u32, arguments: Option<Value>, remember: bool) -> OperatorCommand {
    OperatorCommand::Approve { run: ToolRunId(run), arguments, remember, by: Some("ada".to_owned()) }
}

pub(crate) fn play() -> SessionHarness {
    let mut harness = SessionHarness::open(flow());
    harness.send_message("write a").answer_with_tool_call("speaker", "write", json!({"file": "a"}));
    harness.run_command(OperatorCommand::Deny { run: ToolRunId(1), reason: "not a".to_owned() });
    harness.answer_with_tool_call("speaker", "write", json!({"file": "b"}));
    harness.run_command(approve(2, Some(json!({"file": "c"})), false));
    let artifact = ToolArtifact {
        kind: ToolArtifactKind::Diff,
        name: "c".to_owned(),
        media_type: "text/x-diff".to_owned(),
        text: "+new\n".to_owned(),
    };
    let result =
        ToolResult { value: Some(json!({"bytes": 3})), artifacts: vec![artifact], ..ToolResult::done("written") };
    harness.apply_input(SessionInput::ToolResult { run: ToolRunId(2), result });
    harness.answer_with_tool_call("speaker", "write", json!({"file": "d"}));
    harness.run_command(approve(3, None, true)).crash_and_recover();
    harness.run_command(OperatorCommand::ResolveToolRun {
        run: ToolRunId(3),
        resolution: segue_core::event::UnknownToolRunOutcomeResolution::Done,
        text: Some("d is there".to_owned()),
    });
    harness.answer_call("speaker", "c and d are written");
    harness.send_message("and e").answer_with_tool_call("speaker", "write", json!({"file": "e"}));
    harness
}

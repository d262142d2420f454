//! Tools that the client runs, options that change within a turn, and a required format.

use segue_core::decide::{OperatorCommand, SessionInput};
use segue_core::event::{ClientToolResult, ClientTurnOptions};
use segue_core::ids::ToolRunId;
use segue_core::prompt::{ModelToolSpec, ModelToolUseRules, ToolChoice};
use segue_core::scope::Scope;
use segue_testkit::{ClosureFlow, SessionHarness};
use serde_json::json;

pub(crate) fn flow() -> ClosureFlow {
    let mut role = ClosureFlow::test_role("speaker", Scope::per_session());
    role.accepts_turn_options = true;
    ClosureFlow::new(ClosureFlow::spec_with_role(role), ClosureFlow::react_as_chat)
}

pub(crate) fn play() -> SessionHarness {
    let mut harness = SessionHarness::open(flow());
    let tool =
        ModelToolSpec { name: "look".into(), description: "looks".into(), parameters: json!({"type": "object"}) };
    let choice = ToolChoice::Tool("look".into());
    let forced = ClientTurnOptions {
        tools: vec![tool],
        tool_use: ModelToolUseRules { choice, is_single_call: true },
        output_schema: Some(json!({"type": "object"})),
    };
    let free = ClientTurnOptions { tool_use: ModelToolUseRules::default(), ..forced.clone() };
    harness.apply_input(SessionInput::ClientMessage {
        text: "look".to_owned(),
        idempotency_key: None,
        images: Vec::new(),
        options: forced,
    });
    harness.answer_with_tool_call("speaker", "look", json!({"at": 1}));
    let results = vec![ClientToolResult { run: ToolRunId(1), text: "a cat".to_owned() }];
    harness.run_command(OperatorCommand::ProvideToolResults { results, options: free });
    harness.answer_with_tool_call("speaker", "look", json!({"at": 2}));
    harness
}

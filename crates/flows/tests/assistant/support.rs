//! Helpers: answers of the nodes, results of the records tool, and shortcuts through a turn.

use segue_core::event::{CallOpened, Event, ToolRunOpened};
use segue_core::ids::CallId;
use segue_core::session::SessionState;
use segue_flows::assistant::AssistantFlow;
use segue_flows::assistant::domain::DomainSchema;
use segue_flows::assistant::settings::ConfiguredDomains;
use segue_flows::assistant::state::AssistantState;
use segue_flows::assistant::tools::{DomainToolRequest, DomainToolRunPurpose};
use segue_testkit::SessionHarness;
use serde_json::{Value, json};

pub(crate) const NODES: [&str; 5] = ["understand", "think", "act", "reply", "summarize"];

/// Opens a session of the kitchen domain without its snapshot, so that a turn starts with Understand alone.
pub(crate) fn open() -> SessionHarness {
    open_with_settings(Value::Null)
}

/// Like [`open`], with settings.
pub(crate) fn open_with_settings(settings: Value) -> SessionHarness {
    let domains = DomainSchema::built_in().into_iter().map(|mut domain| {
        domain.snapshot.clear();
        domain.types.iter_mut().for_each(|kind| kind.standing = false);
        domain
    });
    SessionHarness::open_with_settings(AssistantFlow::with_domains(ConfiguredDomains::new(domains)), settings)
}

/// Returns the flow's state, computed from the journal.
pub(crate) fn flow_state(harness: &SessionHarness) -> AssistantState {
    let state = SessionState::fold(&AssistantFlow::new(), harness.journal());
    state.flow.downcast_ref::<AssistantState>().expect("the state of this flow").clone()
}

/// An answer of Understand that only gives an intent.
pub(crate) fn understood(expressed: &str) -> Value {
    json!({"expressed": expressed, "references": [], "retain": [], "demote": [], "drop": [], "clear": false, "pending": null})
}

/// An answer of Understand with other fields replaced.
pub(crate) fn understood_with(expressed: &str, more: Value) -> Value {
    let mut understood = understood(expressed);
    for (name, value) in more.as_object().expect("an object") {
        understood[name] = value.clone();
    }
    understood
}

/// A step of a plan. A write step creates records.
pub(crate) fn step(kind: &str, subdomain: &str, group: u32, refs: &[&str]) -> Value {
    let operation = (kind == "write").then_some("create");
    json!({"description": format!("{kind} {subdomain}"), "type": kind, "operation": operation, "subdomain": subdomain,
        "group": group, "refs": refs})
}

/// A write step with an operation.
pub(crate) fn write_step(operation: &str, subdomain: &str, group: u32, refs: &[&str]) -> Value {
    let mut step = step("write", subdomain, group, refs);
    step["operation"] = json!(operation);
    step
}

pub(crate) fn plan(steps: &[Value]) -> Value {
    json!({"decision": "plan_direct", "goal": "help", "steps": steps, "say": null})
}

pub(crate) fn proposal(say: &str) -> Value {
    json!({"decision": "propose", "goal": "agree", "steps": [], "say": say})
}

pub(crate) fn step_complete(outcome: &str) -> Value {
    json!({"action": "step_complete", "outcome": outcome})
}

pub(crate) fn tool_call(name: &str, arguments: Value) -> Value {
    json!({"action": "tool_call", "tool": name, "arguments": arguments})
}

/// A record id as the records tool creates them.
pub(crate) fn id(kind: &str, number: usize) -> String {
    let tail: u32 = kind.bytes().map(u32::from).sum();
    format!("0198c0de-{tail:04x}-7000-8000-{number:012x}")
}

pub(crate) fn recipe(number: usize, name: &str, ingredients: &[&str]) -> Value {
    json!({"type": "recipe", "id": id("recipe", number), "label": name,
        "fields": {"name": name, "minutes": 10 * number, "ingredients": ingredients, "tags": ["t"]}})
}

/// Three recipes, one of them with cod.
pub(crate) fn recipes() -> Vec<Value> {
    vec![
        recipe(1, "Lemon Herb Chicken", &["chicken", "lemon"]),
        recipe(2, "Garlic Pasta", &["spaghetti", "garlic"]),
        recipe(3, "Baked Cod", &["cod", "tomatoes"]),
    ]
}

pub(crate) fn rows_result(rows: &[Value]) -> String {
    json!({"rows": rows, "total": rows.len()}).to_string()
}

/// The result of a tool run that created a meal.
pub(crate) fn created_meal(number: usize, of: usize, label: &str) -> String {
    let link = json!({"id": id("recipe", of), "label": label});
    let fields = json!({"date": "2026-01-15", "slot": "dinner", "recipe": link});
    let after = json!({"date": "2026-01-15", "slot": "dinner", "recipe": id("recipe", of)});
    json!({"rows": [{"type": "meal", "id": id("meal", number), "label": label, "fields": fields}],
        "changes": [{"type": "meal", "id": id("meal", number), "label": label, "before": null, "after": after}]})
    .to_string()
}

/// A tool call that creates a meal.
pub(crate) fn create_meal(of: &str) -> Value {
    tool_call("create", json!({"type": "meal", "records": [{"date": "2026-01-15", "slot": "dinner", "recipe": of}]}))
}

/// Starts a turn and lets Understand and Think answer. What the flow itself then reads turns out to be too large, so that Act has
/// to search.
pub(crate) fn start_planned_turn(harness: &mut SessionHarness, said: &str, understood: Value, plan: Value) {
    start_turn(harness, said, understood, plan);
    harness.with_checks_at_end(|harness| {
        while open_runs(harness).iter().any(|run| tool_request(run).purpose == DomainToolRunPurpose::PlannedRead) {
            finish_records(harness, &json!({"rows": [], "total": 1000}).to_string());
        }
    });
}

/// Starts a turn and lets Understand and Think answer.
pub(crate) fn start_turn(harness: &mut SessionHarness, said: &str, understood: Value, plan: Value) {
    harness
        .send_message(said)
        .answer_call("understand", &understood.to_string())
        .answer_call("think", &plan.to_string());
}

pub(crate) fn answer_act(harness: &mut SessionHarness, action: Value) {
    harness.answer_call("act", &action.to_string());
}

pub(crate) fn finish_records(harness: &mut SessionHarness, result: &str) {
    harness.finish_tool("records", Ok(result));
}

/// Answers Reply and Summarize, and checks that the turn has ended.
pub(crate) fn finish_reply(harness: &mut SessionHarness, text: &str) {
    harness.answer_call("reply", text);
    answer_summaries(harness);
    assert!(harness.session().is_idle(), "{:?}", harness.open_call_roles());
}

pub(crate) fn answer_summaries(harness: &mut SessionHarness) {
    while harness.open_call_roles().iter().any(|role| role == "summarize") {
        harness.answer_call("summarize", "in short: they want dinner");
    }
}

/// Plays a turn in which Act reads recipes.
pub(crate) fn read_turn(harness: &mut SessionHarness, said: &str) {
    let mut read = step("read", "recipe", 1, &[]);
    read["refresh"] = json!(true);
    start_planned_turn(harness, said, understood("wants recipes"), plan(&[read]));
    answer_act(harness, tool_call("read", json!({"type": "recipe", "full": true, "refresh": true})));
    finish_records(harness, &rows_result(&recipes()));
    answer_act(harness, step_complete("found three recipes"));
    finish_reply(harness, "There are three.");
}

/// A session that knows three recipes and has planned a write.
pub(crate) fn before_write() -> SessionHarness {
    let mut harness = open();
    read_turn(&mut harness, "what can I cook?");
    start_planned_turn(&mut harness, "add it", understood("chooses"), plan(&[step("write", "meal", 1, &["recipe_1"])]));
    harness
}

/// Like [`before_write`], with the write running.
pub(crate) fn during_write() -> SessionHarness {
    let mut harness = before_write();
    answer_act(&mut harness, create_meal("recipe_1"));
    harness
}

/// Like [`before_write`], with the write done and the reply pending.
pub(crate) fn after_write() -> SessionHarness {
    let mut harness = during_write();
    finish_records(&mut harness, &created_meal(1, 1, "Lemon Herb Chicken"));
    answer_act(&mut harness, step_complete("added"));
    harness
}

/// Plays a turn without tools, in which the assistant makes a proposal.
pub(crate) fn talk_turn(harness: &mut SessionHarness, said: &str) {
    start_planned_turn(harness, said, understood("talks"), proposal("Shall I?"));
    finish_reply(harness, "Shall I?");
}

/// Returns the values of all facts of a kind.
pub(crate) fn facts(harness: &SessionHarness, wanted: &str) -> Vec<Value> {
    let kinds = harness.journal().iter().filter_map(|recorded| match &recorded.event {
        Event::FlowFactRecorded { kind, value } if kind == wanted => Some(value.clone()),
        _ => None,
    });
    kinds.collect()
}

/// Returns the calls of a role, in order.
pub(crate) fn calls(harness: &SessionHarness, role: &str) -> Vec<CallOpened> {
    let opened = harness.journal().iter().filter_map(|recorded| match &recorded.event {
        Event::CallOpened(opened) if opened.role == *role => Some((**opened).clone()),
        _ => None,
    });
    opened.collect()
}

/// Returns the tool runs in order, without reads that were too large.
pub(crate) fn runs(harness: &SessionHarness) -> Vec<ToolRunOpened> {
    let too_large = facts(harness, "search_needed").len();
    let mut opened = all_runs(harness);
    let is_planned_read = |run: &ToolRunOpened| tool_request(run).purpose == DomainToolRunPurpose::PlannedRead;
    if too_large > 0 {
        opened.retain(|run| !is_planned_read(run));
    }
    opened
}

/// Returns all tool runs, in order.
pub(crate) fn all_runs(harness: &SessionHarness) -> Vec<ToolRunOpened> {
    let opened = harness.journal().iter().filter_map(|recorded| match &recorded.event {
        Event::ToolRunOpened(opened) => Some(opened.clone()),
        _ => None,
    });
    opened.collect()
}

/// Returns the tool runs that have not ended.
pub(crate) fn open_runs(harness: &SessionHarness) -> Vec<ToolRunOpened> {
    let ended = harness.journal().iter().filter_map(|recorded| match &recorded.event {
        Event::ToolRunEnded { run, .. } => Some(*run),
        _ => None,
    });
    let ended: Vec<_> = ended.collect();
    all_runs(harness).into_iter().filter(|opened| !ended.contains(&opened.run)).collect()
}

pub(crate) fn tool_request(opened: &ToolRunOpened) -> DomainToolRequest {
    DomainToolRequest::parse(&opened.arguments).expect("the flow requested it")
}

/// Returns the whole prompt of a role's open call.
pub(crate) fn prompt_text(harness: &SessionHarness, role: &str) -> String {
    let messages = harness.prompt_for_role(role).messages;
    messages.iter().map(|message| message.text()).collect::<Vec<_>>().join("\n---\n")
}

/// Returns the last message of the prompt of a role's open call, which is the ask without the opening.
pub(crate) fn ask_text(harness: &SessionHarness, role: &str) -> String {
    harness.prompt_for_role(role).messages.last().expect("there is a message").text()
}

/// Returns the prompt of a past call.
pub(crate) fn sent_text(harness: &SessionHarness, call: CallId) -> String {
    let messages = harness.rebuild_prompt(call).messages;
    messages.iter().map(|message| message.text()).collect::<Vec<_>>().join("\n---\n")
}

/// Returns the names of a call's fragments: the opening, a bar, the ask.
pub(crate) fn layout(opened: &CallOpened) -> String {
    let names = |pieces: &[segue_core::context::FragmentReceipt]| {
        let prompt_text = pieces.iter().filter(|piece| piece.text.is_some()).map(|piece| piece.name.to_string());
        prompt_text.collect::<Vec<_>>().join(" ")
    };
    format!("{} | {}", names(&opened.receipt.opening), names(&opened.receipt.ask)).trim().to_owned()
}

/// Returns the text of one fragment of a call.
pub(crate) fn fragment(harness: &SessionHarness, opened: &CallOpened, name: &str) -> Option<String> {
    let pieces = opened.receipt.opening.iter().chain(&opened.receipt.ask);
    let piece = pieces.into_iter().find(|piece| piece.name == *name)?;
    Some(harness.stored_text(piece.text?.body).to_string())
}

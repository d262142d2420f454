//! An assistant held in the hand: the answers of its nodes, records as a host would return them, and the shortest way
//! through a turn.

use segue_core::event::{CallOpened, Event, ToolRunOpened};
use segue_core::ids::CallId;
use segue_core::session::SessionState;
use segue_flows::assistant::AssistantFlow;
use segue_flows::assistant::state::AssistantState;
use segue_flows::assistant::tools::DomainToolRequest;
use segue_testkit::SessionHarness;
use serde_json::{Value, json};

pub const NODES: [&str; 5] = ["understand", "think", "act", "reply", "summarize"];

pub fn open() -> SessionHarness {
    SessionHarness::open(AssistantFlow::new())
}

pub fn open_set(settings: Value) -> SessionHarness {
    SessionHarness::open_with_settings(AssistantFlow::new(), settings)
}

/// The flow's own state, folded from the journal.
pub fn memory(stage: &SessionHarness) -> AssistantState {
    let state = SessionState::fold(&AssistantFlow::new(), stage.journal());
    state.flow.downcast_ref::<AssistantState>().expect("it is this flow's").clone()
}

/// What Understand says where nothing matters.
pub fn heard(expressed: &str) -> Value {
    json!({"expressed": expressed, "references": [], "retain": [], "demote": [], "drop": [], "clear": false, "pending": null})
}

/// The same with some parts of it said otherwise.
pub fn heard_with(expressed: &str, more: Value) -> Value {
    let mut heard = heard(expressed);
    for (name, value) in more.as_object().expect("an object") {
        heard[name] = value.clone();
    }
    heard
}

pub fn step(kind: &str, subdomain: &str, group: u32, refs: &[&str]) -> Value {
    json!({"description": format!("{kind} {subdomain}"), "type": kind, "subdomain": subdomain, "group": group, "refs": refs})
}

pub fn plan(steps: &[Value]) -> Value {
    json!({"decision": "plan_direct", "goal": "help", "steps": steps, "say": null})
}

pub fn propose(say: &str) -> Value {
    json!({"decision": "propose", "goal": "agree", "steps": [], "say": say})
}

pub fn done(outcome: &str) -> Value {
    json!({"action": "step_complete", "outcome": outcome})
}

pub fn tool(name: &str, arguments: Value) -> Value {
    json!({"action": "tool_call", "tool": name, "arguments": arguments})
}

/// An id as a host would make it.
pub fn id(kind: &str, number: usize) -> String {
    let tail: u32 = kind.bytes().map(u32::from).sum();
    format!("0198c0de-{tail:04x}-7000-8000-{number:012x}")
}

pub fn recipe(number: usize, name: &str, ingredients: &[&str]) -> Value {
    json!({"type": "recipe", "id": id("recipe", number), "label": name,
        "fields": {"name": name, "minutes": 10 * number, "ingredients": ingredients, "tags": ["t"]}})
}

/// Three recipes, one of them with cod.
pub fn recipes() -> Vec<Value> {
    vec![
        recipe(1, "Lemon Herb Chicken", &["chicken", "lemon"]),
        recipe(2, "Garlic Pasta", &["spaghetti", "garlic"]),
        recipe(3, "Baked Cod", &["cod", "tomatoes"]),
    ]
}

pub fn found(rows: &[Value]) -> String {
    json!({"rows": rows, "total": rows.len()}).to_string()
}

/// A meal that was created.
pub fn created(number: usize, of: usize, label: &str) -> String {
    let link = json!({"id": id("recipe", of), "label": label});
    let fields = json!({"date": "2026-01-15", "slot": "dinner", "recipe": link});
    let after = json!({"date": "2026-01-15", "slot": "dinner", "recipe": id("recipe", of)});
    json!({"rows": [{"type": "meal", "id": id("meal", number), "label": label, "fields": fields}],
        "changes": [{"type": "meal", "id": id("meal", number), "label": label, "before": null, "after": after}]})
    .to_string()
}

/// A wish to put a dish on the plan.
pub fn meal(of: &str) -> Value {
    tool("create", json!({"type": "meal", "records": [{"date": "2026-01-15", "slot": "dinner", "recipe": of}]}))
}

/// A turn up to where Think has decided.
pub fn decided(stage: &mut SessionHarness, said: &str, heard: Value, plan: Value) {
    stage.send_message(said).answer_call("understand", &heard.to_string()).answer_call("think", &plan.to_string());
}

pub fn act(stage: &mut SessionHarness, action: Value) {
    stage.answer_call("act", &action.to_string());
}

pub fn host(stage: &mut SessionHarness, result: &str) {
    stage.finish_tool("records", Ok(result));
}

/// The reply, and whatever is folded after it.
pub fn replied(stage: &mut SessionHarness, text: &str) {
    stage.answer_call("reply", text);
    fold(stage);
    assert!(stage.session().is_idle(), "{:?}", stage.open_call_roles());
}

pub fn fold(stage: &mut SessionHarness) {
    while stage.open_call_roles().iter().any(|role| role == "summarize") {
        stage.answer_call("summarize", "in short: they want dinner");
    }
}

/// A turn in which recipes are read.
pub fn read_turn(stage: &mut SessionHarness, said: &str) {
    decided(stage, said, heard("wants recipes"), plan(&[step("read", "recipe", 1, &[])]));
    act(stage, tool("read", json!({"type": "recipe", "full": true})));
    host(stage, &found(&recipes()));
    act(stage, done("found three recipes"));
    replied(stage, "There are three.");
}

/// A new stage on which recipes were read and a write was planned.
pub fn about_to_write() -> SessionHarness {
    let mut stage = open();
    read_turn(&mut stage, "what can I cook?");
    decided(&mut stage, "add it", heard("chooses"), plan(&[step("write", "meal", 1, &["recipe_1"])]));
    stage
}

/// The same, with the write under way.
pub fn writing() -> SessionHarness {
    let mut stage = about_to_write();
    act(&mut stage, meal("recipe_1"));
    stage
}

/// The same, with the write done and the reply owed.
pub fn wrote() -> SessionHarness {
    let mut stage = writing();
    host(&mut stage, &created(1, 1, "Lemon Herb Chicken"));
    act(&mut stage, done("added"));
    stage
}

/// A turn in which something is only said.
pub fn talk_turn(stage: &mut SessionHarness, said: &str) {
    decided(stage, said, heard("talks"), propose("Shall I?"));
    replied(stage, "Shall I?");
}

/// The facts of a kind, as values.
pub fn facts(stage: &SessionHarness, wanted: &str) -> Vec<Value> {
    let kinds = stage.journal().iter().filter_map(|recorded| match &recorded.event {
        Event::FlowFactRecorded { kind, value } if kind == wanted => Some(value.clone()),
        _ => None,
    });
    kinds.collect()
}

/// The calls of a role, in order.
pub fn calls(stage: &SessionHarness, role: &str) -> Vec<CallOpened> {
    let opened = stage.journal().iter().filter_map(|recorded| match &recorded.event {
        Event::CallOpened(opened) if opened.role == *role => Some((**opened).clone()),
        _ => None,
    });
    opened.collect()
}

/// The tool runs, in order.
pub fn runs(stage: &SessionHarness) -> Vec<ToolRunOpened> {
    let opened = stage.journal().iter().filter_map(|recorded| match &recorded.event {
        Event::ToolRunOpened(opened) => Some(opened.clone()),
        _ => None,
    });
    opened.collect()
}

pub fn told(opened: &ToolRunOpened) -> DomainToolRequest {
    DomainToolRequest::parse(&opened.arguments).expect("the flow told it")
}

/// What the open call of a role is sent: everything, as one text.
pub fn shown(stage: &SessionHarness, role: &str) -> String {
    let messages = stage.prompt_for_role(role).messages;
    messages.iter().map(|message| message.text()).collect::<Vec<_>>().join("\n---\n")
}

/// The last part of what the open call of a role is sent: what is asked, without the standing instructions.
pub fn asked(stage: &SessionHarness, role: &str) -> String {
    stage.prompt_for_role(role).messages.last().expect("there is a message").text()
}

/// What a past call was sent, as one text.
pub fn sent(stage: &SessionHarness, call: CallId) -> String {
    let messages = stage.rebuild_prompt(call).messages;
    messages.iter().map(|message| message.text()).collect::<Vec<_>>().join("\n---\n")
}

/// The names of the fragments a call was shown, the opening before the bar.
pub fn layout(opened: &CallOpened) -> String {
    let names = |pieces: &[segue_core::context::FragmentReceipt]| {
        let shown = pieces.iter().filter(|piece| piece.text.is_some()).map(|piece| piece.name.to_string());
        shown.collect::<Vec<_>>().join(" ")
    };
    format!("{} | {}", names(&opened.receipt.opening), names(&opened.receipt.ask)).trim().to_owned()
}

/// The text of one fragment of a call.
pub fn fragment(stage: &SessionHarness, opened: &CallOpened, name: &str) -> Option<String> {
    let pieces = opened.receipt.opening.iter().chain(&opened.receipt.ask);
    let piece = pieces.into_iter().find(|piece| piece.name == *name)?;
    Some(stage.stored_text(piece.text?.body).to_string())
}

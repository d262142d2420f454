//! Helpers: sample replies of all roles, and the shortest way to each phase.

use segue_core::event::{CallOpened, Event};
use segue_core::ids::CallId;
use segue_core::phase::PhaseGraphState;
use segue_core::prompt::ChatRole;
use segue_flows::concierge::ConciergeFlow;
use segue_flows::concierge::facts::ConciergeFact;
use segue_flows::concierge::spec::concierge_phase_key;
use segue_testkit::SessionHarness;
use serde_json::Value;

/// A map of three answers with a conflict and a gap.
pub(crate) const MAP: &str = r#"<map>
{"claims": [
  {"id": "p1", "label": "rent first", "text": "Rent for a year before buying.", "supporters": [1, 2], "type": "prescriptive", "role": "anchor"},
  {"id": "p2", "label": "buy at once", "text": "Buy now.", "supporters": [3], "type": "prescriptive", "role": "challenger", "challenges": "p1"}
 ],
 "edges": [{"from": "p1", "to": "p2", "kind": "conflicts"}],
 "gaps": ["Nobody asks how long they will stay."]}
</map>
Two would rent, one would buy."#;

/// A map of two answers.
pub(crate) const PLAN_MAP: &str = r#"<map>
{"claims": [
  {"id": "a", "label": "measure twice", "text": "Measure before cutting.", "supporters": [1, 2], "type": "prescriptive", "role": "anchor"},
  {"id": "b", "label": "cut slowly", "text": "Cut slowly.", "supporters": [2], "type": "prescriptive", "role": "branch"}
 ],
 "edges": [{"from": "a", "to": "b", "kind": "prerequisite"}], "gaps": []}
</map>"#;

pub(crate) const HANDOVER: &str = "<<<HANDOVER>>>
shape: contested
key_findings: [renting keeps doors open, \"buying, once, is cheap\"]
tensions: [freedom against price]
gaps: []
user_query: rent or buy?
starter_response: rent, unless you stay
user_reply: I stay five years
goal: a home that lasts
constraints: [five years, little cash]
accepted_framing: time decides
resisted_framing: null
unprompted_reveals: [a child is coming]
still_unclear: [where to]
effective_stance: decide
<<<END>>>";

pub(crate) const WORKFLOW: &str = "<<<BATCH>>>
TYPE: WORKFLOW

HANDOVER:
  goal: buy a flat by May
  problem_summary: They want to stop renting.
  situation: a family of three
  constraints: [little cash]
  priorities: [quiet]
  decisions_made: [to buy]
  open_questions: [which bank]
  exploration_highlights: [the child]

PROMPT:
You have bought forty flats for families.
Write the plan: step by step.
<<<END>>>";

pub(crate) const PLAN: &str = "Here is the plan.\n\n<<<STEPS>>>
- title: See the bank
  description: ask for a letter
  done_when: you hold the letter
- title: View flats
  description: five of them
  done_when: one is liked
<<<END>>>";

pub(crate) const STEP_HELP: &str = "<<<BATCH>>>
TYPE: STEP_HELP

STEP: See the bank
BLOCKER: the bank says no
CONTEXT: little cash

PROMPT:
You were a loan officer. What now?
<<<END>>>";

pub(crate) fn open() -> SessionHarness {
    SessionHarness::open(ConciergeFlow::new())
}

pub(crate) fn open_with_settings(settings: Value) -> SessionHarness {
    SessionHarness::open_with_settings(ConciergeFlow::new(), settings)
}

/// Returns a reply with text before the block.
pub(crate) fn with_text(block: &str) -> String {
    format!("Well.\n\n{block}")
}

/// Answers the three expert calls and the mapper call.
pub(crate) fn answer_experts(harness: &mut SessionHarness, map: &str) {
    harness
        .answer_call("expert", "Rent first.")
        .answer_call("expert", "Rent, I say.")
        .answer_call("expert", "Buy at once.");
    harness.answer_call("mapper", map);
}

/// Plays the first turn.
pub(crate) fn play_first_turn(harness: &mut SessionHarness) {
    harness.send_message("rent or buy?");
    answer_experts(harness, MAP);
    answer_stance_question(harness, "default");
    harness.answer_call("concierge", "Rent, unless you stay for long.");
}

/// Answers the question how the user wants to be answered, if it is open.
pub(crate) fn answer_stance_question(harness: &mut SessionHarness, stance: &str) {
    if calls(harness, "concierge").last().is_some_and(|call| call.ask == *"stance_question") {
        harness.answer_call("concierge", &serde_json::json!({ "stance": stance }).to_string());
    }
}

/// Plays the first two turns; the second ends with a handover.
pub(crate) fn play_until_explorer(harness: &mut SessionHarness) {
    play_first_turn(harness);
    harness.send_message("I stay five years").answer_call("concierge", &format!("Then buy.\n\n{HANDOVER}"));
    assert_eq!(phase(harness).current, *"explorer");
}

/// Plays the first three turns; the third presents a plan.
pub(crate) fn play_until_plan(harness: &mut SessionHarness) {
    play_until_explorer(harness);
    harness.send_message("give me a plan").answer_call("concierge", &format!("Good. I will work it out.\n{WORKFLOW}"));
    answer_experts(harness, PLAN_MAP);
    harness.answer_call("concierge", PLAN);
    assert_eq!(phase(harness).current, *"executor");
    assert!(harness.session().is_idle());
}

/// Returns the phase state of the concierge.
pub(crate) fn phase(harness: &SessionHarness) -> PhaseGraphState {
    harness.session().phase_graphs[&concierge_phase_key()].state.clone()
}

/// Returns the values of all facts with this kind.
pub(crate) fn facts(harness: &SessionHarness, wanted: &str) -> Vec<Value> {
    let kinds = harness.journal().iter().filter_map(|recorded| match &recorded.event {
        Event::FlowFactRecorded { kind, value } if kind == wanted => Some(value.clone()),
        _ => None,
    });
    kinds.collect()
}

/// Returns all facts.
pub(crate) fn all_facts(harness: &SessionHarness) -> Vec<ConciergeFact> {
    harness.journal().iter().filter_map(|recorded| ConciergeFact::from_event(&recorded.event)).collect()
}

/// Returns the calls of a role in order.
pub(crate) fn calls(harness: &SessionHarness, role: &str) -> Vec<CallOpened> {
    let opened = harness.journal().iter().filter_map(|recorded| match &recorded.event {
        Event::CallOpened(opened) if opened.role == *role => Some((**opened).clone()),
        _ => None,
    });
    opened.collect()
}

/// Returns the prompt of a past call as one text.
pub(crate) fn prompt_text(harness: &SessionHarness, call: CallId) -> String {
    let messages = harness.rebuild_prompt(call).messages;
    messages.iter().map(|message| message.text().to_string()).collect::<Vec<_>>().join("\n---\n")
}

/// Returns the system message and the last message of the open concierge call.
pub(crate) fn concierge_prompt(harness: &SessionHarness) -> (String, String) {
    let messages = harness.prompt_for_role("concierge").messages;
    let system = messages.iter().find(|message| message.chat_role == ChatRole::System);
    let last = messages.last().expect("there is a message");
    (system.map(|message| message.text().to_string()).unwrap_or_default(), last.text().to_string())
}

/// Returns all replies to the user.
pub(crate) fn visible_replies(harness: &SessionHarness) -> Vec<String> {
    let replies = harness.journal().iter().filter_map(|recorded| match &recorded.event {
        Event::ReplySent(reply) => Some(harness.text_on_one_line(reply.text)),
        _ => None,
    });
    replies.collect()
}

/// Returns the names of the fragments in a prompt, with the opening before the bar.
pub(crate) fn layout(opened: &CallOpened) -> String {
    let names = |pieces: &[segue_core::context::FragmentReceipt]| {
        let shown = pieces.iter().filter(|piece| piece.text.is_some()).map(|piece| piece.name.to_string());
        shown.collect::<Vec<_>>().join(" ")
    };
    format!("{} | {}", names(&opened.receipt.opening), names(&opened.receipt.ask)).trim().to_owned()
}

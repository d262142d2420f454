//! The three memory layers and their owners.

use segue_core::body::{BodyId, TextRef};
use segue_core::event::{Event, RecordedEvent};
use segue_core::flow::{DecisionTextResolver, EventSubject, Flow, FlowContext};
use segue_core::ids::{Seq, UnixMillis};
use segue_core::session::SessionState;
use segue_flows::assistant::facts::AssistantFact;
use segue_flows::assistant::settings::AssistantSettings;
use segue_flows::assistant::state::AssistantState;
use segue_flows::assistant::{AssistantFlow, prompt_context};
use serde_json::{Value, json};

use super::support::*;

fn apply_fact(flow_state: &AssistantState, kind: &str, value: Value) -> AssistantState {
    let mut flow_state = flow_state.clone();
    let event = Event::FlowFactRecorded { kind: kind.to_owned(), value };
    assert!(AssistantFact::from_event(&event).is_some(), "{kind} is a fact");
    flow_state.apply_event(&RecordedEvent { seq: Seq(1), at: UnixMillis(1), event });
    flow_state
}

#[test]
fn a01_each_memory_layer_has_one_owner() {
    let mut harness = open();
    read_turn(&mut harness, "what can I cook?");
    harness.send_message("and now?").answer_call("understand", &understood("goes on").to_string());
    let flow_state = flow_state(&harness);
    assert!(!flow_state.entities.entities.is_empty() && !flow_state.conversation.recent.is_empty());
    assert!(!flow_state.reasoning.recent.is_empty());
    let text = TextRef { body: BodyId::hash_text("x"), tokens: 1 };
    let known = json!({"ref": "recipe_9", "type": "recipe", "id": "x", "label": "X", "row_index": 0});
    let of_entities = [
        ("message_understood", json!({"turn": 2, "intent": "x", "demoted": [{"ref": "recipe_1", "reason": "x"}]})),
        ("records_received", json!({"run": 9, "turn": 2, "action": "read", "rows": [known], "text": text})),
        (
            "step_ended",
            json!({"turn": 2, "step": 1, "status": "done",
            "drafts": [{"ref": "gen_recipe_1", "type": "recipe", "label": "D", "content": {"name": "D"}}]}),
        ),
    ];
    for (kind, value) in of_entities {
        let after = apply_fact(&flow_state, kind, value);
        assert_ne!(after.entities, flow_state.entities, "{kind}");
        assert_eq!(
            (&after.conversation, &after.reasoning),
            (&flow_state.conversation, &flow_state.reasoning),
            "{kind}"
        );
    }
    let summarized = json!({"turn": 2, "messages": [], "reply": text, "summary": {"turn": 2}});
    let of_summarize = [
        ("turn_summarized", summarized),
        ("reasoning_compacted", json!({"through_turn": 1, "text": text})),
        ("conversation_compacted", json!({"through_turn": 1, "text": text})),
    ];
    for (kind, value) in of_summarize {
        let after = apply_fact(&flow_state, kind, value);
        assert_ne!(
            (&after.conversation, &after.reasoning),
            (&flow_state.conversation, &flow_state.reasoning),
            "{kind}"
        );
        assert_eq!(after.entities, flow_state.entities, "{kind}");
    }
    for (kind, value) in [
        ("planned", json!({"turn": 2, "decision": "propose", "message_to_user": "?"})),
        ("answer_rejected", json!({"node": "act", "call": 1, "complaints": []})),
        ("compaction_failed", json!({"layer": "reasoning", "why": "x"})),
    ] {
        let after = apply_fact(&flow_state, kind, value);
        assert_eq!(after.entities, flow_state.entities, "{kind}");
        assert_eq!(
            (&after.conversation, &after.reasoning),
            (&flow_state.conversation, &flow_state.reasoning),
            "{kind}"
        );
    }
}

#[test]
fn a03_prompt_builders_do_not_change_the_state() {
    let mut harness = open();
    read_turn(&mut harness, "what can I cook?");
    start_planned_turn(
        &mut harness,
        "and now?",
        understood("goes on"),
        plan(&[step("analyze", "recipe", 1, &["recipe_1"])]),
    );
    let flow = AssistantFlow::new();
    let state = SessionState::fold(&flow, harness.journal());
    let flow_state = state.flow.downcast_ref::<AssistantState>().expect("the state of this flow");
    let (before, texts, about) =
        (flow_state.clone(), DecisionTextResolver::new(harness.texts()), EventSubject::default());
    let view = FlowContext { session: &state.session, state: flow_state, texts: &texts, subject: &about };
    let domains = segue_flows::assistant::settings::ConfiguredDomains::new(
        segue_flows::assistant::domain::DomainSchema::built_in(),
    );
    let (settings, _) = AssistantSettings::parse(&state.session.settings, &domains);
    let domain = settings.domain.clone().expect("the kitchen");
    let all = || {
        let act = prompt_context::build_act_context(&view, &domain, 1).expect("the step is there");
        let prompt_text = (
            prompt_context::build_understand_context(&view, &settings),
            prompt_context::build_think_context(&view, &settings),
            act,
            prompt_context::build_reply_context(&view, &domain),
        );
        serde_json::to_string(&prompt_text).expect("it is data")
    };
    assert_eq!(all(), all(), "and the same is read twice");
    assert_eq!(*flow_state, before);
    assert!(Flow::spec(&flow).validation_errors().is_empty());
}

#[test]
fn a23_phase_label_restricts_nothing() {
    let mut harness = open();
    talk_turn(&mut harness, "plan meals");
    // A write right after exploring is allowed.
    read_turn(&mut harness, "look");
    start_planned_turn(
        &mut harness,
        "the first",
        understood("chooses"),
        plan(&[step("write", "meal", 1, &["recipe_1"])]),
    );
    answer_act(&mut harness, create_meal("recipe_1"));
    finish_records(&mut harness, &created_meal(1, 1, "Lemon Herb Chicken"));
    answer_act(&mut harness, step_complete("added"));
    assert!(ask_text(&harness, "reply").contains("- Phase: executing. Say what was changed"));
    assert!(harness.session().phase_graphs.is_empty(), "the label is not a phase of a graph");
}

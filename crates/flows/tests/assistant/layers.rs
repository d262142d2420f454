//! The three layers: who changes which, and that looking changes none.

use segue_core::body::{BodyId, TextRef};
use segue_core::event::{Event, RecordedEvent};
use segue_core::flow::{EventSubject, Flow, FlowContext, TextResolver};
use segue_core::ids::{Seq, UnixMillis};
use segue_core::session::SessionState;
use segue_flows::assistant::facts::Fact;
use segue_flows::assistant::settings::Settings;
use segue_flows::assistant::state::AssistantState;
use segue_flows::assistant::{AssistantFlow, prompt_context};
use serde_json::{Value, json};

use super::play::*;

fn with(memory: &AssistantState, kind: &str, value: Value) -> AssistantState {
    let mut memory = memory.clone();
    let event = Event::FlowFactRecorded { kind: kind.to_owned(), value };
    assert!(Fact::from_event(&event).is_some(), "{kind} is a fact");
    memory.apply_event(&RecordedEvent { seq: Seq(1), at: UnixMillis(1), event });
    memory
}

#[test]
fn a01_three_layers_exist_with_one_owner_each() {
    let mut stage = open();
    read_turn(&mut stage, "what can I cook?");
    stage.send_message("and now?").answer_call("understand", &heard("goes on").to_string());
    let memory = memory(&stage);
    assert!(!memory.entities.entities.is_empty() && !memory.conversation.recent.is_empty());
    assert!(!memory.reasoning.recent.is_empty());
    let text = TextRef { body: BodyId::hash_text("x"), tokens: 1 };
    let known = json!({"ref": "recipe_9", "type": "recipe", "id": "x", "label": "X", "place": 0});
    let of_entities = [
        ("understood", json!({"turn": 2, "expressed": "x", "demote": [{"ref": "recipe_1", "reason": "x"}]})),
        ("records", json!({"run": 9, "turn": 2, "did": "read", "rows": [known], "text": text})),
        (
            "step_ended",
            json!({"turn": 2, "step": 1, "end": "done",
            "drafts": [{"ref": "gen_recipe_1", "type": "recipe", "label": "D", "content": {"name": "D"}}]}),
        ),
    ];
    for (kind, value) in of_entities {
        let after = with(&memory, kind, value);
        assert_ne!(after.entities, memory.entities, "{kind}");
        assert_eq!((&after.conversation, &after.reasoning), (&memory.conversation, &memory.reasoning), "{kind}");
    }
    let summarized = json!({"turn": 2, "said": [], "reply": text, "summary": {"turn": 2}});
    let of_summarize = [
        ("summarized", summarized),
        ("reasoning_folded", json!({"through": 1, "text": text})),
        ("conversation_folded", json!({"through": 1, "text": text})),
    ];
    for (kind, value) in of_summarize {
        let after = with(&memory, kind, value);
        assert_ne!((&after.conversation, &after.reasoning), (&memory.conversation, &memory.reasoning), "{kind}");
        assert_eq!(after.entities, memory.entities, "{kind}");
    }
    for (kind, value) in [
        ("planned", json!({"turn": 2, "decision": "propose", "say": "?"})),
        ("broken", json!({"node": "act", "call": 1, "complaints": []})),
        ("not_folded", json!({"what": "reasoning", "why": "x"})),
    ] {
        let after = with(&memory, kind, value);
        assert_eq!(after.entities, memory.entities, "{kind}");
        assert_eq!((&after.conversation, &after.reasoning), (&memory.conversation, &memory.reasoning), "{kind}");
    }
}

#[test]
fn a03_a_builder_only_reads() {
    let mut stage = open();
    read_turn(&mut stage, "what can I cook?");
    decided(&mut stage, "and now?", heard("goes on"), plan(&[step("analyze", "recipe", 1, &["recipe_1"])]));
    let flow = AssistantFlow::new();
    let state = SessionState::fold(&flow, stage.journal());
    let memory = state.flow.downcast_ref::<AssistantState>().expect("it is this flow's");
    let (before, texts, about) = (memory.clone(), TextResolver::new(stage.texts()), EventSubject::default());
    let view = FlowContext { session: &state.session, state: memory, texts: &texts, subject: &about };
    let domains =
        segue_flows::assistant::settings::DomainCatalog::new(segue_flows::assistant::domain::DomainSchema::built_in());
    let (settings, _) = Settings::parse(&state.session.settings, &domains);
    let domain = settings.domain.clone().expect("the kitchen");
    let all = || {
        let act = prompt_context::build_act_context(&view, &domain, 1).expect("the step is there");
        let shown = (
            prompt_context::build_understand_context(&view, &settings),
            prompt_context::build_think_context(&view, &settings),
            act,
            prompt_context::build_reply_context(&view, &domain),
        );
        serde_json::to_string(&shown).expect("it is data")
    };
    assert_eq!(all(), all(), "and the same is read twice");
    assert_eq!(*memory, before);
    assert!(Flow::spec(&flow).validation_errors().is_empty());
}

#[test]
fn a23_the_phase_label_blocks_nothing() {
    let mut stage = open();
    talk_turn(&mut stage, "plan meals");
    // Right after exploring, a write is a write.
    read_turn(&mut stage, "look");
    decided(&mut stage, "the first", heard("chooses"), plan(&[step("write", "meal", 1, &["recipe_1"])]));
    act(&mut stage, meal("recipe_1"));
    host(&mut stage, &created(1, 1, "Lemon Herb Chicken"));
    act(&mut stage, done("added"));
    assert!(asked(&stage, "reply").contains("- Phase: executing"));
    assert!(stage.session().phase_graphs.is_empty(), "it is no phase of any graph");
}

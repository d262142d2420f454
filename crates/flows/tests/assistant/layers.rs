//! The three layers: who changes which, and that looking changes none.

use segue_core::body::{BodyId, Text};
use segue_core::event::{Event, Recorded};
use segue_core::flow::{About, Flow, Texts, View};
use segue_core::ids::{Millis, Seq};
use segue_core::session::State;
use segue_flows::assistant::facts::Fact;
use segue_flows::assistant::settings::Settings;
use segue_flows::assistant::state::Memory;
use segue_flows::assistant::{Assistant, context};
use serde_json::{Value, json};

use super::play::*;

fn with(memory: &Memory, kind: &str, value: Value) -> Memory {
    let mut memory = memory.clone();
    let event = Event::Fact { kind: kind.to_owned(), value };
    assert!(Fact::of(&event).is_some(), "{kind} is a fact");
    memory.fold(&Recorded { seq: Seq(1), at: Millis(1), event });
    memory
}

#[test]
fn a01_three_layers_exist_with_one_owner_each() {
    let mut stage = open();
    read_turn(&mut stage, "what can I cook?");
    stage.say("and now?").answer("understand", &heard("goes on").to_string());
    let memory = memory(&stage);
    assert!(!memory.entities.entities.is_empty() && !memory.conversation.recent.is_empty());
    assert!(!memory.reasoning.full.is_empty());
    let text = Text { body: BodyId::of("x"), tokens: 1 };
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
    let flow = Assistant::new();
    let state = State::fold(&flow, stage.journal());
    let memory = state.flow.get::<Memory>().expect("it is this flow's");
    let (before, texts, about) = (memory.clone(), Texts::new(stage.shelf()), About::default());
    let view = View { session: &state.session, state: memory, texts: &texts, about: &about };
    let domains = segue_flows::assistant::settings::Domains::new(segue_flows::assistant::domain::Domain::shipped());
    let (settings, _) = Settings::read(&state.session.settings, &domains);
    let domain = settings.domain.clone().expect("the kitchen");
    let all = || {
        let act = context::act(&view, &domain, 1).expect("the step is there");
        let shown = (
            context::understand(&view, &settings),
            context::think(&view, &settings),
            act,
            context::reply(&view, &domain),
        );
        serde_json::to_string(&shown).expect("it is data")
    };
    assert_eq!(all(), all(), "and the same is read twice");
    assert_eq!(*memory, before);
    assert!(Flow::spec(&flow).faults().is_empty());
}

#[test]
fn a23_the_phase_label_blocks_nothing() {
    let mut stage = open();
    talk_turn(&mut stage, "plan meals");
    // Right after exploring, a write is a write.
    read_turn(&mut stage, "look");
    decided(&mut stage, "the first", heard("chooses"), plan(&[step("write", "meal", 1, &["recipe_1"])]));
    act(
        &mut stage,
        tool(
            "create",
            json!({"type": "meal", "records": [{"date": "2026-01-15", "slot": "dinner", "recipe": "recipe_1"}]}),
        ),
    );
    host(&mut stage, &created(1, 1, "Lemon Herb Chicken"));
    act(&mut stage, done("added"));
    assert!(asked(&stage, "reply").contains("- Phase: executing"));
    assert!(stage.session().phases.is_empty(), "it is no phase of any graph");
}

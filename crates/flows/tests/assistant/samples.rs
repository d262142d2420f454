//! Every sample answer in a prompt is parsed, in every built-in domain, so that prompts and parsers cannot drift apart.

use segue_core::body::{BodyId, TextRef};
use segue_core::event::Event;
use segue_flows::assistant::domain::{DomainSchema, RecordFieldKind, RecordType};
use segue_flows::assistant::facts::AssistantFact;
use serde_json::{Value, json};

use super::support::*;

/// Returns the JSON samples in code fences, with real values in place of placeholders such as `recipe_X` and `<goal>`.
fn fenced_json(text: &str) -> Vec<Value> {
    let text = &text.replace("_X\"", "_1\"").replace("_Y\"", "_2\"").replace("YYYY-MM-DD", "2026-01-31");
    let text = &text.replace("\"<", "\"").replace(">\"", "\"");
    let parts = text.split("```json\n").skip(1);
    parts
        .map(|part| serde_json::from_str(part.split("```").next().expect("a part")).expect("a sample is JSON"))
        .collect()
}

/// A session that knows two records of every type of a domain.
fn session_knowing_all_types(domain: &DomainSchema) -> segue_testkit::SessionHarness {
    let mut harness = open_with_settings(json!({"domain": domain.name}));
    let first = &domain.types[0].name;
    start_planned_turn(&mut harness, "look", understood("looks"), plan(&[step("read", first, 1, &[])]));
    answer_act(&mut harness, tool_call("read", json!({"type": first, "full": true})));
    let rows = domain.types.iter().flat_map(|kind| {
        (1..=2).map(|number| json!({"type": kind.name, "id": id(&kind.name, number), "label": format!("{} {number}", kind.name), "fields": {}}))
    });
    finish_records(&mut harness, &rows_result(&rows.collect::<Vec<_>>()));
    answer_act(&mut harness, step_complete("looked"));
    finish_reply(&mut harness, "Well.");
    harness
}

#[test]
fn sample_in_understand_prompt_is_valid() {
    for domain in DomainSchema::built_in() {
        let mut harness = session_knowing_all_types(&domain);
        harness.send_message("well?");
        let samples = fenced_json(&prompt_text(&harness, "understand"));
        assert_eq!(samples.len(), 1);
        harness.answer_call("understand", &samples[0].to_string());
        assert_eq!(facts(&harness, "answer_rejected").len(), 0, "{}", domain.name);
        let understood = facts(&harness, "message_understood").pop().expect("it was understood");
        assert_eq!(
            (&understood["quality"], &understood["retained"], &understood["demoted"]),
            (&json!("first_attempt"), &samples[0]["retain"], &samples[0]["demote"])
        );
    }
}

#[test]
fn samples_in_think_prompt_are_valid() {
    for domain in DomainSchema::built_in() {
        let mut harness = session_knowing_all_types(&domain);
        harness.send_message("well?").answer_call("understand", &understood("asks").to_string());
        let samples = fenced_json(&prompt_text(&harness, "think"));
        assert_eq!(samples.len(), 3);
        for sample in samples {
            let mut copy = harness.fork_at(harness.journal().len());
            start_planned_turn(&mut copy, "well?", understood("asks"), sample);
            assert_eq!(
                (facts(&copy, "answer_rejected").len(), facts(&copy, "planned").len()),
                (0, 2),
                "{}",
                domain.name
            );
        }
    }
}

#[test]
fn samples_in_act_prompts_are_valid_in_every_kind_of_step() {
    for domain in DomainSchema::built_in() {
        let base = session_knowing_all_types(&domain);
        for declared in &domain.types {
            let mut harness = base.fork_at(base.journal().len());
            harness.with_checks_at_end(|harness| add_draft(harness, declared));
            let named = [format!("{}_1", declared.name), format!("{}_2", declared.name)];
            let named = [named[0].as_str(), named[1].as_str()];
            let has_links = declared.fields.iter().any(|field| field.kind == RecordFieldKind::Links);
            let plain = ["read", "analyze", "generate", "write"].map(|kind| step(kind, &declared.name, 1, &[]));
            let operations = ["update", "delete", "link", "unlink"];
            let usable = operations.into_iter().filter(|operation| has_links || !operation.ends_with("link"));
            let writes = usable.map(|operation| write_step(operation, &declared.name, 1, &named));
            for planned in plain.into_iter().chain(writes) {
                let mut copy = harness.fork_at(harness.journal().len());
                start_planned_turn(&mut copy, "go", understood("goes"), plan(std::slice::from_ref(&planned)));
                let samples = fenced_json(&prompt_text(&copy, "act"));
                assert!(samples.len() >= 3, "{planned}");
                if let Some(operation) = planned["operation"].as_str() {
                    assert!(samples.iter().any(|sample| sample["tool"] == operation), "{planned}");
                }
                for sample in samples {
                    check_action(&harness, &planned, &sample);
                }
            }
        }
    }
}

/// Adds a draft of a type.
fn add_draft(harness: &mut segue_testkit::SessionHarness, declared: &RecordType) {
    start_planned_turn(harness, "draft", understood("wants one"), plan(&[step("generate", &declared.name, 1, &[])]));
    let mut end = step_complete("written");
    end["drafts"] = json!([{"type": declared.name, "content": segue_flows::assistant::prompt_context::sample_record_and_change(declared).0}]);
    answer_act(harness, end);
    finish_reply(harness, "There.");
}

fn check_action(harness: &segue_testkit::SessionHarness, planned: &Value, sample: &Value) {
    let mut copy = harness.fork_at(harness.journal().len());
    copy.with_checks_at_end(|copy| {
        start_planned_turn(copy, "go", understood("goes"), plan(std::slice::from_ref(planned)));
        answer_act(copy, sample.clone());
    });
    let broken = facts(&copy, "answer_rejected");
    // A read or write step cannot be completed before something was read or written.
    let is_early = (planned["type"] == "write" || planned["type"] == "read") && sample["action"] == "step_complete";
    assert_eq!(broken.is_empty(), !is_early, "{planned} {sample}: {broken:?}");
}

#[test]
fn samples_name_no_reference_that_could_exist() {
    for domain in DomainSchema::built_in() {
        let mut harness = open_with_settings(json!({"domain": domain.name}));
        let every_type = domain.types.iter().map(|kind| write_step("create", &kind.name, 1, &[]));
        start_turn(&mut harness, "look", understood("looks"), plan(&every_type.collect::<Vec<_>>()));
        for call in ["understand", "think", "act"].into_iter().flat_map(|role| calls(&harness, role)) {
            let (role, sent) = (&call.role, sent_text(&harness, call.call));
            for declared in &domain.types {
                let numbered = (0..=9).map(|number| format!("{}_{number}", declared.name));
                let found: Vec<String> = numbered.filter(|name| sent.contains(name.as_str())).collect();
                assert_eq!(found, [""; 0], "{role}");
            }
        }
    }
}

#[test]
fn prompts_mention_no_other_domain() {
    let mut harness = open_with_settings(json!({"domain": "reading"}));
    start_planned_turn(&mut harness, "look", understood("looks"), plan(&[step("read", "book", 1, &[])]));
    answer_act(&mut harness, tool_call("read", json!({"type": "book"})));
    finish_records(&mut harness, &rows_result(&[]));
    answer_act(&mut harness, step_complete("looked"));
    harness.answer_call("reply", "Well.");
    for role in ["understand", "think", "act", "reply"] {
        for call in calls(&harness, role) {
            let sent = sent_text(&harness, call.call).to_lowercase();
            for word in ["recipe", "kitchen", "meal", "inventory", "cod ", "dinner"] {
                assert!(!sent.contains(word), "{role} mentions `{word}`: {sent}");
            }
        }
    }
}

#[test]
fn facts_round_trip_and_load_without_newer_fields() {
    let text = TextRef { body: BodyId::hash_text("x"), tokens: 1 };
    let old = [
        ("message_understood", json!({"turn": 1, "intent": "x"})),
        (
            "planned",
            json!({"turn": 1, "decision": "plan_direct", "steps": [{"step": 1, "description": "x", "type": "read"}]}),
        ),
        ("answer_rejected", json!({"node": "act", "call": 1, "complaints": []})),
        ("records_received", json!({"run": 1, "action": "read", "text": text})),
        ("step_ended", json!({"turn": 1, "step": 1, "status": "done"})),
        ("turn_summarized", json!({"turn": 1, "summary": {"turn": 1}})),
    ];
    for (kind, value) in old {
        let fact = AssistantFact::from_event(&Event::FlowFactRecorded { kind: kind.to_owned(), value: value.clone() });
        let fact = fact.unwrap_or_else(|| panic!("{kind} {value}"));
        let segue_core::flow::FlowStep::RecordFact { kind: noted, value } = fact.clone().into_step() else {
            panic!("a fact is a note")
        };
        assert_eq!(noted, kind);
        assert_eq!(AssistantFact::from_event(&Event::FlowFactRecorded { kind: noted, value }), Some(fact));
    }
    assert_eq!(AssistantFact::from_event(&Event::FlowFactRecorded { kind: "other".into(), value: Value::Null }), None);
}

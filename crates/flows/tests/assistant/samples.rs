//! Every sample answer in a prompt is read by the parser it is meant for, in every shipped domain, so that prompt and parser
//! cannot part ways.

use segue_core::body::{BodyId, TextRef};
use segue_core::event::Event;
use segue_flows::assistant::domain::{DomainSchema, RecordType};
use segue_flows::assistant::facts::Fact;
use serde_json::{Value, json};

use super::play::*;

/// The fenced JSON of a text.
fn fenced(text: &str) -> Vec<Value> {
    let parts = text.split("```json\n").skip(1);
    parts
        .map(|part| serde_json::from_str(part.split("```").next().expect("a part")).expect("a sample is JSON"))
        .collect()
}

/// A session of a domain in which two records and a draft of every type are known.
fn knowing(domain: &DomainSchema) -> segue_testkit::SessionHarness {
    let mut stage = open_set(json!({"domain": domain.name}));
    let first = &domain.types[0].name;
    decided(&mut stage, "look", heard("looks"), plan(&[step("read", first, 1, &[])]));
    act(&mut stage, tool("read", json!({"type": first})));
    let rows = domain.types.iter().flat_map(|kind| {
        (1..=2).map(|number| json!({"type": kind.name, "id": id(&kind.name, number), "label": format!("{} {number}", kind.name), "fields": {}}))
    });
    host(&mut stage, &found(&rows.collect::<Vec<_>>()));
    act(&mut stage, done("looked"));
    replied(&mut stage, "Well.");
    stage
}

#[test]
fn the_sample_of_understand_is_understood() {
    for domain in DomainSchema::built_in() {
        let mut stage = knowing(&domain);
        stage.send_message("well?");
        let samples = fenced(&shown(&stage, "understand"));
        assert_eq!(samples.len(), 1);
        stage.answer_call("understand", &samples[0].to_string());
        assert_eq!(facts(&stage, "broken").len(), 0, "{}", domain.name);
        let understood = facts(&stage, "understood").pop().expect("it was understood");
        assert_eq!(
            (&understood["how"], &understood["retain"], &understood["demote"]),
            (&json!("given"), &samples[0]["retain"], &samples[0]["demote"])
        );
    }
}

#[test]
fn the_samples_of_think_are_plans() {
    for domain in DomainSchema::built_in() {
        let mut stage = knowing(&domain);
        stage.send_message("well?").answer_call("understand", &heard("asks").to_string());
        let samples = fenced(&shown(&stage, "think"));
        assert_eq!(samples.len(), 2);
        for sample in samples {
            let mut copy = stage.fork_at(stage.journal().len());
            decided(&mut copy, "well?", heard("asks"), sample);
            assert_eq!((facts(&copy, "broken").len(), facts(&copy, "planned").len()), (0, 2), "{}", domain.name);
        }
    }
}

#[test]
fn the_samples_of_act_are_actions_in_every_kind_of_step() {
    for domain in DomainSchema::built_in() {
        let base = knowing(&domain);
        for declared in &domain.types {
            let mut stage = base.fork_at(base.journal().len());
            stage.with_checks_at_end(|stage| drafted(stage, declared));
            for kind in ["read", "analyze", "generate", "write"] {
                let mut copy = stage.fork_at(stage.journal().len());
                decided(&mut copy, "go", heard("goes"), plan(&[step(kind, &declared.name, 1, &[])]));
                let samples = fenced(&shown(&copy, "act"));
                assert!(samples.len() >= 8, "{kind}");
                for sample in samples {
                    check_action(&stage, (kind, &declared.name), &sample);
                }
            }
        }
    }
}

/// A draft of a type is known too.
fn drafted(stage: &mut segue_testkit::SessionHarness, declared: &RecordType) {
    decided(stage, "draft", heard("wants one"), plan(&[step("generate", &declared.name, 1, &[])]));
    let mut end = done("written");
    end["drafts"] = json!([{"type": declared.name, "content": segue_flows::assistant::prompt_context::sample_record_and_change(declared).0}]);
    act(stage, end);
    replied(stage, "There.");
}

fn check_action(stage: &segue_testkit::SessionHarness, (kind, subdomain): (&str, &str), sample: &Value) {
    let mut copy = stage.fork_at(stage.journal().len());
    copy.with_checks_at_end(|copy| {
        decided(copy, "go", heard("goes"), plan(&[step(kind, subdomain, 1, &[])]));
        act(copy, sample.clone());
    });
    let broken = facts(&copy, "broken");
    // A step that writes is not complete before something was written.
    let is_early = kind == "write" && sample["action"] == "step_complete";
    assert_eq!(broken.is_empty(), !is_early, "{subdomain} {kind} {sample}: {broken:?}");
}

#[test]
fn no_prompt_speaks_of_any_particular_domain() {
    let mut stage = open_set(json!({"domain": "reading"}));
    decided(&mut stage, "look", heard("looks"), plan(&[step("read", "book", 1, &[])]));
    act(&mut stage, done("looked"));
    stage.answer_call("reply", "Well.");
    for role in ["understand", "think", "act", "reply"] {
        for call in calls(&stage, role) {
            let sent = sent(&stage, call.call).to_lowercase();
            for word in ["recipe", "kitchen", "meal", "inventory", "cod ", "dinner"] {
                assert!(!sent.contains(word), "{role} is told of `{word}`: {sent}");
            }
        }
    }
}

#[test]
fn a_fact_is_read_as_it_was_noted_and_old_ones_without_newer_fields_are_read_too() {
    let text = TextRef { body: BodyId::hash_text("x"), tokens: 1 };
    let old = [
        ("understood", json!({"turn": 1, "expressed": "x"})),
        (
            "planned",
            json!({"turn": 1, "decision": "plan_direct", "steps": [{"step": 1, "description": "x", "type": "read"}]}),
        ),
        ("broken", json!({"node": "act", "call": 1, "complaints": []})),
        ("records", json!({"run": 1, "did": "read", "text": text})),
        ("step_ended", json!({"turn": 1, "step": 1, "end": "done"})),
        ("summarized", json!({"turn": 1, "summary": {"turn": 1}})),
    ];
    for (kind, value) in old {
        let fact = Fact::from_event(&Event::FlowFactRecorded { kind: kind.to_owned(), value: value.clone() });
        let fact = fact.unwrap_or_else(|| panic!("{kind} {value}"));
        let segue_core::flow::FlowStep::RecordFact { kind: noted, value } = fact.clone().into_step() else {
            panic!("a fact is a note")
        };
        assert_eq!(noted, kind);
        assert_eq!(Fact::from_event(&Event::FlowFactRecorded { kind: noted, value }), Some(fact));
    }
    assert_eq!(Fact::from_event(&Event::FlowFactRecorded { kind: "other".into(), value: Value::Null }), None);
}

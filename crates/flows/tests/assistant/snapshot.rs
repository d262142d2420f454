//! Standing records and the snapshot, which the nodes see from the first turn on.

use segue_flows::assistant::AssistantFlow;
use segue_flows::assistant::domain::DomainSchema;
use segue_testkit::SessionHarness;
use serde_json::{Value, json};

use super::support::*;

fn preference(what: &str, stance: &str) -> Value {
    json!({"type": "preference", "id": id("preference", 1), "label": what, "fields": {"what": what, "stance": stance}})
}

fn cod() -> Value {
    json!({"type": "inventory", "id": id("inventory", 1), "label": "cod", "fields": {"name": "cod", "expires": "1970-01-03"}})
}

/// The snapshot of a kitchen: an allergy, and cod that expires soon.
fn kitchen_snapshot() -> Value {
    let sections = json!([{"title": "preference: what is liked", "total": 1, "rows": [preference("peanuts", "allergy")]},
        {"title": "expires within three days", "total": 1, "rows": [cod()]}]);
    json!({"snapshot": {"counts": [["recipe", 8], ["inventory", 7]], "sections": sections}})
}

fn finish_snapshot(harness: &mut SessionHarness, snapshot: &Value) {
    finish_records(harness, &snapshot.to_string());
}

#[test]
fn a23_snapshot_is_shown_to_think_act_and_reply_from_the_first_turn() {
    let mut harness = SessionHarness::open(AssistantFlow::new());
    harness.send_message("plan dinner").answer_call("understand", &understood("plans").to_string());
    assert!(harness.open_call_roles().is_empty(), "Think waits for the snapshot");
    let request = tool_request(&all_runs(&harness)[0]);
    assert_eq!(request.operation.as_str(), "snapshot");
    assert_eq!(request.parameters["queries"][0]["query"]["type"], "preference", "a standing type is read completely");
    let soon = &request.parameters["queries"][1]["query"]["where"][0];
    assert_eq!((&soon["op"], &soon["value"]), (&json!("<="), &json!("1970-01-04")), "three days after today");
    finish_snapshot(&mut harness, &kitchen_snapshot());
    let steps = plan(&[step("analyze", "recipe", 1, &[])]);
    let shown = |harness: &SessionHarness, role: &str| {
        let text = ask_text(harness, role);
        for line in
            ["Stored: 8 recipe, 7 inventory.", "- what: peanuts; stance: allergy", "- name: cod; expires: 1970-01-03"]
        {
            assert!(text.contains(line), "{role}: {line}: {text}");
        }
        assert!(!text.contains(&id("preference", 1)), "{text}");
    };
    shown(&harness, "think");
    harness.answer_call("think", &steps.to_string());
    shown(&harness, "act");
    answer_act(&mut harness, step_complete("nothing with peanuts"));
    shown(&harness, "reply");
    finish_reply(&mut harness, "No peanuts.");
    assert!(flow_state(&harness).entities.entities.is_empty(), "what is only shown gets no reference");
}

#[test]
fn a23_think_starts_when_both_understand_and_the_snapshot_are_done() {
    let mut harness = SessionHarness::open(AssistantFlow::new());
    harness.send_message("hello");
    finish_snapshot(&mut harness, &kitchen_snapshot());
    assert_eq!(harness.open_call_roles(), ["understand"]);
    harness.answer_call("understand", &understood("greets").to_string());
    assert_eq!(harness.open_call_roles(), ["think"]);
}

#[test]
fn a23_turn_continues_without_a_snapshot_if_it_fails() {
    let mut harness = SessionHarness::open(AssistantFlow::new());
    harness.send_message("hello").answer_call("understand", &understood("greets").to_string());
    harness.finish_tool("records", Err("the disk is gone"));
    assert_eq!((harness.open_call_roles(), facts(&harness, "tool_failed").len()), (vec!["think".to_owned()], 1));
    assert!(!ask_text(&harness, "think").contains("## The records at this moment"));
}

#[test]
fn a23_any_domain_may_declare_standing_records() {
    let domain = json!({"name": "bees", "type": [
        {"name": "hive", "label": "name", "fields": [{"name": "name", "kind": "text"}, {"name": "checked", "kind": "date"}]},
        {"name": "rule", "label": "text", "standing": true, "fields": [{"name": "text", "kind": "text"}]}],
        "snapshot": [{"title": "not checked for a week", "type": "hive", "where": [{"field": "checked", "op": "<", "value": "today-7"}]}]});
    let mut harness = SessionHarness::open_with_settings(AssistantFlow::new(), json!({"domain": domain}));
    harness.send_message("what now?").answer_call("understand", &understood("asks").to_string());
    let queries = &tool_request(&all_runs(&harness)[0]).parameters["queries"];
    assert_eq!((&queries[0]["query"]["type"], &queries[1]["query"]["type"]), (&json!("rule"), &json!("hive")));
    let rule = json!({"type": "rule", "id": id("rule", 1), "label": "x", "fields": {"text": "no smoke on Sundays"}});
    let sections = json!([{"title": "rule", "total": 1, "rows": [rule]}]);
    finish_snapshot(&mut harness, &json!({"snapshot": {"counts": [["hive", 2], ["rule", 1]], "sections": sections}}));
    let text = prompt_text(&harness, "think");
    assert!(text.contains("Stored: 2 hive, 1 rule.") && text.contains("- text: no smoke on Sundays"), "{text}");
    for word in ["recipe", "kitchen", "preference", "expires"] {
        assert!(!text.to_lowercase().contains(word), "`{word}` is of the kitchen: {text}");
    }
}

#[test]
fn a21_records_that_somebody_else_changed_are_read_again() {
    for (version, runs_expected) in [("v1", 3), ("v2", 4)] {
        let mut harness = SessionHarness::open(AssistantFlow::new());
        let read = plan(&[step("read", "recipe", 1, &[])]).to_string();
        harness.send_message("look");
        finish_snapshot(&mut harness, &kitchen_snapshot());
        harness.answer_call("understand", &understood("looks").to_string()).answer_call("think", &read);
        let rows = recipes();
        let result = json!({"rows": rows, "total": rows.len(), "type_versions": {"recipe": "v1"}});
        finish_records(&mut harness, &result.to_string());
        finish_reply(&mut harness, "Three.");
        harness.send_message("look again");
        let asked = tool_request(&all_runs(&harness)[2]);
        assert_eq!(asked.parameters["versions_of"], json!(["recipe"]));
        let mut snapshot = kitchen_snapshot();
        snapshot["type_versions"] = json!({"recipe": version});
        finish_snapshot(&mut harness, &snapshot);
        harness.answer_call("understand", &understood("looks").to_string()).answer_call("think", &read);
        assert_eq!(all_runs(&harness).len(), runs_expected, "{version}");
    }
}

#[test]
fn invalid_snapshot_is_refused_with_the_reason() {
    for (snapshot, why) in [
        (json!({"title": "x", "type": "hut"}), "snapshot `x`: there is no type `hut`"),
        (json!({"title": "x", "type": "hive", "sort": "age"}), "snapshot `x`: `hive` has no field `age`"),
        (
            json!({"title": "x", "type": "hive", "where": [{"field": "name", "op": "like"}]}),
            "there is no operator `like`",
        ),
    ] {
        let kind = json!({"name": "hive", "label": "name", "fields": [{"name": "name", "kind": "text"}]});
        let refused = DomainSchema::from_value(&json!({"name": "bees", "type": [kind], "snapshot": [snapshot]}));
        let refused = refused.expect_err("it is invalid");
        assert!(refused.contains(why), "{refused}");
    }
}

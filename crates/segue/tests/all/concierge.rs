//! The concierge flow through the program: settings, phases, recovery after a crash, and recomputation.

use expect_test::expect;
use serde_json::{Value, json};

use crate::crash::wait_for;
use crate::support::Place;

const USUAL: &str = include_str!("../../../testkit/scenarios/concierge.toml");

/// A home with the usual scenario, preceded by these rules.
fn place(rules: &str) -> Place {
    let place = Place::new();
    place.write("usual.toml", &format!("{rules}\n{USUAL}"));
    place
}

fn send(place: &Place, message: &str) -> String {
    place.ok(&["send", "--flow", "concierge", "--session", "b", "--script", "usual.toml", message])
}

/// A home with a session that has a plan.
fn planned() -> Place {
    let place = place("");
    for message in ["rent or buy?", "I stay five years", "give me a plan"] {
        send(&place, message);
    }
    place
}

#[test]
fn settings_come_from_the_file_and_the_command_line_overrides_it() {
    let place = place("");
    place.write("segue.toml", "[flows.concierge]\nexperts = [\"rehearsal\"]\nquorum = 1\nstance = \"explore\"\n");
    let set = |session: &str, more: &[&str]| {
        let mut arguments = vec!["send", "--flow", "concierge", "--session", session, "--script", "usual.toml"];
        arguments.extend(more);
        arguments.push("rent or buy?");
        place.ok(&arguments);
        place.json(&["show", session, "--json"])["events"][0]["event"]["settings"].clone()
    };
    assert_eq!(set("a", &[]), json!({"experts": ["rehearsal"], "quorum": 1, "stance": "explore"}));
    let more = ["--set", "stance=decide", "--set", "experts=ant,bee"];
    assert_eq!(set("b", &more), json!({"experts": ["ant", "bee"], "quorum": 1, "stance": "decide"}));
    let asked = place.ok(&["show", "b"]);
    assert!(
        asked.contains("expert asked question on ant,") && asked.contains("expert asked question on bee,"),
        "{asked}"
    );
    assert!(asked.contains("the stance is decide: it is set"), "{asked}");
    let config = place.ok(&["config"]);
    assert!(config.contains("flows.concierge.quorum") && config.contains("segue.toml:3"), "{config}");

    let refused = |more: &[&str]| {
        let mut arguments = vec!["send", "--flow", "concierge", "--script", "usual.toml"];
        arguments.extend(more);
        arguments.push("rent or buy?");
        place.fails(&arguments)
    };
    assert_eq!(refused(&["--set", "qorum=2"]), "error: setting `qorum` is unknown; did you mean `quorum`?\n");
    assert_eq!(
        refused(&["--session", "b", "--set", "quorum=2"]),
        "error: the settings of session `b` cannot change; omit --set, or start another session\n"
    );
    place.write("segue.toml", "[flows.concierge]\nstances = \"explore\"\n");
    assert_eq!(refused(&[]), "error: segue.toml:2: `flows.concierge.stances` is unknown; did you mean `stance`?\n");
}

#[test]
fn phases_can_be_shown_drawn_and_changed() {
    let place = planned();
    expect![[r#"
        conversation of concierge: executor (visit 3, 1 turn, since DDDD-DD-DD TT:TT)
          allowed         none
          not yet         executor (needs handover execution)
          not yet         explorer (needs handover outcome)
          earlier visits  1 starter, 2 explorer
    "#]]
    .assert_eq(&place.ok(&["phase", "b"]));
    let drawn = place.ok(&["phase", "b", "--mermaid"]);
    let flow = place.ok(&["flows", "concierge", "--mermaid"]);
    assert!(flow.starts_with("%% conversation\nstateDiagram-v2\n"), "{flow}");
    for line in flow.lines().skip(1) {
        assert!(drawn.lines().any(|drawn| drawn.trim() == line.trim()), "`{line}` is in both:\n{drawn}");
    }
    assert_ne!(drawn.lines().count(), flow.lines().count(), "the current phase is marked");

    let refused = place.fails(&["phase", "b", "propose", "explorer"]);
    assert!(refused.contains("conversation of concierge") && refused.contains("handover"), "{refused}");
    assert_eq!(
        place.fails(&["phase", "b", "propose", "exploder"]),
        "error: there is no phase `exploder`; did you mean `explorer`?\n"
    );
    let granted = place.ok(&["phase", "b", "grant", "explorer"]);
    assert!(granted.contains("explorer"), "{granted}");
    let moved = place.ok(&["phase", "b", "propose", "explorer", "--reason", "too early"]);
    assert!(moved.contains("executor → explorer"), "{moved}");
    let now = place.json(&["phase", "b", "--json"]);
    assert_eq!(
        (&now["graphs"][0]["current"]["current"], &now["graphs"][0]["current"]["visit"]),
        (&json!("explorer"), &json!(4))
    );
    assert!(place.ok(&["phase", "b", "rollback", "3"]).contains("explorer → executor"));
    assert_eq!(send(&place, "go on"), "Ask the second bank.\n");
    let plan = place.ok(&["explain", "b", "c13", "--prompt"]);
    assert!(plan.contains("[>] 1. See the bank (current)"), "the plan came back with its phase: {plan}");
}

#[test]
fn a_flow_is_described_with_roles_phases_handovers_and_settings() {
    let shown = Place::new().ok(&["flows", "concierge"]);
    for wanted in ["Roles\n", "Phases\n", "Handovers\n", "Settings\n", "explorer (handover intent)", "goal (required)"]
    {
        assert!(shown.contains(wanted), "{wanted}: {shown}");
    }
    let settings = Place::new().json(&["flows", "concierge", "--json"])["settings"].clone();
    let quorum = settings.as_array().and_then(|all| all.iter().find(|setting| setting["name"] == "quorum").cloned());
    assert_eq!(quorum.map(|quorum| quorum["takes"].clone()), Some(json!("a whole number from 1 to 32")));
}

/// Kills the program while the mapper's call is in flight.
fn killed_before_the_map(place: &Place) {
    let arguments = ["send", "--flow", "concierge", "--session", "b", "--script", "usual.toml", "rent or buy?"];
    let mut child = place.start(&arguments);
    wait_for(place, "b", "c4 mapper asked");
    child.kill().expect("killed");
    child.wait().expect("gone");
}

#[test]
fn after_a_kill_answered_calls_are_not_repeated() {
    let place = place("[[reply]]\nrole = \"mapper\"\ntimes = 1\nhang = true\n");
    killed_before_the_map(&place);
    // A repeated call to an expert would fail.
    place.write("usual.toml", &format!("[[reply]]\nrole = \"expert\"\nturn = 1\nfail = \"invalid_api_key\"\n{USUAL}"));
    assert_eq!(send(&place, "I stay five years"), "Then buy.\n");
    let events = place.ok(&["show", "b", "--events"]);
    assert!(events.contains("c4 attempt 1 was in flight when the process died, possibly billed"), "{events}");
    for call in ["c1", "c2", "c3"] {
        assert_eq!(events.matches(&format!(" {call} answered")).count(), 1, "{call}: {events}");
        assert!(!events.contains(&format!(" {call} try")) && !events.contains(&format!(" {call} failed")), "{events}");
    }
    assert!(events.contains("reply by concierge: Rent, unless you stay for long."), "{events}");
    let report = place.json(&["show", "b", "--json"]);
    assert_eq!((&report["usage"]["calls"], &report["usage"]["unknown_attempts"]), (&json!(6), &json!(1)));
}

#[test]
fn a_call_that_waits_for_a_decision_can_be_resolved() {
    for (how, wanted) in [("retry", "shape"), ("fail", "there is no map")] {
        let place = place("[[reply]]\nrole = \"mapper\"\ntimes = 1\nhang = true\n");
        killed_before_the_map(&place);
        // This flow retries such calls by itself, so an edited export makes it wait for an operator.
        let other = Place::new();
        let exported = place.run(&["export", "b"]).out;
        let last: Value = serde_json::from_str(exported.lines().last().expect("an event")).expect("JSON");
        let seq = last["seq"].as_u64().expect("a place") + 1;
        let unknown = json!({"type": "call_outcome_unknown", "call": 4, "attempt": 1, "next": "await_operator"});
        let unknown = json!({"seq": seq, "at": last["at"], "event": unknown});
        other.write("b.jsonl", &format!("{exported}{unknown}\n"));
        other.write("usual.toml", USUAL);
        other.write("segue.toml", "[models.scripted]\nkind = \"scripted\"\nfile = \"usual.toml\"\n");
        other.ok(&["import", "b.jsonl"]);
        assert!(other.ok(&["show", "b"]).contains("c4 waits for your decision: segue resolve b c4 retry|fail"));
        assert_eq!(other.ok(&["resolve", "b", "c4", how]), "Rent, unless you stay for long.\n");
        let shown = other.ok(&["show", "b"]);
        assert!(shown.contains(wanted) && shown.contains("phase starter"), "{how}: {shown}");
        assert_eq!(other.fails(&["resolve", "b", "c4", how]), "error: c4 is not waiting for a decision\n");
        assert_eq!(other.ok(&["send", "--session", "b", "I stay five years"]), "Then buy.\n");
        assert_eq!(other.json(&["phase", "b", "--json"])["graphs"][0]["current"]["current"], "explorer");
    }
}

#[test]
fn s32_a_recomputed_call_is_compared_and_the_conversation_is_unchanged() {
    let place = planned();
    place.write(
        "other.toml",
        "[[reply]]\nrole = \"concierge\"\nmodel = \"dog\"\ntext = \"Buy, I say.\"\n\
         [[reply]]\nrole = \"concierge\"\ntext = \"Why buy at all?\"\n\
         [[reply]]\nrole = \"mapper\"\ntext = '<map>{\"claims\": [{\"id\": \"x\", \"label\": \"wait\", \"text\": \"Wait.\", \"supporters\": [1, 2, 3]}], \"edges\": []}</map>'\n",
    );
    let again = |more: &[&str]| {
        let mut arguments = vec!["recompute", "b", "--script", "other.toml"];
        arguments.extend(more);
        place.ok(&arguments)
    };
    let before = place.json(&["phase", "b", "--json"]);
    expect![[r#"
        original: c5 concierge on scripted                │ recomputed: c13 concierge on dog
        ────────────────────────────────────────────────  │ ────────────────────────────────────────────────
        Rent, unless you stay for long.                   │ Buy, I say.

        the conversation is unchanged · `segue explain c13` shows the prompt
    "#]]
    .assert_eq(&without_figures(&again(&["c5", "--model", "dog"])));
    let stance = again(&["c5", "--set", "stance=challenge"]);
    assert!(stance.contains("Why buy at all?") && stance.contains("changed fragments: guidance"), "{stance}");
    let map = again(&["c4", "--model", "owl"]);
    let shapes = map.lines().find(|line| line.starts_with("shape: ")).expect("a map is told by its shape");
    assert!(shapes.starts_with("shape: contested") && shapes.contains("│ shape: settled"), "{map}");
    let machine = place.json(&["recompute", "b", "c5", "--script", "other.toml", "--model", "dog", "--json"]);
    assert_eq!(machine["original"]["answer"], "Rent, unless you stay for long.");
    let recomputed = &machine["recomputed"];
    assert_eq!((&recomputed["answer"], &recomputed["model"]), (&json!("Buy, I say."), &json!("dog")));
    assert_eq!(place.json(&["phase", "b", "--json"]), before);
    assert_eq!(send(&place, "go on"), "Ask the second bank.\n", "and the conversation goes on");

    let refused = |more: &[&str]| place.fails(&[&["recompute", "b", "--script", "other.toml"], more].concat());
    assert!(refused(&["c99"]).contains("has no call c99"));
    assert_eq!(
        refused(&["c6", "--set", "stance=decide"]),
        "error: the prompt of c6 does not depend on these settings; try c5, which opened its thread\n"
    );
}

/// Removes the lines with token counts and durations.
fn without_figures(text: &str) -> String {
    text.lines().filter(|line| !line.contains(" ms")).map(|line| format!("{line}\n")).collect()
}

//! The assistant flow through the program: the kitchen domain with the rehearsal model, its artifacts, and undo.

use crate::support::Place;

const INSTANT: &str = "[models.rehearsal]\nkind = \"rehearsal\"\nspeed = \"instant\"\n";

fn kitchen() -> Place {
    let place = Place::new();
    place.write("segue.toml", INSTANT);
    let lines =
        "help me plan meals\n3 days, dinners only\nno cod this week\nlet us go with the chicken and pasta ones\n";
    let run = place.run_reading(&["chat", "--flow", "assistant", "--session", "k"], lines.as_bytes());
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(run.out.contains("created meal “Lemon Herb Chicken”"), "{}", run.out);
    place
}

#[test]
fn the_kitchen_works_with_the_rehearsal_model_and_shows_its_artifacts() {
    let place = kitchen();
    let shown = place.ok(&["show", "k"]);
    let (_, artifacts) = shown.split_once("\nEntities\n").expect("there is an artifact with entities");
    for line in ["demoted  recipe_4     Cod Chowder", "no cod this week", "Turn 4 (executing): let us go", "active  x"]
    {
        assert!(artifacts.contains(line), "{line}: {artifacts}");
    }
    let json = place.json(&["show", "k", "--json"]);
    let names: Vec<&str> =
        json["artifacts"].as_array().expect("a list").iter().filter_map(|artifact| artifact["name"].as_str()).collect();
    assert_eq!(names, ["entities", "reasoning", "writes"]);
}

#[test]
fn writes_are_undone_by_command_and_in_the_conversation() {
    let place = kitchen();
    let taken = place.ok(&["undo", "k"]);
    assert_eq!(
        taken,
        "The write was undone. Changes made:\n- deleted meal “Garlic Pasta”\n- deleted meal “Lemon Herb Chicken”\n"
    );
    let again = place.fails(&["undo", "k"]);
    assert_eq!(again, "error: this session has no write that can be undone\n");
    assert!(place.fails(&["run-command", "k", "redo"]).contains("the flow has no command `redo`; it has `undo`"));
    assert!(place.fails(&["run-command", "k", "undo", "deep=1"]).contains("`deep` is not an argument; it takes `run`"));
    assert!(place.fails(&["run-command", "k", "undo", "x4"]).contains("write NAME=VALUE"));
    let lines = "show me the recipes\nremove the omelette\n/undo\n/artifacts\n/run\n";
    let run = place.run_reading(&["chat", "--flow", "assistant", "--session", "other"], lines.as_bytes());
    assert!(
        run.out.contains("The write was undone. Changes made:\n- created recipe “Mushroom Omelette”"),
        "{}",
        run.out
    );
    assert!(run.out.contains("\nWrites\n"), "{}", run.out);
    assert!(run.err.contains("usage: /run COMMAND"), "{}", run.err);
}

#[test]
fn a_session_can_have_its_own_domain_from_a_file() {
    let place = Place::new();
    place.write("segue.toml", INSTANT);
    let bees = "name = \"bees\"\n[[type]]\nname = \"hive\"\nlabel = \"name\"\nfields = [{ name = \"name\", kind = \"text\" }]\n";
    place.write("bees.toml", &format!("{bees}[[samples.hive]]\nname = \"Old oak\"\n"));
    let send = |setting: &str| {
        place.run(&["send", "--flow", "assistant", "--session", "b", "--set", setting, "show me the hives"])
    };
    let run = send("domain=nowhere.toml");
    assert!(run.code == 1 && run.err.contains("cannot read nowhere.toml"), "{}", run.err);
    let run = send("domain=garage");
    assert!(run.code == 1 && run.err.contains("expected `kitchen` or `reading`"), "{}", run.err);
    let run = send("domain=bees.toml");
    assert!(run.code == 0 && run.out.contains("Old oak"), "{} {}", run.out, run.err);
    // The session keeps its domain even without the file.
    std::fs::remove_file(place.path().join("bees.toml")).expect("removed");
    let run = place.run(&["send", "--session", "b", "which hives have I?"]);
    assert!(run.code == 0 && run.out.contains("Old oak"), "{} {}", run.out, run.err);
}

#[test]
fn a_scenario_of_four_turns_writes_records() {
    let place = Place::new();
    place.write("four.toml", include_str!("../../../domains/tests/assistant/four_turns.toml"));
    for (message, reply) in [
        ("help me plan meals", "How many days"),
        ("3 days, dinners only", "here are 7 recipes"),
        ("no cod this week", "5 options"),
        ("let's go with the chicken and pasta ones", "I've added Lemon Herb Chicken and Garlic Pasta"),
    ] {
        let said = place.ok(&["send", "--flow", "assistant", "--session", "four", "--script", "four.toml", message]);
        assert!(said.contains(reply), "{said}");
    }
    let receipt = place.ok(&["explain", "four", "c9"]);
    let words = receipt.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("loaded") && words.contains("records that need not be read again"), "{receipt}");
}

#[test]
fn tool_runs_wait_for_approval_if_the_configuration_asks_for_it() {
    let place = Place::new();
    place.write("segue.toml", &format!("{INSTANT}\n[approval]\nask = [\"assistant:records\"]\n"));
    let waiting = place.fails(&["send", "--flow", "assistant", "--session", "k", "show me the recipes"]);
    assert!(waiting.contains("x1 waits for your approval: records {"), "{waiting}");
    assert!(waiting.contains("`segue approve k x1` runs it"), "{waiting}");
    let second = place.fails(&["send", "--session", "k", "and now?"]);
    assert!(second.contains("x1 waits for your approval"), "{second}");
    place.ok(&["cancel", "k"]);
    assert!(place.fails(&["approve", "k", "x1"]).contains("x1 is not waiting for this decision: it has ended"));

    let waiting = place.fails(&["send", "--flow", "assistant", "--session", "l", "show me the recipes"]);
    assert!(waiting.contains("x1 waits for your approval"), "{waiting}");
    assert!(place.fails(&["approve", "l", "x1", "--edit", "{"]).contains("the arguments after --edit are not JSON"));
    let reply = place.ok(&["approve", "l", "x1", "--always"]);
    assert!(reply.contains("Mushroom Omelette"), "{reply}");
    let run = place.run(&["send", "--session", "l", "show me the recipes"]);
    assert!(run.code == 0 && run.out.contains("Mushroom Omelette"), "it is not asked again: {}", run.err);
    assert!(place.fails(&["resolve", "l", "c1", "done"]).contains("c1 is a call, which can only be retried or failed"));
}

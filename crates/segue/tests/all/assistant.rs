//! The assistant through the program: the kitchen without a model, what is on show of it, and what is taken back.

use crate::support::Place;

const INSTANT: &str = "[models.rehearsal]\nkind = \"rehearsal\"\npace = \"instant\"\n";

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
fn a_kitchen_is_tried_without_a_model_and_put_on_show() {
    let place = kitchen();
    let shown = place.ok(&["show", "k"]);
    let (_, on_show) = shown.split_once("\nEntities\n").expect("entities are on show");
    for line in ["demoted  recipe_4     Cod Chowder", "no cod this week", "Turn 4 (executing): let us go", "active  x"]
    {
        assert!(on_show.contains(line), "{line}: {on_show}");
    }
    let json = place.json(&["show", "k", "--json"]);
    let names: Vec<&str> =
        json["exhibits"].as_array().expect("a list").iter().filter_map(|exhibit| exhibit["name"].as_str()).collect();
    assert_eq!(names, ["entities", "reasoning", "writes"]);
}

#[test]
fn what_was_written_is_taken_back_from_outside_and_from_within() {
    let place = kitchen();
    let taken = place.ok(&["undo", "k"]);
    assert_eq!(taken, "The write was undone. Changes made:\n- deleted meal “Garlic Pasta”\n- deleted meal “Lemon Herb Chicken”\n");
    let again = place.fails(&["undo", "k"]);
    assert_eq!(again, "error: this session has no write that can be undone\n");
    assert!(place.fails(&["do", "k", "redo"]).contains("the flow has no command `redo`; it has `undo`"));
    assert!(place.fails(&["do", "k", "undo", "deep=1"]).contains("it takes no `deep`; it takes `run`"));
    assert!(place.fails(&["do", "k", "undo", "x4"]).contains("write NAME=VALUE"));
    let lines = "show me the recipes\nremove the omelette\n/undo\n/show\n/do\n";
    let run = place.run_reading(&["chat", "--flow", "assistant", "--session", "other"], lines.as_bytes());
    assert!(run.out.contains("The write was undone. Changes made:\n- created recipe “Mushroom Omelette”"), "{}", run.out);
    assert!(run.out.contains("\nWrites\n"), "{}", run.out);
    assert!(run.err.contains("write /do COMMAND"), "{}", run.err);
}

#[test]
fn a_session_brings_its_own_domain_or_is_not_opened() {
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
    // The file is gone, and the session still knows.
    std::fs::remove_file(place.path().join("bees.toml")).expect("removed");
    let run = place.run(&["send", "--session", "b", "which hives have I?"]);
    assert!(run.code == 0 && run.out.contains("Old oak"), "{} {}", run.out, run.err);
}

#[test]
fn a_scenario_of_four_turns_ends_in_the_tables() {
    let place = Place::new();
    place.write("four.toml", include_str!("../../../domains/tests/assistant/four_turns.toml"));
    for (message, reply) in [
        ("help me plan meals", "How many days"),
        ("3 days, dinners only", "here are 8 recipes"),
        ("no cod this week", "6 options"),
        ("let's go with the chicken and pasta ones", "I've added Lemon Herb Chicken and Garlic Pasta"),
    ] {
        let said = place.ok(&["send", "--flow", "assistant", "--session", "four", "--script", "four.toml", message]);
        assert!(said.contains(reply), "{said}");
    }
    let why = place.ok(&["explain", "four", "c13"]);
    assert!(why.contains("loaded") && why.contains("records that need not be read again"), "{why}");
}

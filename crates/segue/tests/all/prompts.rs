//! Prompt templates of the user's own: by file in the configuration, and in a session's settings.

use crate::support::{ECHO, Place};

const CONFIG: &str = "[flows.chat.prompts]\ninstruction = \"own/chat.md\"\n";

fn home(template: &str) -> Place {
    let place = Place::new();
    std::fs::create_dir(place.path().join("own")).expect("created");
    place.write("segue.toml", CONFIG);
    place.write("own/chat.md", template);
    place.write("echo.toml", ECHO);
    place
}

#[test]
fn template_in_a_file_replaces_the_built_in_prompt_and_the_receipt_says_so() {
    let place = home("You answer in verse.");
    place.ok(&["send", "--session", "a", "--script", "echo.toml", "Hello"]);
    assert!(place.ok(&["explain", "a", "c1", "--prompt"]).contains("You answer in verse."));
    let receipt = place.ok(&["explain", "a", "c1"]);
    let words: Vec<&str> = receipt.split_whitespace().collect();
    assert!(words.join(" ").contains("with your own prompt instruction"), "{receipt}");
    let config = place.ok(&["config"]);
    assert!(config.contains("flows.chat.prompts"), "{config}");
    // A session keeps the prompts that it was opened with.
    place.write("own/chat.md", "You answer in prose.");
    place.ok(&["send", "--session", "a", "--script", "echo.toml", "Again"]);
    assert!(place.ok(&["explain", "a", "c2", "--prompt"]).contains("You answer in verse."));
}

#[test]
fn session_can_have_its_own_template() {
    let place = Place::new();
    place.write("echo.toml", ECHO);
    place.write("own.toml", "instruction = \"You answer in verse.\"\n");
    place.ok(&["send", "--session", "a", "--set", "prompts=own.toml", "--script", "echo.toml", "Hello"]);
    assert!(place.ok(&["explain", "a", "c1", "--prompt"]).contains("You answer in verse."));
    place.write("own.toml", "instruktion = \"x\"\n");
    let error = place.fails(&["send", "--set", "prompts=own.toml", "--script", "echo.toml", "Hello"]);
    assert!(error.contains("flow `chat` has no prompt `instruktion`; it has"), "{error}");
}

#[test]
fn mistakes_in_templates_are_reported_with_the_line_of_the_configuration() {
    for (template, problem) in [
        ("Answer {{ question }}.", "uses `question`, which it is not given"),
        ("{% if %}", "is not a valid template"),
        ("  ", "is empty"),
    ] {
        let error = home(template).fails(&["send", "--script", "echo.toml", "Hello"]);
        assert!(error.contains("segue.toml:1: `flows.chat.prompts`"), "{error}");
        assert!(error.contains(problem), "{error}");
    }
    let place = home("x");
    std::fs::remove_file(place.path().join("own/chat.md")).expect("removed");
    let error = place.fails(&["send", "--script", "echo.toml", "Hello"]);
    assert!(error.contains("`flows.chat.prompts.instruction`") && error.contains("own/chat.md"), "{error}");
}

#[test]
fn configuration_of_a_folder_needs_trust_to_replace_prompts() {
    let place = home("You answer in verse.");
    let run = |arguments: &[&str]| {
        let output = place.command(arguments).env_remove("SEGUE_TRUST").output().expect("it runs");
        String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout)
    };
    let refused = run(&["send", "Hello"]);
    assert!(refused.contains("replace prompts of flow `chat`: instruction"), "{refused}");
    run(&["trust", "add", "--yes"]);
    assert!(!run(&["send", "Hello"]).contains("it would"), "trusted now");
    place.write("own/chat.md", "You do something else.");
    assert!(run(&["send", "Hello"]).contains("replace prompts"), "the file has changed");
}

//! MCP servers for agents in the configuration: trust, the doctor, and the check of flow files.

use crate::support::{Place, Run};

/// A minimal server, written as a shell script.
const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../domains/tests/remote/server.sh");

/// A home with a server and a flow file whose first phase lists this tool.
fn place_with_tool(tool: &str) -> Place {
    let place = Place::new();
    place.ok(&["flows", "new", "letters"]);
    let listed = place.read("letters.toml").replacen(
        "agents = [\"host\"]",
        &format!("agents = [\"host\"]\ntools = [\"{tool}\"]"),
        1,
    );
    place.write("letters.toml", &listed);
    let config = format!(
        "[models.rehearsal]\nkind = \"rehearsal\"\nspeed = \"instant\"\n[mcp_servers.notes]\ncommand = [\"/bin/sh\", {SERVER:?}, \
         \"initialize\", \"requests.log\"]\n[flows.letters]\nfile = \"letters.toml\"\n"
    );
    place.write("segue.toml", &config);
    place
}

#[test]
fn server_needs_trust_in_the_folder_that_declares_it() {
    let place = place_with_tool("mcp__notes__list_notes");
    let mut command = place.command(&["send", "--flow", "letters", "hello"]);
    let run = Run::of(&command.env_remove("SEGUE_TRUST").output().expect("it runs"));
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.err.contains("start the program `/bin/sh") && run.err.contains("(MCP server `notes`)"), "{}", run.err);
    let mut command = place.command(&["flows", "check", "letters.toml"]);
    let run = Run::of(&command.env_remove("SEGUE_TRUST").output().expect("it runs"));
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.err.contains("not checked: the tools of server `notes`, because the configuration is not trusted"));
    assert!(!place.path().join("requests.log").exists(), "it was not started");
}

#[test]
fn doctor_and_check_ask_the_server_for_the_listed_tools() {
    let place = place_with_tool("mcp__notes__list_notes");
    assert!(place.ok(&["flows", "check", "letters.toml"]).contains("flow `letters` is valid"));
    assert!(place.ok(&["doctor"]).contains("MCP server `notes`: reachable, 3 tools"));
    let place = place_with_tool("mcp__notes__list_note");
    let line = place.read("letters.toml").lines().position(|line| line.contains("mcp__")).expect("it is listed") + 1;
    let wrong = format!("letters.toml:{line}:10: the server `notes` has no tool `list_note`");
    let error = place.fails(&["flows", "check", "letters.toml"]);
    assert!(error.contains(&wrong) && error.contains("list_notes"), "{error}");
    let run = place.run(&["doctor"]);
    assert_eq!(run.code, 1, "{}", run.out);
    assert!(run.out.contains(&wrong), "{}", run.out);
}

#[test]
fn unknown_server_and_wrong_declarations_are_reported_with_their_lines() {
    let place = place_with_tool("mcp__nodes__list_notes");
    let line = place.read("letters.toml").lines().position(|line| line.contains("mcp__")).expect("it is listed") + 1;
    let wrong =
        format!("letters.toml:{line}:10: `mcp__nodes__list_notes`: there is no MCP server `nodes`; there are `notes`");
    for arguments in [&["flows", "check", "letters.toml"][..], &["send", "hello"]] {
        let error = place.fails(arguments);
        assert!(error.contains(&wrong), "{error}");
    }
    for (declared, expected) in [
        ("[mcp_servers.notes]\n", "1: `mcp_servers.notes`: the server needs a `command` that starts it, or a `url`"),
        ("[mcp_servers.Notes]\ncommand = [\"a\"]\n", "`mcp_servers.Notes`: a name has at most 32"),
        (
            "[mcp_servers.notes]\nurl = \"http://example.org\"\nkey_env = \"NOTES\"\n",
            "the key would be sent unencrypted over `http://`; use `https://`",
        ),
        ("[mcp_servers.notes]\ntools = []\n", "unknown key `mcp_servers.notes.tools`"),
    ] {
        place.write("segue.toml", declared);
        let error = place.fails(&["config"]);
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn built_in_flow_is_copied_to_give_its_agents_tools() {
    let place = place_with_tool("mcp__notes__list_notes");
    place.ok(&["flows", "new", "project"]);
    let copied = place.read("project.toml");
    assert_eq!(copied, segue_flows::project::PROJECT_DEFINITION);
    let listed = copied.replacen("\"@run\"]", "\"@run\", \"mcp__notes__finish_note\"]", 1);
    place.write("project.toml", &listed);
    let config = place.read("segue.toml") + "[flows.project]\nfile = \"project.toml\"\n";
    place.write("segue.toml", &config);
    assert!(place.ok(&["flows", "project"]).contains("mcp__notes__finish_note"));
}

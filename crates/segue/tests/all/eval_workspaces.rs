//! `segue eval` with flows that work in a folder: the tools really run, with a live model and in a replay.

use serde_json::Value;

use crate::support::{Place, Run};
use crate::vendor::Vendor;

/// A request that the rehearsal model carries out, with a test that it writes itself.
const PROJECT: &str = "name = \"small-tool\"\nflow = \"project\"\nabout = \"the whole way\"\nlanguage = \"en\"\nturns = 1\n\
    [settings]\nplan_approval = \"auto\"\n\
    [workspace]\nchecks = [\"sh test.sh\"]\ncommands = [\"sh\"]\n\
    [user]\nopening = \"build me a small command-line tool\"\n\
    [[expect]]\nmeasure = \"tasks right\"\nphase = [\"end\"]\n";

/// A spec. Whatever it says, the rehearsal model builds a tea timer in four stories.
const TEAM: &str = "name = \"tea\"\nflow = \"team\"\nabout = \"the whole way\"\nlanguage = \"en\"\nturns = 1\n\
    [settings]\nheadless = true\ncoders = 1\n\
    [settings.spec]\ntitle = \"Tea\"\ngoal = \"Better tea.\"\nrequirements = [\"a timer\"]\nacceptance = [\"it rings\"]\n\
    [workspace]\ngit = true\nchecks = [\"sh test.sh\"]\n\
    [workspace.files]\n\"notes.txt\" = \"notes\"\n\
    [user]\nopening = \"Carry out the spec.\"\n\
    [[expect]]\nmeasure = \"tasks right\"\ntool = { name = \"git_merge\" }\n";

const REHEARSAL: &str = "[models.rehearsal]\nkind = \"rehearsal\"\nspeed = \"instant\"\n";

fn home(conversation: &str, config: &str) -> Place {
    let place = Place::new();
    place.write("segue.toml", config);
    place.write("own.toml", conversation);
    place
}

fn parse(run: &Run) -> Value {
    serde_json::from_str(&run.out).unwrap_or_else(|_| panic!("no JSON: {} {}", run.out, run.err))
}

/// Runs git, which is found in these folders.
fn evaluate(place: &Place, arguments: &[&str]) -> Run {
    let mut command = place.command(&[&["eval", "--json"], arguments].concat());
    Run::of(&command.env("PATH", "/usr/bin:/bin").output().expect("it runs"))
}

/// Returns a measure of a role as (passed, total).
fn measure(printed: &Value, role: &str, name: &str) -> (u64, u64) {
    let measures = printed["models"][0]["flows"][0]["measures"].as_array().expect("measures");
    let found = measures.iter().find(|measure| measure["name"] == name && measure["role"] == role);
    let found = found.unwrap_or_else(|| panic!("{role}: {name}: {printed}"));
    (found["passed"].as_u64().expect("a number"), found["total"].as_u64().expect("a number"))
}

#[test]
fn project_works_in_a_folder_of_its_own_with_real_checks() {
    let place = home(PROJECT, REHEARSAL);
    let arguments = ["project", "--add", "own.toml", "--conversation", "small-tool", "--keep-sessions", "kept.db"];
    let run = evaluate(&place, &arguments);
    assert_eq!(run.code, 0, "{}", run.err);
    let printed = parse(&run);
    for name in [
        "no end without evidence",
        "replies without tool calls",
        "honest final account",
        "files written",
        "tasks right",
        "turns completed",
    ] {
        assert_eq!(measure(&printed, "executor", name), (1, 1), "{name}");
    }
    let folders = std::fs::read_dir(place.path().join("kept-folders")).expect("the folders are kept");
    let folder = folders.map(|folder| folder.expect("readable").path()).next().expect("one");
    assert!(folder.join("files/greet.sh").is_file(), "the files are real");
    let shown = place.ok(&["--store", "kept.db", "show"]);
    assert!(shown.contains("build me a small command-line tool"), "{shown}");
}

#[test]
fn team_merges_in_a_real_repository() {
    let place = home(TEAM, REHEARSAL);
    let run = evaluate(&place, &["team", "--add", "own.toml", "--conversation", "tea"]);
    assert_eq!(run.code, 0, "{}", run.err);
    let printed = parse(&run);
    assert_eq!(measure(&printed, "coder", "stories merged"), (4, 4), "{printed}");
    assert_eq!(measure(&printed, "coder", "merges with green tests"), (4, 4));
    assert_eq!(measure(&printed, "coder", "tasks right"), (1, 1));
}

/// The test server repeats what it is told, so nothing useful is written; what counts is that a replay in another folder
/// sends exactly the same requests.
#[test]
fn recorded_work_is_replayed_in_another_folder() {
    let vendor = Vendor::new("");
    let config = format!(
        "[models.echo]\nprovider = \"openai-compatible\"\nbase_url = \"{}\"\nwindow_tokens = 60000\n",
        vendor.url()
    );
    for (flow, conversation, name) in [("project", PROJECT, "small-tool"), ("team", TEAM, "tea")] {
        let place = home(conversation, &config);
        let chosen = [flow, "--add", "own.toml", "--conversation", name];
        let recorded = evaluate(&place, &[&chosen[..], &["--model", "echo", "--record", "echo.cassette"]].concat());
        assert_eq!(recorded.code, 0, "{}", recorded.err);
        let asked = vendor.asked().len();
        let other = home(conversation, "");
        std::fs::copy(place.path().join("echo.cassette"), other.path().join("echo.cassette")).expect("copied");
        let replayed = evaluate(&other, &[&chosen[..], &["--replay", "echo.cassette"]].concat());
        assert_eq!((replayed.code, vendor.asked().len()), (0, asked), "{}", replayed.err);
        let measures = |run: &Run| parse(run)["models"][0]["flows"][0]["measures"].clone();
        assert_eq!(measures(&recorded), measures(&replayed), "{flow}");
        assert_eq!(
            measure(&parse(&replayed), if flow == "team" { "coder" } else { "executor" }, "tasks right"),
            (0, 1)
        );
    }
}

#[test]
fn workspace_for_a_flow_without_one_is_an_error() {
    let chat = PROJECT.replace("flow = \"project\"", "flow = \"chat\"").replace("plan_approval = \"auto\"", "");
    let place = home(&chat, REHEARSAL);
    let printed = place.fails(&["eval", "chat", "--add", "own.toml"]);
    assert!(printed.contains("conversation `small-tool` has a `[workspace]`, but flow `chat` does not"), "{printed}");
    let outside = PROJECT.replace("[user]", "[workspace.files]\n\"../out.sh\" = \"\"\n[user]");
    place.write("outside.toml", &outside);
    let printed = place.fails(&["eval", "project", "--add", "outside.toml"]);
    assert!(printed.contains("the path `../out.sh`; write it relative to the workspace"), "{printed}");
}

/// Each `NAME.measures.json` beside a cassette says what was measured in the conversation `NAME.toml` with the model that
/// docs/evals.md names. If a prompt of the flow changes, the cassette must be recorded again.
#[test]
fn recorded_work_of_a_small_model_has_the_measures_that_were_recorded() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/all/cassettes");
    let mut flows = Vec::new();
    for entry in std::fs::read_dir(&folder).expect("the folder exists") {
        let path = entry.expect("readable").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let Some(name) = name.strip_suffix(".measures.json") else { continue };
        let recorded: Value = serde_json::from_str(&std::fs::read_to_string(&path).expect("readable")).expect("JSON");
        let file = |ending: &str| folder.join(format!("{name}.{ending}")).to_string_lossy().into_owned();
        let (flow, conversation) = (recorded["flow"].as_str(), recorded["conversation"].as_str());
        let flow = flow.expect("a name");
        let chosen = [flow, "--add", &file("toml"), "--conversation", conversation.expect("a name")];
        let run = evaluate(&Place::new(), &[&chosen[..], &["--replay", &file("cassette")]].concat());
        assert_eq!(run.code, 0, "{name}: {}", run.err);
        assert_eq!(parse(&run)["models"][0]["flows"][0]["measures"], recorded["measures"], "{name}");
        flows.push(flow.to_owned());
    }
    assert!(flows.contains(&"project".to_owned()), "{flows:?}");
}

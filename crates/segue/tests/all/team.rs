//! The team flow through the program, in a real git repository: one run, and runs that are killed with SIGKILL at random
//! times until they have ended. `cargo xtask crash team N` kills more often.

#![allow(clippy::print_stdout, reason = "the progress of a long run is read by people")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{Place, Run};

const CONFIG: &str = "\
[models]
default = \"rehearsal\"

[models.rehearsal]
kind = \"rehearsal\"
speed = \"instant\"

[workspaces.app]
folder = \"app\"
checks = [\"sh test.sh\"]
";
const SPEC: &str = "\
title = \"Tea timer\"
goal = \"People drink better tea.\"
requirements = [\"a timer\"]
acceptance = [\"it rings\"]
";
/// A relative path: worktrees are next to it, and not in the repository.
const STORE: &str = "tea.db";
const RUN: [&str; 10] =
    ["run", "--spec", "spec.toml", "--set", "workspace=app", "--session", "tea", "--json", "--store", STORE];
const BRANCH: &str = "segue/tea-timer";

/// How often a run is killed in all. `SEGUE_TEAM_KILLS` replaces it.
const KILLS_DEFAULT: u32 = 5;
const KILLS_VARIABLE: &str = "SEGUE_TEAM_KILLS";
const SEED_VARIABLE: &str = "SEGUE_CRASH_SEED";
/// A run that is killed more often ends without further kills.
const KILLS_PER_RUN_MAX: u32 = 8;

fn git(folder: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git")
        .arg("-C")
        .arg(folder)
        .args(["-c", "user.name=User", "-c", "user.email=user@localhost"])
        .args(arguments)
        .output()
        .expect("git is installed");
    assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
}

/// A home with a configuration, a spec, and a repository with uncommitted work and a stash.
fn place_with_repository() -> Place {
    let place = Place::new();
    place.write("segue.toml", CONFIG);
    place.write("spec.toml", SPEC);
    let app = app_folder(&place);
    std::fs::create_dir(&app).expect("the folder is new");
    git(&app, &["init", "--quiet", "--initial-branch", "main"]);
    for text in ["first\n", "second\n"] {
        std::fs::write(app.join("notes.txt"), text).expect("written");
        git(&app, &["add", "notes.txt"]);
        git(&app, &["commit", "--quiet", "--message", "notes"]);
    }
    std::fs::write(app.join("notes.txt"), "stashed\n").expect("written");
    git(&app, &["stash", "push", "--quiet"]);
    std::fs::write(app.join("staged.txt"), "staged\n").expect("written");
    git(&app, &["add", "staged.txt"]);
    std::fs::write(app.join("notes.txt"), "not committed\n").expect("written");
    place
}

fn app_folder(place: &Place) -> PathBuf {
    place.path().join("app")
}

/// Returns everything of the user that must not change.
fn user_state(place: &Place) -> BTreeMap<&'static str, Vec<u8>> {
    let app = app_folder(place);
    let read = |path: &str| std::fs::read(app.join(path)).expect("it is a file");
    let names = std::fs::read_dir(&app).expect("it exists").map(|entry| entry.expect("readable").file_name());
    let mut names: Vec<String> = names.map(|name| name.to_string_lossy().into_owned()).collect();
    names.sort();
    BTreeMap::from([
        ("HEAD", git(&app, &["rev-parse", "HEAD"]).into_bytes()),
        ("branch", git(&app, &["symbolic-ref", "HEAD"]).into_bytes()),
        ("stash", git(&app, &["stash", "list", "--format=%H"]).into_bytes()),
        ("index", read(".git/index")),
        ("files", names.join("\n").into_bytes()),
        ("notes.txt", read("notes.txt")),
        ("staged.txt", read("staged.txt")),
    ])
}

fn team_command(place: &Place) -> Command {
    let mut command = place.command(&RUN);
    command.env("PATH", "/usr/bin:/bin").stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Returns the events of the session, as they are exported.
fn exported_events(place: &Place) -> Vec<Value> {
    // The file of an earlier round is replaced.
    let _ = std::fs::remove_file(place.path().join("tea.jsonl"));
    place.ok(&["export", "tea", "--output", "tea.jsonl", "--store", STORE]);
    let lines = place.read("tea.jsonl");
    lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// Checks the branch that a finished run leaves.
fn check_branch(place: &Place) {
    let app = app_folder(place);
    let unmerged = git(&app, &["for-each-ref", "--no-merged", BRANCH, "refs/heads/segue-work"]);
    assert_eq!(unmerged, "", "every branch is merged");
    let subjects = git(&app, &["log", "--format=%s", &format!("main..{BRANCH}")]);
    for story in ["timer:", "move:", "ring:", "guide:", "knowledge-1:"] {
        let merged = subjects.lines().filter(|subject| subject.starts_with(story)).count();
        assert!(merged >= 1, "{story} is missing in {subjects}");
    }
    let clone = tempfile::tempdir().expect("a temporary folder");
    git(clone.path(), &["clone", "--quiet", "--branch", BRANCH, &app.to_string_lossy(), "branch"]);
    let tests = Command::new("sh").arg("test.sh").current_dir(clone.path().join("branch")).output().expect("it starts");
    assert!(tests.status.success(), "{}", String::from_utf8_lossy(&tests.stderr));
    let listed = String::from_utf8_lossy(&tests.stdout).into_owned();
    assert!(listed.contains("tests/steep.sh") && listed.contains("tests/ring.sh"), "{listed}");
    assert!(clone.path().join("branch/knowledge.dot").exists());
}

#[test]
fn team_carries_out_a_spec_and_says_so_in_words() {
    let place = place_with_repository();
    let before = user_state(&place);
    let run = Run::of(&team_command(&place).output().expect("it runs"));
    assert_eq!(run.code, 0, "{run:?}");
    let result: Value = serde_json::from_str(&run.out).expect("JSON");
    assert_eq!((&result["exit_code"], &result["ended"]), (&Value::from(0), &Value::from(true)), "{result}");
    assert_eq!(result["result"]["branch"], BRANCH);
    assert!(result["replies"][0].as_str().is_some_and(|reply| reply.contains("All 4 stories")), "{result}");
    assert_eq!(user_state(&place), before);
    check_branch(&place);
    assert!(run.err.starts_with("the built-in rehearsal model gives canned replies"), "{}", run.err);
    let shown = place.ok(&["show", "tea", "--store", STORE]);
    assert!(!shown.lines().any(|line| line.trim() == "phase"), "{shown}");
    assert_eq!(place.json(&["show", "tea", "--json", "--store", STORE])["title"], "Tea timer");
    for words in [
        "the team starts on spec 1: Tea timer",
        "4 stories",
        "coder-1 works on timer (attempt 1)",
        "plan review of timer for coder-1: NEEDS_CHANGES",
        "and is done again on the new base",
        "guide is merged",
        "knowledge-1 is merged",
    ] {
        assert!(shown.contains(words), "`{words}` is missing in {shown}");
    }
    // The same command does not run the spec a second time.
    let again = Run::of(&team_command(&place).output().expect("it runs"));
    assert!(again.code == 1 && again.err.contains("session `tea` has no unfinished turn"), "{again:?}");
}

#[test]
fn spec_that_cannot_be_used_is_refused_before_anything_starts() {
    let place = place_with_repository();
    let run = |arguments: &[&str]| place.run(&[&["run", "--set", "workspace=app"], arguments].concat());
    assert!(run(&["--spec", "none.toml"]).err.contains("cannot read the spec none.toml"));
    place.write("broken.toml", "title = \n");
    assert!(run(&["--spec", "broken.toml"]).err.contains("the spec broken.toml cannot be read"));
    place.write("short.json", "{\"title\": \"Tea\"}");
    let short = run(&["--spec", "short.json"]);
    assert!(short.err.contains("`spec` lacks goal, requirements, acceptance"), "{short:?}");
    assert!(run(&["--spec", "spec.toml", "--flow", "project"]).err.contains("flow `project` takes no spec"));
    assert_eq!(place.json(&["sessions", "--json"])["sessions"].as_array().map(Vec::len).unwrap_or_default(), 0);
}

/// Chooses times.
struct KillTimes {
    random: u64,
}

impl KillTimes {
    fn below(&mut self, limit: Duration) -> Duration {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        Duration::from_micros((self.random >> 20) % u64::try_from(limit.as_micros()).unwrap_or(u64::MAX).max(1))
    }
}

/// Starts the run, kills it after a while, and returns whether it ended before. The output of a run that ended by itself
/// must be a success. If an earlier one was killed after its last commit, there is nothing left to do.
fn run_and_kill(place: &Place, after: Option<Duration>, earlier_kills: u32) -> bool {
    let started = Instant::now();
    let mut child = team_command(place).spawn().expect("it runs");
    if let Some(after) = after {
        while started.elapsed() < after && child.try_wait().expect("a child").is_none() {
            std::thread::yield_now();
        }
        // A run that has ended by itself cannot be killed any more.
        let _ = child.kill();
    }
    let output = child.wait_with_output().expect("it ends");
    let is_killed = output.status.code().is_none();
    let run = Run::of(&output);
    let is_done_before = earlier_kills > 0 && run.code == 1 && run.err.contains("session `tea` has no unfinished turn");
    assert!(is_killed || is_done_before || run.code == 0, "{run:?}");
    !is_killed
}

#[test]
fn killed_runs_continue_and_merge_everything_once() {
    let kills_wanted = std::env::var(KILLS_VARIABLE).ok().and_then(|text| text.parse().ok()).unwrap_or(KILLS_DEFAULT);
    let seed: Option<u64> = std::env::var(SEED_VARIABLE).ok().and_then(|text| text.parse().ok());
    let mut times = KillTimes { random: seed.unwrap_or(0x5eed_0018).wrapping_mul(2).wrapping_add(1) };
    let (mut kills, mut usual) = (0, Duration::from_secs(10));
    while kills < kills_wanted {
        let place = place_with_repository();
        let before = user_state(&place);
        let started = Instant::now();
        let mut own_kills = 0;
        loop {
            let may_kill = own_kills < KILLS_PER_RUN_MAX && kills < kills_wanted;
            if run_and_kill(&place, may_kill.then(|| times.below(usual / 2)), own_kills) {
                break;
            }
            (kills, own_kills) = (kills + 1, own_kills + 1);
            assert_eq!(user_state(&place), before, "after {kills} kills");
        }
        usual = usual.min(started.elapsed());
        assert_eq!(user_state(&place), before, "after {kills} kills");
        check_branch(&place);
        check_journal(&exported_events(&place));
        println!("{kills} of {kills_wanted} kills; this run was killed {own_kills} times");
    }
}

/// Checks that nothing was merged twice, and that no call was answered twice.
fn check_journal(events: &[Value]) {
    let merged: Vec<&Value> = events
        .iter()
        .map(|line| &line["event"])
        .filter(|event| event["kind"] == "merged")
        .map(|event| &event["value"]["story"])
        .collect();
    assert_eq!(merged.len(), 5, "{merged:?}");
    for story in ["timer", "move", "ring", "guide", "knowledge-1"] {
        assert!(merged.contains(&&Value::from(story)), "{story} is missing in {merged:?}");
    }
    let mut answered = BTreeMap::new();
    for event in events.iter().map(|line| &line["event"]).filter(|event| event["type"] == "call_answered") {
        *answered.entry(event["call"].to_string()).or_insert(0) += 1;
    }
    assert!(answered.len() > 20, "the calls are found in the journal");
    assert!(answered.values().all(|times| *times == 1), "{answered:?}");
}

//! The conversation with the local model: what is said, and what must come of it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::format_elapsed;

/// Answers longer than this tell nothing more about a model of this size.
const ANSWER_TOKENS: u32 = 160;
const SESSION: &str = "local";

/// What is said before a plan is asked for.
const OPENING_MESSAGES: [&str; 3] = [
    "Should we rent a flat or buy one?",
    "We will stay in this town for five years, and we have a small child.",
    "Money is tight, and a garden matters to us.",
];
/// What asks for a plan, in the words the explorer listens for.
const DECISION_MESSAGE: &str =
    "We have decided: we buy a flat by May. Let's do this. Give us a plan: what are the steps?";
/// How often it is asked; by then the rules see to it that there is a plan.
const DECISION_ATTEMPTS: usize = 2;

/// A configuration that has the local model play everybody.
pub fn local_model_config(url: &str) -> String {
    format!(
        "[models.smollm2]\nprovider = \"openai-compatible\"\nbase_url = \"{url}\"\ntemperature = 0\n\
         output_tokens_max = {ANSWER_TOKENS}\nprice = {{ input = 0, output = 0 }}\n\n\
         [limits.smollm2]\ncalls_max = 1\nsilence_s_max = 600\n"
    )
}

/// Holds the conversation; an error says where it stuck.
pub fn run_conversation(program: &Path, url: &str, folder: &Path) -> Result<()> {
    let home = folder.join("home");
    // What an earlier run left behind is not ours to go on with.
    let _ = std::fs::remove_dir_all(&home);
    std::fs::create_dir_all(&home).with_context(|| format!("cannot make {}", home.display()))?;
    std::fs::write(home.join("segue.toml"), local_model_config(url)).context("cannot write the configuration")?;
    let talk = CliConversation { program: program.to_owned(), home };
    let mut phases = Vec::new();
    for message in OPENING_MESSAGES {
        phases.push(talk.send_message(message)?);
    }
    ensure!(phases[0] == "starter", "it begins in `{}`", phases[0]);
    ensure!(phases[2] == "explorer", "after three turns it is still in `{}`", phases[2]);
    let mut asked = 0;
    while phases.last().is_some_and(|phase| phase != "executor") {
        ensure!(asked < DECISION_ATTEMPTS, "a plan was asked for {asked} times, and there is none");
        asked += 1;
        phases.push(talk.send_message(DECISION_MESSAGE)?);
    }
    println!("the executor phase was reached after {asked} requests, by {}", talk.handover_origin("execution")?);
    talk.check_session_record()
}

struct CliConversation {
    program: PathBuf,
    home: PathBuf,
}

impl CliConversation {
    fn run_segue(&self, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.program);
        let output = command
            .args(arguments)
            .current_dir(&self.home)
            .env("HOME", &self.home)
            .env("SEGUE_DISCOVER", "off")
            .env_remove("SEGUE_CONFIG")
            .env_remove("SEGUE_STORE")
            .env_remove("XDG_DATA_HOME")
            .env_remove("XDG_CONFIG_HOME")
            .stdin(Stdio::null())
            .output()
            .context("the program could not be started")?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            bail!("`segue {}` failed: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(said)
    }

    fn run_segue_json(&self, arguments: &[&str]) -> Result<Value> {
        let said = self.run_segue(arguments)?;
        serde_json::from_str(&said).with_context(|| format!("`segue {}` printed no JSON", arguments.join(" ")))
    }

    /// Says something, and gives the phase that it leads to.
    fn send_message(&self, message: &str) -> Result<String> {
        let start = Instant::now();
        let report = self.run_segue_json(&["send", "--json", "--flow", "concierge", "--session", SESSION, message])?;
        let text = |key: &str| report[key].as_str().unwrap_or_default().to_owned();
        let calls = report["calls"].as_array().map_or(0, Vec::len);
        println!("{} in {}: {calls} calls, phase {}", text("turn"), format_elapsed(start), text("phase"));
        ensure!(text("outcome") == "done", "the turn ended as {}: {}", text("outcome"), report["reason"]);
        ensure!(!text("reply").trim().is_empty(), "nothing was said to the user");
        ensure!(!text("reply").contains("<<<"), "a marker was shown to the user: {}", text("reply"));
        Ok(text("phase"))
    }

    /// How the last handover of a kind came about.
    fn handover_origin(&self, kind: &str) -> Result<&'static str> {
        let shown = self.run_segue_json(&["show", SESSION, "--json"])?;
        let events = shown["events"].as_array().context("a session has events")?;
        let mut made = events.iter().rev().map(|event| &event["event"]).filter(|event| event["type"] == "handover_created");
        let handover = made.find(|event| event["kind"] == kind).with_context(|| format!("no handover `{kind}`"))?;
        match handover["how"].as_str() {
            Some("emitted") => Ok("a block of the model's own"),
            Some("repaired") => Ok("a block that it wrote when it was asked for it"),
            Some("built") => Ok("a request that the rules wrote, since none of the model's could be read"),
            how => bail!("a handover cannot have come about as {how:?}"),
        }
    }

    /// What the record of it all must show.
    fn check_session_record(&self) -> Result<()> {
        let shown = self.run_segue_json(&["show", SESSION, "--json"])?;
        let spent = &shown["spent"];
        println!(
            "{} calls, {} tokens in, of which {} were cached, {} out",
            spent["calls"], spent["tokens_in"], spent["tokens_cached"], spent["tokens_out"]
        );
        ensure!(
            spent["tokens_cached"].as_u64().unwrap_or(0) > 0,
            "the server found nothing of our prompts in its cache"
        );
        ensure!(spent["cost_microusd"] == 0, "a local model costs nothing, and its price is known");
        let events = shown["events"].as_array().context("a session has events")?;
        let answers = events.iter().filter(|event| event["event"]["type"] == "call_answered");
        let by_vendor = answers.clone().filter(|event| event["event"]["counted_by"] == "vendor").count();
        ensure!(by_vendor > 0 && by_vendor == answers.count(), "every answer comes with the server's own figures");
        Ok(())
    }
}

//! The test conversation with the local model: its messages, and the checks on the result.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::format_elapsed;

/// Answers are cut here, because a model of this size has nothing useful to add.
const ANSWER_TOKENS: u32 = 160;
const SESSION: &str = "local";

/// The messages before the decision.
const OPENING_MESSAGES: [&str; 3] = [
    "Should we rent a flat or buy one?",
    "We will stay in this town for five years, and we have a small child.",
    "Money is tight, and a garden matters to us.",
];
/// The message that asks for a plan, with the keywords that the explorer phase looks for.
const DECISION_MESSAGE: &str =
    "We have decided: we buy a flat by May. Let's do this. Give us a plan: what are the steps?";
/// After this many requests, the flow must have created a plan or offered one.
const DECISION_ATTEMPTS: usize = 2;

/// Returns a configuration with the local model for all roles.
pub(crate) fn local_model_config(url: &str) -> String {
    format!(
        "[models.smollm2]\nprovider = \"openai-compatible\"\nbase_url = \"{url}\"\ntemperature = 0\n\
         output_tokens_max = {ANSWER_TOKENS}\nprice = {{ input = 0, output = 0 }}\n\n\
         [limits.smollm2]\ncalls_max = 1\nidle_s_max = 600\n"
    )
}

/// Runs the conversation; an error says which check failed.
pub(crate) fn run_conversation(program: &Path, url: &str, folder: &Path) -> Result<()> {
    let home = folder.join("home");
    // The error may be dropped: there may be no earlier run.
    let _ = std::fs::remove_dir_all(&home);
    std::fs::create_dir_all(&home).with_context(|| format!("cannot create {}", home.display()))?;
    std::fs::write(home.join("segue.toml"), local_model_config(url)).context("cannot write the configuration")?;
    let conversation = LocalModelConversationTest { program: program.to_owned(), home };
    let mut phases = Vec::new();
    for message in OPENING_MESSAGES {
        phases.push(conversation.send_message(message)?);
    }
    ensure!(phases[0] == "starter", "the first phase is `{}`, not `starter`", phases[0]);
    // A model as small as this one may take any message for a request for a plan.
    ensure!(phases[2] != "starter", "the phase after three turns is still `starter`");
    let mut requests = 0;
    while phases.last().is_some_and(|phase| phase != "executor") {
        if requests == DECISION_ATTEMPTS {
            // The explorer declined twice, so the flow asks whether it shall make a plan.
            phases.push(conversation.send_message("yes")?);
            let phase = phases.last().map_or("none", String::as_str);
            ensure!(phase == "executor", "the phase after {requests} requests and a yes is `{phase}`, not `executor`");
        }
        requests += 1;
        phases.push(conversation.send_message(DECISION_MESSAGE)?);
    }
    println!("executor phase after {requests} requests, by {}", conversation.handover_origin("execution")?);
    conversation.check_session_record()
}

struct LocalModelConversationTest {
    program: PathBuf,
    home: PathBuf,
}

impl LocalModelConversationTest {
    fn run_segue(&self, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.program);
        let output = command
            .args(arguments)
            .current_dir(&self.home)
            .env("HOME", &self.home)
            .env("SEGUE_DISCOVER", "off")
            // The configuration is in the folder in which the program runs.
            .env("SEGUE_TRUST", "1")
            .env_remove("SEGUE_CONFIG")
            .env_remove("SEGUE_STORE")
            .env_remove("XDG_DATA_HOME")
            .env_remove("XDG_CONFIG_HOME")
            .stdin(Stdio::null())
            .output()
            .context("the program could not be started")?;
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            bail!("`segue {}` failed: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(stdout)
    }

    fn run_segue_json(&self, arguments: &[&str]) -> Result<Value> {
        let stdout = self.run_segue(arguments)?;
        serde_json::from_str(&stdout).with_context(|| format!("`segue {}` printed invalid JSON", arguments.join(" ")))
    }

    /// Sends a message and returns the phase after its turn.
    fn send_message(&self, message: &str) -> Result<String> {
        let start = Instant::now();
        let report = self.run_segue_json(&["send", "--json", "--flow", "concierge", "--session", SESSION, message])?;
        let text = |key: &str| report[key].as_str().unwrap_or_default().to_owned();
        let calls = report["calls"].as_array().map_or(0, Vec::len);
        println!("{} in {}: {calls} calls, phase {}", text("turn"), format_elapsed(start), text("phase"));
        ensure!(text("outcome") == "done", "the turn ended as {}: {}", text("outcome"), report["reason"]);
        ensure!(!text("reply").trim().is_empty(), "the reply is empty");
        ensure!(!text("reply").contains("<<<"), "a marker was shown to the user: {}", text("reply"));
        Ok(text("phase"))
    }

    /// Describes the provenance of the last handover of a kind.
    fn handover_origin(&self, kind: &str) -> Result<&'static str> {
        let shown = self.run_segue_json(&["show", SESSION, "--json"])?;
        let events = shown["events"].as_array().context("a session has events")?;
        let mut created =
            events.iter().rev().map(|event| &event["event"]).filter(|event| event["type"] == "handover_created");
        let handover = created.find(|event| event["kind"] == kind).with_context(|| format!("no handover `{kind}`"))?;
        match handover["provenance"].as_str() {
            Some("emitted") => Ok("a handover that the model emitted"),
            Some("repaired") => Ok("a handover that the model emitted after a repair request"),
            Some("built") => Ok("a handover that the flow built, because the model emitted no valid one"),
            provenance => bail!("unknown provenance of a handover: {provenance:?}"),
        }
    }

    /// Checks the recorded usage: cached tokens, cost, and token counts from the server.
    fn check_session_record(&self) -> Result<()> {
        let shown = self.run_segue_json(&["show", SESSION, "--json"])?;
        let usage = &shown["usage"];
        println!(
            "{} calls, {} tokens in, of which {} were cached, {} out",
            usage["calls"], usage["tokens_in"], usage["tokens_cached"], usage["tokens_out"]
        );
        ensure!(usage["tokens_cached"].as_u64().unwrap_or(0) > 0, "the server reported no cached tokens");
        ensure!(usage["cost_microusd"] == 0, "the cost of the local model is not zero");
        let events = shown["events"].as_array().context("a session has events")?;
        let answers = events.iter().filter(|event| event["event"]["type"] == "call_answered");
        let by_vendor = answers.clone().filter(|event| event["event"]["usage_source"] == "vendor").count();
        ensure!(by_vendor > 0 && by_vendor == answers.count(), "an answer has no token counts from the server");
        Ok(())
    }
}

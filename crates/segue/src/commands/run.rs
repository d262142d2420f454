//! `segue run`: carries out one request without a person. Plans are approved automatically, tool runs by a policy, and the
//! exit code says how it ended.

use std::path::Path;

use anyhow::{Context, bail};
use segue_core::decide::OperatorCommand;
use segue_core::event::{Event, ToolRunHoldReason, TurnOutcome};
use segue_core::ids::{FlowName, MessageId, SessionId};
use segue_core::session::Session;
use segue_engine::{Engine, SessionOptions, SessionSubscription, SessionUpdate, TurnReport, UserMessage};
use serde_json::{Value, json};

use super::send::{read_message, usage_json};
use super::session_actions::live_output_for;
use crate::cli::{GlobalArgs, UnattendedRunApprovalPolicy, UnattendedRunArgs};
use crate::follow::LiveTurnOutputMode;
use crate::print::{self, stderr_paint};
use crate::setup::{EngineStartOptions, EngineWithSessionDefaults, start_engine};
use crate::tool_run_lines::ToolRunLineBuilder;
use crate::{SilentExit, name_lookup, setting_values};

/// The flow of a run that names none.
const DEFAULT_FLOW: &str = "project";
/// The flow of a run with a spec that names none.
const SPEC_FLOW: &str = "team";
/// The settings of a run with a spec.
const SPEC_SETTING: &str = "spec";
const HEADLESS_SETTING: &str = "headless";
/// The message of a run with a spec.
const SPEC_MESSAGE: &str = "Carry out the spec.";
/// The setting with which plans are approved automatically.
const PLAN_APPROVAL_SETTING: &str = "plan_approval";

/// The exit code if the session waits for the user.
const EXIT_CODE_WAITING: u8 = 2;
/// The exit code if the budget was used up.
const EXIT_CODE_BUDGET: u8 = 3;
/// The exit code if the work ended without a passing check or a confirmation.
const EXIT_CODE_UNVERIFIED: u8 = 4;

pub(crate) async fn run_request(global: &GlobalArgs, arguments: UnattendedRunArgs) -> anyhow::Result<()> {
    let budget_microusd = arguments.budget.map(budget_to_micros).transpose()?;
    let text = arguments.message.as_deref().map(read_message).transpose()?;
    let running = start_engine(global, EngineStartOptions::for_session_args(&arguments.session_args)).await?;
    running.print_rehearsal_warning();
    let session = open_session(&running, &arguments).await?;
    let engine = &running.engine;
    let (_, before) = engine.load_session(&session).await?;
    let mut updates = engine.subscribe(&session, before.session.last_seq).await?;
    let mut watch = UnattendedRunMonitor {
        engine,
        session: &session,
        approvals: arguments.approvals,
        live: live_output_for(global),
        tool_runs: ToolRunLineBuilder::default(),
        budget_microusd,
        spent_microusd: 0,
        is_over_budget: false,
    };
    let work = choose_work(&before.session, &session, text, arguments.spec.is_some())?;
    let report = carry_out(engine, &session, work);
    tokio::pin!(report);
    let report = loop {
        tokio::select! {
            report = &mut report => break report?,
            followed = watch.follow(&mut updates) => followed?,
        }
    };
    let (_, state) = engine.load_session(&session).await?;
    let (is_over_budget, state) = (watch.is_over_budget, state.session);
    engine.shutdown().await;
    let result = state.result.as_deref().cloned().unwrap_or(Value::Null);
    // A flow that continues after its work has ended says so in its result.
    let is_ended = state.closed_reason.is_some() || result["ended"] == json!(true);
    let exit_code = exit_code(&report.outcome, is_over_budget, is_ended, &result);
    if global.json {
        print::print_json(&json!({
            "session": session,
            "outcome": outcome_name(&report.outcome),
            "ended": is_ended,
            "phase": report.phase,
            "replies": report.replies,
            "result": result,
            "usage": usage_json(&report.spent),
            "over_budget": is_over_budget,
            "exit_code": exit_code,
            "rehearsal": running.uses_rehearsal_model(),
        }))?;
    } else {
        print::write_stdout(&format!("{}\n", report.replies.join("\n\n")))?;
        print::write_stderr_line(&format!("the session is `{session}`"));
    }
    if let TurnOutcome::Failed { reason } = &report.outcome {
        bail!("the turn failed: {reason}");
    }
    if exit_code == 0 { Ok(()) } else { Err(SilentExit(exit_code).into()) }
}

/// What a run does.
enum NewOrInterruptedRunMessage {
    Send(String),
    /// The turn of this message was interrupted, and continues.
    Continue(MessageId),
}

fn choose_work(
    session: &Session,
    id: &SessionId,
    text: Option<String>,
    has_spec: bool,
) -> anyhow::Result<NewOrInterruptedRunMessage> {
    if let Some(text) = text {
        return Ok(NewOrInterruptedRunMessage::Send(text));
    }
    let running = session.current_turn.iter().flat_map(|turn| &turn.messages);
    match running.chain(&session.queued_messages).next() {
        Some(message) => Ok(NewOrInterruptedRunMessage::Continue(message.message)),
        None if has_spec && session.last_ids.turn.0 == 0 => {
            Ok(NewOrInterruptedRunMessage::Send(SPEC_MESSAGE.to_owned()))
        }
        None => bail!("session `{id}` has no unfinished turn to continue; write what to do"),
    }
}

async fn carry_out(
    engine: &Engine,
    session: &SessionId,
    work: NewOrInterruptedRunMessage,
) -> Result<TurnReport, segue_engine::Error> {
    match work {
        NewOrInterruptedRunMessage::Send(text) => engine.send_and_wait(session, UserMessage::from(text)).await,
        NewOrInterruptedRunMessage::Continue(message) => {
            engine.wake_session(session).await?;
            engine.follow_turn(session, message).await
        }
    }
}

/// Reads a spec file. A file that does not end in `.json` is TOML.
fn read_spec_file(path: &Path) -> anyhow::Result<Value> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read the spec {}", path.display()))?;
    let is_json = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
    let spec = match is_json {
        true => serde_json::from_str(&text).map_err(anyhow::Error::new),
        false => toml::from_str(&text).map_err(anyhow::Error::new),
    };
    spec.with_context(|| format!("the spec {} cannot be read", path.display()))
}

fn budget_to_micros(dollars: f64) -> anyhow::Result<u64> {
    if !dollars.is_finite() || dollars <= 0.0 || dollars > 1_000_000.0 {
        bail!("--budget must be an amount of dollars such as 2.00");
    }
    // The range was checked, so the number fits.
    Ok((dollars * 1e6).round() as u64)
}

async fn open_session(running: &EngineWithSessionDefaults, arguments: &UnattendedRunArgs) -> anyhow::Result<SessionId> {
    let engine = &running.engine;
    let session_args = &arguments.session_args;
    if let Some(name) = &session_args.session
        && let Some(session) = name_lookup::find_session(engine, name).await?
    {
        return Ok(session);
    }
    let named = session_args.flow.as_deref().map(|flow| name_lookup::resolve_flow(engine, flow)).transpose()?;
    let default_flow = if arguments.spec.is_some() { SPEC_FLOW } else { DEFAULT_FLOW };
    let flow = named.unwrap_or_else(|| FlowName::from(default_flow));
    let mut settings = setting_values::parse_new_session_settings(engine, &flow, &session_args.set)?;
    if settings.is_null() {
        settings = json!({});
    }
    let known = engine.flows().find(|known| known.spec().name == flow);
    let has_setting =
        |name: &str| known.is_some_and(|known| known.spec().settings.iter().any(|setting| setting.name == name));
    if has_setting(PLAN_APPROVAL_SETTING) && settings.get(PLAN_APPROVAL_SETTING).is_none() {
        settings[PLAN_APPROVAL_SETTING] = json!("auto");
    }
    if let Some(path) = &arguments.spec {
        if !has_setting(SPEC_SETTING) {
            bail!("flow `{flow}` takes no spec; the flow `{SPEC_FLOW}` does");
        }
        settings[SPEC_SETTING] = read_spec_file(path)?;
    }
    if has_setting(HEADLESS_SETTING) && settings.get(HEADLESS_SETTING).is_none() {
        settings[HEADLESS_SETTING] = json!(true);
    }
    if settings == json!({}) {
        settings = Value::Null;
    }
    let options = SessionOptions {
        session: session_args.session.as_deref().map(Into::into),
        mid_turn_policy: running.mid_turn_policy,
        settings,
        ..SessionOptions::default()
    };
    Ok(engine.open_session(&flow, options).await?)
}

/// Watches a run: shows what runs, adds up its cost, and decides about tool runs that need approval.
struct UnattendedRunMonitor<'e> {
    engine: &'e Engine,
    session: &'e SessionId,
    approvals: UnattendedRunApprovalPolicy,
    live: LiveTurnOutputMode,
    tool_runs: ToolRunLineBuilder,
    budget_microusd: Option<u64>,
    spent_microusd: u64,
    is_over_budget: bool,
}

impl UnattendedRunMonitor<'_> {
    async fn follow(&mut self, updates: &mut SessionSubscription) -> anyhow::Result<()> {
        let SessionUpdate::Event(recorded) = updates.next_update().await? else { return Ok(()) };
        let line = self.tool_runs.apply_event(&recorded);
        if let Some(line) = line.filter(|_| self.live != LiveTurnOutputMode::Json) {
            print::write_stderr_line(&stderr_paint().dim(line));
        }
        match &recorded.event {
            Event::CallAnswered(answered) => {
                self.spent_microusd += answered.cost_microusd.unwrap_or(0);
                let is_over = self.budget_microusd.is_some_and(|budget| self.spent_microusd > budget);
                if is_over && !self.is_over_budget {
                    self.is_over_budget = true;
                    self.apply_if_turn_runs(OperatorCommand::Cancel { turn: None }).await;
                }
            }
            Event::ToolRunHeld { run, reason: ToolRunHoldReason::Approval, .. } => {
                let command = match self.approvals {
                    UnattendedRunApprovalPolicy::Approve => OperatorCommand::Approve {
                        run: *run,
                        arguments: None,
                        remember: false,
                        by: Some("segue run --approvals approve".to_owned()),
                    },
                    UnattendedRunApprovalPolicy::Deny => {
                        OperatorCommand::Deny { run: *run, reason: "nobody is there to approve it".to_owned() }
                    }
                };
                self.apply_if_turn_runs(command).await;
            }
            _ => {}
        }
        Ok(())
    }

    /// Applies a command. If the turn has ended in the meantime, there is nothing left to do.
    async fn apply_if_turn_runs(&self, command: OperatorCommand) {
        if let Err(error) = self.engine.apply_command(self.session, command).await {
            tracing::debug!(session = %self.session, %error, "the command came too late");
        }
    }
}

fn outcome_name(outcome: &TurnOutcome) -> &'static str {
    match outcome {
        TurnOutcome::Done => "done",
        TurnOutcome::Failed { .. } => "failed",
        TurnOutcome::Cancelled => "cancelled",
        TurnOutcome::Interrupted => "interrupted",
    }
}

/// Returns 0 if the work has ended and nothing is unverified.
fn exit_code(outcome: &TurnOutcome, is_over_budget: bool, is_ended: bool, result: &Value) -> u8 {
    let is_verified = ["verified", "confirmed"].iter().any(|key| result[*key] == json!(true));
    let has_changes = result["files"].as_array().is_some_and(|files| !files.is_empty());
    match outcome {
        _ if is_over_budget => EXIT_CODE_BUDGET,
        TurnOutcome::Failed { .. } | TurnOutcome::Cancelled | TurnOutcome::Interrupted => 1,
        TurnOutcome::Done if !is_ended => EXIT_CODE_WAITING,
        TurnOutcome::Done if has_changes && !is_verified => EXIT_CODE_UNVERIFIED,
        TurnOutcome::Done => 0,
    }
}

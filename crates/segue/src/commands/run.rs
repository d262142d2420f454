//! `segue run`: carries out one request without a person. Plans are approved automatically, tool runs by a policy, and the
//! exit code says how it ended.

use anyhow::bail;
use segue_core::decide::OperatorCommand;
use segue_core::event::{Event, ToolRunHoldReason, TurnOutcome};
use segue_core::ids::{FlowName, SessionId};
use segue_engine::{Engine, SessionOptions, SessionUpdate, Subscription, UserMessage};
use serde_json::{Value, json};

use super::send::{read_message, usage_json};
use crate::cli::{GlobalArgs, RunApprovalPolicy, RunArgs};
use crate::print::{self, stderr_paint};
use crate::setup::{EngineStartOptions, RunningEngine, start_engine};
use crate::{SilentExit, name_lookup, setting_values};

/// The flow of a run that names none.
const DEFAULT_FLOW: &str = "project";
/// The setting with which plans are approved automatically.
const PLAN_APPROVAL_SETTING: &str = "plan_approval";

/// The exit code if the session waits for the user.
const EXIT_CODE_WAITING: u8 = 2;
/// The exit code if the budget was used up.
const EXIT_CODE_BUDGET: u8 = 3;
/// The exit code if the work ended without a passing check or a confirmation.
const EXIT_CODE_UNVERIFIED: u8 = 4;

pub(crate) async fn run_request(global: &GlobalArgs, arguments: RunArgs) -> anyhow::Result<()> {
    let budget_microusd = arguments.budget.map(budget_to_micros).transpose()?;
    let text = read_message(&arguments.message)?;
    let running = start_engine(global, EngineStartOptions::for_session_args(&arguments.session_args)).await?;
    if running.uses_rehearsal_model {
        print::write_stderr_line(&stderr_paint().warning(super::REHEARSAL_WARNING));
    }
    let session = open_session(&running, &arguments).await?;
    let engine = &running.engine;
    let (_, before) = engine.load_session(&session).await?;
    let mut updates = engine.subscribe(&session, before.session.last_seq).await?;
    let mut watch = RunWatch {
        engine,
        session: &session,
        approvals: arguments.approvals,
        budget_microusd,
        spent_microusd: 0,
        is_over_budget: false,
    };
    let report = engine.send_and_wait(&session, UserMessage::from(text));
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
    let is_closed = state.closed_reason.is_some();
    let exit_code = exit_code(&report.outcome, is_over_budget, is_closed, &result);
    if global.json {
        print::print_json(&json!({
            "session": session,
            "outcome": outcome_name(&report.outcome),
            "ended": is_closed,
            "phase": report.phase,
            "replies": report.replies,
            "result": result,
            "usage": usage_json(&report.spent),
            "over_budget": is_over_budget,
            "exit_code": exit_code,
            "rehearsal": running.uses_rehearsal_model,
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

fn budget_to_micros(dollars: f64) -> anyhow::Result<u64> {
    if !dollars.is_finite() || dollars <= 0.0 || dollars > 1_000_000.0 {
        bail!("--budget must be an amount of dollars such as 2.00");
    }
    // The range was checked, so the number fits.
    Ok((dollars * 1e6).round() as u64)
}

async fn open_session(running: &RunningEngine, arguments: &RunArgs) -> anyhow::Result<SessionId> {
    let engine = &running.engine;
    let session_args = &arguments.session_args;
    if let Some(name) = &session_args.session
        && let Some(session) = name_lookup::find_session(engine, name).await?
    {
        return Ok(session);
    }
    let named = session_args.flow.as_deref().map(|flow| name_lookup::resolve_flow(engine, flow)).transpose()?;
    let flow = named.unwrap_or_else(|| FlowName::from(DEFAULT_FLOW));
    let mut settings = setting_values::parse_new_session_settings(engine, &flow, &session_args.set)?;
    let known = engine.flows().find(|known| known.spec().name == flow);
    let has_plans =
        known.is_some_and(|known| known.spec().settings.iter().any(|setting| setting.name == PLAN_APPROVAL_SETTING));
    if has_plans && settings.get(PLAN_APPROVAL_SETTING).is_none() {
        if settings.is_null() {
            settings = json!({});
        }
        settings[PLAN_APPROVAL_SETTING] = json!("auto");
    }
    let options = SessionOptions {
        session: session_args.session.as_deref().map(Into::into),
        mid_turn_policy: running.mid_turn_policy,
        settings,
        ..SessionOptions::default()
    };
    Ok(engine.open_session(&flow, options).await?)
}

/// Watches a run: adds up its cost, and decides about tool runs that need approval.
struct RunWatch<'e> {
    engine: &'e Engine,
    session: &'e SessionId,
    approvals: RunApprovalPolicy,
    budget_microusd: Option<u64>,
    spent_microusd: u64,
    is_over_budget: bool,
}

impl RunWatch<'_> {
    async fn follow(&mut self, updates: &mut Subscription) -> anyhow::Result<()> {
        let SessionUpdate::Event(recorded) = updates.next_update().await? else { return Ok(()) };
        match &recorded.event {
            Event::CallAnswered(answered) => {
                self.spent_microusd += answered.cost_microusd.unwrap_or(0);
                let is_over = self.budget_microusd.is_some_and(|budget| self.spent_microusd > budget);
                if is_over && !self.is_over_budget {
                    self.is_over_budget = true;
                    self.apply(OperatorCommand::Cancel { turn: None }).await;
                }
            }
            Event::ToolRunHeld { run, reason: ToolRunHoldReason::Approval, .. } => {
                let command = match self.approvals {
                    RunApprovalPolicy::Approve => OperatorCommand::Approve {
                        run: *run,
                        arguments: None,
                        remember: false,
                        by: Some("segue run --approvals approve".to_owned()),
                    },
                    RunApprovalPolicy::Deny => {
                        OperatorCommand::Deny { run: *run, reason: "nobody is there to approve it".to_owned() }
                    }
                };
                self.apply(command).await;
            }
            _ => {}
        }
        Ok(())
    }

    /// Applies a command. If the turn has ended in the meantime, there is nothing left to do.
    async fn apply(&self, command: OperatorCommand) {
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
fn exit_code(outcome: &TurnOutcome, is_over_budget: bool, is_closed: bool, result: &Value) -> u8 {
    let is_verified = ["verified", "confirmed"].iter().any(|key| result[*key] == json!(true));
    let has_changes = result["files"].as_array().is_some_and(|files| !files.is_empty());
    match outcome {
        _ if is_over_budget => EXIT_CODE_BUDGET,
        TurnOutcome::Failed { .. } | TurnOutcome::Cancelled | TurnOutcome::Interrupted => 1,
        TurnOutcome::Done if !is_closed => EXIT_CODE_WAITING,
        TurnOutcome::Done if has_changes && !is_verified => EXIT_CODE_UNVERIFIED,
        TurnOutcome::Done => 0,
    }
}

//! Commands of an operator on one session: rename, cancel, retry, approve, deny, resolve,
//! run-command and undo.

use anyhow::{Context, bail};
use segue_core::decide;
use segue_core::event::UnknownToolRunOutcomeResolution;
use segue_core::flow::FlowSpec;
use segue_core::ids::{Seq, SessionId, ToolRunId};
use segue_engine::{Engine, SessionResumePolicy};
use segue_flows::assistant::spec::UNDO_COMMAND;
use serde_json::{Value, json};

use super::send::{
    EXIT_CODE_INTERRUPTED, awaiting_operator_error, awaiting_tool_decision_error, check_turn_outcome, turn_json,
};
use crate::cli::{
    ApproveToolRunArgs, CancelTurnArgs, DenyToolRunArgs, GlobalArgs, RenameSessionArgs, ResolveUnknownOutcomeArgs,
    RetryTurnArgs, RunFlowCommandArgs, UndoWriteArgs, UnknownOutcomeResolutionArg,
};
use crate::follow::{FollowedTurnResult, LiveTurnOutputMode, SessionFollowOutcome, SessionFollower};
use crate::print::{self, CliOutputCapabilities};
use crate::setup::{EngineStartOptions, EngineWithSessionDefaults, start_engine};
use crate::{SilentExit, name_lookup, setup};

/// Starts an engine on an existing store that records commands but makes no calls.
async fn start_passive_engine(global: &GlobalArgs) -> anyhow::Result<Engine> {
    Ok(start_on_existing_store(
        global,
        EngineStartOptions { recovery: SessionResumePolicy::Never, ..EngineStartOptions::default() },
    )
    .await?
    .engine)
}

/// Starts an engine, or returns an error if the store does not exist.
pub(crate) async fn start_on_existing_store(
    global: &GlobalArgs,
    start: EngineStartOptions<'_>,
) -> anyhow::Result<EngineWithSessionDefaults> {
    // A session cannot exist without a store, so none is created.
    setup::require_read_only_engine(global).await?.shutdown().await;
    start_engine(global, start).await
}

pub(crate) async fn rename_session(global: &GlobalArgs, arguments: RenameSessionArgs) -> anyhow::Result<()> {
    let engine = start_passive_engine(global).await?;
    let session = name_lookup::resolve_session(&engine, &arguments.session).await?;
    engine.apply_command(&session, decide::OperatorCommand::Rename { title: arguments.title }).await?;
    let (_, state) = engine.load_session(&session).await?;
    engine.shutdown().await;
    let title = &state.session.title;
    if global.json {
        return print::print_json(&json!({ "session": session, "title": title }));
    }
    print::write_stdout(&format!("renamed {session} to “{title}”\n"))
}

pub(crate) async fn cancel_turn(global: &GlobalArgs, arguments: CancelTurnArgs) -> anyhow::Result<()> {
    let engine = start_passive_engine(global).await?;
    let session = name_lookup::resolve_session(&engine, &arguments.session).await?;
    let (_, state) = engine.load_session(&session).await?;
    // The turn that runs now: another one may have started before the command is applied.
    let turn = arguments.turn.or(state.session.current_turn.map(|turn| turn.id));
    engine.apply_command(&session, decide::OperatorCommand::Cancel { turn }).await?;
    engine.shutdown().await;
    let turn = turn.map(|turn| turn.to_string()).unwrap_or_default();
    if global.json {
        return print::print_json(&json!({ "session": session, "cancelled": turn }));
    }
    print::write_stdout(&format!("cancelled {turn} of {session}\n"))
}

pub(crate) async fn retry_turn(global: &GlobalArgs, arguments: RetryTurnArgs) -> anyhow::Result<()> {
    let running = start_on_existing_store(global, EngineStartOptions::for_command(arguments.script.as_deref())).await?;
    let session = name_lookup::resolve_session(&running.engine, &arguments.session).await?;
    send_command_and_follow(global, &running, &session, decide::OperatorCommand::Retry { turn: arguments.turn }).await
}

pub(crate) async fn resolve_unknown_outcome(
    global: &GlobalArgs,
    arguments: ResolveUnknownOutcomeArgs,
) -> anyhow::Result<()> {
    let running = start_on_existing_store(global, EngineStartOptions::for_command(arguments.script.as_deref())).await?;
    let session = name_lookup::resolve_session(&running.engine, &arguments.session).await?;
    let command = parse_resolution(&arguments)?;
    send_command_and_follow(global, &running, &session, command).await
}

/// Returns the decision about a call or a tool run of unknown outcome.
fn parse_resolution(arguments: &ResolveUnknownOutcomeArgs) -> anyhow::Result<decide::OperatorCommand> {
    let ResolveUnknownOutcomeArgs { id, resolution, text, .. } = arguments;
    if let Ok(run) = id.parse::<ToolRunId>()
        && id.starts_with('x')
    {
        let resolution = match resolution {
            UnknownOutcomeResolutionArg::Retry => UnknownToolRunOutcomeResolution::RunAgain,
            UnknownOutcomeResolutionArg::Fail => UnknownToolRunOutcomeResolution::Fail,
            UnknownOutcomeResolutionArg::Done => UnknownToolRunOutcomeResolution::Done,
        };
        return Ok(decide::OperatorCommand::ResolveToolRun { run, resolution, text: text.clone() });
    }
    let call = name_lookup::parse_call_id(id)?;
    if text.is_some() {
        bail!("--text is for tool runs, and {call} is a call");
    }
    let resolution = match resolution {
        UnknownOutcomeResolutionArg::Retry => decide::UnknownCallOutcomeResolution::Retry,
        UnknownOutcomeResolutionArg::Fail => decide::UnknownCallOutcomeResolution::Fail,
        UnknownOutcomeResolutionArg::Done => bail!("{call} is a call, which can only be retried or failed"),
    };
    Ok(decide::OperatorCommand::Resolve { call, resolution })
}

pub(crate) async fn approve_tool_run(global: &GlobalArgs, arguments: ApproveToolRunArgs) -> anyhow::Result<()> {
    let running = start_on_existing_store(global, EngineStartOptions::for_command(arguments.script.as_deref())).await?;
    let session = name_lookup::resolve_session(&running.engine, &arguments.session).await?;
    let edited = arguments.edit.as_deref().map(serde_json::from_str).transpose();
    let command = decide::OperatorCommand::Approve {
        run: arguments.run,
        arguments: edited.context("the arguments after --edit are not JSON")?,
        remember: arguments.always,
        by: None,
    };
    send_command_and_follow(global, &running, &session, command).await
}

pub(crate) async fn deny_tool_run(global: &GlobalArgs, arguments: DenyToolRunArgs) -> anyhow::Result<()> {
    let running = start_on_existing_store(global, EngineStartOptions::for_command(arguments.script.as_deref())).await?;
    let session = name_lookup::resolve_session(&running.engine, &arguments.session).await?;
    let reason = arguments.reason.unwrap_or_default();
    let command = decide::OperatorCommand::Deny { run: arguments.run, reason };
    send_command_and_follow(global, &running, &session, command).await
}

pub(crate) async fn run_flow_command(global: &GlobalArgs, arguments: RunFlowCommandArgs) -> anyhow::Result<()> {
    let running = start_on_existing_store(
        global,
        EngineStartOptions { recovery: SessionResumePolicy::OnUse, ..EngineStartOptions::default() },
    )
    .await?;
    let session = name_lookup::resolve_session(&running.engine, &arguments.session).await?;
    let (flow, _) = running.engine.load_session(&session).await?;
    let command = parse_flow_command(flow.spec(), &arguments.command, &arguments.arguments)?;
    send_command_and_follow(global, &running, &session, command).await
}

pub(crate) async fn undo_last_write(global: &GlobalArgs, arguments: UndoWriteArgs) -> anyhow::Result<()> {
    let UndoWriteArgs { session, run } = arguments;
    let arguments = run.map(|run| format!("run={run}")).into_iter().collect();
    run_flow_command(global, RunFlowCommandArgs { session, command: UNDO_COMMAND.to_owned(), arguments }).await
}

/// Parses a command of a flow: its name, and arguments of the form `NAME=VALUE`. The engine checks whether the flow has
/// this command.
///
/// # Errors
/// Returns an error if the flow has no commands at all, or if an argument has no value.
pub(crate) fn parse_flow_command(
    spec: &FlowSpec,
    command: &str,
    words: &[String],
) -> anyhow::Result<decide::OperatorCommand> {
    if spec.commands.is_empty() {
        bail!("flow `{}` has no commands", spec.name);
    }
    let mut arguments = serde_json::Map::new();
    for word in words {
        let Some((name, value)) = word.split_once('=') else { bail!("`{word}` has no value; write NAME=VALUE") };
        let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
        arguments.insert(name.to_owned(), value);
    }
    let arguments = if arguments.is_empty() { Value::Null } else { Value::Object(arguments) };
    Ok(decide::OperatorCommand::Flow { command: command.to_owned(), arguments })
}

/// Applies a command, and follows the session until no work is pending.
async fn send_command_and_follow(
    global: &GlobalArgs,
    running: &EngineWithSessionDefaults,
    session: &SessionId,
    command: decide::OperatorCommand,
) -> anyhow::Result<()> {
    let engine = &running.engine;
    let (_, before) = engine.load_session(session).await?;
    engine.apply_command(session, command).await?;
    let live = live_output_for(global);
    let turn = follow_until_idle(engine, session, before.session.last_seq, live).await?;
    let (_, state) = engine.load_session(session).await?;
    engine.shutdown().await;
    if global.json {
        print::print_json(&turn_json(session, &turn, &state.session.phases_label(), running.uses_rehearsal_model()))?;
    } else if live == LiveTurnOutputMode::Off && !turn.replies.is_empty() {
        print::write_stdout(&format!("{}\n", turn.replies.join("\n\n")))?;
    }
    check_turn_outcome(&turn.outcome)
}

/// Whether replies are printed while they stream in: only as text on a terminal.
pub(crate) fn live_output_for(global: &GlobalArgs) -> LiveTurnOutputMode {
    match (global.json, CliOutputCapabilities::for_stdout().is_terminal) {
        (true, _) => LiveTurnOutputMode::Json,
        (false, true) => LiveTurnOutputMode::Stdout,
        (false, false) => LiveTurnOutputMode::Off,
    }
}

/// Follows a session until no work is pending.
pub(crate) async fn follow_until_idle(
    engine: &Engine,
    session: &SessionId,
    after: Seq,
    live: LiveTurnOutputMode,
) -> anyhow::Result<FollowedTurnResult> {
    match SessionFollower::start_after(engine, session, after, live).await?.follow_until_idle().await? {
        SessionFollowOutcome::TurnFinished(turn) => Ok(turn),
        SessionFollowOutcome::AwaitingOperator(call) => Err(awaiting_operator_error(engine, session, call).await),
        SessionFollowOutcome::AwaitingToolDecision(run) => {
            Err(awaiting_tool_decision_error(engine, session, run).await)
        }
        SessionFollowOutcome::Interrupted(_) => {
            print::write_stderr_line("stopped waiting; pending work resumes at the next use of the session");
            engine.store().close().await?;
            Err(SilentExit(EXIT_CODE_INTERRUPTED).into())
        }
    }
}

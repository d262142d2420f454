//! `segue phase`: shows the phases of a session and the allowed transitions, or proposes one. The phase graph decides.

pub(crate) mod graph_lookup;

use anyhow::bail;
use segue_core::decide::OperatorCommand;
use segue_core::event::{Event, PhaseGraphKey};
use segue_core::flow::{DynFlow, FlowSpec};
use segue_core::ids::{PhaseName, Seq, SessionId};
use segue_core::phase::{Guard, PhaseGraph, PhaseTransitionProposer, render_mermaid};
use segue_core::session::{PhaseGraphStateWithHistory, SessionState};
use segue_engine::Engine;
use serde_json::{Value, json};

use super::send::check_turn_outcome;
use super::session_actions::{follow_until_idle, live_output_for, start_on_existing_store};
use crate::cli::{GlobalArgs, PhaseArgs, PhaseGraphSelectorArgs, PhaseSubcommand};
use crate::follow::LiveTurnOutputMode;
use crate::journal_pager::JournalPager;
use crate::print::{self, CliOutputCapabilities, number_format, paint::Paint};
use crate::setup::EngineStartOptions;
use crate::{name_lookup, setup};
use graph_lookup::resolve_phase_key;

pub(crate) async fn run_phase(global: &GlobalArgs, arguments: PhaseArgs) -> anyhow::Result<()> {
    match arguments.action {
        Some(action) => change_phase(global, &arguments.session, action).await,
        None => print_phases(global, &arguments.session, arguments.mermaid).await,
    }
}

async fn print_phases(global: &GlobalArgs, session: &str, as_mermaid: bool) -> anyhow::Result<()> {
    let engine = setup::require_read_only_engine(global).await?;
    let session = name_lookup::resolve_session(&engine, session).await?;
    let (flow, state) = engine.load_session(&session).await?;
    let reports = load_phase_reports(&engine, &session, &*flow, &state).await?;
    if as_mermaid {
        if reports.is_empty() {
            bail!("flow `{}` has no phase graph", flow.spec().name);
        }
        let diagrams = reports
            .iter()
            .map(|report| format!("%% {}\n{}", report.key, render_mermaid(report.graph, Some(&report.status.state))));
        return print::write_stdout(&diagrams.collect::<Vec<_>>().join("\n"));
    }
    if global.json {
        let graphs: Vec<Value> = reports.iter().map(phase_report_json).collect();
        return print::print_json(&json!({ "session": session, "graphs": graphs }));
    }
    print::write_stdout(&render_phase_reports(flow.spec(), &reports, CliOutputCapabilities::for_stdout().paint))
}

/// The status of one phase graph of a session.
pub(crate) struct PhaseGraphWithStatus<'g> {
    pub key: PhaseGraphKey,
    pub graph: &'g PhaseGraph,
    pub status: PhaseGraphStateWithHistory,
    /// The phases that the user may enter now.
    pub allowed_phases: Vec<PhaseName>,
}

/// Returns the status of every phase graph of a session.
///
/// # Errors
/// Returns an error if the session cannot be read.
pub(crate) async fn load_phase_reports<'r>(
    engine: &Engine,
    session: &SessionId,
    flow: &'r dyn DynFlow,
    state: &SessionState,
) -> anyhow::Result<Vec<PhaseGraphWithStatus<'r>>> {
    let mut reports = Vec::new();
    for key in state.session.phase_graph_keys(flow.spec()) {
        let Some(graph) = flow.spec().graphs.get(&key.graph) else { continue };
        let status = state.session.phase_graph_status(graph, &key);
        let allowed_phases = engine.allowed_phases(session, flow, state, &key, &PhaseTransitionProposer::User).await?;
        reports.push(PhaseGraphWithStatus { key, graph, status, allowed_phases });
    }
    Ok(reports)
}

/// Renders the status of every phase graph as text.
pub(crate) fn render_phase_reports(spec: &FlowSpec, reports: &[PhaseGraphWithStatus<'_>], paint: Paint) -> String {
    if reports.is_empty() {
        return format!("flow `{}` has no phases\n", spec.name);
    }
    reports.iter().map(|report| render_phase_report(report, paint)).collect()
}

fn render_phase_report(report: &PhaseGraphWithStatus<'_>, paint: Paint) -> String {
    let PhaseGraphWithStatus { key, graph, status, allowed_phases } = report;
    let state = &status.state;
    let since = number_format::format_date_time(state.since);
    let turns = number_format::format_plural(u64::from(state.turns_started), "turn");
    let mut lines = vec![format!(
        "{}: {} {}",
        key,
        paint.bold(&state.current),
        paint.dim(format!("(visit {}, {turns}, since {since})", state.visit))
    )];
    let allowed: Vec<&str> = allowed_phases.iter().map(PhaseName::as_str).collect();
    lines
        .push(format!("  allowed         {}", if allowed.is_empty() { "none".to_owned() } else { allowed.join(", ") }));
    let from_here = graph.edges.iter().filter(|edge| edge.from == state.current);
    for edge in from_here.filter(|edge| !allowed_phases.contains(&edge.to)) {
        let reason = match &edge.guard {
            Guard::Always => "blocked by a gate".to_owned(),
            guard => format!("needs {guard}"),
        };
        lines.push(format!("  not yet         {} ({reason})", edge.to));
    }
    if !state.open_gates.is_empty() {
        let gates: Vec<&str> = state.open_gates.iter().map(String::as_str).collect();
        lines.push(format!("  open gates      {}", paint.warning(gates.join(", "))));
    }
    for grant in &state.grants {
        lines.push(format!("  granted         {grant}"));
    }
    let earlier: Vec<String> =
        status.past_states.iter().map(|past| format!("{} {}", past.visit, past.current)).collect();
    if !earlier.is_empty() {
        lines.push(format!("  earlier visits  {}", earlier.join(", ")));
    }
    lines.join("\n") + "\n"
}

fn phase_report_json(report: &PhaseGraphWithStatus<'_>) -> Value {
    let PhaseGraphWithStatus { key, status, allowed_phases, .. } = report;
    let earlier: Vec<Value> = status
        .past_states
        .iter()
        .map(|past| json!({ "visit": past.visit, "phase": past.current, "since": past.since }))
        .collect();
    json!({
        "graph": key.graph,
        "owner": key.owner,
        "current": status.state,
        "allowed_phases": allowed_phases,
        "earlier_visits": earlier,
    })
}

async fn change_phase(global: &GlobalArgs, session: &str, action: PhaseSubcommand) -> anyhow::Result<()> {
    let running = start_on_existing_store(global, EngineStartOptions::for_command(None)).await?;
    let engine = &running.engine;
    let session = name_lookup::resolve_session(engine, session).await?;
    let (flow, state) = engine.load_session(&session).await?;
    let phase = |to: Option<&PhaseName>, graph: &PhaseGraphSelectorArgs| {
        let names: Vec<&str> = [&graph.graph, &graph.owner].into_iter().flatten().map(String::as_str).collect();
        resolve_phase_key(flow.spec(), &state.session, to, &names, "with --owner").map_err(anyhow::Error::msg)
    };
    let command = match action {
        PhaseSubcommand::Propose { to, reason, graph } => {
            let to = PhaseName::from(to);
            OperatorCommand::Propose { phase: phase(Some(&to), &graph)?, to, reason }
        }
        PhaseSubcommand::Grant { to, graph } => {
            let to = PhaseName::from(to);
            OperatorCommand::Grant { phase: phase(Some(&to), &graph)?, to }
        }
        PhaseSubcommand::Rollback { visit, graph } => OperatorCommand::RollBack { phase: phase(None, &graph)?, visit },
    };
    engine.apply_command(&session, command).await?;
    let outcome = read_phase_outcome(engine, &session, state.session.last_seq).await;
    let live = live_output_for(global);
    let turn = follow_until_idle(engine, &session, state.session.last_seq, live).await?;
    engine.shutdown().await;
    let outcome = outcome?;
    if global.json {
        return print::print_json(&json!({ "session": session, "outcome": outcome, "replies": turn.replies }));
    }
    print::write_stdout(&outcome.iter().map(|line| format!("{line}\n")).collect::<String>())?;
    if live == LiveTurnOutputMode::Off && !turn.replies.is_empty() {
        print::write_stdout(&format!("{}\n", turn.replies.join("\n\n")))?;
    }
    check_turn_outcome(&turn.outcome)
}

/// Reads what the phase graph decided after event `before`, one line per decision. A refusal is an error.
async fn read_phase_outcome(engine: &Engine, session: &SessionId, before: Seq) -> anyhow::Result<Vec<String>> {
    let mut lines = Vec::new();
    for event in JournalPager::starting_after(engine, session, before).next_page().await? {
        match &event.event {
            Event::PhaseTransitionRefused { graph_key, refusal } => bail!("{graph_key}: {refusal}"),
            Event::PhaseEntered(_) | Event::SkipGranted { .. } => {
                lines.push(event.event.summary_line(&|_| String::new()))
            }
            _ => {}
        }
    }
    Ok(lines)
}

#[cfg(test)]
mod tests;

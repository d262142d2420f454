//! Where a session's phase graphs stand, what is allowed, and how a person moves them. The graph decides.

pub mod graph_lookup;

use anyhow::bail;
use segue_core::decide::OperatorCommand;
use segue_core::event::{Event, PhaseGraphKey};
use segue_core::flow::{DynFlow, FlowSpec};
use segue_core::ids::{PhaseName, Seq, SessionId};
use segue_core::phase::PhaseGraph;
use segue_core::phase::diagram::render_mermaid;
use segue_core::phase::guard::{Guard, Proposer};
use segue_core::phase::ruling::allowed_phases;
use segue_core::session::{PhaseGraphStatus, SessionState};
use segue_engine::Engine;
use serde_json::{Value, json};

use super::send::check_turn_outcome;
use super::session_actions::{follow_until_idle, live_output_for, start_on_existing_store};
use crate::cli::{GlobalArgs, GraphArgs, PhaseAction, PhaseArgs};
use crate::follow::LiveOutput;
use crate::journal_reader::JournalReader;
use crate::print::{self, RenderOptions, number_format, paint::Paint};
use crate::setup::EngineStartOptions;
use crate::{name_lookup, setup};
use graph_lookup::resolve_phase_key;

pub async fn run_phase(global: &GlobalArgs, arguments: PhaseArgs) -> anyhow::Result<()> {
    match arguments.action {
        Some(change) => change_phase(global, &arguments.session, change).await,
        None => print_phases(global, &arguments.session, arguments.mermaid).await,
    }
}

async fn print_phases(global: &GlobalArgs, session: &str, as_mermaid: bool) -> anyhow::Result<()> {
    let engine = setup::require_read_only_engine(global).await?;
    let session = name_lookup::resolve_session(&engine, session).await?;
    let (rules, state) = engine.load_session(&session).await?;
    let standings = load_phase_reports(&engine, &session, &*rules, &state).await?;
    if as_mermaid {
        if standings.is_empty() {
            bail!("the flow `{}` has no phase graph to draw", rules.spec().name);
        }
        let drawn =
            standings.iter().map(|it| format!("%% {}\n{}", it.key, render_mermaid(it.graph, Some(&it.status.state))));
        return print::write_stdout(&drawn.collect::<Vec<_>>().join("\n"));
    }
    if global.json {
        let graphs: Vec<Value> = standings.iter().map(phase_report_json).collect();
        return print::print_json(&json!({ "session": session, "graphs": graphs }));
    }
    print::write_stdout(&render_phase_reports(rules.spec(), &standings, RenderOptions::for_stdout().paint))
}

/// One graph, and where it stands.
pub struct PhaseGraphReport<'g> {
    pub key: PhaseGraphKey,
    pub graph: &'g PhaseGraph,
    pub status: PhaseGraphStatus,
    /// What the user may enter now.
    pub allowed_phases: Vec<PhaseName>,
}

/// Where every graph of a session stands.
///
/// # Errors
/// The session cannot be read.
pub async fn load_phase_reports<'r>(
    engine: &Engine,
    session: &SessionId,
    flow: &'r dyn DynFlow,
    state: &SessionState,
) -> anyhow::Result<Vec<PhaseGraphReport<'r>>> {
    let mut standings = Vec::new();
    for key in state.session.phase_graph_keys(flow.spec()) {
        let Some(graph) = flow.spec().graphs.get(&key.graph) else { continue };
        let stand = state.session.phase_graph_status(graph, &key);
        let conditions = engine.evaluate_guard_conditions(session, flow, state, &key).await?;
        let may = allowed_phases(graph, &stand.state, &Proposer::User, &conditions);
        standings.push(PhaseGraphReport { key, graph, status: stand, allowed_phases: may });
    }
    Ok(standings)
}

/// Where every graph stands, what may be entered and what not yet, for people.
pub fn render_phase_reports(spec: &FlowSpec, standings: &[PhaseGraphReport<'_>], paint: Paint) -> String {
    if standings.is_empty() {
        return format!("the flow `{}` has no phases\n", spec.name);
    }
    standings.iter().map(|standing| render_phase_report(standing, paint)).collect()
}

fn render_phase_report(standing: &PhaseGraphReport<'_>, paint: Paint) -> String {
    let PhaseGraphReport { key, graph, status: stand, allowed_phases: may } = standing;
    let now = &stand.state;
    let since = number_format::format_date_time(now.since);
    let turns = number_format::format_plural(u64::from(now.turns_started), "turn");
    let mut lines = vec![format!(
        "{}: {} {}",
        key,
        paint.bold(&now.current),
        paint.dim(format!("(visit {}, {turns}, since {since})", now.visit))
    )];
    let names = |names: &[PhaseName]| names.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    lines.push(format!("  you may enter  {}", if may.is_empty() { "nothing".to_owned() } else { names(may) }));
    for edge in graph.edges_from(&now.current).filter(|edge| !may.contains(&edge.to)) {
        let needs = if edge.guard == Guard::Always { "barred".to_owned() } else { format!("needs {}", edge.guard) };
        lines.push(format!("  not yet        {} ({needs})", edge.to));
    }
    if !now.open_gates.is_empty() {
        let gates: Vec<&str> = now.open_gates.iter().map(String::as_str).collect();
        lines.push(format!("  open gates     {}", paint.warning(gates.join(", "))));
    }
    for grant in &now.grants {
        lines.push(format!("  granted        {}", grant.warning()));
    }
    let past: Vec<String> = stand.past_states.iter().map(|past| format!("{} {}", past.visit, past.current)).collect();
    if !past.is_empty() {
        lines.push(format!("  visits before  {}", past.join(", ")));
    }
    lines.join("\n") + "\n"
}

fn phase_report_json(standing: &PhaseGraphReport<'_>) -> Value {
    let PhaseGraphReport { key, status: stand, allowed_phases: may, .. } = standing;
    let past: Vec<Value> = stand
        .past_states
        .iter()
        .map(|past| json!({ "visit": past.visit, "phase": past.current, "since": past.since }))
        .collect();
    json!({ "graph": key.graph, "owner": key.owner, "now": stand.state, "may_enter": may, "past": past })
}

async fn change_phase(global: &GlobalArgs, session: &str, change: PhaseAction) -> anyhow::Result<()> {
    let running = start_on_existing_store(global, EngineStartOptions::for_command(None)).await?;
    let engine = &running.engine;
    let session = name_lookup::resolve_session(engine, session).await?;
    let (rules, state) = engine.load_session(&session).await?;
    let phase = |to: Option<&PhaseName>, choice: &GraphArgs| {
        let names: Vec<&str> = [&choice.graph, &choice.owner].into_iter().flatten().map(String::as_str).collect();
        resolve_phase_key(rules.spec(), &state.session, to, &names, "with --of").map_err(anyhow::Error::msg)
    };
    let command = match change {
        PhaseAction::Propose { to, reason, graph } => {
            let to = PhaseName::from(to);
            OperatorCommand::Propose { phase: phase(Some(&to), &graph)?, to, reason }
        }
        PhaseAction::Grant { to, graph } => {
            let to = PhaseName::from(to);
            OperatorCommand::Grant { phase: phase(Some(&to), &graph)?, to }
        }
        PhaseAction::Rollback { visit, graph } => OperatorCommand::RollBack { phase: phase(None, &graph)?, visit },
    };
    engine.apply_command(&session, command).await?;
    let ruled = read_phase_outcome(engine, &session, state.session.last_seq).await;
    let live = live_output_for(global);
    let turned = follow_until_idle(engine, &session, state.session.last_seq, live).await?;
    engine.shutdown().await;
    let ruled = ruled?;
    if global.json {
        return print::print_json(&json!({ "session": session, "ruled": ruled, "replies": turned.replies }));
    }
    print::write_stdout(&ruled.iter().map(|line| format!("{line}\n")).collect::<String>())?;
    if live == LiveOutput::Off && !turned.replies.is_empty() {
        print::write_stdout(&format!("{}\n", turned.replies.join("\n\n")))?;
    }
    check_turn_outcome(&turned.outcome)
}

/// What the graph decided, in words; that it refused is an error.
async fn read_phase_outcome(engine: &Engine, session: &SessionId, before: Seq) -> anyhow::Result<Vec<String>> {
    let mut ruled = Vec::new();
    for event in JournalReader::starting_after(engine, session, before).next_page().await? {
        match &event.event {
            Event::PhaseTransitionRefused(refused) => bail!("{}: {}", refused.graph_key, refused.refusal),
            Event::PhaseEntered(_) | Event::SkipGranted { .. } => {
                ruled.push(event.event.summary_line(&|_| String::new()))
            }
            _ => {}
        }
    }
    Ok(ruled)
}

#[cfg(test)]
mod tests;

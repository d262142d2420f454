//! Where a session's phase graphs stand, what is allowed, and how a person moves them. The graph decides.

pub mod graphs;

use anyhow::bail;
use segue_core::decide::Command;
use segue_core::event::{Event, PhaseKey};
use segue_core::flow::{FlowSpec, Rules};
use segue_core::ids::{PhaseName, Seq, SessionId};
use segue_core::phase::PhaseGraph;
use segue_core::phase::diagram::mermaid;
use segue_core::phase::guard::{Guard, Proposer};
use segue_core::phase::ruling::allowed;
use segue_core::session::{Stand, State};
use segue_engine::Engine;
use serde_json::{Value, json};

use super::operate::{live, on_store, until_rest};
use super::send::conclude;
use crate::cli::{Global, GraphChoice, Phase, PhaseChange};
use crate::follow::Live;
use crate::journal::Journal;
use crate::print::{self, Screen, amount, paint::Paint};
use crate::setup::Start;
use crate::{lookup, setup};
use graphs::meant;

pub async fn run(global: &Global, arguments: Phase) -> anyhow::Result<()> {
    match arguments.change {
        Some(change) => change_phase(global, &arguments.session, change).await,
        None => show(global, &arguments.session, arguments.mermaid).await,
    }
}

async fn show(global: &Global, session: &str, as_mermaid: bool) -> anyhow::Result<()> {
    let engine = setup::look_into(global).await?;
    let session = lookup::session(&engine, session).await?;
    let (rules, state) = engine.state(&session).await?;
    let standings = standings(&engine, &session, &*rules, &state).await?;
    if as_mermaid {
        if standings.is_empty() {
            bail!("the flow `{}` has no phase graph to draw", rules.spec().name);
        }
        let drawn = standings.iter().map(|it| format!("%% {}\n{}", it.key, mermaid(it.graph, Some(&it.stand.now))));
        return print::out(&drawn.collect::<Vec<_>>().join("\n"));
    }
    if global.json {
        let graphs: Vec<Value> = standings.iter().map(stand_json).collect();
        return print::json(&json!({ "session": session, "graphs": graphs }));
    }
    print::out(&pages(rules.spec(), &standings, Screen::here().paint))
}

/// One graph, and where it stands.
pub struct Standing<'g> {
    pub key: PhaseKey,
    pub graph: &'g PhaseGraph,
    pub stand: Stand,
    /// What the user may enter now.
    pub may: Vec<PhaseName>,
}

/// Where every graph of a session stands.
///
/// # Errors
/// The session cannot be read.
pub async fn standings<'r>(
    engine: &Engine,
    session: &SessionId,
    rules: &'r dyn Rules,
    state: &State,
) -> anyhow::Result<Vec<Standing<'r>>> {
    let mut standings = Vec::new();
    for key in state.session.phase_keys(rules.spec()) {
        let Some(graph) = rules.spec().graphs.get(&key.graph) else { continue };
        let stand = state.session.stand(graph, &key);
        let conditions = engine.conditions(session, rules, state, &key).await?;
        let may = allowed(graph, &stand.now, &Proposer::User, &conditions);
        standings.push(Standing { key, graph, stand, may });
    }
    Ok(standings)
}

/// Where every graph stands, what may be entered and what not yet, for people.
pub fn pages(spec: &FlowSpec, standings: &[Standing<'_>], paint: Paint) -> String {
    if standings.is_empty() {
        return format!("the flow `{}` has no phases\n", spec.name);
    }
    standings.iter().map(|standing| page(standing, paint)).collect()
}

fn page(standing: &Standing<'_>, paint: Paint) -> String {
    let Standing { key, graph, stand, may } = standing;
    let now = &stand.now;
    let since = amount::moment(now.since);
    let turns = amount::several(u64::from(now.turns), "turn");
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
        lines.push(format!("  open gates     {}", paint.warn(gates.join(", "))));
    }
    for grant in &now.grants {
        lines.push(format!("  granted        {}", grant.warning()));
    }
    let past: Vec<String> = stand.past.iter().map(|past| format!("{} {}", past.visit, past.current)).collect();
    if !past.is_empty() {
        lines.push(format!("  visits before  {}", past.join(", ")));
    }
    lines.join("\n") + "\n"
}

fn stand_json(standing: &Standing<'_>) -> Value {
    let Standing { key, stand, may, .. } = standing;
    let past: Vec<Value> = stand
        .past
        .iter()
        .map(|past| json!({ "visit": past.visit, "phase": past.current, "since": past.since }))
        .collect();
    json!({ "graph": key.graph, "owner": key.owner, "now": stand.now, "may_enter": may, "past": past })
}

async fn change_phase(global: &Global, session: &str, change: PhaseChange) -> anyhow::Result<()> {
    let running = on_store(global, Start::to_act(None)).await?;
    let engine = &running.engine;
    let session = lookup::session(engine, session).await?;
    let (rules, state) = engine.state(&session).await?;
    let phase = |to: Option<&PhaseName>, choice: &GraphChoice| {
        let names: Vec<&str> = [&choice.graph, &choice.of].into_iter().flatten().map(String::as_str).collect();
        meant(rules.spec(), &state.session, to, &names, "with --of").map_err(anyhow::Error::msg)
    };
    let command = match change {
        PhaseChange::Propose { to, reason, graph } => {
            let to = PhaseName::from(to);
            Command::Propose { phase: phase(Some(&to), &graph)?, to, reason }
        }
        PhaseChange::Grant { to, graph } => {
            let to = PhaseName::from(to);
            Command::Grant { phase: phase(Some(&to), &graph)?, to }
        }
        PhaseChange::Rollback { visit, graph } => Command::RollBack { phase: phase(None, &graph)?, visit },
    };
    engine.command(&session, command).await?;
    let ruled = ruling(engine, &session, state.session.seq).await;
    let live = live(global);
    let turned = until_rest(engine, &session, state.session.seq, live).await?;
    engine.shutdown().await;
    let ruled = ruled?;
    if global.json {
        return print::json(&json!({ "session": session, "ruled": ruled, "replies": turned.said }));
    }
    print::out(&ruled.iter().map(|line| format!("{line}\n")).collect::<String>())?;
    if live == Live::Nothing && !turned.said.is_empty() {
        print::out(&format!("{}\n", turned.said.join("\n\n")))?;
    }
    conclude(&turned.outcome)
}

/// What the graph decided, in words; that it refused is an error.
async fn ruling(engine: &Engine, session: &SessionId, before: Seq) -> anyhow::Result<Vec<String>> {
    let mut ruled = Vec::new();
    for event in Journal::after(engine, session, before).next().await? {
        match &event.event {
            Event::PhaseRefused(refused) => bail!("{}: {}", refused.phase, refused.refusal),
            Event::PhaseEntered(_) | Event::SkipGranted { .. } => ruled.push(event.event.line(&|_| String::new())),
            _ => {}
        }
    }
    Ok(ruled)
}

#[cfg(test)]
mod tests;

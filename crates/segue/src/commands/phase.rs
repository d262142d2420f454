//! Where a session's phase graphs stand, what is allowed, and how a person moves them. The graph decides.

use anyhow::bail;
use segue_core::decide::Command;
use segue_core::event::{Event, Owner, PhaseKey};
use segue_core::flow::FlowSpec;
use segue_core::ids::{PhaseName, Seq, SessionId};
use segue_core::phase::PhaseGraph;
use segue_core::phase::diagram::mermaid;
use segue_core::phase::guard::Proposer;
use segue_core::phase::ruling::allowed;
use segue_core::session::{Session, Stand};
use segue_engine::{Engine, Recovery};
use serde_json::{Value, json};

use super::operate::{live, on_store, until_rest};
use super::send::conclude;
use crate::cli::{Global, GraphChoice, Phase, PhaseChange};
use crate::follow::Live;
use crate::journal::Journal;
use crate::print::{self, Screen, amount, paint::Paint};
use crate::suggest::{hint, listed};
use crate::{lookup, setup};

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
    let spec = rules.spec();
    let mut graphs = Vec::new();
    for key in state.session.phase_keys(spec) {
        if let Some(graph) = spec.graphs.get(&key.graph) {
            let stand = state.session.stand(graph, &key);
            graphs.push(Standing { key, graph, stand });
        }
    }
    if as_mermaid {
        if graphs.is_empty() {
            bail!("the flow `{}` has no phase graph to draw", spec.name);
        }
        let drawn = graphs
            .iter()
            .map(|Standing { key, graph, stand }| format!("%% {key}\n{}", mermaid(graph, Some(&stand.now))));
        return print::out(&drawn.collect::<Vec<_>>().join("\n"));
    }
    let mut out = String::new();
    let mut values = Vec::new();
    for standing in &graphs {
        let conditions = engine.conditions(&session, &*rules, &state, &standing.key).await?;
        let Standing { key, graph, stand } = standing;
        let may = allowed(graph, &stand.now, &Proposer::User, &conditions);
        out.push_str(&page(key, stand, &may, Screen::here().paint));
        values.push(stand_json(key, stand, &may));
    }
    if global.json {
        return print::json(&json!({ "session": session, "graphs": values }));
    }
    if graphs.is_empty() {
        out = format!("the flow `{}` has no phases\n", spec.name);
    }
    print::out(&out)
}

/// One graph, and where it stands.
pub struct Standing<'g> {
    pub key: PhaseKey,
    pub graph: &'g PhaseGraph,
    pub stand: Stand,
}

/// Where one graph stands and what may be entered, for people.
pub fn page(key: &PhaseKey, stand: &Stand, may: &[PhaseName], paint: Paint) -> String {
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

fn stand_json(key: &PhaseKey, stand: &Stand, may: &[PhaseName]) -> Value {
    let past: Vec<Value> = stand
        .past
        .iter()
        .map(|past| json!({ "visit": past.visit, "phase": past.current, "since": past.since }))
        .collect();
    json!({ "graph": key.graph, "owner": key.owner, "now": stand.now, "may_enter": may, "past": past })
}

async fn change_phase(global: &Global, session: &str, change: PhaseChange) -> anyhow::Result<()> {
    let running = on_store(global, Recovery::OnUse).await?;
    let engine = &running.engine;
    let session = lookup::session(engine, session).await?;
    let (rules, state) = engine.state(&session).await?;
    let phase = |choice: &GraphChoice| choose(rules.spec(), &state.session, choice);
    let command = match change {
        PhaseChange::Propose { to, reason, graph } => Command::Propose { phase: phase(&graph)?, to: to.into(), reason },
        PhaseChange::Grant { to, graph } => Command::Grant { phase: phase(&graph)?, to: to.into() },
        PhaseChange::Rollback { visit, graph } => Command::RollBack { phase: phase(&graph)?, visit },
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

/// Which graph is meant: the only one, or the one that fits what was said.
fn choose(spec: &FlowSpec, session: &Session, choice: &GraphChoice) -> anyhow::Result<PhaseKey> {
    let keys = session.phase_keys(spec);
    if keys.is_empty() {
        bail!("the flow `{}` has no phases", spec.name);
    }
    if let Some(graph) = choice.graph.as_deref().filter(|graph| !keys.iter().any(|key| key.graph == **graph)) {
        bail!("there is no graph `{graph}`{}", hint(graph, keys.iter().map(|key| key.graph.as_str())));
    }
    let is_of = |owner: &Owner, name: &str| match owner {
        Owner::Session => false,
        Owner::Role(role) => *role == name,
        Owner::Agent(agent) => *agent == name,
    };
    let fitting: Vec<&PhaseKey> = keys
        .iter()
        .filter(|key| choice.graph.as_deref().is_none_or(|graph| key.graph == graph))
        .filter(|key| choice.of.as_deref().is_none_or(|name| is_of(&key.owner, name)))
        .collect();
    match fitting.as_slice() {
        [only] => Ok((*only).clone()),
        [] => bail!("no graph is like that{}", named(&keys.iter().collect::<Vec<_>>())),
        several => bail!("several graphs are like that; say which with --graph and --of{}", named(several)),
    }
}

fn named(keys: &[&PhaseKey]) -> String {
    let names: Vec<String> = keys.iter().map(ToString::to_string).collect();
    format!("; there are {}", listed(names.iter().map(String::as_str)))
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

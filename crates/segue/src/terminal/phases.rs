//! Where each phase graph stands, and which graph is meant.

use segue_core::event::{Owner, PhaseKey};
use segue_core::flow::{FlowSpec, Rules};
use segue_core::ids::{PhaseName, SessionId};
use segue_core::phase::guard::{Guard, Proposer};
use segue_core::phase::ruling::allowed;
use segue_core::session::{Session, State};
use segue_engine::Engine;

use crate::commands::phase::page;
use crate::print::paint::Paint;
use crate::suggest::{hint, listed};

/// What `/phase` says.
///
/// # Errors
/// The session cannot be read.
pub async fn standing(
    engine: &Engine,
    session: &SessionId,
    rules: &dyn Rules,
    state: &State,
    paint: Paint,
) -> anyhow::Result<String> {
    let mut text = String::new();
    for key in state.session.phase_keys(rules.spec()) {
        let Some(graph) = rules.spec().graphs.get(&key.graph) else { continue };
        let stand = state.session.stand(graph, &key);
        let conditions = engine.conditions(session, rules, state, &key).await?;
        let may = allowed(graph, &stand.now, &Proposer::User, &conditions);
        text.push_str(&page(&key, &stand, &may, paint));
        for edge in graph.edges_from(&stand.now.current).filter(|edge| !may.contains(&edge.to)) {
            let needs = if edge.guard == Guard::Always { "barred".to_owned() } else { format!("needs {}", edge.guard) };
            text.push_str(&format!("  not yet        {} ({needs})\n", edge.to));
        }
    }
    if text.is_empty() {
        text = format!("the flow `{}` has no phases", rules.spec().name);
    }
    Ok(text)
}

/// The graph that is meant by a phase's name, and by its owner's where that is needed.
///
/// # Errors
/// None is meant, or more than one could be; says which there are.
pub fn meant(spec: &FlowSpec, session: &Session, to: Option<&PhaseName>, of: Option<&str>) -> Result<PhaseKey, String> {
    let keys = session.phase_keys(spec);
    if keys.is_empty() {
        return Err(format!("the flow `{}` has no phases", spec.name));
    }
    let has = |key: &PhaseKey| match to {
        Some(to) => spec.graphs.get(&key.graph).is_some_and(|graph| graph.phase(to).is_some()),
        None => true,
    };
    let is_of = |key: &PhaseKey| of.is_none_or(|of| key.graph == *of || owner(key) == of);
    let fitting: Vec<&PhaseKey> = keys.iter().filter(|key| has(key) && is_of(key)).collect();
    match fitting.as_slice() {
        [only] => Ok((*only).clone()),
        [] => Err(unknown(spec, &keys, to, of.filter(|_| !keys.iter().any(is_of)))),
        several => {
            let names = listed(several.iter().map(|key| owner(key)));
            Err(format!("several could be meant; name one of {names} at the end"))
        }
    }
}

fn unknown(spec: &FlowSpec, keys: &[PhaseKey], to: Option<&PhaseName>, of: Option<&str>) -> String {
    if let Some(of) = of {
        return format!("nothing called `{of}` has phases{}", hint(of, keys.iter().map(owner)));
    }
    let to = to.map_or("", PhaseName::as_str);
    let known = spec.graphs.values().flat_map(|graph| &graph.phases).map(|phase| phase.name.as_str());
    format!("there is no phase `{to}`{}", hint(to, known))
}

/// What a graph is called by: whoever it is attached to.
fn owner(key: &PhaseKey) -> &str {
    match &key.owner {
        Owner::Session => key.graph.as_str(),
        Owner::Role(role) => role.as_str(),
        Owner::Agent(agent) => agent.as_str(),
    }
}

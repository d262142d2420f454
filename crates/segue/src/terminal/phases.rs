//! Where each phase graph stands and what may be entered from there.

use std::collections::BTreeSet;
use std::sync::Arc;

use segue_core::body::BodyId;
use segue_core::event::{Owner, PhaseKey};
use segue_core::flow::{About, FlowSpec, Lookup, Rules, Sight, Texts};
use segue_core::ids::PhaseName;
use segue_core::phase::guard::{Conditions, Guard, Proposer};
use segue_core::phase::ruling::allowed;
use segue_core::phase::{Attached, PhaseGraph};
use segue_core::session::{Session, Stand, State};

use super::slash::nearest;

/// What `/phase` says.
#[must_use]
pub fn standing(rules: &dyn Rules, state: &State) -> String {
    let keys = keys(rules.spec(), &state.session);
    if keys.is_empty() {
        return "this flow has no phases".to_owned();
    }
    let mut text = String::new();
    for key in keys {
        if let Some(graph) = rules.spec().graphs.get(&key.graph) {
            text.push_str(&graph_standing(rules, state, graph, &key));
        }
    }
    text
}

fn graph_standing(rules: &dyn Rules, state: &State, graph: &PhaseGraph, key: &PhaseKey) -> String {
    let stand = state.session.stand(graph, key);
    let now = &stand.now;
    let purpose = graph.phase(&now.current).map(|phase| phase.purpose.as_str()).filter(|purpose| !purpose.is_empty());
    let purpose = purpose.map(|purpose| format!(": {purpose}")).unwrap_or_default();
    let mut lines = vec![format!("{key}: {} (visit {}, turn {}){purpose}", now.current, now.visit, now.turns)];
    let may = allowed(graph, now, &Proposer::User, &conditions(rules, state, graph, key, &stand));
    if !may.is_empty() {
        lines.push(format!("allowed now: {}", joined(&may)));
    }
    for edge in graph.edges_from(&now.current).filter(|edge| !may.contains(&edge.to)) {
        let needs = if edge.guard == Guard::Always { "barred".to_owned() } else { format!("needs {}", edge.guard) };
        lines.push(format!("not yet: {} ({needs})", edge.to));
    }
    for gate in graph.gates.iter().filter(|gate| now.open_gates.contains(&gate.name)) {
        lines.push(format!("gate {}: {} comes first (/grant allows an exception)", gate.name, gate.satisfied_by));
    }
    for grant in &now.grants {
        lines.push(format!("granted: {}", grant.warning()));
    }
    if !stand.past.is_empty() {
        let visits: Vec<String> = stand.past.iter().map(|past| format!("{} {}", past.visit, past.current)).collect();
        lines.push(format!("/rollback goes back to: {}", visits.join(", ")));
    }
    lines.join("\n  ") + "\n"
}

/// The graph that is meant by a phase's name, and by its owner's where that is needed.
///
/// # Errors
/// None is meant, or more than one could be; says which there are.
pub fn meant(spec: &FlowSpec, session: &Session, to: Option<&PhaseName>, of: Option<&str>) -> Result<PhaseKey, String> {
    let keys = keys(spec, session);
    if keys.is_empty() {
        return Err("this flow has no phases".to_owned());
    }
    let has = |key: &PhaseKey| match to {
        Some(to) => spec.graphs.get(&key.graph).is_some_and(|graph| graph.phase(to).is_some()),
        None => true,
    };
    let is_of = |key: &PhaseKey| of.is_none_or(|of| key.graph == *of || owner(key).is_some_and(|owner| owner == of));
    let mut fitting: Vec<PhaseKey> = keys.iter().filter(|key| has(key) && is_of(key)).cloned().collect();
    if fitting.len() > 1 {
        let names: Vec<String> =
            fitting.iter().map(|key| owner(key).unwrap_or(key.graph.as_str()).to_owned()).collect();
        return Err(format!("several could be meant; name one of {} at the end", names.join(", ")));
    }
    if let Some(key) = fitting.pop() {
        return Ok(key);
    }
    if let Some(of) = of.filter(|_| !keys.iter().any(is_of)) {
        return Err(format!("nothing that has phases is called `{of}`; there are {}", joined(&keys)));
    }
    let known: Vec<&str> =
        spec.graphs.values().flat_map(|graph| &graph.phases).map(|phase| phase.name.as_str()).collect();
    let given = to.map_or("", PhaseName::as_str);
    let meant = nearest(given, known.iter().copied()).map(|name| format!("did you mean {name}? ")).unwrap_or_default();
    Err(format!("there is no phase `{given}`; {meant}there are {}", known.join(", ")))
}

/// Every graph with an owner, moved or not.
fn keys(spec: &FlowSpec, session: &Session) -> BTreeSet<PhaseKey> {
    let mut keys: BTreeSet<PhaseKey> = session.phases.keys().cloned().collect();
    for graph in spec.graphs.values() {
        let key = |owner| PhaseKey { graph: graph.name.clone(), owner };
        match graph.attached {
            Attached::Session => {
                keys.insert(key(Owner::Session));
            }
            Attached::Role => {
                let roles = spec.roles.values().filter(|role| role.graph.as_ref() == Some(&graph.name));
                keys.extend(roles.map(|role| key(Owner::Role(role.name.clone()))));
            }
            // Agents are known once they have moved.
            Attached::Agent => {}
        }
    }
    keys
}

fn owner(key: &PhaseKey) -> Option<&str> {
    match &key.owner {
        Owner::Session => None,
        Owner::Role(role) => Some(role.as_str()),
        Owner::Agent(agent) => Some(agent.as_str()),
    }
}

/// What guards are judged by, as far as it is known without fetching texts: good enough to be told, and judged anew when
/// a phase is proposed.
fn conditions(rules: &dyn Rules, state: &State, graph: &PhaseGraph, key: &PhaseKey, stand: &Stand) -> Conditions {
    let (nothing, about) = (Nothing, About::default());
    let texts = Texts::new(&nothing);
    let sight = Sight { session: &state.session, state: &state.flow, texts: &texts, about: &about };
    let names = graph.conditions_at(&stand.now.current).into_iter();
    let holds = names.map(|name| (name.to_owned(), rules.holds(sight, key, name)));
    Conditions { handovers: stand.handed.clone(), holds: holds.collect() }
}

struct Nothing;

impl Lookup for Nothing {
    fn find(&self, _: BodyId) -> Option<Arc<str>> {
        None
    }
}

fn joined<T: ToString>(names: impl IntoIterator<Item = T>) -> String {
    names.into_iter().map(|name| name.to_string()).collect::<Vec<_>>().join(", ")
}

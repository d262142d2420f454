//! Which of a session's phase graphs is meant by what somebody wrote.

use segue_core::event::{PhaseGraphKey, PhaseGraphOwner};
use segue_core::flow::FlowSpec;
use segue_core::ids::PhaseName;
use segue_core::session::Session;

use crate::suggest::{format_name_list, suggestion_hint};

/// The graph that is meant by a phase's name, and by names of graphs or of their owners where those are needed; `how` says
/// how to give one.
///
/// # Errors
/// None is meant, or more than one could be; says which there are.
pub fn resolve_phase_key(
    spec: &FlowSpec,
    session: &Session,
    to: Option<&PhaseName>,
    names: &[&str],
    how: &str,
) -> Result<PhaseGraphKey, String> {
    let keys = session.phase_graph_keys(spec);
    if keys.is_empty() {
        return Err(format!("the flow `{}` has no phases", spec.name));
    }
    let is_called = |key: &PhaseGraphKey, name: &str| key.graph == *name || phase_owner_name(key) == name;
    if let Some(name) = names.iter().find(|name| !keys.iter().any(|key| is_called(key, name))) {
        let known: Vec<&str> = keys.iter().flat_map(|key| [key.graph.as_str(), phase_owner_name(key)]).collect();
        return Err(format!("nothing called `{name}` has phases{}", suggestion_hint(name, known.iter().copied())));
    }
    let has = |key: &PhaseGraphKey| match to {
        Some(to) => spec.graphs.get(&key.graph).is_some_and(|graph| graph.find_phase(to).is_some()),
        None => true,
    };
    let called: Vec<&PhaseGraphKey> = keys.iter().filter(|key| names.iter().all(|name| is_called(key, name))).collect();
    let fitting: Vec<&PhaseGraphKey> = called.iter().copied().filter(|key| has(key)).collect();
    match fitting.as_slice() {
        [only] => Ok((*only).clone()),
        [] if called.is_empty() => {
            Err(format!("no graph is called {} at once", format_name_list(names.iter().copied())))
        }
        [] => {
            let to = to.map_or("", PhaseName::as_str);
            let graphs = called.iter().filter_map(|key| spec.graphs.get(&key.graph));
            let known: Vec<&str> = graphs.flat_map(|graph| &graph.phases).map(|phase| phase.name.as_str()).collect();
            Err(format!("there is no phase `{to}`{}", suggestion_hint(to, known.iter().copied())))
        }
        several => {
            let names = format_name_list(several.iter().map(|key| phase_owner_name(key)));
            Err(format!("several could be meant; name one of {names} {how}"))
        }
    }
}

/// What a graph is called by: whoever it is attached to.
fn phase_owner_name(key: &PhaseGraphKey) -> &str {
    match &key.owner {
        PhaseGraphOwner::Session => key.graph.as_str(),
        PhaseGraphOwner::Role(role) => role.as_str(),
        PhaseGraphOwner::Agent(agent) => agent.as_str(),
    }
}

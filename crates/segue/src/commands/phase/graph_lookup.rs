//! Finds the phase graph of a session that a user refers to.

use segue_core::event::{PhaseGraphKey, PhaseStateOwner};
use segue_core::flow::FlowSpec;
use segue_core::ids::PhaseName;
use segue_core::session::Session;

use crate::suggest::{format_name_list, suggestion_hint};

/// Returns the key of the one graph that has the phase `to` and whose name or owner matches all of `names`.
///
/// `how_to_name` completes the error for several matches, such as "with --owner".
///
/// # Errors
/// Returns a message with the possible names if no graph or more than one graph matches.
pub(crate) fn resolve_phase_key(
    spec: &FlowSpec,
    session: &Session,
    to: Option<&PhaseName>,
    names: &[&str],
    how_to_name: &str,
) -> Result<PhaseGraphKey, String> {
    let keys = session.phase_graph_keys(spec);
    if keys.is_empty() {
        return Err(format!("flow `{}` has no phases", spec.name));
    }
    let matches_name = |key: &PhaseGraphKey, name: &str| key.graph == *name || phase_owner_name(key) == name;
    if let Some(name) = names.iter().find(|name| !keys.iter().any(|key| matches_name(key, name))) {
        let known: Vec<&str> = keys.iter().flat_map(|key| [key.graph.as_str(), phase_owner_name(key)]).collect();
        let hint = suggestion_hint(name, known.iter().copied());
        return Err(format!("no phase graph is named or owned by `{name}`{hint}"));
    }
    let has_phase = |key: &PhaseGraphKey| match to {
        Some(to) => spec.graphs.get(&key.graph).is_some_and(|graph| graph.phases.iter().any(|phase| phase.name == *to)),
        None => true,
    };
    let named: Vec<&PhaseGraphKey> =
        keys.iter().filter(|key| names.iter().all(|name| matches_name(key, name))).collect();
    let matching: Vec<&PhaseGraphKey> = named.iter().copied().filter(|key| has_phase(key)).collect();
    match matching.as_slice() {
        [only] => Ok((*only).clone()),
        [] if named.is_empty() => {
            Err(format!("no phase graph matches all of {}", format_name_list(names.iter().copied())))
        }
        [] => {
            let to = to.map_or("", PhaseName::as_str);
            let graphs = named.iter().filter_map(|key| spec.graphs.get(&key.graph));
            let known: Vec<&str> = graphs.flat_map(|graph| &graph.phases).map(|phase| phase.name.as_str()).collect();
            Err(format!("there is no phase `{to}`{}", suggestion_hint(to, known.iter().copied())))
        }
        several => {
            let names = format_name_list(several.iter().map(|key| phase_owner_name(key)));
            Err(format!("several phase graphs match; choose one of {names} {how_to_name}"))
        }
    }
}

/// Returns the name of the role or agent that owns a graph, or the graph's own name.
fn phase_owner_name(key: &PhaseGraphKey) -> &str {
    match &key.owner {
        PhaseStateOwner::Session => key.graph.as_str(),
        PhaseStateOwner::Role(role) => role.as_str(),
        PhaseStateOwner::Agent(agent) => agent.as_str(),
    }
}

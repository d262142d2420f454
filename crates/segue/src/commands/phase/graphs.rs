//! Which of a session's phase graphs is meant by what somebody wrote.

use segue_core::event::{Owner, PhaseKey};
use segue_core::flow::FlowSpec;
use segue_core::ids::PhaseName;
use segue_core::session::Session;

use crate::suggest::{hint, listed};

/// The graph that is meant by a phase's name, and by names of graphs or of their owners where those are needed; `how` says
/// how to give one.
///
/// # Errors
/// None is meant, or more than one could be; says which there are.
pub fn meant(
    spec: &FlowSpec,
    session: &Session,
    to: Option<&PhaseName>,
    names: &[&str],
    how: &str,
) -> Result<PhaseKey, String> {
    let keys = session.phase_keys(spec);
    if keys.is_empty() {
        return Err(format!("the flow `{}` has no phases", spec.name));
    }
    let is_called = |key: &PhaseKey, name: &str| key.graph == *name || owner(key) == name;
    if let Some(name) = names.iter().find(|name| !keys.iter().any(|key| is_called(key, name))) {
        let known: Vec<&str> = keys.iter().flat_map(|key| [key.graph.as_str(), owner(key)]).collect();
        return Err(format!("nothing called `{name}` has phases{}", hint(name, known.iter().copied())));
    }
    let has = |key: &PhaseKey| match to {
        Some(to) => spec.graphs.get(&key.graph).is_some_and(|graph| graph.phase(to).is_some()),
        None => true,
    };
    let called: Vec<&PhaseKey> = keys.iter().filter(|key| names.iter().all(|name| is_called(key, name))).collect();
    let fitting: Vec<&PhaseKey> = called.iter().copied().filter(|key| has(key)).collect();
    match fitting.as_slice() {
        [only] => Ok((*only).clone()),
        [] if called.is_empty() => Err(format!("no graph is called {} at once", listed(names.iter().copied()))),
        [] => {
            let to = to.map_or("", PhaseName::as_str);
            let graphs = called.iter().filter_map(|key| spec.graphs.get(&key.graph));
            let known: Vec<&str> = graphs.flat_map(|graph| &graph.phases).map(|phase| phase.name.as_str()).collect();
            Err(format!("there is no phase `{to}`{}", hint(to, known.iter().copied())))
        }
        several => {
            let names = listed(several.iter().map(|key| owner(key)));
            Err(format!("several could be meant; name one of {names} {how}"))
        }
    }
}

/// What a graph is called by: whoever it is attached to.
fn owner(key: &PhaseKey) -> &str {
    match &key.owner {
        Owner::Session => key.graph.as_str(),
        Owner::Role(role) => role.as_str(),
        Owner::Agent(agent) => agent.as_str(),
    }
}

//! The names of sessions: which a user may choose, and those of child sessions and of sessions that open on demand.

use segue_core::ids::{CHILD_SEPARATOR, FlowName, SessionId};
use segue_core::limits::SESSION_LIMITS;

use crate::error::Error;

/// Separates the owner of a session from the rest of its name.
pub const NAMESPACE_SEPARATOR: char = '.';

/// Returns the name of the session from which a session descends: its own name without the numbers of child sessions,
/// and without the flow of a session that opens on demand.
#[must_use]
pub fn root_session_name(name: &str) -> &str {
    match parent_session_name(name) {
        Some(parent) => root_session_name(parent),
        None if on_demand_flow(&name.into()).is_some() => {
            name.rsplit_once(CHILD_SEPARATOR).map_or(name, |(root, _)| root)
        }
        None => name,
    }
}

/// Returns the name of the session that started a session; `None` if no session did.
#[must_use]
pub fn parent_session_name(name: &str) -> Option<&str> {
    let (parent, number) = name.rsplit_once(CHILD_SEPARATOR)?;
    (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())).then_some(parent)
}

/// Returns the flow of an on-demand session; `None` if the name is not that of one.
pub(crate) fn on_demand_flow(session: &SessionId) -> Option<FlowName> {
    let (name, flow) = session.as_str().rsplit_once(CHILD_SEPARATOR)?;
    // The name of a child ends with a number.
    let is_child = flow.is_empty() || flow.bytes().all(|byte| byte.is_ascii_digit());
    (!is_child && !name.contains(CHILD_SEPARATOR)).then(|| flow.into())
}

/// Checks that a name is valid for a session.
///
/// # Errors
/// The name is too long, or contains characters that are not allowed.
pub fn validate_session_name(session: SessionId) -> Result<SessionId, Error> {
    let name = session.as_str();
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let why = if name.is_empty() || name.len() > SESSION_LIMITS.session_id_bytes_max {
        format!("it must have 1 to {} characters", SESSION_LIMITS.session_id_bytes_max)
    } else if !name.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        "it must begin with a letter or a digit".to_owned()
    } else if !name.chars().all(is_allowed) {
        "it may contain only letters, digits, `-`, `_` and `.`".to_owned()
    } else {
        return Ok(session);
    };
    Err(Error::BadSessionName { name: name.to_owned(), why })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_demand_sessions_and_children_have_different_names() {
        let flow = |session: &str| on_demand_flow(&session.into()).map(|flow| flow.to_string());
        assert_eq!(flow("default~workspace").as_deref(), Some("workspace"));
        assert_eq!(flow("acme.1~workspace").as_deref(), Some("workspace"));
        for other in ["talk", "talk~1", "default~workspace~1", "talk~1~workspace", "talk~"] {
            assert_eq!(flow(other), None, "{other}");
        }
    }
}

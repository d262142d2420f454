//! The parts of a session's name: its owner, and the flow of a session that opens when it is first asked.

use crate::ids::{FlowName, SessionId};

/// Separates the name of a parent session from the number of its child, and the name of an on-demand session from its
/// flow. Users cannot choose names that contain it.
pub const CHILD_SEPARATOR: char = '~';
/// Separates the owner of a session from the rest of its name.
const NAMESPACE_SEPARATOR: char = '.';

/// Returns the owner of a session: the part of its name before the first separator, if it can be an owner's name.
#[must_use]
pub fn session_owner(session: &SessionId) -> Option<&str> {
    let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let (owner, _) = session.as_str().split_once(NAMESPACE_SEPARATOR)?;
    Some(owner).filter(|owner| !owner.is_empty() && owner.chars().all(is_allowed))
}

/// Returns the name of an on-demand session that belongs to the same owner as `asker`. It opens when it is first asked;
/// see [`FlowSpec::opens_on_demand`](crate::flow::FlowSpec::opens_on_demand).
///
/// # Errors
/// Fails with the reason if `name` is empty, too long, or contains other characters than letters, digits, `-` and `_`.
pub fn on_demand_session(asker: &SessionId, name: &str, flow: &FlowName) -> Result<SessionId, String> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if !name.starts_with(|c: char| c.is_ascii_alphanumeric()) || !name.chars().all(is_allowed) {
        return Err(format!(
            "`{name}` is not a valid name: it must begin with a letter or a digit and contain only letters, digits, \
             `-` and `_`"
        ));
    }
    let prefix = session_owner(asker).map_or_else(String::new, |owner| format!("{owner}{NAMESPACE_SEPARATOR}"));
    let session = format!("{prefix}{name}{CHILD_SEPARATOR}{flow}");
    if session.len() > crate::limits::SESSION_ID_BYTES_MAX {
        let most = crate::limits::SESSION_ID_BYTES_MAX - (session.len() - name.len());
        return Err(format!("`{name}` is too long: at most {most} characters are allowed"));
    }
    Ok(session.into())
}

/// Returns the flow of an on-demand session; `None` if the name is not that of one.
#[must_use]
pub fn on_demand_flow(session: &SessionId) -> Option<FlowName> {
    let (name, flow) = session.as_str().rsplit_once(CHILD_SEPARATOR)?;
    // The name of a child ends with a number.
    let is_child = flow.is_empty() || flow.bytes().all(|byte| byte.is_ascii_digit());
    (!is_child && !name.contains(CHILD_SEPARATOR)).then(|| flow.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_demand_session_has_the_owner_of_its_asker() {
        let flow = FlowName::from("workspace");
        let name = |asker: &str, name: &str| on_demand_session(&asker.into(), name, &flow);
        assert_eq!(name("talk", "default"), Ok("default~workspace".into()));
        assert_eq!(name("acme.talk~3", "default"), Ok("acme.default~workspace".into()));
        for bad in ["", "-a", "a.b", "a~b", "ä", &"a".repeat(60)] {
            assert!(name("talk", bad).is_err(), "{bad}");
        }
    }

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

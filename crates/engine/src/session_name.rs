//! The names of sessions: which a user may choose, and those of child sessions.

use segue_core::ids::SessionId;
use segue_core::limits::SESSION_LIMITS;
use segue_core::session_name::{CHILD_SEPARATOR, on_demand_flow};

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

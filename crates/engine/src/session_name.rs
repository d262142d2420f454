//! The names of sessions: which a user may choose, and those of child sessions.

use segue_core::decide::CHILD_SEPARATOR;
use segue_core::ids::SessionId;
use segue_core::limits::SESSION_LIMITS;

use crate::error::Error;

/// Returns the name of the session from which a session descends: its own name without the numbers of child sessions.
#[must_use]
pub fn root_session_name(name: &str) -> &str {
    match name.rsplit_once(CHILD_SEPARATOR) {
        Some((parent, number)) if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) => {
            root_session_name(parent)
        }
        _ => name,
    }
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

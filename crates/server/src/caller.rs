//! Who asks, and what they may see. The sessions of an owner live in a room of their own: every name an owner says is a name in
//! that room, so there is no name by which they could mean another's session.

use std::collections::BTreeSet;

use segue_core::ids::{FlowName, SessionId};
use segue_core::limits::SESSION_ID_BYTES_MAX;
use segue_engine::{SessionQuery, engine::validate_session_name};

use crate::limits::OWNER_BYTES_MAX;
use crate::problem::HttpProblem;

/// What parts an owner from the name in a session's full name. No owner's name holds it.
pub const NAMESPACE_SEPARATOR: char = '.';

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Caller {
    /// The id of their key; nothing for one who needed none.
    pub key_id: Option<String>,
    /// Whose sessions they see; nothing: everybody's.
    pub owner: Option<String>,
    /// The flows they may use; nothing: all.
    pub allowed_flows: Option<BTreeSet<FlowName>>,
}

impl Caller {
    /// Whether they may see and do everything.
    #[must_use]
    pub fn is_operator(&self) -> bool {
        self.owner.is_none() && self.allowed_flows.is_none()
    }

    /// # Errors
    /// They are not.
    pub fn require_operator(&self) -> Result<(), HttpProblem> {
        if self.is_operator() {
            return Ok(());
        }
        Err(HttpProblem::new("not-allowed", "this key is limited to an owner or to flows; use one that is not"))
    }

    /// Whether they may use a flow.
    #[must_use]
    pub fn can_use_flow(&self, flow: &FlowName) -> bool {
        self.allowed_flows.as_ref().is_none_or(|flows| flows.contains(flow))
    }

    /// The full name of a session that they call `name`.
    ///
    /// # Errors
    /// No session can have that name.
    pub fn full_session_id(&self, name: &str) -> Result<SessionId, HttpProblem> {
        let prefix = self.namespace_prefix();
        let bytes_max = SESSION_ID_BYTES_MAX - prefix.len().min(SESSION_ID_BYTES_MAX - 1);
        if name.is_empty() || name.len() > bytes_max {
            let why = format!("it must have 1 to {bytes_max} characters");
            return Err(invalid_session_name(name, &why));
        }
        validate_session_name(name.into()).map_err(|error| match error {
            segue_engine::Error::BadSessionName { why, .. } => invalid_session_name(name, &why),
            other => HttpProblem::from_engine_error(&other, self),
        })?;
        Ok(SessionId::from(format!("{prefix}{name}")))
    }

    /// What they call a session.
    #[must_use]
    pub fn public_session_name(&self, session: &SessionId) -> String {
        let full = session.as_str();
        full.strip_prefix(self.namespace_prefix().as_str()).unwrap_or(full).to_owned()
    }

    /// Whether a session, of which the flow is known, is there for them.
    #[must_use]
    pub fn can_see_session(&self, session: &SessionId, flow: &FlowName) -> bool {
        session.as_str().starts_with(self.namespace_prefix().as_str()) && self.can_use_flow(flow)
    }

    /// The same query, of what they may see.
    #[must_use]
    pub fn restrict_query(&self, mut query: SessionQuery) -> SessionQuery {
        query.name_prefix = self.owner.as_ref().map(|_| self.namespace_prefix());
        if let Some(flows) = &self.allowed_flows {
            let wanted = std::mem::take(&mut query.flows);
            let allowed = flows.iter().map(ToString::to_string);
            query.flows = allowed.filter(|flow| wanted.is_empty() || wanted.contains(flow)).collect();
            if query.flows.is_empty() {
                // None of what is wanted is allowed: no flow is called so.
                query.flows.push(String::new());
            }
        }
        query
    }

    fn namespace_prefix(&self) -> String {
        self.owner.as_ref().map(|owner| format!("{owner}{NAMESPACE_SEPARATOR}")).unwrap_or_default()
    }
}

/// Whose session it is, as its full name says; nothing for one in no room.
#[must_use]
pub fn session_owner(session: &SessionId) -> Option<&str> {
    session.as_str().split_once(NAMESPACE_SEPARATOR).map(|(owner, _)| owner)
}

/// Whether a name can be an owner's.
///
/// # Errors
/// It cannot, and why.
pub fn validate_owner_name(name: &str) -> Result<(), String> {
    let fitting = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.is_empty() || name.len() > OWNER_BYTES_MAX {
        return Err(format!("an owner's name has 1 to {OWNER_BYTES_MAX} characters"));
    }
    if !name.chars().all(fitting) || name.starts_with('-') {
        return Err("an owner's name has small letters, digits and `-`, and does not begin with `-`".to_owned());
    }
    Ok(())
}

fn invalid_session_name(name: &str, why: &str) -> HttpProblem {
    let error = segue_engine::Error::BadSessionName { name: name.to_owned(), why: why.to_owned() };
    HttpProblem::from_engine_error(&error, &Caller::default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(name: &str) -> Caller {
        Caller { owner: Some(name.into()), ..Caller::default() }
    }

    #[test]
    fn what_an_owner_says_stays_in_its_room() {
        let acme = owner("acme");
        let full = acme.full_session_id("fox").expect("a name");
        assert_eq!(full.as_str(), "acme.fox");
        assert_eq!(acme.public_session_name(&full), "fox");
        for name in ["other.fox", "..", "acme.fox"] {
            if let Ok(full) = acme.full_session_id(name) {
                assert!(full.as_str().starts_with("acme."), "{name} leads to {full}");
            }
        }
        assert!(!acme.can_see_session(&"acme2.fox".into(), &"chat".into()));
        assert!(!acme.can_see_session(&"fox".into(), &"chat".into()));
    }

    #[test]
    fn a_name_fits_with_its_room_or_is_refused() {
        let acme = owner("acme");
        assert!(acme.full_session_id(&"x".repeat(59)).is_ok());
        let problem = acme.full_session_id(&"x".repeat(60)).expect_err("too long");
        assert_eq!(problem.code, "bad-session-name");
        assert!(problem.detail.contains("1 to 59 characters"), "{}", problem.detail);
        for bad in ["", "a b", "-a", "a/b", "ü"] {
            assert!(acme.full_session_id(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_query_is_narrowed_to_what_may_be_seen() {
        let flows = |names: &[&str]| Some(names.iter().map(|name| FlowName::from(*name)).collect());
        let caller = Caller { allowed_flows: flows(&["chat", "team"]), ..owner("acme") };
        let wanted = |wanted: &[&str]| SessionQuery {
            flows: wanted.iter().map(|flow| (*flow).to_owned()).collect(),
            ..SessionQuery::newest(1)
        };
        assert_eq!(caller.restrict_query(wanted(&[])).flows, ["chat", "team"]);
        assert_eq!(caller.restrict_query(wanted(&["team"])).flows, ["team"]);
        assert_eq!(caller.restrict_query(wanted(&["other"])).flows, [""]);
        assert_eq!(caller.restrict_query(wanted(&[])).name_prefix.as_deref(), Some("acme."));
        assert_eq!(Caller::default().restrict_query(wanted(&["x"])), wanted(&["x"]));
    }

    #[test]
    fn an_owner_cannot_be_named_like_a_room_within_another() {
        assert!(validate_owner_name("acme-2").is_ok());
        for bad in ["", "a.b", "A", "-a", "a b", "abcdefghijklmnopqrstuvwxyz"] {
            assert!(validate_owner_name(bad).is_err(), "{bad}");
        }
    }
}

//! The caller of a request, and what it may see. The sessions of an owner are in a namespace of their own. Every session name
//! that a caller gives is resolved within its namespace, so no name can refer to another owner's session.

use std::collections::BTreeSet;
use std::sync::Arc;

use segue_core::ids::{FlowName, SessionId};
use segue_core::limits::SESSION_LIMITS;
use segue_engine::{SessionQuery, root_session_name, validate_session_name};

use crate::limits::OWNER_BYTES_MAX;
use crate::problem::HttpProblem;
use crate::usage::ApiKeyLimits;

/// Separates the owner from the name in a full session name. Owner names cannot contain it.
pub(crate) const NAMESPACE_SEPARATOR: char = segue_engine::NAMESPACE_SEPARATOR;

/// The caller of a request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Caller {
    /// The id of the key; `None` if the request needed none.
    pub key_id: Option<String>,
    /// The owner whose sessions the caller sees; `None` for all sessions.
    pub owner: Option<String>,
    /// The flows that the caller may use; `None` for all flows.
    pub allowed_flows: Option<BTreeSet<FlowName>>,
    /// The limits of the key.
    pub limits: Arc<ApiKeyLimits>,
}

impl Caller {
    /// Returns whether the caller has no restrictions.
    #[must_use]
    pub(crate) fn is_operator(&self) -> bool {
        self.owner.is_none() && self.allowed_flows.is_none()
    }

    /// Checks that the caller is an operator.
    ///
    /// # Errors
    /// The caller's key is limited to an owner or to flows.
    pub(crate) fn require_operator(&self) -> Result<(), HttpProblem> {
        if self.is_operator() {
            return Ok(());
        }
        Err(HttpProblem::new("forbidden", "this key is limited to an owner or to flows; use a key without limits"))
    }

    #[must_use]
    pub(crate) fn can_use_flow(&self, flow: &FlowName) -> bool {
        self.allowed_flows.as_ref().is_none_or(|flows| flows.contains(flow))
    }

    /// Returns the full name of the session that the caller calls `name`.
    ///
    /// # Errors
    /// No session can have that name.
    pub(crate) fn full_session_id(&self, name: &str) -> Result<SessionId, HttpProblem> {
        let prefix = self.namespace_prefix();
        let bytes_max = SESSION_LIMITS.session_id_bytes_max - prefix.len().min(SESSION_LIMITS.session_id_bytes_max - 1);
        // The name of a child session is that of its parent with a number.
        let root = root_session_name(name);
        if root.is_empty() || root.len() > bytes_max {
            let reason = format!("it must have 1 to {bytes_max} characters");
            return Err(invalid_session_name(name, &reason));
        }
        validate_session_name(root.into()).map_err(|error| match error {
            segue_engine::Error::BadSessionName { why, .. } => invalid_session_name(name, &why),
            other => HttpProblem::from_engine_error(&other, self),
        })?;
        Ok(SessionId::from(format!("{prefix}{name}")))
    }

    /// Returns the name by which the caller knows a session.
    #[must_use]
    pub(crate) fn public_session_name(&self, session: &SessionId) -> String {
        let full = session.as_str();
        full.strip_prefix(self.namespace_prefix().as_str()).unwrap_or(full).to_owned()
    }

    /// Returns whether the caller may see a session of the given flow.
    #[must_use]
    pub(crate) fn can_see_session(&self, session: &SessionId, flow: &FlowName) -> bool {
        session.as_str().starts_with(self.namespace_prefix().as_str()) && self.can_use_flow(flow)
    }

    /// Restricts a query to the sessions that the caller may see.
    #[must_use]
    pub(crate) fn restrict_query(&self, mut query: SessionQuery) -> SessionQuery {
        query.name_prefix = self.owner.as_ref().map(|_| self.namespace_prefix());
        if let Some(flows) = &self.allowed_flows {
            let wanted = std::mem::take(&mut query.flows);
            let allowed = flows.iter().map(ToString::to_string);
            query.flows = allowed.filter(|flow| wanted.is_empty() || wanted.contains(flow)).collect();
            if query.flows.is_empty() {
                // No requested flow is allowed. No flow has an empty name, so the query finds nothing.
                query.flows.push(String::new());
            }
        }
        query
    }

    fn namespace_prefix(&self) -> String {
        self.owner.as_ref().map(|owner| format!("{owner}{NAMESPACE_SEPARATOR}")).unwrap_or_default()
    }
}

/// Returns the owner of a session; `None` for a session outside any namespace.
#[must_use]
pub(crate) fn session_owner(session: &SessionId) -> Option<&str> {
    session.as_str().split_once(NAMESPACE_SEPARATOR).map(|(owner, _)| owner)
}

/// Checks that a name can be an owner's.
///
/// # Errors
/// The reason why it cannot.
pub(crate) fn validate_owner_name(name: &str) -> Result<(), String> {
    let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.is_empty() || name.len() > OWNER_BYTES_MAX {
        return Err(format!("an owner's name must have 1 to {OWNER_BYTES_MAX} characters"));
    }
    if !name.chars().all(is_allowed) || name.starts_with('-') {
        return Err(
            "an owner's name may contain lowercase letters, digits and `-`, and must not start with `-`".to_owned()
        );
    }
    Ok(())
}

fn invalid_session_name(name: &str, reason: &str) -> HttpProblem {
    let error = segue_engine::Error::BadSessionName { name: name.to_owned(), why: reason.to_owned() };
    HttpProblem::from_engine_error(&error, &Caller::default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(name: &str) -> Caller {
        Caller { owner: Some(name.into()), ..Caller::default() }
    }

    #[test]
    fn names_resolve_within_the_owners_namespace() {
        let acme = owner("acme");
        let full = acme.full_session_id("fox").expect("a name");
        assert_eq!(full.as_str(), "acme.fox");
        assert_eq!(acme.public_session_name(&full), "fox");
        for name in ["other.fox", "..", "acme.fox"] {
            if let Ok(full) = acme.full_session_id(name) {
                assert!(full.as_str().starts_with("acme."), "{name} resolves to {full}");
            }
        }
        assert!(!acme.can_see_session(&"acme2.fox".into(), &"chat".into()));
        assert!(!acme.can_see_session(&"fox".into(), &"chat".into()));
    }

    #[test]
    fn namespace_counts_towards_the_length_limit() {
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
    fn query_is_restricted_to_visible_sessions() {
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
    fn owner_name_cannot_contain_a_separator() {
        assert!(validate_owner_name("acme-2").is_ok());
        for bad in ["", "a.b", "A", "-a", "a b", "abcdefghijklmnopqrstuvwxyz"] {
            assert!(validate_owner_name(bad).is_err(), "{bad}");
        }
    }
}

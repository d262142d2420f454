//! Names and numeric ids. A name comes from a flow's data or from the user. A numeric id is counted within one session,
//! so it follows from the journal and needs no randomness. The name of a session has parts: its owner, and the flow of a
//! session that opens when it is first asked.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Milliseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default)]
#[serde(transparent)]
pub struct UnixMillis(pub u64);

impl UnixMillis {
    /// Returns the time `ms` milliseconds later, saturating.
    #[must_use]
    pub fn plus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// Returns the milliseconds since `earlier`; zero if the clock went backwards.
    #[must_use]
    pub fn ms_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.into())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text.into())
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl PartialEq<str> for $name {
            fn eq(&self, other: &str) -> bool {
                &*self.0 == other
            }
        }

        impl PartialEq<&str> for $name {
            fn eq(&self, other: &&str) -> bool {
                &*self.0 == *other
            }
        }
    )*};
}

names! {
    /// The id of a session. The user chooses it, or the engine creates it.
    SessionId,
    /// The name of a flow.
    FlowName,
    /// The name of a role.
    RoleName,
    /// The name of an ask of a recipe, which selects the fragments of a call.
    AskName,
    /// An agent that plays a role, such as `coder-1`, or the agent that it talks to.
    AgentName,
    /// The name of an agent's work item.
    WorkItemName,
    /// The name of a model in the configuration.
    ModelName,
    /// The name of a fragment.
    FragmentName,
    /// The name of a phase in its graph.
    PhaseName,
    /// The name of a phase graph in its flow.
    PhaseGraphName,
    /// The name of a tool.
    ToolName,
    /// A kind of handover.
    HandoverKind,
    /// A key that a client sends so that a repeated request is recognised.
    IdempotencyKey,
}

macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident($prefix:literal)),* $(,)?) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default)]
        #[serde(transparent)]
        pub struct $name(pub u32);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&format!(concat!($prefix, "{}"), self.0))
            }
        }

        impl std::str::FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                text.strip_prefix($prefix)
                    .unwrap_or(text)
                    .parse()
                    .map(Self)
                    .map_err(|_| format!(concat!("`{}` is not a valid id (like ", $prefix, "3)"), text))
            }
        }
    )*};
}

numbers! {
    /// A message within a session.
    MessageId("m"),
    /// A turn within a session; the first is 1.
    TurnId("t"),
    /// A model call within a session.
    CallId("c"),
    /// A thread within a session.
    ThreadId("th"),
    /// A tool run within a session.
    ToolRunId("x"),
    /// A timer within a session.
    TimerId("w"),
    /// A handover within a session.
    HandoverId("h"),
    /// A child session of a session.
    ChildId("k"),
    /// A question to or from another session.
    AskId("q"),
}

/// The sequence number of an event in its journal. The first event has 1; 0 means that there is none yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default)]
#[serde(transparent)]
pub struct Seq(pub u64);

impl Seq {
    /// Returns the next sequence number.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0.to_string())
    }
}

/// The epoch of a lease. The store rejects a write with an older epoch than the current one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default)]
#[serde(transparent)]
pub struct LeaseEpoch(pub u64);

/// The identity of a session, given by the store when the session is created. It is never used again, also not for a
/// session that gets the name of a deleted one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default)]
#[serde(transparent)]
pub struct SessionUid(pub u64);

impl fmt::Display for SessionUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The id of a submission to a session's inbox. The submitter chooses it at random, so that a repeated submission is
/// recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default)]
#[serde(transparent)]
pub struct SubmissionId(pub u64);

impl fmt::Display for SubmissionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{:016x}", self.0))
    }
}

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
}

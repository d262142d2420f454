//! Names and numbers. A name comes from a flow's data or from the user; a number is counted within one session, so
//! it follows from the journal and needs no source of randomness.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Milliseconds since the Unix epoch, as told by whoever hands in an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default)]
#[serde(transparent)]
pub struct UnixMillis(pub u64);

impl UnixMillis {
    /// The moment `ms` later, at most the end of time.
    #[must_use]
    pub fn plus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// Milliseconds from `earlier` to here; zero if the clock went backwards.
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
            /// The name as text.
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
    /// One conversation. Chosen by the user or made by the engine.
    SessionId,
    /// A kind of conversation.
    FlowName,
    /// Who speaks.
    RoleName,
    /// One of the things a role can be asked; picks the fragments of that call.
    AskName,
    /// An individual among those who share a role (`coder-1`), or the other side of a talk.
    AgentName,
    /// What an agent works on.
    WorkItemName,
    /// A model as the configuration names it.
    ModelName,
    /// A piece of a prompt.
    FragmentName,
    /// A phase within its graph.
    PhaseName,
    /// A phase graph within its flow.
    PhaseGraphName,
    /// A tool a model may call.
    ToolName,
    /// A type of handover document.
    HandoverKind,
    /// What a client sends along so that a repeated request is recognised.
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
                    .map_err(|_| format!(concat!("`{}` is no number of this kind; expected something like ", $prefix, "3"), text))
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
}

/// Place of an event in its session's journal. The first event has 1; 0 means "nothing yet".
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default)]
#[serde(transparent)]
pub struct Seq(pub u64);

impl Seq {
    /// The place after this one.
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

/// Names one writer's reign over a session. An append with an older epoch than the store's is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default)]
#[serde(transparent)]
pub struct LeaseEpoch(pub u64);

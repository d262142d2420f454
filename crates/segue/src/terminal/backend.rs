//! The engine of a conversation: a local one, or that of a server. Both are read through a local engine; messages and
//! commands go to the engine that owns the session.

use segue_core::decide::{InputRefusal, OperatorCommand};
use segue_core::ids::{CallId, FlowName, MessageId, Seq, SessionId};
use segue_engine::{
    Engine, Error, RecomputedCallComparison, SessionOptions, SessionSubscription, SessionUpdate, UserMessage,
};

use crate::commands::recompute::recompute_call;
use crate::remote::{RemoteServerConnection, RemoteServerProblem, RemoteSubscription};

/// A local or remote engine.
#[derive(Clone, Copy)]
pub(crate) enum LocalOrRemoteEngine<'e> {
    Local(&'e Engine),
    Remote(&'e RemoteServerConnection),
}

/// The updates of a session from either engine.
pub(crate) enum SessionUpdateStream {
    Local(Box<SessionSubscription>),
    Remote(Box<RemoteSubscription>),
}

impl SessionUpdateStream {
    /// Returns the next update. This method is cancel safe.
    pub(crate) async fn next(&mut self) -> anyhow::Result<SessionUpdate> {
        match self {
            Self::Local(updates) => Ok(updates.next_update().await?),
            Self::Remote(updates) => updates.next().await,
        }
    }

    /// Returns the sequence number of the last returned event.
    pub(crate) fn last_seq(&self) -> Seq {
        match self {
            Self::Local(updates) => updates.last_seq(),
            Self::Remote(updates) => updates.last_seq(),
        }
    }
}

impl<'e> LocalOrRemoteEngine<'e> {
    /// Returns the local engine that reads the sessions.
    pub(crate) fn engine(self) -> &'e Engine {
        match self {
            Self::Local(engine) => engine,
            Self::Remote(remote) => &remote.engine,
        }
    }

    pub(crate) async fn open_session(self, flow: &FlowName, options: SessionOptions) -> anyhow::Result<SessionId> {
        match self {
            Self::Local(engine) => Ok(engine.open_session(flow, options).await?),
            Self::Remote(remote) => remote.open_session(flow, &options).await,
        }
    }

    /// Acquires the session, and returns an error if another process holds it. A server does this by itself.
    pub(crate) async fn wake_session(self, session: &SessionId) -> anyhow::Result<()> {
        match self {
            Self::Local(engine) => Ok(engine.wake_session(session).await?),
            Self::Remote(_) => Ok(()),
        }
    }

    pub(crate) async fn send_message(self, session: &SessionId, message: UserMessage) -> anyhow::Result<MessageId> {
        match self {
            Self::Local(engine) => Ok(engine.send_message(session, message).await?),
            Self::Remote(remote) => remote.send_message(session, &message).await,
        }
    }

    pub(crate) async fn send_command(self, session: &SessionId, command: OperatorCommand) -> anyhow::Result<()> {
        match self {
            Self::Local(engine) => Ok(engine.apply_command(session, command).await?),
            Self::Remote(remote) => remote.send_command(session, &command).await,
        }
    }

    pub(crate) async fn fork_session(self, session: &SessionId, name: Option<SessionId>) -> anyhow::Result<SessionId> {
        match self {
            Self::Local(engine) => Ok(engine.fork_session(session, None, name).await?),
            Self::Remote(remote) => remote.fork_session(session, name.as_ref()).await,
        }
    }

    pub(crate) async fn recompute_call(
        self,
        session: &SessionId,
        call: CallId,
        model: Option<&str>,
        set: &[String],
    ) -> anyhow::Result<RecomputedCallComparison> {
        match self {
            Self::Local(engine) => recompute_call(engine, session, call, model, set).await,
            Self::Remote(remote) => remote.recompute_call(session, call, model, set).await,
        }
    }

    pub(crate) async fn subscribe(self, session: &SessionId, after: Seq) -> anyhow::Result<SessionUpdateStream> {
        Ok(match self {
            Self::Local(engine) => SessionUpdateStream::Local(Box::new(engine.subscribe(session, after).await?)),
            Self::Remote(remote) => SessionUpdateStream::Remote(Box::new(remote.subscribe(session, after).await?)),
        })
    }
}

/// Whether an error only says that no turn is running.
pub(crate) fn is_nothing_running_error(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(Error::Refused(InputRefusal::NoTurnRunning)))
        || RemoteServerProblem::has_code(error, "nothing-runs")
}

/// Whether an error says that the turn of a command is not the current one.
pub(crate) fn is_stale_turn_error(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(Error::Refused(InputRefusal::StaleTurn { .. })))
        || RemoteServerProblem::has_code(error, "stale-turn")
}

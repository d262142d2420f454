//! Whom the conversation is held with: the engine here, or one behind a server. Both are looked at in the same way; what is to happen is
//! told to the one it concerns.

use segue_core::decide::{InputRefusal, OperatorCommand};
use segue_core::ids::{CallId, FlowName, MessageId, Seq, SessionId};
use segue_engine::{Engine, Error, RecomputeResult, SessionOptions, SessionUpdate, Subscription, UserMessage};

use crate::commands::recompute::recompute_call;
use crate::remote::{RemoteEngine, RemoteSubscription, ServerProblem};

/// Whom the conversation is held with.
#[derive(Clone, Copy)]
pub enum Backend<'e> {
    /// The engine here.
    Local(&'e Engine),
    /// One behind a server.
    Remote(&'e RemoteEngine),
}

/// What happens in a session.
pub enum UpdateStream {
    /// Here.
    Local(Box<Subscription>),
    /// Behind a server.
    Remote(Box<RemoteSubscription>),
}

impl UpdateStream {
    /// The next update. Dropping the future loses nothing.
    pub async fn next(&mut self) -> anyhow::Result<SessionUpdate> {
        match self {
            Self::Local(updates) => Ok(updates.next_update().await?),
            Self::Remote(updates) => updates.next().await,
        }
    }

    /// The place of the last event given out.
    pub fn last_seq(&self) -> Seq {
        match self {
            Self::Local(updates) => updates.last_seq(),
            Self::Remote(updates) => updates.last_seq(),
        }
    }
}

impl<'e> Backend<'e> {
    /// What sessions are looked at with.
    pub fn engine(self) -> &'e Engine {
        match self {
            Self::Local(engine) => engine,
            Self::Remote(remote) => &remote.engine,
        }
    }

    pub async fn open_session(self, flow: &FlowName, opening: SessionOptions) -> anyhow::Result<SessionId> {
        match self {
            Self::Local(engine) => Ok(engine.open_session(flow, opening).await?),
            Self::Remote(remote) => remote.open_session(flow, &opening).await,
        }
    }

    /// Says so at once if another process has the session; a server sees to that itself.
    pub async fn wake_session(self, session: &SessionId) -> anyhow::Result<()> {
        match self {
            Self::Local(engine) => Ok(engine.wake_session(session).await?),
            Self::Remote(_) => Ok(()),
        }
    }

    pub async fn send_message(self, session: &SessionId, message: UserMessage) -> anyhow::Result<MessageId> {
        match self {
            Self::Local(engine) => Ok(engine.send_message(session, message).await?),
            Self::Remote(remote) => remote.send_message(session, &message).await,
        }
    }

    pub async fn send_command(self, session: &SessionId, command: OperatorCommand) -> anyhow::Result<()> {
        match self {
            Self::Local(engine) => Ok(engine.apply_command(session, command).await?),
            Self::Remote(remote) => remote.send_command(session, &command).await,
        }
    }

    pub async fn fork_session(self, session: &SessionId, name: Option<SessionId>) -> anyhow::Result<SessionId> {
        match self {
            Self::Local(engine) => Ok(engine.fork_session(session, None, name).await?),
            Self::Remote(remote) => remote.fork_session(session, name.as_ref()).await,
        }
    }

    pub async fn recompute_call(
        self,
        session: &SessionId,
        call: CallId,
        model: Option<&str>,
        set: &[String],
    ) -> anyhow::Result<RecomputeResult> {
        match self {
            Self::Local(engine) => recompute_call(engine, session, call, model, set).await,
            Self::Remote(remote) => remote.recompute_call(session, call, model, set).await,
        }
    }

    pub async fn subscribe(self, session: &SessionId, after: Seq) -> anyhow::Result<UpdateStream> {
        Ok(match self {
            Self::Local(engine) => UpdateStream::Local(Box::new(engine.subscribe(session, after).await?)),
            Self::Remote(remote) => UpdateStream::Remote(Box::new(remote.subscribe(session, after).await?)),
        })
    }
}

/// Whether all that happened is that there was nothing to stop.
pub fn is_nothing_running_error(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(Error::Refused(InputRefusal::NoTurnRunning)))
        || ServerProblem::has_code(error, "nothing-runs")
}

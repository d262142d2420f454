//! Whom the conversation is held with: the engine here, or one behind a server. Both are looked at in the same way; what is to happen is
//! told to the one it concerns.

use segue_core::decide::{Command, Refusal};
use segue_core::ids::{CallId, FlowName, MessageId, Seq, SessionId};
use segue_engine::{Engine, Error, Message, Opening, Recomputed, Subscription, Update};

use crate::commands::recompute::once_more;
use crate::remote::{Listener, Problem, Remote};

/// Whom the conversation is held with.
#[derive(Clone, Copy)]
pub enum Partner<'e> {
    /// The engine here.
    Here(&'e Engine),
    /// One behind a server.
    There(&'e Remote),
}

/// What happens in a session.
pub enum Updates {
    /// Here.
    Here(Box<Subscription>),
    /// Behind a server.
    There(Box<Listener>),
}

impl Updates {
    /// The next update. Dropping the future loses nothing.
    pub async fn next(&mut self) -> anyhow::Result<Update> {
        match self {
            Self::Here(updates) => Ok(updates.next().await?),
            Self::There(updates) => updates.next().await,
        }
    }

    /// The place of the last event given out.
    pub fn seen(&self) -> Seq {
        match self {
            Self::Here(updates) => updates.seen(),
            Self::There(updates) => updates.seen(),
        }
    }
}

impl<'e> Partner<'e> {
    /// What sessions are looked at with.
    pub fn engine(self) -> &'e Engine {
        match self {
            Self::Here(engine) => engine,
            Self::There(remote) => &remote.engine,
        }
    }

    pub async fn open(self, flow: &FlowName, opening: Opening) -> anyhow::Result<SessionId> {
        match self {
            Self::Here(engine) => Ok(engine.open(flow, opening).await?),
            Self::There(remote) => remote.open(flow, &opening).await,
        }
    }

    /// Says so at once if another process has the session; a server sees to that itself.
    pub async fn wake(self, session: &SessionId) -> anyhow::Result<()> {
        match self {
            Self::Here(engine) => Ok(engine.wake(session).await?),
            Self::There(_) => Ok(()),
        }
    }

    pub async fn send(self, session: &SessionId, message: Message) -> anyhow::Result<MessageId> {
        match self {
            Self::Here(engine) => Ok(engine.send(session, message).await?),
            Self::There(remote) => remote.send(session, &message).await,
        }
    }

    pub async fn command(self, session: &SessionId, command: Command) -> anyhow::Result<()> {
        match self {
            Self::Here(engine) => Ok(engine.command(session, command).await?),
            Self::There(remote) => remote.command(session, &command).await,
        }
    }

    pub async fn fork(self, session: &SessionId, name: Option<SessionId>) -> anyhow::Result<SessionId> {
        match self {
            Self::Here(engine) => Ok(engine.fork(session, None, name).await?),
            Self::There(remote) => remote.fork(session, name.as_ref()).await,
        }
    }

    pub async fn once_more(
        self,
        session: &SessionId,
        call: CallId,
        model: Option<&str>,
        set: &[String],
    ) -> anyhow::Result<Recomputed> {
        match self {
            Self::Here(engine) => once_more(engine, session, call, model, set).await,
            Self::There(remote) => remote.once_more(session, call, model, set).await,
        }
    }

    pub async fn subscribe(self, session: &SessionId, after: Seq) -> anyhow::Result<Updates> {
        Ok(match self {
            Self::Here(engine) => Updates::Here(Box::new(engine.subscribe(session, after).await?)),
            Self::There(remote) => Updates::There(Box::new(remote.listen(session, after).await?)),
        })
    }
}

/// Whether all that happened is that there was nothing to stop.
pub fn nothing_ran(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(Error::Refused(Refusal::NothingRuns))) || Problem::is(error, "nothing-runs")
}

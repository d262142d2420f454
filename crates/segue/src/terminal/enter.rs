//! Which session the conversation is about, how it stood then, and what is said on entering it.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use anyhow::bail;
use segue_core::decide::Catalog;
use segue_core::event::Busy;
use segue_core::flow::Rules;
use segue_core::ids::{FlowName, SessionId};
use segue_core::session::State;
use segue_engine::{Engine, Error, Opening};
use segue_store::Owes;

use super::partner::Partner;
use super::recap::{Recalled, recap, tail};
use super::screen::{Screen, Seen};
use crate::commands::REHEARSAL_NOTE;
use crate::lookup;
use crate::settings;
use crate::suggest::listed;

/// Models named in the heading.
const MODELS_NAMED: usize = 3;

/// What the conversation was started with.
#[derive(Debug, Clone)]
pub struct Arguments {
    /// The kind of conversation, if one was named.
    pub flow: Option<FlowName>,
    /// The kind of a new one, if none was.
    pub otherwise: FlowName,
    /// What happens in a new one to a message that arrives while a turn runs.
    pub busy: Busy,
    /// The session to go on with, or to begin under that name.
    pub session: Option<SessionId>,
    /// How a new one is set, as it was written.
    pub set: Vec<String>,
    /// Who answers.
    pub answers: Answers,
}

/// Who answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answers {
    /// The models that are configured.
    Models,
    /// A stand-in, since none is configured.
    Rehearsal,
    /// A scenario file.
    Script(String),
    /// Whoever answers behind a server.
    Server(String),
}

/// A session as it stood when it was entered.
pub struct Entered {
    pub session: SessionId,
    pub rules: Arc<dyn Rules>,
    pub state: State,
    pub recalled: Vec<Recalled>,
    /// Others that were left in the middle of a turn; told only to those who begin a new one without naming it.
    pub unfinished: Vec<SessionId>,
}

/// Opens the session, or takes it up.
///
/// # Errors
/// It is in use elsewhere, cannot be read, or is of another flow than the one named.
pub async fn enter(partner: Partner<'_>, arguments: &Arguments) -> anyhow::Result<Entered> {
    let engine = partner.engine();
    if let Some(given) = &arguments.session {
        let session = &lookup::exact(engine, given.as_str()).await?.unwrap_or_else(|| given.clone());
        match engine.state(session).await {
            Ok(_) if !arguments.set.is_empty() => bail!("{}", settings::settled_already(session)),
            Ok((rules, state)) => return take_up(partner, session, rules, state, arguments).await,
            Err(Error::NoSuchSession(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let flow = arguments.flow.as_ref().unwrap_or(&arguments.otherwise);
    let unfinished = if arguments.session.is_none() { unfinished(engine).await? } else { Vec::new() };
    let settings = settings::for_new(engine, flow, &arguments.set)?;
    let opening = Opening { session: arguments.session.clone(), busy: arguments.busy, settings, ..Opening::default() };
    let session = partner.open(flow, opening).await?;
    let (rules, state) = engine.state(&session).await?;
    Ok(Entered { session, rules, state, recalled: Vec::new(), unfinished })
}

async fn unfinished(engine: &Engine) -> Result<Vec<SessionId>, Error> {
    let owing = engine.store().owing().await.map_err(|error| Error::Store(Arc::new(error)))?;
    Ok(owing.into_iter().filter(|(_, owes)| *owes == Owes::Now).map(|(session, _)| session).collect())
}

async fn take_up(
    partner: Partner<'_>,
    session: &SessionId,
    rules: Arc<dyn Rules>,
    state: State,
    arguments: &Arguments,
) -> anyhow::Result<Entered> {
    let engine = partner.engine();
    let is = &rules.spec().name;
    if let Some(flow) = arguments.flow.as_ref().filter(|flow| *flow != is) {
        bail!(
            "the session `{session}` is of the flow `{is}` and cannot become `{flow}`; leave --flow out or choose another name"
        );
    }
    // Says so at once if another process has it.
    partner.wake(session).await?;
    // What an earlier process left undone goes on from now, and is shown as it happens.
    let events = tail(engine, session, state.session.seq).await?;
    let recalled = recap(engine, session, &events, &state.session).await?;
    Ok(Entered { session: session.clone(), rules, state, recalled, unfinished: Vec::new() })
}

impl Entered {
    /// Says where we are and who answers.
    ///
    /// # Errors
    /// Nobody reads any more.
    pub fn introduce(&self, screen: &mut Screen, arguments: &Arguments, engine: &Engine) -> io::Result<()> {
        if screen.seen() == Seen::Live {
            let flow = &self.rules.spec().name;
            let model = match &arguments.answers {
                Answers::Models => models(engine, &*self.rules),
                Answers::Rehearsal => "rehearsal (a stand-in)".to_owned(),
                Answers::Script(file) => format!("script {file}"),
                Answers::Server(url) => format!("at {url}"),
            };
            let title = match self.state.session.title.as_str() {
                "" => String::new(),
                title => format!(" · {title}"),
            };
            let phase = match self.state.session.phase_label().as_str() {
                "" => String::new(),
                phase => format!(" · in {phase}"),
            };
            let heading = format!(
                "{}{title}\nflow {flow}{phase} · {model}",
                screen.paint().bold(format!("segue · {}", self.session))
            );
            screen.print_styled(&heading)?;
        }
        if arguments.answers == Answers::Rehearsal {
            screen.warning(REHEARSAL_NOTE)?;
        }
        if let Some(first) = self.unfinished.first() {
            let names = listed(self.unfinished.iter().map(SessionId::as_str));
            screen.note(&format!("Unfinished: {names}. `segue chat --session {first}` goes on with it."))?;
        }
        screen.note("/help lists the commands, Ctrl-D leaves.")?;
        screen.blank()
    }
}

fn models(engine: &Engine, rules: &dyn Rules) -> String {
    let spec = rules.spec();
    let names: BTreeSet<String> =
        spec.roles.keys().map(|role| engine.casting().model_for(&spec.name, role, None).to_string()).collect();
    match names.len() {
        count if count > MODELS_NAMED => format!("{count} models"),
        _ => names.into_iter().collect::<Vec<_>>().join(", "),
    }
}

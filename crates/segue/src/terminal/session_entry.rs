//! Which session the conversation is about, how it stood then, and what is said on entering it.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use anyhow::bail;
use segue_core::decide::ModelSelector;
use segue_core::event::MidTurnPolicy;
use segue_core::flow::DynFlow;
use segue_core::ids::{FlowName, SessionId};
use segue_core::session::SessionState;
use segue_engine::{Engine, Error, SessionOptions};
use segue_store::PendingWork;

use super::backend::Backend;
use super::recap::{RecapLine, build_recap, load_recent_events};
use super::screen::{OutputMode, Screen};
use crate::commands::REHEARSAL_WARNING;
use crate::name_lookup;
use crate::setting_values;
use crate::suggest::format_name_list;

/// Models named in the heading.
const HEADING_MODEL_COUNT: usize = 3;

/// What the conversation was started with.
#[derive(Debug, Clone)]
pub struct ChatOptions {
    /// The kind of conversation, if one was named.
    pub flow: Option<FlowName>,
    /// The kind of a new one, if none was.
    pub default_flow: FlowName,
    /// What happens in a new one to a message that arrives while a turn runs.
    pub mid_turn_policy: MidTurnPolicy,
    /// The session to go on with, or to begin under that name.
    pub session: Option<SessionId>,
    /// How a new one is set, as it was written.
    pub settings: Vec<String>,
    /// Who answers.
    pub answer_source: AnswerSource,
}

/// Who answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnswerSource {
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
pub struct ChatSession {
    pub session: SessionId,
    pub flow: Arc<dyn DynFlow>,
    pub state: SessionState,
    pub recap: Vec<RecapLine>,
    /// Others that were left in the middle of a turn; told only to those who begin a new one without naming it.
    pub unfinished_sessions: Vec<SessionId>,
}

/// Opens the session, or takes it up.
///
/// # Errors
/// It is in use elsewhere, cannot be read, or is of another flow than the one named.
pub async fn open_or_resume_session(backend: Backend<'_>, arguments: &ChatOptions) -> anyhow::Result<ChatSession> {
    let engine = backend.engine();
    if let Some(given) = &arguments.session {
        let session = &name_lookup::find_session(engine, given.as_str()).await?.unwrap_or_else(|| given.clone());
        match engine.load_session(session).await {
            Ok(_) if !arguments.settings.is_empty() => bail!("{}", setting_values::settings_fixed_message(session)),
            Ok((rules, state)) => return resume_session(backend, session, rules, state, arguments).await,
            Err(Error::NoSuchSession(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let flow = arguments.flow.as_ref().unwrap_or(&arguments.default_flow);
    let unfinished = if arguments.session.is_none() { load_unfinished_sessions(engine).await? } else { Vec::new() };
    let settings = setting_values::parse_new_session_settings(engine, flow, &arguments.settings)?;
    let opening = SessionOptions {
        session: arguments.session.clone(),
        mid_turn_policy: arguments.mid_turn_policy,
        settings,
        ..SessionOptions::default()
    };
    let session = backend.open_session(flow, opening).await?;
    let (rules, state) = engine.load_session(&session).await?;
    Ok(ChatSession { session, flow: rules, state, recap: Vec::new(), unfinished_sessions: unfinished })
}

async fn load_unfinished_sessions(engine: &Engine) -> Result<Vec<SessionId>, Error> {
    let owing = engine.store().sessions_with_pending_work().await.map_err(|error| Error::Store(Arc::new(error)))?;
    Ok(owing.into_iter().filter(|(_, owes)| *owes == PendingWork::Now).map(|(session, _)| session).collect())
}

async fn resume_session(
    backend: Backend<'_>,
    session: &SessionId,
    flow: Arc<dyn DynFlow>,
    state: SessionState,
    arguments: &ChatOptions,
) -> anyhow::Result<ChatSession> {
    let engine = backend.engine();
    let is = &flow.spec().name;
    if let Some(flow) = arguments.flow.as_ref().filter(|flow| *flow != is) {
        bail!(
            "the session `{session}` is of the flow `{is}` and cannot become `{flow}`; leave --flow out or choose another name"
        );
    }
    // Says so at once if another process has it.
    backend.wake_session(session).await?;
    // What an earlier process left undone goes on from now, and is shown as it happens.
    let events = load_recent_events(engine, session, state.session.last_seq).await?;
    let recalled = build_recap(engine, session, &events, &state.session).await?;
    Ok(ChatSession { session: session.clone(), flow, state, recap: recalled, unfinished_sessions: Vec::new() })
}

impl ChatSession {
    /// Says where we are and who answers.
    ///
    /// # Errors
    /// Nobody reads any more.
    pub fn print_introduction(&self, screen: &mut Screen, arguments: &ChatOptions, engine: &Engine) -> io::Result<()> {
        if screen.output_mode() == OutputMode::Interactive {
            let flow = &self.flow.spec().name;
            let model = match &arguments.answer_source {
                AnswerSource::Models => describe_models(engine, &*self.flow),
                AnswerSource::Rehearsal => "rehearsal (a stand-in)".to_owned(),
                AnswerSource::Script(file) => format!("script {file}"),
                AnswerSource::Server(url) => format!("at {url}"),
            };
            let title = match self.state.session.title.as_str() {
                "" => String::new(),
                title => format!(" · {title}"),
            };
            let phase = match self.state.session.phases_label().as_str() {
                "" => String::new(),
                phase => format!(" · in {phase}"),
            };
            let heading = format!(
                "{}{title}\nflow {flow}{phase} · {model}",
                screen.paint().bold(format!("segue · {}", self.session))
            );
            screen.print_styled(&heading)?;
        }
        if arguments.answer_source == AnswerSource::Rehearsal {
            screen.print_warning(REHEARSAL_WARNING)?;
        }
        if let Some(first) = self.unfinished_sessions.first() {
            let names = format_name_list(self.unfinished_sessions.iter().map(SessionId::as_str));
            screen.print_note(&format!("Unfinished: {names}. `segue chat --session {first}` goes on with it."))?;
        }
        screen.print_note("/help lists the commands, Ctrl-D leaves.")?;
        screen.print_blank_line()
    }
}

fn describe_models(engine: &Engine, flow: &dyn DynFlow) -> String {
    let spec = flow.spec();
    let names: BTreeSet<String> = spec
        .roles
        .keys()
        .map(|role| engine.model_assignment().model_for_role(&spec.name, role, None).to_string())
        .collect();
    match names.len() {
        count if count > HEADING_MODEL_COUNT => format!("{count} models"),
        _ => names.into_iter().collect::<Vec<_>>().join(", "),
    }
}

//! Opens or resumes the session of a conversation, and prints the introduction.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use anyhow::bail;
use segue_core::decide::RoleModelResolver;
use segue_core::event::MidTurnPolicy;
use segue_core::flow::DynFlow;
use segue_core::ids::{FlowName, SessionId, UnixMillis};
use segue_core::session::SessionState;
use segue_engine::{Engine, Error, SessionOptions};
use segue_store::PendingWorkQuery;

use super::backend::LocalOrRemoteEngine;
use super::recap::{RecapLine, build_recap, load_recent_events};
use super::screen::{Screen, TerminalOrPipedOutput};
use crate::limits::PENDING_SESSIONS_SHOWN_MAX;
use crate::suggest::format_name_list;
use crate::{name_lookup, setting_values};

/// The introduction names at most this many models.
const HEADING_MODEL_COUNT: usize = 3;

/// The options of a conversation.
#[derive(Debug, Clone)]
pub(crate) struct TerminalChatOptions {
    /// The flow, if one was named.
    pub flow: Option<FlowName>,
    /// The flow of a new session, if none was named.
    pub default_flow: FlowName,
    /// What a new session does with a message that arrives during a turn.
    pub mid_turn_policy: MidTurnPolicy,
    /// The session to resume, or the name of the new session.
    pub session: Option<SessionId>,
    /// The settings of a new session, as `NAME=VALUE`.
    pub settings: Vec<String>,
    pub answer_source: ChatReplySource,
}

/// Where the replies come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ChatReplySource {
    /// The configured models.
    Models,
    /// The rehearsal model.
    Rehearsal {
        /// What the user must be told about it.
        warning: &'static str,
    },
    /// A scenario or cassette file.
    Script(String),
    /// The server at this address.
    Server(String),
}

/// An open session, in its state before the conversation.
pub(crate) struct OpenedChatSession {
    pub session: SessionId,
    pub flow: Arc<dyn DynFlow>,
    pub state: SessionState,
    pub recap: Vec<RecapLine>,
    /// Other sessions with an unfinished turn. Filled only if a new session was opened without a name.
    pub unfinished_sessions: Vec<SessionId>,
}

/// Resumes the named session, or opens a new one.
///
/// # Errors
/// Returns an error if the session is in use by another process, cannot be read, or has another flow than the named one.
pub(crate) async fn open_or_resume_session(
    backend: LocalOrRemoteEngine<'_>,
    options: &TerminalChatOptions,
) -> anyhow::Result<OpenedChatSession> {
    let engine = backend.engine();
    if let Some(given) = &options.session {
        let session = &name_lookup::find_session(engine, given.as_str()).await?.unwrap_or_else(|| given.clone());
        match engine.load_session(session).await {
            Ok(_) if !options.settings.is_empty() => bail!("{}", setting_values::settings_fixed_message(session)),
            Ok((flow, state)) => return resume_session(backend, session, flow, state, options).await,
            Err(Error::NoSuchSession(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let flow = options.flow.as_ref().unwrap_or(&options.default_flow);
    let unfinished_sessions =
        if options.session.is_none() { load_unfinished_sessions(engine).await? } else { Vec::new() };
    let settings = setting_values::parse_new_session_settings(engine, flow, &options.settings)?;
    let session_options = SessionOptions {
        session: options.session.clone(),
        mid_turn_policy: options.mid_turn_policy,
        settings,
        ..SessionOptions::default()
    };
    let session = backend.open_session(flow, session_options).await?;
    let (flow, state) = engine.load_session(&session).await?;
    Ok(OpenedChatSession { session, flow, state, recap: Vec::new(), unfinished_sessions })
}

async fn load_unfinished_sessions(engine: &Engine) -> Result<Vec<SessionId>, Error> {
    let query = PendingWorkQuery { due_until: UnixMillis(0), after_cursor: None, limit: PENDING_SESSIONS_SHOWN_MAX };
    let pending = engine.store().sessions_with_pending_work(&query).await;
    let pending = pending.map_err(|error| Error::Store(Arc::new(error)))?;
    Ok(pending.sessions.into_iter().map(|pending| pending.session).collect())
}

async fn resume_session(
    backend: LocalOrRemoteEngine<'_>,
    session: &SessionId,
    flow: Arc<dyn DynFlow>,
    state: SessionState,
    options: &TerminalChatOptions,
) -> anyhow::Result<OpenedChatSession> {
    let engine = backend.engine();
    let name = &flow.spec().name;
    if let Some(flow) = options.flow.as_ref().filter(|flow| *flow != name) {
        bail!("session `{session}` uses flow `{name}`, not `{flow}`; omit --flow, or choose another session name");
    }
    // Fails early if another process holds the session. Otherwise pending work resumes and is shown.
    backend.wake_session(session).await?;
    let events = load_recent_events(engine, session, state.session.last_seq).await?;
    let recap = build_recap(engine, session, &events, &state.session).await?;
    Ok(OpenedChatSession { session: session.clone(), flow, state, recap, unfinished_sessions: Vec::new() })
}

impl OpenedChatSession {
    /// Prints the session, its flow and its models, and warnings about them.
    ///
    /// # Errors
    /// Returns an error if standard output is closed.
    pub(crate) fn print_introduction(
        &self,
        screen: &mut Screen,
        options: &TerminalChatOptions,
        engine: &Engine,
    ) -> io::Result<()> {
        if screen.output_mode() == TerminalOrPipedOutput::Interactive {
            let flow = &self.flow.spec().name;
            let model = match &options.answer_source {
                ChatReplySource::Models => describe_models(engine, &*self.flow),
                ChatReplySource::Rehearsal { .. } => "rehearsal (canned replies)".to_owned(),
                ChatReplySource::Script(file) => format!("script {file}"),
                ChatReplySource::Server(url) => format!("at {url}"),
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
        if let ChatReplySource::Rehearsal { warning } = options.answer_source {
            screen.print_warning(warning)?;
        }
        if let Some(first) = self.unfinished_sessions.first() {
            let names = format_name_list(self.unfinished_sessions.iter().map(SessionId::as_str));
            screen.print_note(&format!("Unfinished: {names}. Resume with `segue chat --session {first}`."))?;
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

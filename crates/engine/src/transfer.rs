//! Export and import of sessions as JSON lines, and forks.

use std::collections::{BTreeSet, VecDeque};

use segue_core::body::{BodyId, BodyVisibility, TextToStore};
use segue_core::codec;
use segue_core::decide::SessionInput;
use segue_core::event::{Event, RecordedEvent, SessionOpened};
use segue_core::ids::{FlowName, Seq, SessionId, UnixMillis};
use segue_core::session::SessionState;
use segue_store::{PendingWorkStatus, SessionForkSpec};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::actor::to_session_summary;
use crate::config::describe_invalid_settings;
use crate::engine::Engine;
use crate::error::Error;
use crate::limits::READ_EVENTS_MAX;
use crate::session_name::validate_session_name;
use crate::text_cache::TextCache;

/// One line of an exported session. The header comes first; each text comes before the first event that refers to it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum SessionExportLine {
    Header { segue: String, format: u32, session: SessionId },
    Text { body: BodyId, visible: bool, text: String },
    Event { seq: Seq, at: UnixMillis, event: Value },
}

impl SessionExportLine {
    fn to_json_line(&self) -> String {
        let mut text = serde_json::to_string(self).expect("lines serialize to JSON");
        text.push('\n');
        text
    }
}

const EXPORT_HEADER: &str = "session";

impl Engine {
    /// Exports a session as JSON lines, one call of `write` for each line.
    ///
    /// # Errors
    /// The session does not exist or cannot be read, or `write` failed.
    pub async fn export_session<E: From<Error>>(
        &self,
        session: &SessionId,
        mut write: impl FnMut(&str) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut export = SessionExportStream::new(self, session);
        while let Some(lines) = export.next_lines().await? {
            for line in lines.split_inclusive('\n') {
                write(line)?;
            }
        }
        Ok(())
    }

    /// Creates a session from the lines of an export, under its original name or another.
    ///
    /// # Errors
    /// The lines are not an export of this or an older format, or the name is taken. Then nothing is stored.
    pub async fn import_session(
        &self,
        lines: impl Iterator<Item = String>,
        name: Option<SessionId>,
    ) -> Result<SessionId, Error> {
        let import = ParsedSessionExport::parse(lines)?;
        let session = name.unwrap_or_else(|| import.session.clone());
        self.import_parsed_session(import, session).await
    }

    /// Creates the session `session` from a parsed export. Tool runs that were pending in the export are cancelled, because
    /// the exported session may run them.
    ///
    /// # Errors
    /// The flow is unknown, a setting does not fit it, or the name is taken or invalid. Then nothing is stored.
    pub async fn import_parsed_session(
        &self,
        import: ParsedSessionExport,
        session: SessionId,
    ) -> Result<SessionId, Error> {
        let ParsedSessionExport { opened, mut events, mut bodies, .. } = import;
        let session = validate_session_name(session)?;
        let flow = self.shared().find_opened_flow(&opened)?;
        let problems = describe_invalid_settings(&*flow, &opened.settings);
        if !problems.is_empty() {
            return Err(Error::BadSettings { flow: opened.flow, why: problems });
        }
        let mut state = SessionState::fold(&*flow, &events);
        // An import under another name is recorded as a fork when it is resumed. With pending tools it is recorded here, so
        // that the name in the file does not decide whether they run again.
        if let Some(from) = state.session.id.clone().filter(|_| inherits_tool_work(&state)) {
            let at = state.session.last_seq;
            let mut texts = TextCache::default();
            texts.insert_bodies(&bodies);
            let decision = self.shared().decide_new_session(
                &*flow,
                &state,
                SessionInput::Forked { session: session.clone(), from, at },
                &texts,
            )?;
            events.extend(decision.events);
            bodies.extend(decision.bodies);
            state = decision.state;
        }
        let epoch = self.write_new_session(&session, &events, bodies, &state, &*flow).await?;
        // If the lease cannot be released now, waking the session acquires it again.
        if let Err(error) = self.store().release_lease(&session, epoch).await {
            tracing::warn!(%session, epoch = epoch.0, %error, "lease not released");
        }
        // Under another name the session is a fork of the exported one; waking it records that.
        self.wake_placed_session(&session).await?;
        Ok(session)
    }

    /// Creates a session that begins with the events of another up to `at`, or with all of them.
    ///
    /// # Errors
    /// The session does not exist, or the name is taken.
    pub async fn fork_session(
        &self,
        from: &SessionId,
        at: Option<Seq>,
        to: Option<SessionId>,
    ) -> Result<SessionId, Error> {
        let to = match to {
            Some(to) => validate_session_name(to)?,
            None => SessionId::from(self.shared().random.pronounceable_name()),
        };
        let (_, state) = match at {
            Some(at) => self.load_session_at(from, at).await?,
            None => self.load_session(from).await?,
        };
        let at = at.unwrap_or(state.session.last_seq);
        // The fork is recorded when the new session is resumed for the first time.
        let summary = to_session_summary(&state.session, PendingWorkStatus::Now);
        let spec = SessionForkSpec { from: from.clone(), at_seq: at, to: to.clone(), summary };
        self.store().fork_session(spec).await.map_err(|error| Error::from_store_error(from, error))?;
        self.wake_placed_session(&to).await?;
        Ok(to)
    }
}

/// An export in progress. It reads from the store only what it is asked for, so that a slow reader needs no memory.
#[derive(Debug)]
pub struct SessionExportStream {
    engine: Engine,
    session: SessionId,
    is_header_written: bool,
    after: Seq,
    events: VecDeque<RecordedEvent>,
    /// The texts that were exported already.
    written: BTreeSet<BodyId>,
}

impl SessionExportStream {
    /// Starts an export. Nothing is read yet.
    #[must_use]
    pub fn new(engine: &Engine, session: &SessionId) -> Self {
        Self {
            engine: engine.clone(),
            session: session.clone(),
            is_header_written: false,
            after: Seq(0),
            events: VecDeque::new(),
            written: BTreeSet::new(),
        }
    }

    /// Returns the next lines: the header, or one event and the texts it refers to. Returns none at the end.
    ///
    /// # Errors
    /// The session does not exist or cannot be read.
    pub async fn next_lines(&mut self) -> Result<Option<String>, Error> {
        if !self.is_header_written {
            self.is_header_written = true;
            let header = SessionExportLine::Header {
                segue: EXPORT_HEADER.to_owned(),
                format: codec::EVENT_FORMAT,
                session: self.session.clone(),
            };
            return Ok(Some(header.to_json_line()));
        }
        if self.events.is_empty() {
            self.events = self.engine.read_events(&self.session, self.after, READ_EVENTS_MAX).await?.into();
        }
        let Some(recorded) = self.events.pop_front() else { return Ok(None) };
        self.after = recorded.seq;
        let new: Vec<_> =
            recorded.event.referenced_bodies().into_iter().filter(|(id, _)| self.written.insert(*id)).collect();
        let ids: Vec<BodyId> = new.iter().map(|(id, _)| *id).collect();
        let texts = self.engine.read_texts(&self.session, &ids).await?;
        let mut lines = String::new();
        for ((body, kind), text) in new.into_iter().zip(texts) {
            let line =
                SessionExportLine::Text { body, visible: kind == BodyVisibility::Conversation, text: text.to_string() };
            lines.push_str(&line.to_json_line());
        }
        let event = serde_json::to_value(&recorded.event).expect("events serialize to JSON");
        lines.push_str(&SessionExportLine::Event { seq: recorded.seq, at: recorded.at, event }.to_json_line());
        Ok(Some(lines))
    }
}

/// The content of an export file. It was parsed completely, and its texts were compared with their ids.
#[derive(Debug)]
pub struct ParsedSessionExport {
    /// The name in the header.
    session: SessionId,
    opened: SessionOpened,
    events: Vec<RecordedEvent>,
    bodies: Vec<TextToStore>,
}

impl ParsedSessionExport {
    /// Parses the lines of an export.
    ///
    /// # Errors
    /// The lines are not an export of this or an older format, or were changed.
    pub fn parse(lines: impl Iterator<Item = String>) -> Result<Self, Error> {
        parse_import(lines)
    }

    /// Returns the name of the exported session.
    #[must_use]
    pub fn session(&self) -> &SessionId {
        &self.session
    }

    /// Returns the flow of the exported session.
    #[must_use]
    pub fn flow(&self) -> &FlowName {
        &self.opened.flow
    }
}

/// Returns whether the import must be recorded as a copy at once: it has tool runs that the original session runs, or
/// permissions that a person gave to the original session.
fn inherits_tool_work(state: &SessionState) -> bool {
    let session = &state.session;
    !session.open_tool_runs.is_empty() || !session.tool_rounds.is_empty() || !session.allowed_tool_uses.is_empty()
}

fn parse_import(lines: impl Iterator<Item = String>) -> Result<ParsedSessionExport, Error> {
    let mut session = None;
    let mut opened = None;
    let mut events: Vec<RecordedEvent> = Vec::new();
    let mut bodies: Vec<TextToStore> = Vec::new();
    let mut known_bodies = BTreeSet::new();
    let mut line_count = 0;
    for (index, line) in lines.enumerate() {
        let bad_import = |why: String| Error::BadImport { line: index + 1, why };
        line_count = index + 1;
        if line.trim().is_empty() {
            continue;
        }
        let line: SessionExportLine = serde_json::from_str(&line).map_err(|_| {
            bad_import(
                "this is not a line of an exported session; expected JSON as written by `segue export`".to_owned(),
            )
        })?;
        match line {
            SessionExportLine::Header { segue, format, session: name }
                if segue == EXPORT_HEADER && session.is_none() =>
            {
                if format > codec::EVENT_FORMAT {
                    let supported = codec::EVENT_FORMAT;
                    return Err(bad_import(format!(
                        "it has format {format}, but this version reads formats up to {supported}; use a newer version"
                    )));
                }
                session = Some(name);
            }
            SessionExportLine::Header { .. } => {
                return Err(bad_import("a second header; the header must be the first line".to_owned()));
            }
            SessionExportLine::Text { .. } | SessionExportLine::Event { .. } if session.is_none() => {
                return Err(bad_import("the file does not begin with the header of an export".to_owned()));
            }
            SessionExportLine::Text { body, visible, text } => {
                if BodyId::hash_text(&text) != body {
                    return Err(bad_import(format!("the text does not match its id {body}; the file was changed")));
                }
                known_bodies.insert(body);
                let kind = if visible { BodyVisibility::Conversation } else { BodyVisibility::Internal };
                bodies.push(TextToStore { id: body, text: text.into(), kind });
            }
            SessionExportLine::Event { seq, at, event } => {
                let expected = events.last().map_or(Seq(1), |last| last.seq.next());
                if seq != expected {
                    return Err(bad_import(format!(
                        "event {seq} where event {expected} was expected; lines are missing or out of order"
                    )));
                }
                let bytes = encode_event_format_first(event);
                let recorded = codec::decode_event(seq, at, &bytes).map_err(|error| bad_import(error.to_string()))?;
                if let Some((missing, _)) =
                    recorded.event.referenced_bodies().into_iter().find(|(id, _)| !known_bodies.contains(id))
                {
                    return Err(bad_import(format!(
                        "event {seq} refers to the text {missing}, which is not in the file"
                    )));
                }
                match (&recorded.event, &opened) {
                    (Event::SessionOpened(first), None) => opened = Some(first.clone()),
                    (Event::SessionOpened(_), Some(_)) => {
                        return Err(bad_import("the session is opened a second time".to_owned()));
                    }
                    (_, None) => return Err(bad_import("the first event must open the session".to_owned())),
                    (_, Some(_)) => {}
                }
                events.push(recorded);
            }
        }
    }
    match (session, opened) {
        (Some(session), Some(opened)) => Ok(ParsedSessionExport { session, opened, events, bodies }),
        (Some(_), None) => {
            Err(Error::BadImport { line: line_count, why: "the file ends before the first event".to_owned() })
        }
        (None, _) => {
            Err(Error::BadImport { line: 1, why: "the file does not begin with the header of an export".to_owned() })
        }
    }
}

/// Serializes an event as the codec expects it: its format number, if it has one, comes first, wherever it was in the
/// file.
fn encode_event_format_first(mut event: Value) -> Vec<u8> {
    let format_field = event.as_object_mut().and_then(|fields| fields.remove("v"));
    let rest = event.to_string();
    let bytes = match (format_field, rest.strip_prefix('{')) {
        (Some(format_field), Some("}")) => format!("{{\"v\":{format_field}}}"),
        (Some(format_field), Some(rest)) => format!("{{\"v\":{format_field},{rest}"),
        (Some(_), None) | (None, _) => rest,
    };
    bytes.into_bytes()
}

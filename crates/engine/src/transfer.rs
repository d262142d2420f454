//! Sessions as files, and sessions from sessions: export, import, fork.

use std::collections::BTreeSet;

use segue_core::body::{BodyId, BodyKind, TextBody};
use segue_core::codec;
use segue_core::event::{Event, RecordedEvent};
use segue_core::ids::{Seq, SessionId, UnixMillis};
use segue_core::session::SessionState;
use segue_store::{ForkSpec, PendingWork};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::actor::summarize_session;
use crate::engine::{Engine, validate_session_name};
use crate::error::Error;
use crate::limits::READ_EVENTS_MAX;
use crate::load::body_ids_in_record;

/// One line of an exported session: a heading, then each event after the texts it is the first to name.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum ExportLine {
    Header { segue: String, format: u32, session: SessionId },
    Text { body: BodyId, visible: bool, text: String },
    Event { seq: Seq, at: UnixMillis, event: Value },
}

const EXPORT_HEADER: &str = "session";

impl Engine {
    /// A session as JSON lines, handed to `write` piece by piece.
    ///
    /// # Errors
    /// The session does not exist or cannot be read, or `write` failed.
    pub async fn export_session<E: From<Error>>(
        &self,
        session: &SessionId,
        mut write: impl FnMut(&str) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut put = |line: &ExportLine| {
            let mut text = serde_json::to_string(line).expect("lines are plain JSON");
            text.push('\n');
            write(&text)
        };
        put(&ExportLine::Header {
            segue: EXPORT_HEADER.to_owned(),
            format: codec::EVENT_FORMAT,
            session: session.clone(),
        })?;
        let mut after = Seq(0);
        let mut written = BTreeSet::new();
        loop {
            let events = self.read_events(session, after, READ_EVENTS_MAX).await?;
            let Some(last) = events.last() else { return Ok(()) };
            after = last.seq;
            for recorded in events {
                let new: Vec<_> =
                    recorded.event.referenced_bodies().into_iter().filter(|(id, _)| written.insert(*id)).collect();
                let ids: Vec<BodyId> = new.iter().map(|(id, _)| *id).collect();
                let texts = self.read_texts(session, &ids).await?;
                for ((body, kind), text) in new.into_iter().zip(texts) {
                    put(&ExportLine::Text { body, visible: kind == BodyKind::Conversation, text: text.to_string() })?;
                }
                let event = serde_json::to_value(&recorded.event).expect("events are plain JSON");
                put(&ExportLine::Event { seq: recorded.seq, at: recorded.at, event })?;
            }
        }
    }

    /// A session from the lines of an export, under its own name or another.
    ///
    /// # Errors
    /// The lines are no export of this or an older format, or the name is taken. Then nothing is kept.
    pub async fn import_session(
        &self,
        lines: impl Iterator<Item = String>,
        name: Option<SessionId>,
    ) -> Result<SessionId, Error> {
        let parsed = parse_import(lines)?;
        let session = validate_session_name(name.unwrap_or(parsed.session))?;
        let flow = match parsed.events.first().map(|event| &event.event) {
            Some(Event::SessionOpened(opened)) => opened.flow.clone(),
            _ => return Err(Error::BadImport { line: 2, why: "the first event must open the session".to_owned() }),
        };
        let rules = self.shared().find_flow(Some(&flow))?;
        let state = SessionState::fold(&*rules, &parsed.events);
        let epoch = self.write_new_session(&session, &parsed.events, parsed.bodies, &state, &*rules).await?;
        // If it cannot be given back now, taking it up claims it again.
        let _ = self.store().release_lease(&session, epoch).await;
        // Under another name it is a branch of the one exported: taking it up records that.
        self.wake_session(&session).await?;
        Ok(session)
    }

    /// A new session that begins with another's events up to a place; up to its last event if none is given.
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
        // That it is a branch is still to be recorded, by whoever takes it up first.
        let summary = summarize_session(&state.session, PendingWork::Now);
        let fork =
            ForkSpec { from: from.clone(), at_seq: at, to: to.clone(), summary, extract_body_ids: body_ids_in_record };
        self.store().fork_session(fork).await.map_err(|error| Error::from_store_error(from, error))?;
        self.wake_session(&to).await?;
        Ok(to)
    }
}

struct ParsedImport {
    session: SessionId,
    events: Vec<RecordedEvent>,
    bodies: Vec<TextBody>,
}

fn parse_import(lines: impl Iterator<Item = String>) -> Result<ParsedImport, Error> {
    let mut session = None;
    let mut events: Vec<RecordedEvent> = Vec::new();
    let mut bodies: Vec<TextBody> = Vec::new();
    let mut known = BTreeSet::new();
    let mut count = 0;
    for (place, line) in lines.enumerate() {
        let bad = |why: String| Error::BadImport { line: place + 1, why };
        count = place + 1;
        if line.trim().is_empty() {
            continue;
        }
        let line: ExportLine = serde_json::from_str(&line).map_err(|_| {
            bad("this is no line of an exported session; expected JSON as `segue export` writes it".to_owned())
        })?;
        match line {
            ExportLine::Header { segue, format, session: name } if segue == EXPORT_HEADER && session.is_none() => {
                if format > codec::EVENT_FORMAT {
                    let reads = codec::EVENT_FORMAT;
                    return Err(bad(format!(
                        "it is of format {format}, and this version reads up to {reads}; use a newer one"
                    )));
                }
                session = Some(name);
            }
            ExportLine::Header { .. } => return Err(bad("a heading where none belongs".to_owned())),
            ExportLine::Text { body, visible: said, text } => {
                if BodyId::hash_text(&text) != body {
                    return Err(bad(format!("the text is not the one that {body} names; the file was changed")));
                }
                known.insert(body);
                let kind = if said { BodyKind::Conversation } else { BodyKind::Internal };
                bodies.push(TextBody { id: body, text: text.into(), kind });
            }
            ExportLine::Event { seq, at, event } => {
                let due = events.last().map_or(Seq(1), |last| last.seq.next());
                if seq != due {
                    return Err(bad(format!("event {seq} where {due} was due; lines are missing or out of order")));
                }
                let bytes = encode_event_json(event);
                let recorded = codec::decode_event(seq, at, &bytes).map_err(|error| bad(error.to_string()))?;
                if let Some((missing, _)) =
                    recorded.event.referenced_bodies().into_iter().find(|(id, _)| !known.contains(id))
                {
                    return Err(bad(format!("event {seq} names the text {missing}, which is not in the file")));
                }
                events.push(recorded);
            }
        }
    }
    match session {
        Some(session) if !events.is_empty() => Ok(ParsedImport { session, events, bodies }),
        Some(_) => Err(Error::BadImport { line: count, why: "the file ends before the first event".to_owned() }),
        None => {
            Err(Error::BadImport { line: 1, why: "the file does not begin with the heading of an export".to_owned() })
        }
    }
}

/// An event as the codec knows it: the mark of its format, if it has one, comes first, wherever it stood in the file.
fn encode_event_json(mut event: Value) -> Vec<u8> {
    let mark = event.as_object_mut().and_then(|fields| fields.remove("v"));
    let rest = event.to_string();
    let bytes = match (mark, rest.strip_prefix('{')) {
        (Some(mark), Some("}")) => format!("{{\"v\":{mark}}}"),
        (Some(mark), Some(rest)) => format!("{{\"v\":{mark},{rest}"),
        (Some(_), None) | (None, _) => rest,
    };
    bytes.into_bytes()
}

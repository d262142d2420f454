//! The updates of a session, streamed from a server. After a lost connection the stream resumes without a gap.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use reqwest::Response;
use segue_core::codec;
use segue_core::ids::{Seq, SessionId, UnixMillis};
use segue_engine::SessionUpdate;
use serde_json::Value;

use super::client::{RemoteServerProblem, ServerClient};
use crate::limits::{RECONNECT_DELAY_MS, RECONNECTS_MAX};

/// A subscription to the updates of one session.
pub(crate) struct RemoteSubscription {
    client: Arc<ServerClient>,
    session: SessionId,
    response: Option<Response>,
    buffer: Vec<u8>,
    parsed_updates: VecDeque<SessionUpdate>,
    last_seq: Seq,
    failed_attempts: usize,
}

impl RemoteSubscription {
    pub(crate) async fn connect_after(
        client: Arc<ServerClient>,
        session: SessionId,
        after: Seq,
    ) -> anyhow::Result<Self> {
        let mut subscription = Self {
            client,
            session,
            response: None,
            buffer: Vec::new(),
            parsed_updates: VecDeque::new(),
            last_seq: after,
            failed_attempts: 0,
        };
        subscription.connect().await?;
        Ok(subscription)
    }

    /// Returns the sequence number of the last returned event.
    pub(crate) fn last_seq(&self) -> Seq {
        self.last_seq
    }

    /// Returns the next update. This method is cancel safe.
    pub(crate) async fn next(&mut self) -> anyhow::Result<SessionUpdate> {
        loop {
            if let Some(update) = self.parsed_updates.pop_front() {
                if let SessionUpdate::Event(event) = &update {
                    self.last_seq = event.seq;
                }
                return Ok(update);
            }
            let Some(response) = &mut self.response else {
                self.reconnect().await?;
                continue;
            };
            match response.chunk().await {
                Ok(Some(bytes)) => {
                    self.failed_attempts = 0;
                    self.buffer.extend_from_slice(&bytes);
                    self.parse_buffered_events()?;
                }
                // After a reconnect the server sends the events that were missed.
                Ok(None) | Err(_) => self.response = None,
            }
        }
    }

    async fn reconnect(&mut self) -> anyhow::Result<()> {
        loop {
            match self.connect().await {
                Ok(()) => return Ok(()),
                Err(error)
                    if error.downcast_ref::<RemoteServerProblem>().is_some()
                        || self.failed_attempts >= RECONNECTS_MAX =>
                {
                    return Err(error);
                }
                Err(_) => {
                    self.failed_attempts += 1;
                    tokio::time::sleep(Duration::from_millis(RECONNECT_DELAY_MS)).await;
                }
            }
        }
    }

    async fn connect(&mut self) -> anyhow::Result<()> {
        let path = format!("/v1/sessions/{}/events?texts=none&after={}", self.session, self.last_seq);
        self.response = Some(self.client.open_stream(&path).await?);
        self.buffer.clear();
        Ok(())
    }

    fn parse_buffered_events(&mut self) -> anyhow::Result<()> {
        while let Some(end) = self.buffer.windows(2).position(|pair| pair == b"\n\n") {
            let event: Vec<u8> = self.buffer.drain(..end + 2).collect();
            let text = String::from_utf8_lossy(&event);
            let (mut kind, mut data) = ("", String::new());
            for line in text.lines() {
                match line.split_once(':').map(|(name, value)| (name, value.strip_prefix(' ').unwrap_or(value))) {
                    Some(("event", value)) => kind = value,
                    Some(("data", value)) => data.push_str(value),
                    _ => {}
                }
            }
            self.parsed_updates.extend(parse_update(kind, &data)?);
        }
        Ok(())
    }
}

fn parse_update(kind: &str, data: &str) -> anyhow::Result<Option<SessionUpdate>> {
    let invalid = || format!("the server sent an invalid `{kind}` update");
    let value: Value = match kind {
        "event" | "delta" | "tool_progress" => serde_json::from_str(data).with_context(invalid)?,
        "deleted" => anyhow::bail!("the session was deleted"),
        _ => return Ok(None),
    };
    if kind == "event" {
        let place = (value["seq"].as_u64(), value["at"].as_u64());
        let (Some(seq), Some(at)) = place else { anyhow::bail!(invalid()) };
        let recorded = codec::decode_event(Seq(seq), UnixMillis(at), value["event"].to_string().as_bytes())?;
        return Ok(Some(SessionUpdate::Event(Box::new(recorded))));
    }
    let text = value["text"].as_str().with_context(invalid)?.into();
    if kind == "tool_progress" {
        let run = value["run"].as_str().and_then(|run| run.parse().ok()).with_context(invalid)?;
        return Ok(Some(SessionUpdate::ToolProgress { run, text }));
    }
    let call = value["call"].as_str().and_then(|call| call.parse().ok()).with_context(invalid)?;
    let attempt = value["attempt"].as_u64().and_then(|attempt| u32::try_from(attempt).ok()).with_context(invalid)?;
    let offset = value["offset"].as_u64().and_then(|offset| usize::try_from(offset).ok()).with_context(invalid)?;
    Ok(Some(SessionUpdate::TextDelta { call, attempt, offset, text }))
}

//! A session's updates as a server streams them: without gap, however often the connection breaks.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use reqwest::Response;
use segue_core::codec;
use segue_core::ids::{Millis, Seq, SessionId};
use segue_engine::Update;
use serde_json::Value;

use super::client::{Client, Problem};
use crate::limits::{RECONNECT_MS, RECONNECTS_MAX};

/// Hears a session.
pub struct Listener {
    client: Arc<Client>,
    session: SessionId,
    response: Option<Response>,
    buffer: Vec<u8>,
    ready: VecDeque<Update>,
    seen: Seq,
    tries: usize,
}

impl Listener {
    pub async fn begin(client: Arc<Client>, session: SessionId, after: Seq) -> anyhow::Result<Self> {
        let mut listener =
            Self { client, session, response: None, buffer: Vec::new(), ready: VecDeque::new(), seen: after, tries: 0 };
        listener.connect().await?;
        Ok(listener)
    }

    /// The place of the last event given out.
    pub fn seen(&self) -> Seq {
        self.seen
    }

    /// The next update. Dropping the future loses nothing.
    pub async fn next(&mut self) -> anyhow::Result<Update> {
        loop {
            if let Some(update) = self.ready.pop_front() {
                if let Update::Event(event) = &update {
                    self.seen = event.seq;
                }
                return Ok(update);
            }
            let Some(response) = &mut self.response else {
                self.connect_again().await?;
                continue;
            };
            match response.chunk().await {
                Ok(Some(bytes)) => {
                    self.tries = 0;
                    self.buffer.extend_from_slice(&bytes);
                    self.take_events()?;
                }
                // The server ended, or the line broke: what was missed comes when we are back.
                Ok(None) | Err(_) => self.response = None,
            }
        }
    }

    async fn connect_again(&mut self) -> anyhow::Result<()> {
        loop {
            match self.connect().await {
                Ok(()) => return Ok(()),
                Err(error) if error.downcast_ref::<Problem>().is_some() || self.tries >= RECONNECTS_MAX => {
                    return Err(error);
                }
                Err(_) => {
                    self.tries += 1;
                    tokio::time::sleep(Duration::from_millis(RECONNECT_MS)).await;
                }
            }
        }
    }

    async fn connect(&mut self) -> anyhow::Result<()> {
        let path = format!("/v1/sessions/{}/events?texts=none&after={}", self.session, self.seen);
        self.response = Some(self.client.stream(&path).await?);
        self.buffer.clear();
        Ok(())
    }

    fn take_events(&mut self) -> anyhow::Result<()> {
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
            self.ready.extend(update(kind, &data)?);
        }
        Ok(())
    }
}

fn update(kind: &str, data: &str) -> anyhow::Result<Option<Update>> {
    let strange = || format!("the server sent what this version does not understand: {kind}");
    let value: Value = match kind {
        "event" | "words" => serde_json::from_str(data).with_context(strange)?,
        "gone" => anyhow::bail!("the session was deleted"),
        _ => return Ok(None),
    };
    if kind == "event" {
        let place = (value["seq"].as_u64(), value["at"].as_u64());
        let (Some(seq), Some(at)) = place else { anyhow::bail!(strange()) };
        let recorded = codec::decode(Seq(seq), Millis(at), value["event"].to_string().as_bytes())?;
        return Ok(Some(Update::Event(Box::new(recorded))));
    }
    let call = value["call"].as_str().and_then(|call| call.parse().ok()).with_context(strange)?;
    let attempt = value["attempt"].as_u64().and_then(|attempt| u32::try_from(attempt).ok()).with_context(strange)?;
    let at = value["at"].as_u64().and_then(|at| usize::try_from(at).ok()).with_context(strange)?;
    let text = value["text"].as_str().with_context(strange)?.into();
    Ok(Some(Update::Words { call, attempt, at, text }))
}

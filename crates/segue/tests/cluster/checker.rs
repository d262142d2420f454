//! Compares what clients were told and followers saw with the journals and with what the model server was asked.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use crate::clients::{ClientReport, FollowedStream};
use crate::model_server::ModelServer;
use crate::nodes::Cluster;

/// The figures of a run.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    messages: usize,
    retries: usize,
    events: usize,
    connections: usize,
    calls: usize,
    unknown_calls: usize,
    epochs: String,
}

impl Figures {
    /// Checks that every message needed one call: all nodes lived, so they all kept their calls.
    pub(crate) fn assert_no_call_was_repeated(&self) {
        assert_eq!(self.unknown_calls, 0, "a node that lived gave up a call");
        assert_eq!(self.calls, self.messages, "a call was repeated");
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { messages, retries, events, connections, calls, unknown_calls, epochs } = self;
        write!(
            f,
            "{messages} messages answered once ({retries} requests repeated), {events} events followed over \
             {connections} connections, {calls} calls of which {unknown_calls} were in flight at a crash, \
             {epochs} leases"
        )
    }
}

pub(crate) fn check_cluster(
    cluster: &Cluster,
    model: &ModelServer,
    clients: &[ClientReport],
    followed: Vec<FollowedStream>,
) -> Figures {
    let mut figures = Figures::default();
    let asked = model.asked();
    for client in clients {
        let stream = followed.iter().find(|stream| stream.session == client.session).expect("one for each client");
        check_stream(stream);
        let journal = Journal::read(stream);
        check_messages(client, &journal);
        for (text, _) in &client.acknowledged {
            let counts = asked.get(text).copied().unwrap_or_default();
            let attempts = journal.attempts.get(text).copied().unwrap_or_default();
            assert!(counts.begun >= 1, "{text} was answered without the model");
            assert!(
                counts.begun <= attempts,
                "the model was asked {} times about {text}, but the journal has {attempts} attempts",
                counts.begun
            );
            figures.calls += counts.begun;
        }
        figures.unknown_calls += journal.unknown_calls;
        figures.messages += client.acknowledged.len();
        figures.retries += client.retries;
        figures.events += stream.events.len();
        figures.connections += stream.connections;
    }
    let two_writers =
        "SELECT count(*) FROM (SELECT 1 FROM audit GROUP BY uid, epoch HAVING count(DISTINCT node) > 1) w";
    assert_eq!(cluster.run_sql(two_writers), "0", "two nodes wrote a session under one epoch");
    let repeated = "SELECT count(*) FROM (SELECT 1 FROM audit GROUP BY uid, head HAVING count(*) > 1) r";
    assert_eq!(cluster.run_sql(repeated), "0", "a head was written twice");
    figures.epochs = cluster.run_sql("SELECT count(DISTINCT (uid, epoch)) FROM audit");
    figures
}

/// A stream has every event once and in order.
fn check_stream(stream: &FollowedStream) {
    let seqs: Vec<u64> = stream.events.iter().map(|(seq, _)| *seq).collect();
    let expected: Vec<u64> = (1..=seqs.len() as u64).collect();
    let first_wrong = seqs.iter().zip(&expected).position(|(seq, expected)| seq != expected);
    assert_eq!(seqs, expected, "the stream of {} is wrong at {first_wrong:?}", stream.session);
}

/// Every acknowledged message is in the journal once, in order, and its turn replied once, with what the client got.
fn check_messages(client: &ClientReport, journal: &Journal) {
    let acknowledged: Vec<&String> = client.acknowledged.iter().map(|(text, _)| text).collect();
    let recorded: Vec<&String> = journal.messages.iter().take(acknowledged.len()).collect();
    assert_eq!(recorded, acknowledged, "the messages of {}", client.session);
    for (text, reply) in &client.acknowledged {
        let expected = format!("echo {text}");
        assert_eq!(reply, &expected, "what the client got");
        assert_eq!(journal.replies.get(text), Some(&vec![expected]), "what the journal says about {text}");
    }
}

/// What the events of a session say.
#[derive(Debug, Default)]
struct Journal {
    messages: Vec<String>,
    /// The replies of the turn of each message.
    replies: BTreeMap<String, Vec<String>>,
    /// The attempts of calls in the turn of each message.
    attempts: BTreeMap<String, usize>,
    unknown_calls: usize,
}

impl Journal {
    fn read(stream: &FollowedStream) -> Self {
        let mut journal = Self::default();
        let mut current = String::new();
        for (_, event) in &stream.events {
            let kind = event["type"].as_str().unwrap_or_default();
            match kind {
                "user_message_received" => journal.messages.push(event_text(event)),
                "turn_started" => {
                    let turns = journal.replies.len();
                    current = journal.messages.get(turns).cloned().unwrap_or_default();
                    journal.replies.insert(current.clone(), Vec::new());
                }
                "reply_sent" => journal.replies.entry(current.clone()).or_default().push(event_text(event)),
                "call_opened" => *journal.attempts.entry(current.clone()).or_default() += 1,
                "call_outcome_unknown" | "call_failed" => {
                    journal.unknown_calls += usize::from(kind == "call_outcome_unknown");
                    *journal.attempts.entry(current.clone()).or_default() += 1;
                }
                _ => {}
            }
        }
        journal
    }
}

/// Returns the text of an event that has one.
fn event_text(event: &Value) -> String {
    let text = &event["texts"];
    let found = event["text"].as_str().or(text.as_object().and_then(|texts| texts.values().next()?.as_str()));
    found.map_or_else(|| panic!("no text in {event}"), str::to_owned)
}

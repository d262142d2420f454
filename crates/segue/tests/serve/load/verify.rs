//! Checks what the store has after the load: every acknowledged message once and in order, and nothing that was deleted.

use serde_json::Value;
use tokio::task::JoinSet;

use super::load_client::LoadClient;
use super::operations::{LoadWorker, MESSAGES_PER_SESSION_MAX, OwnedSession, message_number};

/// What was found.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct KeptCounts {
    pub sessions: usize,
    pub messages: usize,
}

pub(crate) async fn verify_workers(client: &LoadClient, workers: &[LoadWorker]) -> KeptCounts {
    let mut checks = JoinSet::new();
    for worker in workers {
        let (client, sessions, deleted) = (client.clone(), worker.sessions.clone(), worker.deleted.clone());
        checks.spawn(async move {
            for session in &sessions {
                verify_session(&client, session).await;
            }
            for session in &deleted {
                client.get(&format!("/v1/sessions/{session}")).await.expect(404);
            }
            let messages = sessions.iter().map(|session| session.messages.len()).sum();
            KeptCounts { sessions: sessions.len(), messages }
        });
    }
    let mut total = KeptCounts::default();
    for counts in checks.join_all().await {
        total.sessions += counts.sessions;
        total.messages += counts.messages;
    }
    total
}

async fn verify_session(client: &LoadClient, session: &OwnedSession) {
    let path = format!("/v1/sessions/{}/turns?limit={MESSAGES_PER_SESSION_MAX}", session.name);
    let view = client.get(&path).await.expect(200);
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let (mut messages, mut replies) = (Vec::new(), Vec::new());
    for turn in list(&view["turns"]) {
        messages.extend(list(&turn["messages"]).iter().map(|message| message_number(&message["text"])));
        replies.extend(list(&turn["replies"]).iter().map(|reply| message_number(&reply["text"])));
    }
    let expected: Vec<Option<u32>> = session.messages.iter().copied().map(Some).collect();
    assert_eq!(messages, expected, "the messages of {}", session.name);
    assert_eq!(replies, expected, "the replies of {}", session.name);
}

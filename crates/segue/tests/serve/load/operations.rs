//! Workers: each has sessions of its own, on which it does one operation after the other, so that it knows what must be in them.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use super::load_client::{LoadClient, LoadResponse};
use super::{LoadState, followed_session};

/// Messages of a session after which it gets no more, so that one page has all of its turns.
pub(crate) const MESSAGES_PER_SESSION_MAX: usize = 150;
/// The bytes of every 16th message.
const LONG_MESSAGE_BYTES: usize = 16_000;
/// Pages of a search. The server examines 1,000 sessions for a page.
const SEARCH_PAGES_MAX: usize = 1_000;
/// Deleted sessions that a worker remembers, to check that they are gone.
const DELETED_REMEMBERED_MAX: usize = 200;

/// A session, and the numbers of its messages in order.
#[derive(Debug, Clone)]
pub(crate) struct OwnedSession {
    pub name: String,
    pub messages: Vec<u32>,
}

#[derive(Debug)]
pub(crate) struct LoadWorker {
    number: usize,
    state: Arc<LoadState>,
    client: LoadClient,
    random: u64,
    /// The first ones are followed by streams. They are never deleted.
    pub sessions: Vec<OwnedSession>,
    followed: usize,
    names_used: usize,
    pub deleted: VecDeque<String>,
    pub counts: OperationCounts,
}

/// How often each operation succeeded.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct OperationCounts {
    pub messages: usize,
    pub forks: usize,
    pub exports: usize,
    pub imports: usize,
    pub searches: usize,
    pub deletes: usize,
    pub views: usize,
    /// Requests that the server refused for the moment.
    pub refusals: usize,
}

impl OperationCounts {
    pub(crate) fn add(&mut self, other: &Self) {
        let Self { messages, forks, exports, imports, searches, deletes, views, refusals } = other;
        self.messages += messages;
        self.forks += forks;
        self.exports += exports;
        self.imports += imports;
        self.searches += searches;
        self.deletes += deletes;
        self.views += views;
        self.refusals += refusals;
    }
}

impl fmt::Display for OperationCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { messages, forks, exports, imports, searches, deletes, views, refusals } = self;
        write!(
            f,
            "{messages} messages, {forks} forks, {exports} exports, {imports} imports, {searches} searches, {deletes} deletes, \
             {views} views; {refusals} requests refused for the moment"
        )
    }
}

/// Returns the number of a message from its text or that of its reply.
pub(crate) fn message_number(text: &Value) -> Option<u32> {
    let text = text.as_str()?;
    let text = text.strip_prefix("You said: ").unwrap_or(text);
    text.strip_prefix("message ")?.split(' ').next()?.parse().ok()
}

impl LoadWorker {
    pub(crate) fn new(number: usize, state: Arc<LoadState>, client: LoadClient) -> Self {
        Self {
            number,
            state,
            client,
            random: number as u64 * 2 + 1,
            sessions: Vec::new(),
            followed: 0,
            names_used: 0,
            deleted: VecDeque::new(),
            counts: OperationCounts::default(),
        }
    }

    pub(crate) fn followed_sessions(&self) -> impl Iterator<Item = &str> {
        self.sessions[..self.followed].iter().map(|session| session.name.as_str())
    }

    pub(crate) async fn create_followed_sessions(&mut self) {
        for number in (self.number..self.state.size.followed_sessions).step_by(self.state.size.workers) {
            self.create_session(followed_session(number)).await;
        }
        self.followed = self.sessions.len();
    }

    /// Creates this worker's part of the sessions, with other operations in between. After that it continues the other operations.
    pub(crate) async fn run(&mut self) {
        let share = self.state.size.sessions.div_ceil(self.state.size.workers);
        while self.sessions.len() < share && !self.state.is_time_up() {
            let name = self.new_name();
            self.create_session(name).await;
            let newest = self.sessions.len() - 1;
            self.send_message(newest).await;
            if self.below(16) == 0 {
                self.run_operation(share).await;
            }
        }
        for _ in 0..self.state.size.operations_max {
            if self.state.is_time_up() {
                return;
            }
            self.run_operation(share).await;
        }
    }

    /// Runs an operation on a random session. `share` is how many sessions this worker keeps.
    async fn run_operation(&mut self, share: usize) {
        let index = self.below(self.sessions.len());
        match self.below(100) {
            0..20 => {
                let followed = self.below(self.followed.max(1));
                self.send_message(followed).await;
            }
            20..60 => self.send_message(index).await,
            60..68 => self.fork(index).await,
            68..74 => self.export_and_import(index).await,
            74..75 => self.search(index).await,
            75..90 => self.view(index).await,
            _ => self.delete(index).await,
        }
        while self.sessions.len() > share.max(self.followed) {
            self.delete(self.sessions.len() - 1).await;
        }
    }

    async fn create_session(&mut self, name: String) {
        let response = self.client.post("/v1/sessions", &json!({"session": name, "flow": "chat"})).await;
        self.expect(response, 201);
        self.add_session(name, Vec::new());
    }

    async fn send_message(&mut self, index: usize) {
        if self.sessions[index].messages.len() >= MESSAGES_PER_SESSION_MAX {
            return;
        }
        let number = self.state.last_message.fetch_add(1, Ordering::AcqRel) + 1;
        let padding = if number.is_multiple_of(16) { "long ".repeat(LONG_MESSAGE_BYTES / 5) } else { String::new() };
        let text = format!("message {number} {padding}.");
        let path = format!("/v1/sessions/{}/messages", self.sessions[index].name);
        let response = self.client.post(&path, &json!({"text": text, "key": format!("k{number}")})).await;
        let answer = self.expect(response, 200);
        assert_eq!(answer["outcome"]["type"], "done", "{answer}");
        assert_eq!(message_number(&answer["reply"]), Some(number), "{answer}");
        self.sessions[index].messages.push(number);
        self.counts.messages += 1;
    }

    async fn fork(&mut self, index: usize) {
        let (name, OwnedSession { name: original, messages }) = (self.new_name(), self.sessions[index].clone());
        let response = self.client.post(&format!("/v1/sessions/{original}/fork"), &json!({ "session": name })).await;
        self.expect(response, 201);
        self.add_session(name, messages);
        self.counts.forks += 1;
    }

    async fn export_and_import(&mut self, index: usize) {
        let (name, OwnedSession { name: original, messages }) = (self.new_name(), self.sessions[index].clone());
        let export = self.client.get(&format!("/v1/sessions/{original}/export")).await;
        assert_eq!(export.status, 200, "{}: {}", export.what, export.text);
        self.counts.exports += 1;
        let response = self.client.post_text(&format!("/v1/import?session={name}"), export.text).await;
        self.expect(response, 201);
        self.add_session(name, messages);
        self.counts.imports += 1;
    }

    /// Searches for the newest message of a session. A page may be empty although more follow.
    async fn search(&mut self, index: usize) {
        let Some(number) = self.sessions[index].messages.last().copied() else { return };
        let search = format!("/v1/sessions?search=message%20{number}%20&limit=10");
        let mut path = search.clone();
        for _ in 0..SEARCH_PAGES_MAX {
            let response = self.client.get(&path).await;
            let page = self.expect(response, 200);
            if page["sessions"].as_array().is_some_and(|sessions| !sessions.is_empty()) {
                self.counts.searches += 1;
                return;
            }
            let next = page["next"].as_str().unwrap_or_else(|| panic!("message {number} is not found: {page}"));
            path = format!("{search}&cursor={next}");
        }
        panic!("message {number} is not found on {SEARCH_PAGES_MAX} pages");
    }

    async fn view(&mut self, index: usize) {
        let name = &self.sessions[index].name;
        let path = match self.counts.views % 3 {
            0 => "/v1/sessions?limit=50".to_owned(),
            1 => format!("/v1/sessions/{name}"),
            _ => format!("/v1/sessions/{name}/turns?limit=20"),
        };
        let response = self.client.get(&path).await;
        self.expect(response, 200);
        self.counts.views += 1;
    }

    /// Deletes a session, unless it is followed.
    async fn delete(&mut self, index: usize) {
        if index < self.followed {
            return;
        }
        let OwnedSession { name, .. } = self.sessions.swap_remove(index);
        let response = self.client.delete(&format!("/v1/sessions/{name}")).await;
        self.expect(response, 204);
        self.counts.deletes += 1;
        if self.deleted.len() == DELETED_REMEMBERED_MAX {
            self.deleted.pop_front();
        }
        self.deleted.push_back(name);
    }

    fn add_session(&mut self, name: String, messages: Vec<u32>) {
        self.sessions.push(OwnedSession { name, messages });
        self.state.sessions_created.fetch_add(1, Ordering::AcqRel);
    }

    fn expect(&mut self, response: LoadResponse, status: u16) -> Value {
        self.counts.refusals += response.refusals;
        response.expect(status)
    }

    fn new_name(&mut self) -> String {
        self.names_used += 1;
        format!("load-{}-{}", self.number, self.names_used)
    }

    fn below(&mut self, limit: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 33) as usize % limit.max(1)
    }
}

//! The `workspace` flow: lessons, knowledge, and claims with a fair queue.

use std::collections::BTreeMap;

use segue_core::decide::{InboxSubmission, InputRefusal, OperatorCommand, SessionInput, SubmittingSession};
use segue_core::event::{AskOutcome, Event};
use segue_core::flow::{DecisionTextResolver, DynFlow, EventSubject, FlowArtifact, FlowContext, TypedArtifactContent};
use segue_core::ids::{AskId, SessionUid, SubmissionId};
use segue_core::session::SessionState;
use segue_flows::workspace::WorkspaceFlow;
use segue_flows::workspace::requests::{
    ExistingKnowledgeEntryPolicy, KnowledgeChangeReply, KnowledgeEntriesToAdd, KnowledgeToRemove, LessonAddReply,
    LessonList, LessonQuery, LessonToAdd, NewKnowledgeEntry, WorkspaceKnowledgePage, WorkspaceKnowledgeQuery,
    WorkspaceSessionRequest, parse_workspace_reply, workspace_session,
};
use segue_testkit::SessionHarness;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// A workspace that other sessions ask. Each session has its number as its uid.
struct Workspace {
    harness: SessionHarness,
    submissions: u64,
}

impl Workspace {
    fn open() -> Self {
        Self { harness: SessionHarness::open(WorkspaceFlow::new()), submissions: 0 }
    }

    fn submit(&mut self, from: u64, submission: InboxSubmission) {
        self.submissions += 1;
        let sender = SubmittingSession { session: format!("s{from}").as_str().into(), uid: SessionUid(from) };
        let (id, content) = (SubmissionId(self.submissions), Ok(submission));
        self.harness.apply_input(SessionInput::Submitted { id, sender: Some(sender), content });
    }

    /// Returns the sender's ids of questions that were answered since `after`, with the answers.
    fn replies_since(&self, after: usize) -> Vec<(AskId, AskOutcome)> {
        let mut asked = BTreeMap::new();
        let mut replies = Vec::new();
        for (index, recorded) in self.harness.journal().iter().enumerate() {
            match &recorded.event {
                Event::AskReceived(received) => drop(asked.insert(received.ask, received.reply_to)),
                Event::AskReplied { ask, reply } if index >= after => {
                    let reply_to = asked[ask].expect("only questions are answered");
                    replies.push((reply_to, reply.clone()));
                }
                _ => {}
            }
        }
        replies
    }

    fn request(&mut self, from: u64, request: WorkspaceSessionRequest) -> AskOutcome {
        let (topic, body) = request.into_topic_and_body();
        let before = self.harness.journal().len();
        self.submit(from, InboxSubmission::Ask { reply_to: Some(AskId(1)), topic, body });
        let mut replies = self.replies_since(before);
        assert_eq!(replies.len(), 1);
        replies.remove(0).1
    }

    fn ask<T: DeserializeOwned>(&mut self, from: u64, request: WorkspaceSessionRequest) -> T {
        match self.request(from, request) {
            AskOutcome::Answered { body } => parse_workspace_reply(&body).expect("the reply has the declared type"),
            other => panic!("{other:?}"),
        }
    }

    fn refusal(&mut self, from: u64, request: WorkspaceSessionRequest) -> String {
        match self.request(from, request) {
            AskOutcome::Refused { reason } => reason,
            other => panic!("{other:?}"),
        }
    }

    /// A session requests a claim. Returns the sessions that were granted or refused something.
    fn claim(&mut self, from: u64, name: &str) -> Vec<String> {
        let before = self.harness.journal().len();
        let body = json!({ "name": name });
        // The sender's id of the question is the session's number, so that replies show whom they are for.
        let reply_to = Some(AskId(u32::try_from(from).expect("numbers are small")));
        self.submit(from, InboxSubmission::Ask { reply_to, topic: "claim".to_owned(), body });
        self.answered(before)
    }

    fn release(&mut self, from: u64, name: &str) -> Vec<String> {
        let before = self.harness.journal().len();
        let body = json!({ "name": name });
        self.submit(from, InboxSubmission::Ask { reply_to: None, topic: "release".to_owned(), body });
        self.answered(before)
    }

    fn answered(&self, before: usize) -> Vec<String> {
        let describe = |(ask, outcome): (AskId, AskOutcome)| match outcome {
            AskOutcome::Answered { body } => format!("s{} holds {}", ask.0, body["name"].as_str().unwrap_or("?")),
            AskOutcome::Refused { reason } => format!("s{}: {reason}", ask.0),
            other => format!("{other:?}"),
        };
        self.replies_since(before).into_iter().map(describe).collect()
    }

    fn claims_table(&self) -> Vec<String> {
        let flow = WorkspaceFlow::new();
        let state = SessionState::fold(&flow, self.harness.journal());
        let (texts, subject) = (DecisionTextResolver::new(self.harness.texts()), EventSubject::default());
        let context = FlowContext { session: &state.session, state: &state.flow, texts: &texts, subject: &subject };
        let artifacts: Vec<FlowArtifact> = DynFlow::artifacts(&flow, context);
        let table = artifacts.into_iter().find(|artifact| artifact.name == "claims");
        match table.map(|table| table.content) {
            Some(TypedArtifactContent::Table { rows, .. }) => {
                rows.into_iter().map(|row| row.cells.join(" | ")).collect()
            }
            Some(other) => panic!("{other:?}"),
            None => Vec::new(),
        }
    }
}

fn lesson(agent: &str, title: &str, text: &str) -> WorkspaceSessionRequest {
    let (agent, title, text) = (agent.to_owned(), title.to_owned(), text.to_owned());
    WorkspaceSessionRequest::LessonAdd(LessonToAdd { agent, title, text })
}

fn lessons_of(agent: &str) -> WorkspaceSessionRequest {
    WorkspaceSessionRequest::Lessons(LessonQuery { agent: Some(agent.to_owned()) })
}

fn knowledge(key: &str, document: Value, if_exists: ExistingKnowledgeEntryPolicy) -> WorkspaceSessionRequest {
    let entry = NewKnowledgeEntry { kind: "rule".to_owned(), key: key.to_owned(), document, if_exists };
    WorkspaceSessionRequest::KnowledgeAdd(KnowledgeEntriesToAdd { entries: vec![entry] })
}

#[test]
fn lessons_are_kept_per_agent_newest_first_and_stored_once() {
    let mut workspace = Workspace::open();
    let first: LessonAddReply = workspace.ask(1, lesson("coder", "tests", "run them"));
    assert_eq!(first, LessonAddReply { is_new: true, lessons: 1 });
    let again: LessonAddReply = workspace.ask(2, lesson("coder", " tests ", "run them"));
    assert_eq!(again, LessonAddReply { is_new: false, lessons: 1 }, "identical lessons are stored once");
    let other: LessonAddReply = workspace.ask(2, lesson("planner", "tests", "run them"));
    assert!(other.is_new, "another agent learns for itself");
    for number in 0..60 {
        let _: LessonAddReply = workspace.ask(1, lesson("coder", &format!("lesson {number}"), "text"));
    }
    let list: LessonList = workspace.ask(3, lessons_of("coder"));
    assert_eq!((list.lessons.len(), list.omitted), (50, 0), "only the newest are kept");
    assert_eq!((list.lessons[0].title.as_str(), list.lessons[49].title.as_str()), ("lesson 59", "lesson 10"));
    let all: LessonList = workspace.ask(3, WorkspaceSessionRequest::Lessons(LessonQuery::default()));
    assert_eq!(all.lessons.len(), 51);
    workspace.harness.crash_and_recover();
    let list: LessonList = workspace.ask(3, lessons_of("coder"));
    assert_eq!(list.lessons.len(), 50, "a workspace outlives its process");
}

#[test]
fn lessons_that_do_not_fit_a_reply_are_counted() {
    let mut workspace = Workspace::open();
    for number in 0..50 {
        let text = format!("{number}{}", "ä".repeat(3_990));
        let _: LessonAddReply = workspace.ask(1, lesson("coder", "long", &text));
    }
    let list: LessonList = workspace.ask(2, lessons_of("coder"));
    assert!(list.omitted > 0 && list.lessons.len() + list.omitted == 50, "{} omitted", list.omitted);
}

#[test]
fn malformed_and_oversized_requests_are_refused_with_a_reason() {
    let mut workspace = Workspace::open();
    assert_eq!(
        workspace.refusal(1, lesson("coder", "", "x")),
        "the title of a lesson must have 1 to 200 characters, not 0"
    );
    assert!(workspace.refusal(1, lesson("coder", "x", &"x".repeat(4_001))).contains("1 to 4000 characters"));
    let large = knowledge("big", json!("x".repeat(40_000)), ExistingKnowledgeEntryPolicy::Refuse);
    assert!(workspace.refusal(1, large).contains("at most 32768 are allowed"));
    let none = WorkspaceSessionRequest::KnowledgeAdd(KnowledgeEntriesToAdd { entries: Vec::new() });
    assert_eq!(workspace.refusal(1, none), "a request must name 1 to 100 entries, not 0");
    let before = workspace.harness.journal().len();
    let (topic, body) = ("lesson_add".to_owned(), json!({"agent": "coder", "tittle": "x"}));
    workspace.submit(1, InboxSubmission::Ask { reply_to: Some(AskId(1)), topic, body });
    let (_, outcome) = workspace.replies_since(before).remove(0);
    assert!(
        matches!(&outcome, AskOutcome::Refused { reason } if reason.contains("unknown field `tittle`")),
        "{outcome:?}"
    );
}

#[test]
fn knowledge_is_added_replaced_and_removed_with_revisions() {
    let mut workspace = Workspace::open();
    let stored: KnowledgeChangeReply =
        workspace.ask(1, knowledge("tabs", json!({"use": 4}), ExistingKnowledgeEntryPolicy::Refuse));
    let revision = stored.changed[0].revision;
    let again: KnowledgeChangeReply =
        workspace.ask(2, knowledge("tabs", json!({"use": 4}), ExistingKnowledgeEntryPolicy::Refuse));
    assert_eq!(again.changed, [], "an identical document changes nothing");
    assert_eq!(
        workspace.refusal(2, knowledge("tabs", json!({"use": 8}), ExistingKnowledgeEntryPolicy::Refuse)),
        "the entry `tabs` of kind `rule` exists with another document; say that it is to be replaced"
    );
    let replace = ExistingKnowledgeEntryPolicy::ReplaceRevision(revision);
    let replaced: KnowledgeChangeReply = workspace.ask(2, knowledge("tabs", json!({"use": 8}), replace));
    assert!(replaced.changed[0].revision > revision);
    let stale = workspace.refusal(1, knowledge("tabs", json!({"use": 2}), replace));
    assert!(stale.contains("read it again"), "{stale}");
    let page: WorkspaceKnowledgePage =
        workspace.ask(1, WorkspaceSessionRequest::KnowledgeList(WorkspaceKnowledgeQuery::default()));
    assert_eq!((page.entries.len(), &page.entries[0].document), (1, &json!({"use": 8})));
    assert_eq!(page.entries[0].session, "s2");
    let remove = KnowledgeToRemove { kind: "rule".to_owned(), keys: vec!["tabs".to_owned(), "gone".to_owned()] };
    let removed: KnowledgeChangeReply = workspace.ask(1, WorkspaceSessionRequest::KnowledgeRemove(remove));
    assert_eq!(removed.changed.len(), 1, "entries that do not exist are ignored");
    let page: WorkspaceKnowledgePage =
        workspace.ask(1, WorkspaceSessionRequest::KnowledgeList(WorkspaceKnowledgeQuery::default()));
    assert_eq!(page.entries, []);
}

#[test]
fn knowledge_is_listed_in_pages_that_fit_a_reply() {
    let mut workspace = Workspace::open();
    for number in 0..20 {
        let document = json!("x".repeat(30_000));
        let _: KnowledgeChangeReply =
            workspace.ask(1, knowledge(&format!("k{number:02}"), document, ExistingKnowledgeEntryPolicy::Refuse));
    }
    let (mut after, mut keys) = (None, Vec::new());
    loop {
        let query = WorkspaceKnowledgeQuery { kind: Some("rule".to_owned()), after };
        let page: WorkspaceKnowledgePage = workspace.ask(2, WorkspaceSessionRequest::KnowledgeList(query));
        assert!(!page.entries.is_empty());
        keys.extend(page.entries.into_iter().map(|entry| entry.key));
        match page.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    assert_eq!(keys, (0..20).map(|number| format!("k{number:02}")).collect::<Vec<_>>());
}

#[test]
fn claim_is_granted_in_the_order_of_requests() {
    let mut workspace = Workspace::open();
    assert_eq!(workspace.claim(1, "execute"), ["s1 holds execute"]);
    assert_eq!(workspace.claim(2, "execute"), [""; 0]);
    assert_eq!(workspace.claim(3, "execute"), [""; 0]);
    assert_eq!(workspace.claim(4, "merge"), ["s4 holds merge"], "another claim is free");
    assert_eq!(workspace.claims_table(), ["execute | s1 | s2, s3", "merge | s4 | "]);
    workspace.harness.crash_and_recover();
    assert_eq!(workspace.release(1, "execute"), ["s2 holds execute"]);
    assert_eq!(workspace.release(2, "execute"), ["s3 holds execute"]);
    assert_eq!(workspace.release(3, "execute"), [""; 0]);
    assert_eq!(workspace.claims_table(), ["merge | s4 | "]);
}

#[test]
fn only_the_holder_can_release_and_a_waiter_only_leaves_the_queue() {
    let mut workspace = Workspace::open();
    workspace.claim(1, "execute");
    workspace.claim(2, "execute");
    workspace.claim(3, "execute");
    assert_eq!(workspace.release(9, "execute"), [""; 0], "it holds nothing");
    assert_eq!(workspace.release(1, "merge"), [""; 0], "it does not hold this one");
    assert_eq!(workspace.release(2, "execute"), ["s2: the session no longer waits"]);
    assert_eq!(workspace.claims_table(), ["execute | s1 | s3"]);
    assert_eq!(workspace.release(1, "execute"), ["s3 holds execute"]);
}

#[test]
fn r11_session_holds_at_most_one_claim_and_waits_for_at_most_one() {
    let mut workspace = Workspace::open();
    workspace.claim(1, "execute");
    assert_eq!(
        workspace.claim(1, "merge"),
        ["s1: the session already holds the claim `execute`; it must release that first"]
    );
    assert_eq!(workspace.claim(1, "execute"), ["s1 holds execute"], "a repeated request is granted again");
    workspace.claim(2, "execute");
    assert_eq!(workspace.claim(2, "execute"), ["s2: the session asked again"]);
    assert_eq!(workspace.claims_table(), ["execute | s1 | s2"], "it waits once");
}

#[test]
fn r5_another_session_of_the_same_name_inherits_no_claim() {
    let mut workspace = Workspace::open();
    workspace.claim(1, "execute");
    let sender = SubmittingSession { session: "s1".into(), uid: SessionUid(77) };
    let release =
        InboxSubmission::Ask { reply_to: None, topic: "release".to_owned(), body: json!({"name": "execute"}) };
    let (id, content) = (SubmissionId(500), Ok(release));
    workspace.harness.apply_input(SessionInput::Submitted { id, sender: Some(sender), content });
    assert_eq!(workspace.claims_table(), ["execute | s1 | "]);
}

#[test]
fn claim_of_a_session_that_no_longer_exists_passes_on() {
    let mut workspace = Workspace::open();
    workspace.claim(1, "execute");
    workspace.claim(2, "execute");
    let granted = workspace.harness.journal().iter().find_map(|recorded| match &recorded.event {
        Event::AskReplied { ask, .. } => Some(*ask),
        _ => None,
    });
    let before = workspace.harness.journal().len();
    let bounced = InboxSubmission::ReplyBounced { ask: granted.expect("it was granted") };
    let own_name = workspace.harness.session().id.clone().expect("it is open");
    let sender = SubmittingSession { session: own_name, uid: SessionUid(500) };
    let (id, content) = (SubmissionId(600), Ok(bounced));
    workspace.harness.apply_input(SessionInput::Submitted { id, sender: Some(sender), content });
    assert_eq!(workspace.answered(before), ["s2 holds execute"]);
}

#[test]
fn operator_can_release_a_claim_whose_holder_was_lost() {
    let mut workspace = Workspace::open();
    let release = |claim: Option<&str>| {
        let arguments = claim.map_or(Value::Null, |claim| json!({ "claim": claim }));
        OperatorCommand::Flow { command: "release".to_owned(), arguments }
    };
    let refused =
        |workspace: &mut Workspace, claim| workspace.harness.try_input(SessionInput::Operator(release(claim))).err();
    assert_eq!(
        refused(&mut workspace, Some("execute")),
        Some(InputRefusal::FlowCommandRefused("nobody holds the claim `execute`; no claim is held".to_owned()))
    );
    workspace.claim(1, "execute");
    workspace.claim(2, "execute");
    assert_eq!(
        refused(&mut workspace, None),
        Some(InputRefusal::FlowCommandRefused("say which claim to release: `claim=NAME`".to_owned()))
    );
    let before = workspace.harness.journal().len();
    workspace.harness.run_command(release(Some("execute")));
    assert_eq!(workspace.answered(before), ["s2 holds execute"]);
    assert_eq!(workspace.claims_table(), ["execute | s2 | "]);
}

#[test]
fn r7_copy_of_a_workspace_keeps_what_it_knows_but_grants_nothing_twice() {
    let mut workspace = Workspace::open();
    let _: LessonAddReply = workspace.ask(1, lesson("coder", "tests", "run them"));
    workspace.claim(1, "execute");
    workspace.claim(2, "execute");
    let copy = workspace.harness.fork_at(workspace.harness.journal().len());
    let mut copy = Workspace { harness: copy, submissions: 1_000 };
    assert_eq!(copy.claims_table(), [""; 0]);
    let list: LessonList = copy.ask(3, lessons_of("coder"));
    assert_eq!(list.lessons.len(), 1);
}

#[test]
fn message_to_a_workspace_is_answered_without_a_model() {
    let mut workspace = Workspace::open();
    workspace.claim(1, "execute");
    workspace.harness.send_message("hello");
    assert_eq!(
        workspace.harness.last_reply(),
        "This session is a workspace: other sessions share it, and no model reads it. It has 0 lessons, 0 entries of \
         knowledge and 1 claims in use."
    );
    assert!(workspace.harness.session().is_idle());
}

#[test]
fn workspace_is_addressed_by_its_name_and_the_owner_of_the_asker() {
    assert_eq!(workspace_session(&"talk".into(), "default"), Ok("default~workspace".into()));
    assert_eq!(workspace_session(&"acme.talk~1".into(), "shop"), Ok("acme.shop~workspace".into()));
    assert!(workspace_session(&"talk".into(), "a b").is_err());
}

//! The `workspace` flow: what outlives a session and is shared by the sessions of one owner. It stores lessons of agents
//! and entries of knowledge, and grants claims. It calls no model.
//!
//! Other sessions ask it; [`requests`] defines what they can ask. A workspace opens when it is first asked.

mod artifacts;
mod claims;
mod knowledge;
mod lessons;
pub mod requests;
mod state;

use segue_core::context::RenderedFragment;
use segue_core::decide::{CLAIM_TOPIC, RELEASE_TOPIC};
use segue_core::event::{AskReceived, Event, RecordedEvent, TurnOutcome};
use segue_core::flow::{
    FactDisplay, Flow, FlowArtifact, FlowCommandSpec, FlowContext, FlowSpec, FlowStep, FragmentRenderContext,
    NewOrStoredReplyText,
};
use segue_core::ids::FragmentName;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use self::claims::WorkspaceClaimant;
use self::requests::{WORKSPACE_FLOW, WorkspaceSessionRequest};
use self::state::{WorkspaceFlowFact, WorkspaceFlowState};
use crate::fact::{parse_fact, record_fact_step};
use crate::limits::{CLAIM_NAME_CHARS_MAX, CLAIMS_MAX};

/// The command by which an operator releases a claim.
pub(crate) const RELEASE_COMMAND: &str = "release";
const CLAIM_ARGUMENT: &str = "claim";

type WorkspaceFlowContext<'a> = FlowContext<'a, WorkspaceFlowState>;

/// The flow of workspaces.
#[derive(Debug)]
pub struct WorkspaceFlow {
    spec: FlowSpec,
}

impl WorkspaceFlow {
    /// Creates the flow.
    #[must_use]
    pub fn new() -> Self {
        let release = FlowCommandSpec {
            description: "releases a claim whose holder was lost, and grants it to the next session that waits".into(),
            arguments: [(CLAIM_ARGUMENT.to_owned(), "the name of the claim".to_owned())].into(),
        };
        let mut spec = FlowSpec::new(
            WORKSPACE_FLOW,
            "lessons, knowledge and exclusive claims that sessions share; calls no model",
        );
        let topics = [
            ("lesson_add", "stores a lesson of an agent"),
            ("lessons", "lists the lessons of an agent, or of all agents"),
            ("knowledge_add", "stores or replaces entries of knowledge"),
            ("knowledge_remove", "removes entries of knowledge"),
            ("knowledge_list", "lists entries of knowledge, in pages"),
            ("claim_status", "says who holds a claim and who waits for it"),
            (CLAIM_TOPIC, "requests a claim; the reply arrives when it is granted"),
            (RELEASE_TOPIC, "releases a claim, or gives up waiting for it"),
        ];
        spec.ask_topics = topics.map(|(topic, description)| (topic.to_owned(), description.to_owned())).into();
        spec.commands.insert(RELEASE_COMMAND.to_owned(), release);
        spec.opens_on_demand = true;
        Self { spec }
    }
}

impl Default for WorkspaceFlow {
    fn default() -> Self {
        Self::new()
    }
}

impl Flow for WorkspaceFlow {
    type State = WorkspaceFlowState;

    fn spec(&self) -> &FlowSpec {
        &self.spec
    }

    fn apply(&self, state: &mut WorkspaceFlowState, event: &RecordedEvent) {
        state.apply_event(event);
    }

    fn react(&self, view: &WorkspaceFlowContext<'_>, event: &RecordedEvent) -> Vec<FlowStep> {
        match &event.event {
            Event::TurnStarted { .. } => vec![
                FlowStep::Reply { text: NewOrStoredReplyText::New(describe_contents(view)), role: None, call: None },
                FlowStep::EndTurn(TurnOutcome::Done),
            ],
            Event::AskReceived(received) => match received.topic.as_str() {
                CLAIM_TOPIC => handle_claim_request(view, received),
                RELEASE_TOPIC => release_by_request(view, received),
                _ => answer_lesson_or_knowledge_ask(view, received),
            },
            // The session that was granted a claim no longer exists.
            Event::ReplyUndelivered { ask } => match view.state.claims.granted_by(*ask) {
                Some((claim, holder)) => free_and_grant_next(view, claim, holder, "its holder no longer exists"),
                None => Vec::new(),
            },
            Event::CommandIssued { command, arguments } if command == RELEASE_COMMAND => {
                match find_commanded_claim(view, arguments) {
                    Ok((claim, holder)) => free_and_grant_next(view, claim, holder, "released by an operator"),
                    // `check_command` has refused it.
                    Err(_) => Vec::new(),
                }
            }
            _ => Vec::new(),
        }
    }

    fn render_fragment(
        &self,
        _view: &WorkspaceFlowContext<'_>,
        _request: &FragmentRenderContext<'_>,
        _name: &FragmentName,
    ) -> RenderedFragment {
        RenderedFragment::Omitted("a workspace calls no model".to_owned())
    }

    fn check_command(&self, view: &WorkspaceFlowContext<'_>, _command: &str, arguments: &Value) -> Result<(), String> {
        find_commanded_claim(view, arguments).map(|_| ())
    }

    fn describe_fact(&self, _state: &WorkspaceFlowState, kind: &str, value: &Value) -> FactDisplay {
        parse_fact::<WorkspaceFlowFact>(kind, value)
            .map_or(FactDisplay::Raw, |fact| FactDisplay::Notice(artifacts::describe_workspace_fact(&fact)))
    }

    fn artifacts(&self, view: &WorkspaceFlowContext<'_>) -> Vec<FlowArtifact> {
        artifacts::list_artifacts(view.state)
    }
}

fn describe_contents(view: &WorkspaceFlowContext<'_>) -> String {
    let state = view.state;
    let lessons: usize = state.lessons.values().map(std::collections::VecDeque::len).sum();
    let (entries, claims) = (state.entries().count(), state.claims.iter().count());
    format!(
        "This session is a workspace: other sessions share it, and no model reads it. It has {lessons} lessons, \
         {entries} entries of knowledge and {claims} claims in use."
    )
}

/// Answers a request about lessons or knowledge.
fn answer_lesson_or_knowledge_ask(view: &WorkspaceFlowContext<'_>, received: &AskReceived) -> Vec<FlowStep> {
    let answered = WorkspaceSessionRequest::parse(&received.topic, &received.body).and_then(|request| match request {
        WorkspaceSessionRequest::LessonAdd(lesson) => lessons::store_lesson(view.state, lesson, &received.from),
        WorkspaceSessionRequest::Lessons(query) => lessons::list_lessons(view.state, &query),
        WorkspaceSessionRequest::KnowledgeAdd(entries) => knowledge::store_entries(view.state, entries, &received.from),
        WorkspaceSessionRequest::KnowledgeRemove(keys) => knowledge::remove_entries(view.state, &keys, &received.from),
        WorkspaceSessionRequest::KnowledgeList(query) => knowledge::list_entries(view.state, &query),
        WorkspaceSessionRequest::ClaimStatus(query) => {
            Ok(WorkspaceFactAndReply::new(None, &view.state.claims.holder_and_waiters(&query.name)))
        }
    });
    let (fact, reply) = match answered {
        Ok(WorkspaceFactAndReply { fact, reply }) => (fact, Ok(reply)),
        Err(why) => (None, Err(why)),
    };
    let answer = received.reply_to.map(|_| FlowStep::AnswerAsk { ask: received.ask, reply });
    fact.iter().map(record_fact_step).chain(answer).collect()
}

/// What follows from a request.
struct WorkspaceFactAndReply {
    fact: Option<WorkspaceFlowFact>,
    reply: Value,
}

impl WorkspaceFactAndReply {
    fn new(fact: Option<WorkspaceFlowFact>, reply: &impl Serialize) -> Self {
        Self { fact, reply: serde_json::to_value(reply).unwrap_or_default() }
    }
}

#[derive(Deserialize)]
struct WorkspaceClaimRequestBody {
    name: String,
}

fn handle_claim_request(view: &WorkspaceFlowContext<'_>, received: &AskReceived) -> Vec<FlowStep> {
    // Without a reply the session would never know that it holds the claim.
    if received.reply_to.is_none() {
        return Vec::new();
    }
    match grant_or_queue_claim(view, received) {
        Ok(steps) => steps,
        Err(why) => vec![FlowStep::AnswerAsk { ask: received.ask, reply: Err(why) }],
    }
}

fn grant_or_queue_claim(view: &WorkspaceFlowContext<'_>, received: &AskReceived) -> Result<Vec<FlowStep>, String> {
    let claims = &view.state.claims;
    let claim = parse_claim_name(&received.body)?;
    let by = WorkspaceClaimant { session: received.from.clone(), uid: received.from_uid, ask: received.ask };
    if let Some((held, _)) = claims.held_by(by.uid).filter(|(held, _)| **held != claim) {
        return Err(format!("the session already holds the claim `{held}`; it must release that first"));
    }
    if claims.get(&claim).is_none() && claims.iter().count() >= CLAIMS_MAX {
        return Err(format!("{CLAIMS_MAX} claims are in use, which is the maximum; try again later"));
    }
    let mut steps = Vec::new();
    // A session that asks again has given up its earlier request.
    if let Some((awaited, earlier)) = claims.awaited_by(by.uid) {
        let reason = "the session asked again".to_owned();
        steps.push(record_fact_step(&WorkspaceFlowFact::ClaimWithdrawn {
            claim: awaited.clone(),
            by: earlier.clone(),
            reason: reason.clone(),
        }));
        if view.session.received_asks.contains_key(&earlier.ask) {
            steps.push(FlowStep::AnswerAsk { ask: earlier.ask, reply: Err(reason) });
        }
    }
    let holder = claims.get(&claim).and_then(|status| status.holder.as_ref());
    match holder {
        Some(holder) if holder.uid != by.uid => {
            steps.push(record_fact_step(&WorkspaceFlowFact::ClaimQueued { claim, by }))
        }
        _ => steps.extend(grant_steps(claim, by)),
    }
    Ok(steps)
}

fn parse_claim_name(body: &Value) -> Result<String, String> {
    let WorkspaceClaimRequestBody { name } = serde_json::from_value(body.clone())
        .map_err(|error| format!("a claim needs a name, as {{\"name\": \"execute\"}}: {error}"))?;
    let is_valid =
        !name.trim().is_empty() && name.chars().count() <= CLAIM_NAME_CHARS_MAX && !name.chars().any(char::is_control);
    if is_valid {
        Ok(name)
    } else {
        Err(format!("the name of a claim must have 1 to {CLAIM_NAME_CHARS_MAX} characters"))
    }
}

fn grant_steps(claim: String, to: WorkspaceClaimant) -> [FlowStep; 2] {
    let (ask, reply) = (to.ask, Ok(json!({ "name": claim })));
    [record_fact_step(&WorkspaceFlowFact::ClaimGranted { claim, to }), FlowStep::AnswerAsk { ask, reply }]
}

/// Releases the claim of a session, or ends its wait. What it says about other sessions' claims is ignored.
fn release_by_request(view: &WorkspaceFlowContext<'_>, received: &AskReceived) -> Vec<FlowStep> {
    let claims = &view.state.claims;
    let Ok(claim) = parse_claim_name(&received.body) else { return Vec::new() };
    let (uid, reason) = (received.from_uid, "released by its holder");
    if let Some((held, holder)) = claims.held_by(uid).filter(|(held, _)| **held == claim) {
        return free_and_grant_next(view, held, holder, reason);
    }
    match claims.awaited_by(uid).filter(|(awaited, _)| **awaited == claim) {
        Some((_, waiting)) => {
            let reason = "the session no longer waits".to_owned();
            let withdrawn = WorkspaceFlowFact::ClaimWithdrawn { claim, by: waiting.clone(), reason: reason.clone() };
            let is_open = view.session.received_asks.contains_key(&waiting.ask);
            let answer = is_open.then_some(FlowStep::AnswerAsk { ask: waiting.ask, reply: Err(reason) });
            [record_fact_step(&withdrawn)].into_iter().chain(answer).collect()
        }
        None => Vec::new(),
    }
}

/// Frees a claim and grants it to the session that waits longest.
fn free_and_grant_next(
    view: &WorkspaceFlowContext<'_>,
    claim: &str,
    holder: &WorkspaceClaimant,
    reason: &str,
) -> Vec<FlowStep> {
    let freed =
        WorkspaceFlowFact::ClaimFreed { claim: claim.to_owned(), from: holder.clone(), reason: reason.to_owned() };
    let mut steps = vec![record_fact_step(&freed)];
    let waiting = view.state.claims.get(claim).map(|status| &status.waiting);
    for next in waiting.into_iter().flatten() {
        if view.session.received_asks.contains_key(&next.ask) {
            steps.extend(grant_steps(claim.to_owned(), next.clone()));
            break;
        }
        let reason = "its question is no longer open".to_owned();
        steps.push(record_fact_step(&WorkspaceFlowFact::ClaimWithdrawn {
            claim: claim.to_owned(),
            by: next.clone(),
            reason,
        }));
    }
    steps
}

fn find_commanded_claim<'v>(
    view: &'v WorkspaceFlowContext<'_>,
    arguments: &Value,
) -> Result<(&'v String, &'v WorkspaceClaimant), String> {
    let Some(name) = arguments.get(CLAIM_ARGUMENT).and_then(Value::as_str) else {
        return Err(format!("say which claim to release: `{CLAIM_ARGUMENT}=NAME`"));
    };
    let held: Vec<String> = view.state.claims.iter().map(|(claim, _)| format!("`{claim}`")).collect();
    let known = if held.is_empty() { "no claim is held".to_owned() } else { format!("held are {}", held.join(", ")) };
    let found = view.state.claims.iter().find(|(claim, _)| *claim == name);
    found
        .and_then(|(claim, status)| Some((claim, status.holder.as_ref()?)))
        .ok_or_else(|| format!("nobody holds the claim `{name}`; {known}"))
}

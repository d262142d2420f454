//! The state of the team, as a fold of the journal.

use std::collections::{BTreeMap, BTreeSet};

use segue_core::body::TextRef;
use segue_core::event::{AgentMessageSent, CallOpened, Event, PhaseStateOwner, RecordedEvent, RetryDecision};
use segue_core::ids::{AgentName, CallId, MessageId, PhaseName, UnixMillis};
use serde::{Deserialize, Serialize};

use super::facts::{
    ArchitectDecisionOnRequest, CoderRequestKind, CoderTask, InspectedRepository, KnowledgeFileUpdate, StoryAssignment,
    StoryStatus, TeamFact, TeamFailureKind, UndeliveredStory,
};
use super::graphs::{self, BUDGET_REVIEW, QUESTION, SUSPEND};
use super::knowledge::{ExistingKnowledgeNodePolicy, KnowledgeGraph, KnowledgeNode};
use super::product_spec::ProductSpec;
use super::review::{ParsedReview, ReviewVerdict};
use super::story::Story;
use crate::limits::{STORY_REVIEWS_KEPT_MAX, TEAM_SPECS_KEPT_MAX};

/// The state of the team.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct TeamState {
    /// The spec that the product manager is working out.
    pub draft: ProductSpec,
    pub has_draft: bool,
    /// The spec that the team works on.
    pub spec: Option<ProductSpec>,
    pub spec_number: u32,
    pub spec_is_running: bool,
    pub repository: Option<InspectedRepository>,
    /// The ids of the stories, in order.
    pub story_order: Vec<String>,
    pub stories: BTreeMap<String, StoryProgress>,
    pub stories_refused: u32,
    /// Why the architect's last answer was refused.
    pub last_refusal: Vec<String>,
    pub coders: BTreeMap<AgentName, CoderWork>,
    /// Requests that the architect has not decided.
    pub requests: BTreeMap<MessageId, CoderRequest>,
    pub knowledge: KnowledgeGraph,
    /// Entries that are not in the knowledge file yet.
    pub unwritten: Vec<KnowledgeNode>,
    /// Knowledge updates by the id of their express work.
    pub updates: BTreeMap<String, KnowledgeFileUpdate>,
    pub express_count: u32,
    /// Messages that were sent, until the next one is sent after they were received.
    pub mail: BTreeMap<MessageId, AgentMessageSent>,
    pub received_mail: BTreeSet<MessageId>,
    /// The coders that wait for their merge, in order. The first one is merging.
    pub merge_queue: Vec<AgentName>,
    pub is_paused: bool,
    /// How often giving out work was begun since it last ended.
    pub pending_dispatches: u32,
    pub escalations: Vec<TeamEscalation>,
    /// Since when the architect's calls fail.
    pub architect_suspended_since: Option<UnixMillis>,
    pub landed: Option<(String, Option<String>)>,
    pub ended_specs: Vec<EndedSpecOutcome>,
    /// Whether the user has not been told yet what the last spec delivered.
    #[serde(default)]
    pub account_is_due: bool,
    /// The story of each open call, for its cost.
    pub call_stories: BTreeMap<CallId, String>,
    /// The agent of each open call.
    pub call_workers: BTreeMap<CallId, AgentName>,
}

/// How far a story is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoryProgress {
    pub story: Story,
    pub status: StoryStatus,
    pub reason: String,
    /// The number of attempts so far.
    pub attempts: u32,
    pub requeues: u32,
    pub conflicts: u32,
    /// The architect's decisions, newest last.
    pub reviews: Vec<ArchitectDecisionOnRequest>,
    pub commit: Option<String>,
    pub cost_microusd: u64,
    pub calls: u32,
}

/// What a coder works on, and how far it is.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct CoderWork {
    pub assignment: Option<StoryAssignment>,
    pub base: Option<String>,
    pub task: Option<CoderTask>,
    pub planning_rounds: u32,
    pub coding_rounds: u32,
    pub planning_rounds_max: u32,
    pub coding_rounds_max: u32,
    pub budget_reviews: u32,
    /// The reviews in a row that asked for changes, by kind.
    pub streaks: BTreeMap<CoderRequestKind, u32>,
    pub plan: Option<TextRef>,
    pub account: Option<TextRef>,
    pub commit: Option<String>,
    pub diff: Option<TextRef>,
    pub diff_digest: String,
    pub files: Vec<String>,
    /// The commit whose tests passed.
    pub green_commit: Option<String>,
    /// The diff that the architect approved.
    pub approved_diff: Option<String>,
    pub last_failure: Option<String>,
    pub prepared_request: Option<(CoderRequestKind, Option<TextRef>)>,
    /// The phase to which a budget review or a question returns.
    pub return_to: Option<PhaseName>,
    pub suspended_from: Option<PhaseName>,
    pub suspended_since: Option<UnixMillis>,
    /// Why the attempt failed.
    pub failure: Option<(String, TeamFailureKind)>,
}

impl CoderWork {
    /// Returns the current work item.
    #[must_use]
    pub fn work_item(&self) -> Option<String> {
        self.assignment.as_ref().map(StoryAssignment::work_item)
    }
}

/// A request from a coder to the architect.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CoderRequest {
    pub agent: AgentName,
    pub work: String,
    pub kind: CoderRequestKind,
    /// The plan, the question, or what the coder says about its work.
    pub text: Option<TextRef>,
    pub diff: Option<TextRef>,
    pub commit: Option<String>,
    /// The reviews of the parts so far, if the diff is reviewed file by file.
    pub parts: Vec<ParsedReview>,
    pub refused_answers: u32,
    pub is_received: bool,
}

/// Something that a person has to decide.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TeamEscalation {
    pub subject: String,
    pub reason: String,
    pub failure: TeamFailureKind,
}

/// The account of a spec that has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedSpecOutcome {
    pub number: u32,
    pub merged: Vec<String>,
    pub missing: Vec<UndeliveredStory>,
}

impl TeamState {
    /// Returns what a coder works on.
    #[must_use]
    pub fn assignment(&self, agent: &AgentName) -> Option<&StoryAssignment> {
        self.coders.get(agent)?.assignment.as_ref()
    }

    /// Returns the story that a coder works on.
    #[must_use]
    pub fn story_of(&self, agent: &AgentName) -> Option<&StoryProgress> {
        self.stories.get(&self.assignment(agent)?.story)
    }

    /// Returns the stories in order.
    pub fn ordered_stories(&self) -> impl Iterator<Item = &StoryProgress> {
        self.story_order.iter().filter_map(|id| self.stories.get(id))
    }

    /// Returns the ids of the stories with a status.
    #[must_use]
    pub fn story_ids_with(&self, status: StoryStatus) -> BTreeSet<String> {
        let stories = self.stories.values().filter(|progress| progress.status == status);
        stories.map(|progress| progress.story.id.clone()).collect()
    }

    /// Applies an event.
    pub(super) fn apply_event(&mut self, recorded: &RecordedEvent) {
        match &recorded.event {
            Event::AgentMessageSent(sent) => self.apply_message_sent(sent),
            Event::AgentMessageReceived { message } => {
                self.received_mail.insert(*message);
                if let Some(request) = self.requests.get_mut(message) {
                    request.is_received = true;
                }
            }
            Event::CallOpened(opened) => self.apply_call_opened(opened),
            Event::CallAnswered(answered) => {
                let cost = answered.cost_microusd.unwrap_or_default();
                self.end_suspension_after_answer(answered.call);
                if let Some(story) = self.call_stories.remove(&answered.call).and_then(|id| self.stories.get_mut(&id)) {
                    story.cost_microusd = story.cost_microusd.saturating_add(cost);
                }
            }
            Event::CallCancelled { call, .. } | Event::CallFailed { call, next: RetryDecision::GiveUp, .. } => {
                self.call_stories.remove(call);
                self.call_workers.remove(call);
            }
            Event::PhaseEntered(entered) => {
                if let PhaseStateOwner::Agent(agent) = &entered.graph_key.owner {
                    self.apply_phase(agent, &entered.transition.from, &entered.transition.to, recorded.at);
                }
            }
            event => {
                if let Some(fact) = TeamFact::from_event(event) {
                    self.apply_fact(fact);
                }
            }
        }
    }

    /// An answer shows that the provider is back.
    fn end_suspension_after_answer(&mut self, call: CallId) {
        match self.call_workers.remove(&call) {
            Some(agent) if self.coders.contains_key(&agent) => {
                self.change_coder(&agent, |coder| coder.suspended_since = None);
            }
            Some(agent) if agent != *super::spec::PRODUCT_MANAGER_AGENT => self.architect_suspended_since = None,
            Some(_) | None => {}
        }
    }

    fn apply_message_sent(&mut self, sent: &AgentMessageSent) {
        if sent.topic == super::mail::REQUEST_TOPIC
            && let Some(coder) = self.coders.get_mut(&sent.from)
            && let (Some((kind, text)), Some(work)) = (coder.prepared_request.take(), coder.work_item())
        {
            let has_diff = kind == CoderRequestKind::CodeReview;
            let request = CoderRequest {
                agent: sent.from.clone(),
                work,
                kind,
                text,
                diff: coder.diff.filter(|_| has_diff),
                commit: coder.commit.clone().filter(|_| has_diff),
                parts: Vec::new(),
                refused_answers: 0,
                is_received: false,
            };
            self.requests.insert(sent.message, request);
        }
        // A received message is needed only while the flow reacts to it.
        for received in std::mem::take(&mut self.received_mail) {
            self.mail.remove(&received);
        }
        self.mail.insert(sent.message, sent.clone());
    }

    fn apply_call_opened(&mut self, opened: &CallOpened) {
        let worker = opened.peer.as_ref().or(opened.agent.as_ref());
        if let Some(id) = worker.and_then(|worker| self.assignment(worker)).map(|assignment| assignment.story.clone()) {
            if let Some(progress) = self.stories.get_mut(&id) {
                progress.calls += 1;
            }
            self.call_stories.insert(opened.call, id);
        }
        if let Some(agent) = &opened.agent {
            self.call_workers.insert(opened.call, agent.clone());
        }
        if opened.role != *super::spec::CODER_ROLE {
            return;
        }
        if let Some(coder) = opened.agent.as_ref().and_then(|agent| self.coders.get_mut(agent)) {
            match opened.phase.as_ref().map(PhaseName::as_str) {
                Some(graphs::PLANNING) => coder.planning_rounds += 1,
                _ => coder.coding_rounds += 1,
            }
        }
    }

    fn apply_phase(&mut self, agent: &AgentName, from: &PhaseName, to: &PhaseName, at: UnixMillis) {
        if *agent == *super::spec::ARCHITECT_AGENT {
            if *to == *SUSPEND {
                self.architect_suspended_since.get_or_insert(at);
            }
            return;
        }
        let Some(coder) = self.coders.get_mut(agent) else { return };
        match to.as_str() {
            SUSPEND => {
                coder.suspended_from = Some(from.clone());
                coder.suspended_since.get_or_insert(at);
            }
            BUDGET_REVIEW | QUESTION if *from != *SUSPEND => coder.return_to = Some(from.clone()),
            _ => {}
        }
        if *from == *SUSPEND {
            coder.suspended_from = None;
        }
        if *to == *graphs::AWAIT_MERGE && !self.merge_queue.contains(agent) {
            self.merge_queue.push(agent.clone());
        } else if *from == *graphs::AWAIT_MERGE && *to != *SUSPEND {
            self.merge_queue.retain(|queued| queued != agent);
        }
    }

    fn apply_fact(&mut self, fact: TeamFact) {
        match fact {
            TeamFact::SpecDrafted { spec, .. } => {
                self.draft = spec;
                self.has_draft = true;
            }
            TeamFact::SpecAccepted { number, spec } => {
                if !self.spec_is_running {
                    self.stories.clear();
                    self.story_order.clear();
                }
                (self.spec_number, self.spec, self.spec_is_running) = (number, Some(spec), true);
                (self.has_draft, self.draft, self.stories_refused) = (false, ProductSpec::default(), 0);
                self.escalations.clear();
            }
            TeamFact::RepositoryInspected(repository) => self.repository = Some(*repository),
            TeamFact::KnowledgeImported { graph } => {
                // What agents have said and the file does not contain yet is kept.
                let unwritten = std::mem::take(&mut self.unwritten);
                self.knowledge = graph;
                self.knowledge.merge_nodes(&unwritten, ExistingKnowledgeNodePolicy::Append);
                self.unwritten = unwritten;
            }
            TeamFact::StoriesRefused { problems } => {
                self.stories_refused += 1;
                self.last_refusal = problems;
            }
            TeamFact::StoriesPlanned { stories, .. } => self.apply_planned_stories(stories),
            TeamFact::StoryChanged { story } => self.upsert_story(story),
            TeamFact::StoryMoved { story, status, reason } => {
                // A story that waits again after the end of the spec opens the spec again.
                self.spec_is_running |= status == StoryStatus::Waiting && self.spec.is_some();
                self.move_story(&story, status, reason);
            }
            TeamFact::SpecAborted { .. } => self.spec_is_running = false,
            TeamFact::StoryRequeued { story, reason, .. } => {
                if let Some(progress) = self.stories.get_mut(&story) {
                    progress.requeues += 1;
                }
                self.move_story(&story, StoryStatus::Waiting, reason);
            }
            TeamFact::KnowledgeAdded { node, .. } => {
                // Entries are validated before they are recorded.
                let _ = self.knowledge.add_node(node.clone(), ExistingKnowledgeNodePolicy::Append);
                self.unwritten.push(node);
            }
            TeamFact::ExpressQueued { story, update, .. } => {
                self.express_count += 1;
                if let Some(update) = update {
                    self.unwritten.retain(|node| !update.entries.contains(node));
                    self.updates.insert(story.id.clone(), update);
                }
                self.upsert_story(story);
            }
            TeamFact::Escalated { subject, reason, failure } => {
                self.escalations.retain(|escalation| escalation.subject != subject);
                self.escalations.push(TeamEscalation { subject, reason, failure });
            }
            TeamFact::EscalationEnded { subject } => self.escalations.retain(|other| other.subject != subject),
            TeamFact::Paused => self.is_paused = true,
            TeamFact::DispatchBegun => self.pending_dispatches += 1,
            TeamFact::DispatchEnded => self.pending_dispatches = 0,
            TeamFact::Resumed => self.is_paused = false,
            TeamFact::Landed { branch, before, .. } => self.landed = Some((branch, before)),
            TeamFact::LandingUndone { .. } => self.landed = None,
            TeamFact::AccountGiven => self.account_is_due = false,
            TeamFact::SpecEnded { number, merged, missing } => {
                (self.spec_is_running, self.account_is_due) = (false, true);
                self.ended_specs.push(EndedSpecOutcome { number, merged, missing });
                let surplus = self.ended_specs.len().saturating_sub(TEAM_SPECS_KEPT_MAX);
                self.ended_specs.drain(..surplus);
            }
            TeamFact::ReviewPartRead { request, review } => {
                self.requests.entry(request).and_modify(|request| request.parts.push(review));
            }
            TeamFact::ReviewRefused { request, why, .. } => {
                self.last_refusal = vec![why];
                self.requests.entry(request).and_modify(|request| request.refused_answers += 1);
            }
            TeamFact::ReviewDiscarded { request, .. } => {
                self.requests.remove(&request);
            }
            TeamFact::ReviewGiven(review) => self.apply_review(*review),
            fact => self.apply_coder_fact(fact),
        }
    }

    fn apply_coder_fact(&mut self, fact: TeamFact) {
        match fact {
            TeamFact::Assigned(assignment) => self.apply_assignment(*assignment),
            TeamFact::Unassigned { agent } => {
                self.requests.retain(|_, request| request.agent != agent);
                self.merge_queue.retain(|queued| *queued != agent);
                self.coders.insert(agent, CoderWork::default());
            }
            TeamFact::WorktreeReady { agent, base } => self.change_coder(&agent, |coder| coder.base = Some(base)),
            TeamFact::TaskGiven { agent, task } => self.change_coder(&agent, |coder| coder.task = Some(task)),
            TeamFact::PlanSubmitted { agent, plan } => self.change_coder(&agent, |coder| coder.plan = Some(plan)),
            TeamFact::WorkReported { agent, account } => {
                self.change_coder(&agent, |coder| coder.account = Some(account));
            }
            TeamFact::WorkCommitted { agent, commit, diff, diff_digest, files } => {
                self.change_coder(&agent, |coder| {
                    (coder.commit, coder.diff, coder.diff_digest, coder.files) =
                        (Some(commit), Some(diff), diff_digest, files);
                });
            }
            TeamFact::Rebased { agent, base, commit, diff, diff_digest } => self.change_coder(&agent, |coder| {
                (coder.base, coder.commit) = (Some(base), Some(commit));
                (coder.diff, coder.diff_digest) = (Some(diff), diff_digest);
            }),
            TeamFact::TestsRan { agent, commit, passed, failure_digest, .. } => self.change_coder(&agent, |coder| {
                if passed {
                    coder.green_commit = Some(commit);
                    coder.last_failure = None;
                } else {
                    coder.last_failure = Some(failure_digest);
                }
            }),
            TeamFact::RequestPrepared { agent, request, text, .. } => self.change_coder(&agent, |coder| {
                coder.prepared_request = Some((request, text));
                if request == CoderRequestKind::BudgetReview {
                    coder.budget_reviews += 1;
                }
            }),
            TeamFact::WorkFailed { agent, reason, failure } => {
                self.change_coder(&agent, |coder| coder.failure = Some((reason, failure)));
            }
            TeamFact::MergeConflicted { story, .. } => {
                if let Some(progress) = self.stories.get_mut(&story) {
                    progress.conflicts += 1;
                }
            }
            TeamFact::Merged { agent, story, commit } => {
                self.merge_queue.retain(|queued| *queued != agent);
                if let Some(progress) = self.stories.get_mut(&story) {
                    progress.commit = Some(commit);
                }
                self.updates.remove(&story);
                self.move_story(&story, StoryStatus::Merged, String::new());
            }
            TeamFact::TakenOver { story, .. } => {
                self.move_story(&story, StoryStatus::TakenOver, "a person works on it".to_owned())
            }
            TeamFact::GivenBack { story, .. } => self.move_story(&story, StoryStatus::InProgress, String::new()),
            _ => {}
        }
    }

    fn apply_assignment(&mut self, assignment: StoryAssignment) {
        if let Some(progress) = self.stories.get_mut(&assignment.story) {
            progress.attempts = progress.attempts.max(assignment.attempt);
        }
        self.move_story(&assignment.story, StoryStatus::InProgress, String::new());
        let before = self.coders.remove(&assignment.agent).unwrap_or_default();
        // A fresh attempt of the same coder keeps its worktree and its plan.
        let continues = before.assignment.as_ref().is_some_and(|other| other.story == assignment.story);
        let coder = CoderWork {
            base: before.base.filter(|_| continues),
            plan: before.plan.filter(|_| continues),
            planning_rounds_max: crate::limits::CODER_PLANNING_ROUNDS,
            coding_rounds_max: crate::limits::CODER_CODING_ROUNDS,
            assignment: Some(assignment.clone()),
            ..CoderWork::default()
        };
        self.merge_queue.retain(|queued| *queued != assignment.agent);
        self.coders.insert(assignment.agent, coder);
    }

    fn apply_review(&mut self, given: ArchitectDecisionOnRequest) {
        self.requests.remove(&given.request);
        if let Some(progress) = self.stories.get_mut(&given.story) {
            progress.reviews.push(given.clone());
            let surplus = progress.reviews.len().saturating_sub(STORY_REVIEWS_KEPT_MAX);
            progress.reviews.drain(..surplus);
        }
        self.change_coder(&given.agent.clone(), |coder| {
            match given.verdict {
                ReviewVerdict::NeedsChanges => coder.streaks.insert(given.kind, given.streak),
                ReviewVerdict::Approved | ReviewVerdict::Rejected => coder.streaks.insert(given.kind, 0),
            };
            if given.kind == CoderRequestKind::CodeReview && given.verdict == ReviewVerdict::Approved {
                coder.approved_diff = Some(coder.diff_digest.clone());
            }
            if given.kind == CoderRequestKind::BudgetReview && given.verdict != ReviewVerdict::Rejected {
                coder.planning_rounds_max = coder.planning_rounds + crate::limits::CODER_PLANNING_ROUNDS;
                coder.coding_rounds_max = coder.coding_rounds + crate::limits::CODER_CODING_ROUNDS;
            }
        });
    }

    fn apply_planned_stories(&mut self, stories: Vec<Story>) {
        let order: Vec<String> = stories.iter().map(|story| story.id.clone()).collect();
        for story in stories {
            self.upsert_story(story);
        }
        // Stories of an earlier version of the spec stay visible after the new ones.
        let earlier: Vec<String> = self.story_order.iter().filter(|id| !order.contains(id)).cloned().collect();
        self.story_order = order.into_iter().chain(earlier).collect();
    }

    fn upsert_story(&mut self, story: Story) {
        if !self.story_order.contains(&story.id) {
            self.story_order.push(story.id.clone());
        }
        match self.stories.get_mut(&story.id) {
            Some(progress) => progress.story = story,
            None => {
                let progress = StoryProgress {
                    status: StoryStatus::Waiting,
                    reason: String::new(),
                    attempts: 0,
                    requeues: 0,
                    conflicts: 0,
                    reviews: Vec::new(),
                    commit: None,
                    cost_microusd: 0,
                    calls: 0,
                    story,
                };
                self.stories.insert(progress.story.id.clone(), progress);
            }
        }
    }

    fn move_story(&mut self, id: &str, status: StoryStatus, reason: String) {
        if let Some(progress) = self.stories.get_mut(id) {
            (progress.status, progress.reason) = (status, reason);
        }
    }

    fn change_coder(&mut self, agent: &AgentName, change: impl FnOnce(&mut CoderWork)) {
        change(self.coders.entry(agent.clone()).or_default());
    }
}

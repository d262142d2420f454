//! Applies events to the state.

use segue_core::event::{CallOpened, Event, PhaseEntered, RecordedEvent, ReplySent, RetryDecision};
use segue_core::ids::{AgentName, CallId, PhaseName, ToolRunId, UnixMillis};
use segue_core::phase::PhaseTransitionCause;

use serde_json::Value;

use super::log::ProjectLogText;
use super::{
    AgentProgressInRoutingTurn, AgentTurnEnd, AnnouncedFileWrite, LastPhaseTransition, PlanWithApproval,
    ProjectLogSpeaker, ProjectState, PrunedRoutingTurnCount, RoutingTurn, VisitProgress, WorkspaceCheckProgress,
    WorkspaceContentDigest,
};
use crate::limits::{
    FEEDBACK_LINES_MAX, PROJECT_LESSONS_MAX, ROUTER_LESSONS_MAX, ROUTING_TURN_KINDS_MAX, ROUTING_TURNS_IN_FULL,
};
use crate::mcp_tools::{McpToolName, PROPOSED_PHASE_METADATA_KEY};
use crate::project::definition::{CompletionMode, FlowDefinition, PhaseDefinition, PhaseKindDefinition};
use crate::project::facts::{
    AgentLesson, AgentTurnEndKind, MidWorkNoticeToAgentReason, NextPhaseAndAgents, ProjectFact,
};
use crate::project::parallel_writers::AgentWorkspaceCopies;
use crate::project::spec::{ASK_ACT, ASK_CONTENT};
use crate::project::tools::phase_changes_files;

impl ProjectState {
    /// Applies an event.
    pub(in crate::project) fn apply_event(&mut self, definition: &FlowDefinition, recorded: &RecordedEvent) {
        let at = recorded.at;
        self.apply_claim_wait_end(&recorded.event);
        match &recorded.event {
            Event::SessionOpened(_) => self.visit.number = 1,
            Event::UserMessageReceived(received) => {
                self.log
                    .push(ProjectLogSpeaker::User { message: received.message }, ProjectLogText::Stored(received.text));
                self.turns_since_message = 0;
                self.first_turn_since_message = self.turns_total + 1;
                self.visits_since_message.clear();
                self.stopped = None;
            }
            // The copies belong to the original session, which merges them.
            Event::SessionForked { .. } => self.writer_copies = AgentWorkspaceCopies::default(),
            Event::TurnStarted { turn, .. } => {
                self.turn = Some(*turn);
                self.writer_copies.forget_missing_copies();
                self.writer_copies.retry_failed_merges();
                self.is_prepared = false;
                self.decision = None;
                self.rejected_decisions = 0;
                self.refused_decisions = 0;
                self.stopped = None;
            }
            Event::TurnEnded { .. } => {
                self.close_open_turn();
                self.workspace_asks.clear();
            }
            event @ (Event::AskSent(_) | Event::AskEnded { .. }) => self.apply_workspace_ask_event(event),
            Event::CallOpened(opened) => {
                if let Some(agent) = opened.agent.as_ref().filter(|_| opened.continues.is_none()) {
                    self.apply_agent_call(opened, agent);
                }
            }
            Event::CallAnswered(answered) => {
                self.agent_calls.remove(&answered.call);
            }
            Event::CallFailed { call, next: RetryDecision::GiveUp, .. }
            | Event::CallOutcomeUnknown { call, next: RetryDecision::GiveUp, .. }
            | Event::CallResolved { call, next: RetryDecision::GiveUp }
            | Event::CallCancelled { call, .. } => self.forget_seen_entries(*call),
            Event::ReplySent(reply) => self.apply_reply(definition, reply),
            Event::ToolRunOpened(opened) => self.apply_run_opened(opened),
            Event::ToolRunEnded { run, outcome, text, value, .. } => {
                self.apply_phase_proposal(definition, *run, value.as_ref());
                self.apply_run_ended(*run, *outcome, *text, value.as_ref(), at);
            }
            Event::PhaseEntered(entered) => self.apply_phase_entered(definition, entered, at),
            Event::PhaseTransitionRefused { refusal, .. } => {
                self.push_router_feedback(refusal.to_string());
                self.refused_decisions += 1;
                self.decision = None;
                self.metrics.entry(refusal.from.clone()).or_default().refusals += 1;
            }
            event => {
                if let Some(fact) = ProjectFact::from_event(event) {
                    self.mark_participation(definition, &fact);
                    self.apply_fact(fact, at);
                }
            }
        }
    }

    /// A tool of an MCP server may propose a phase. The router is told, and decides within the rules of the graph.
    fn apply_phase_proposal(&mut self, definition: &FlowDefinition, run: ToolRunId, value: Option<&Value>) {
        let proposed = value.and_then(|value| value.get(PROPOSED_PHASE_METADATA_KEY)?.as_str());
        let phase = proposed.and_then(|name| definition.find_phase(name));
        let tool = self.runs.get(&run).map(|entry| entry.tool.to_string());
        let (Some(phase), Some(tool)) = (phase, tool.filter(|tool| McpToolName::parse(tool).is_some())) else { return };
        self.push_router_feedback(format!("the tool `{tool}` proposes the phase `{}`", phase.name));
    }

    fn apply_agent_call(&mut self, opened: &CallOpened, agent: &AgentName) {
        self.agent_calls.insert(opened.call, agent.clone());
        let total = self.log.entries_total();
        let progress = self.agents.entry(agent.clone()).or_default();
        progress.seen_before_call = progress.seen_entries;
        // An agent that is only asked for its next action or for a file is told nothing else.
        if ![ASK_ACT, ASK_CONTENT].contains(&opened.ask.as_str()) {
            progress.seen_entries = total;
        }
        progress.current.is_steered = false;
        progress.current.last_result = None;
    }

    fn forget_seen_entries(&mut self, call: CallId) {
        let Some(agent) = self.agent_calls.remove(&call) else { return };
        if let Some(progress) = self.agents.get_mut(&agent) {
            progress.seen_entries = progress.seen_before_call;
        }
    }

    fn apply_reply(&mut self, definition: &FlowDefinition, reply: &ReplySent) {
        let agent = reply.role.as_ref().and_then(|role| definition.find_agent(role.as_str()));
        if let Some(agent) = agent {
            self.log.push(ProjectLogSpeaker::Agent(agent.name.as_str().into()), ProjectLogText::Stored(reply.text));
            self.answered_turn = reply.turn;
        }
    }

    fn apply_phase_entered(&mut self, definition: &FlowDefinition, entered: &PhaseEntered, at: UnixMillis) {
        let transition = &entered.transition;
        self.last_transition = Some(LastPhaseTransition {
            from: transition.from.clone(),
            to: transition.to.clone(),
            at,
            summary: transition.note.summary.clone(),
            by: transition.note.proposer_label.clone().unwrap_or_else(|| transition.by.to_string()),
        });
        if !transition.is_visit_start() {
            return;
        }
        let left = definition.find_phase(transition.from.as_str());
        let next = definition.find_phase(transition.to.as_str());
        self.count_visit(&transition.from, &transition.to, at);
        let is_continued = next.is_some_and(|phase| phase.kind == PhaseKindDefinition::Work);
        if is_continued && left.is_some_and(|phase| phase.completion == CompletionMode::Reflection) {
            self.forget_reflected_work();
        }
        if let PhaseTransitionCause::RolledBack { .. } | PhaseTransitionCause::Expired { .. } = transition.cause {
            self.decision = None;
            self.abandon_open_turn();
        }
        if next.is_some_and(|phase| phase.plan) {
            self.plan = None;
        }
        if next.is_some_and(changes_content) && self.checkpoints.is_empty() {
            // Without a workspace the content has no digest, so a confirmation ends when work begins again.
            self.confirmed_digest = None;
        }
        self.visit = VisitProgress {
            number: self.visit.number + 1,
            since: at,
            entry_verdict: self.verdict.clone(),
            ..VisitProgress::default()
        };
    }

    fn count_visit(&mut self, from: &PhaseName, to: &PhaseName, at: UnixMillis) {
        let since = self.visit.since;
        let left = self.metrics.entry(from.clone()).or_default();
        left.duration_ms = left.duration_ms.saturating_add(at.ms_since(since));
        self.metrics.entry(to.clone()).or_default().visits += 1;
        *self.visits_since_message.entry(to.clone()).or_default() += 1;
    }

    /// Forgets what belongs to the work that was reflected on.
    fn forget_reflected_work(&mut self) {
        for progress in self.agents.values_mut() {
            progress.read_files.clear();
            progress.participated = false;
            progress.reflected = false;
            progress.failed_reflections = 0;
        }
        self.changed_files.clear();
        self.plan = None;
    }

    pub(super) fn push_router_feedback(&mut self, line: String) {
        if !self.feedback.contains(&line) {
            self.feedback.push(line);
        }
        if self.feedback.len() > FEEDBACK_LINES_MAX {
            self.feedback.remove(0);
        }
    }

    pub(super) fn current_work_mut(&mut self, agent: &AgentName) -> &mut AgentProgressInRoutingTurn {
        let turn = self.turns.back().map_or(0, |turn| turn.id);
        let current = &mut self.agents.entry(agent.clone()).or_default().current;
        if current.turn != turn {
            *current = AgentProgressInRoutingTurn { turn, ..AgentProgressInRoutingTurn::default() };
        }
        current
    }

    fn apply_fact(&mut self, fact: ProjectFact, at: UnixMillis) {
        match fact {
            ProjectFact::Decided(decision) => {
                self.decision = Some(decision);
                self.rejected_decisions = 0;
            }
            ProjectFact::DecisionRejected { complaints, .. } => {
                self.rejected_decisions += 1;
                complaints.into_iter().for_each(|complaint| self.push_router_feedback(complaint));
            }
            ProjectFact::TurnOpened { turn, decision } => self.apply_turn_opened(turn, decision, at),
            ProjectFact::CompletionAccepted { agent, completion, .. } => {
                self.current_work_mut(&agent).accepted = Some(completion);
            }
            ProjectFact::CompletionRefused { agent, .. } => self.current_work_mut(&agent).refused_completions += 1,
            ProjectFact::AgentTurnEnd { turn, agent, how, completion } => {
                self.apply_agent_done(turn, &agent, AgentTurnEnd { at, how, completion });
            }
            ProjectFact::TurnAbandoned { .. } => self.abandon_open_turn(),
            ProjectFact::AgentReminded { agent, .. } => {
                self.current_work_mut(&agent).reminded = true;
                self.update_current_phase_metrics(|metrics| metrics.reminders += 1);
            }
            ProjectFact::WriteAnnounced { agent, path, .. } => {
                self.current_work_mut(&agent).pending_write = Some(AnnouncedFileWrite { path, is_cut: false });
            }
            ProjectFact::ActionRefused { agent, .. } => {
                let work = self.current_work_mut(&agent);
                work.refused_actions += 1;
                work.pending_write = None;
            }
            ProjectFact::AgentSteered { agent, why, .. } => {
                let work = self.current_work_mut(&agent);
                work.is_steered = true;
                work.warned_of_repetition |= why == MidWorkNoticeToAgentReason::RepeatedCall;
            }
            ProjectFact::UnknownAgents { names, phase } => {
                let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
                let line = format!("{} cannot work in `{phase}`; choose only from the listed agents", names.join(", "));
                if !self.router_lessons.contains(&line) && self.router_lessons.len() < ROUTER_LESSONS_MAX {
                    self.router_lessons.push(line.clone());
                }
                self.push_router_feedback(line);
            }
            ProjectFact::LoopNoticed { phase, agents, times } => {
                let agents: Vec<&str> = agents.iter().map(|agent| agent.as_str()).collect();
                self.push_router_feedback(format!(
                    "`{phase}` with {} was routed {times} times recently; choose something else unless it makes progress",
                    agents.join(", ")
                ));
                self.update_current_phase_metrics(|metrics| metrics.loops += 1);
            }
            ProjectFact::PlanSubmitted(plan) => {
                self.visit.plan_submitted = true;
                self.plan = Some(PlanWithApproval { plan, approved_by: None });
            }
            ProjectFact::PlanEdited(plan) => self.plan = Some(PlanWithApproval { plan, approved_by: None }),
            ProjectFact::PlanApproved { by } => {
                if let Some(status) = &mut self.plan {
                    status.approved_by = Some(by);
                }
            }
            ProjectFact::CheckConfirmed { command } => {
                if !self.confirmed_checks.contains(&command) {
                    self.confirmed_checks.push(command);
                }
                self.visit.entry_checks = WorkspaceCheckProgress::Pending;
                self.visit.exit_checks = WorkspaceCheckProgress::Pending;
            }
            ProjectFact::ContentConfirmed { digest } => {
                self.content = WorkspaceContentDigest::At(digest.clone());
                self.confirmed_digest = Some(digest);
            }
            ProjectFact::VisitConfirmed => self.visit.confirmed = true,
            ProjectFact::VerdictReached(verdict) => self.verdict = Some(*verdict),
            ProjectFact::ContentRestored { .. } => self.verdict = self.visit.entry_verdict.clone(),
            ProjectFact::LessonLearned { agent, lesson } => self.add_lesson(agent, lesson),
            ProjectFact::UserAsked { why, .. } => self.stopped = Some(why),
            ProjectFact::ClaimAwaited(wait) => self.claim_wait = Some(wait),
            ProjectFact::LateCompletion { .. } | ProjectFact::EndedEarly { .. } | ProjectFact::LessonNotKept { .. } => {
            }
        }
    }

    pub(in crate::project) fn add_lesson(&mut self, agent: AgentName, lesson: AgentLesson) {
        let lessons = self.lessons.entry(agent).or_default();
        if lessons.contains(&lesson) {
            return;
        }
        lessons.push(lesson);
        if lessons.len() > PROJECT_LESSONS_MAX {
            lessons.remove(0);
        }
    }

    fn update_current_phase_metrics(&mut self, change: impl FnOnce(&mut super::PhaseMetrics)) {
        if let Some(turn) = self.turns.back() {
            change(self.metrics.entry(turn.decision.phase.clone()).or_default());
        }
    }

    fn apply_turn_opened(&mut self, id: u32, decision: NextPhaseAndAgents, at: UnixMillis) {
        for agent in &decision.agents {
            let progress = self.agents.entry(agent.clone()).or_default();
            progress.current = AgentProgressInRoutingTurn { turn: id, ..AgentProgressInRoutingTurn::default() };
        }
        self.turns_total = id;
        self.turns_since_message += 1;
        self.decision = None;
        self.refused_decisions = 0;
        self.feedback.clear();
        self.metrics.entry(decision.phase.clone()).or_default().routing_turns += 1;
        self.writer_copies.retry_failed_merges();
        let progress = self.progress_digest();
        // Without agents there is nothing to wait for.
        let is_closed = decision.agents.is_empty();
        if is_closed {
            self.visit.turns_closed += 1;
            self.visit.completed = true;
        }
        self.turns.push_back(RoutingTurn {
            id,
            opened_at: at,
            decision,
            completions: Default::default(),
            is_closed,
            progress,
            idle_content: self.content.digest().map(str::to_owned),
        });
        while self.turns.len() > ROUTING_TURNS_IN_FULL {
            if let Some(old) = self.turns.pop_front() {
                self.count_older_turn(old);
            }
        }
    }

    fn count_older_turn(&mut self, old: RoutingTurn) {
        let mut agents = old.decision.agents;
        agents.sort();
        let same = |count: &&mut PrunedRoutingTurnCount| count.phase == old.decision.phase && count.agents == agents;
        if let Some(count) = self.older_turns.iter_mut().find(same) {
            count.times += 1;
        } else if self.older_turns.len() < ROUTING_TURN_KINDS_MAX {
            self.older_turns.push(PrunedRoutingTurnCount { phase: old.decision.phase, agents, times: 1 });
        }
    }

    fn apply_agent_done(&mut self, turn: u32, agent: &AgentName, done: AgentTurnEnd) {
        if done.how == AgentTurnEndKind::AutoCompleted {
            self.update_current_phase_metrics(|metrics| metrics.auto_completions += 1);
        }
        let Some(waiting) = self.turns.iter_mut().find(|open| open.id == turn && open.is_waiting_for(agent)) else {
            return;
        };
        if done.how != AgentTurnEndKind::Answered && !done.completion.summary.is_empty() {
            let text = ProjectLogText::Inline(done.completion.summary.clone());
            self.log.push(ProjectLogSpeaker::Agent(agent.clone()), text);
        }
        self.visit.issues.extend(done.completion.issues.iter().cloned());
        waiting.completions.insert(agent.clone(), done);
        let covered = waiting.decision.agents.iter().all(|agent| waiting.completions.contains_key(agent));
        if covered {
            waiting.is_closed = true;
            self.writer_copies.forget_missing_copies();
            let proper = waiting.completions.values().all(|done| done.how.can_satisfy_exit_condition());
            self.visit.turns_closed += 1;
            self.visit.completed = proper;
            self.visit.exit_checks = WorkspaceCheckProgress::Pending;
            let progress = self.progress_digest();
            if let Some(closed) = self.turns.back_mut() {
                if closed.progress != progress {
                    closed.idle_content = None;
                }
                closed.progress = progress;
            }
        }
    }

    /// Marks agents that took part, so that they reflect later, and those that have reflected.
    fn mark_participation(&mut self, definition: &FlowDefinition, fact: &ProjectFact) {
        let reflects = |phase: &PhaseName| {
            definition.find_phase(phase.as_str()).is_some_and(|phase| phase.completion == CompletionMode::Reflection)
        };
        match fact {
            ProjectFact::TurnOpened { decision, .. } if !reflects(&decision.phase) => {
                for agent in &decision.agents {
                    self.agents.entry(agent.clone()).or_default().participated = true;
                }
            }
            ProjectFact::AgentTurnEnd { turn, agent, how, .. } => {
                let routed = self.turns.iter().find(|open| open.id == *turn && open.is_waiting_for(agent));
                if routed.is_some_and(|routed| reflects(&routed.decision.phase)) {
                    self.agents.entry(agent.clone()).or_default().apply_reflection_end(*how);
                }
            }
            _ => {}
        }
    }

    fn abandon_open_turn(&mut self) {
        self.close_open_turn();
        self.visit.completed = false;
    }

    fn close_open_turn(&mut self) {
        if let Some(open) = self.turns.back_mut().filter(|turn| !turn.is_closed) {
            open.is_closed = true;
        }
    }
}

fn changes_content(phase: &PhaseDefinition) -> bool {
    phase.changes_required || phase_changes_files(phase)
}

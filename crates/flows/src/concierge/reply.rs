//! What the concierge said: what of it the user hears, which signals it holds, and what follows from them. A signal that
//! does not belong to the phase is refused, recorded and told; its block is hidden all the same.

use segue_core::body::Text;
use segue_core::event::{CallAnswered, CallOpened, CallWish, Outcome};
use segue_core::flow::{Speech, Step, View};
use segue_core::handover::{Document, Provenance, Settlement, settle};
use segue_core::ids::CallId;
use segue_core::signal::{self, Block, Complaint, Reading};
use serde_json::json;

use super::Concierge;
use super::facts::{Fact, Purpose, Task};
use super::leaks;
use super::settings::Settings;
use super::spec::{
    ASK_BATCH, ASK_INTENT, ASK_STEPS, BATCH_BLOCK, CONCIERGE, EXECUTION, EXECUTION_FIELDS, EXECUTOR, EXPLORER,
    HANDOVER_BLOCK, INTENT, INTENT_FIELDS, OUTCOME, STARTER, STEP_DONE_BLOCK, STEP_START_BLOCK, STEPS_BLOCK, phase_key,
};
use super::state::Memory;
use super::turn::propose;
use super::words_of::{confirmation, handed, notice, told};
use super::workflow::{NotDone, PlanStep, Workflow, from_block, from_prose};
use super::{batch, documents, wish};
use crate::template::fill;

type Sight<'a> = View<'a, Memory>;

/// The starter's turn from which on it can hand over: the first in which there is a reply to read.
const HANDOVER_TURN: u32 = 2;

/// What a block says of a step.
enum Move {
    Start,
    Complete,
}

/// An answer of the concierge's and what is at hand to judge it.
struct Answer<'a> {
    flow: &'a Concierge,
    view: &'a Sight<'a>,
    settings: &'a Settings,
    call: &'a CallOpened,
    text: Text,
    reading: Reading,
}

/// The concierge answered.
pub(super) fn answered(
    flow: &Concierge,
    view: &Sight<'_>,
    settings: &Settings,
    call: &CallOpened,
    answered: &CallAnswered,
) -> Vec<Step> {
    let reading = read(flow, view, call, answered.text);
    let answer = Answer { flow, view, settings, call, text: answered.text, reading };
    let mut steps = answer.complaints();
    match call.ask.as_str() {
        ASK_INTENT => steps.extend(answer.hand_over()),
        ASK_BATCH => steps.extend(answer.requested_again()),
        ASK_STEPS => steps.extend(answer.steps_again()),
        _ => {
            steps.extend(answer.said());
            steps.extend(match answer.phase() {
                STARTER => answer.starter(),
                EXPLORER => answer.explorer(),
                _ => answer.executor(),
            });
        }
    }
    steps
}

/// The concierge did not answer. What was asked of it privately is then done without; anything else fails the turn.
pub(super) fn missed(
    flow: &Concierge,
    view: &Sight<'_>,
    settings: &Settings,
    call: &CallOpened,
    why: String,
) -> Vec<Step> {
    let text = stored(call).unwrap_or(Text { body: segue_core::body::BodyId::of(""), tokens: 0 });
    let answer = Answer { flow, view, settings, call, text, reading: Reading::default() };
    match call.ask.as_str() {
        ASK_INTENT => answer.hand_over(),
        ASK_BATCH => answer.requested_again(),
        ASK_STEPS => answer.steps_again(),
        _ => vec![Step::EndTurn(Outcome::Failed { reason: format!("{why}; say \"retry\" to try again") })],
    }
}

/// What an answer holds. What it quotes from the user's words is the user's.
fn read(flow: &Concierge, view: &Sight<'_>, call: &CallOpened, text: Text) -> Reading {
    let words: Vec<_> = call.receipt.words().map(|words| view.text(words)).collect();
    signal::read_beside(&view.text(text), &flow.blocks, &words)
}

/// The answer that a private ask is about.
fn stored(call: &CallOpened) -> Option<Text> {
    serde_json::from_value(call.note.get("text")?.clone()).ok()
}

impl Answer<'_> {
    /// The turn ends, unless the user was told nothing in it: then the concierge is asked once more.
    fn done(&self) -> Step {
        self.ended(Some(told("", "silent", &[])))
    }

    /// The same, where the next to be asked is not the one who said nothing.
    fn handed_on(&self) -> Step {
        self.ended(None)
    }

    fn ended(&self, told: Option<String>) -> Step {
        let is_private = matches!(self.call.ask.as_str(), ASK_INTENT | ASK_BATCH | ASK_STEPS);
        let is_heard = (!is_private && !self.reading.visible.trim().is_empty()) || self.view.state.spoken;
        if is_heard { Step::EndTurn(Outcome::Done) } else { Fact::Silent { call: Some(self.call.call), told }.note() }
    }

    fn phase(&self) -> &str {
        self.call.phase.as_ref().map_or(STARTER, |phase| phase.as_str())
    }

    fn is(&self, block: &Block, name: &str) -> bool {
        block.name == name
    }

    fn blocks<'s>(&'s self, name: &'s str) -> impl DoubleEndedIterator<Item = &'s Block> {
        self.reading.blocks.iter().filter(move |block| self.is(block, name))
    }

    fn refuse(&self, block: &str, kind: &str, more: &[(&str, &str)]) -> Step {
        notice(Some(self.call.call), block, kind, more)
    }

    /// What was not as it should be.
    fn complaints(&self) -> Vec<Step> {
        let mut complaints: Vec<String> = self.reading.complaints.iter().map(ToString::to_string).collect();
        for name in [HANDOVER_BLOCK, BATCH_BLOCK, STEPS_BLOCK] {
            if self.blocks(name).count() > 1 {
                complaints.push(format!("block {name} came more than once; the last good one stands"));
            }
        }
        if complaints.is_empty() {
            return Vec::new();
        }
        vec![Fact::Complaints { call: self.call.call, complaints }.note()]
    }

    /// What the user hears.
    fn said(&self) -> Vec<Step> {
        let visible = self.reading.visible.trim_end();
        if visible.trim().is_empty() {
            return Vec::new();
        }
        let is_whole = *visible == *self.view.text(self.text);
        let text = if is_whole { Speech::Stored(self.text) } else { Speech::New(visible.to_owned()) };
        let mut steps = vec![Step::Say { text, by: Some(CONCIERGE.into()), call: Some(self.call.call) }];
        let terms: Vec<String> = leaks::scan(visible).into_iter().map(|leak| leak.term.to_owned()).collect();
        if !terms.is_empty() {
            steps.push(Fact::Leak { call: self.call.call, terms }.note());
        }
        steps
    }

    /// Refuses the blocks that do not belong here.
    fn misplaced(&self, names: &[&str]) -> Vec<Step> {
        let misplaced = self.reading.blocks.iter().filter(|block| names.contains(&block.name.as_str()));
        misplaced.map(|block| self.refuse(&block.name, "wrong_phase", &[])).collect()
    }

    fn starter(&self) -> Vec<Step> {
        let mut steps = self.misplaced(&[BATCH_BLOCK, STEPS_BLOCK, STEP_START_BLOCK, STEP_DONE_BLOCK]);
        let turns = self.view.session.phases.get(&phase_key()).map_or(0, |stand| stand.now.turns);
        let is_due = turns >= self.settings.handover_by_turn;
        if turns < HANDOVER_TURN && !is_due {
            // There is no reply to read yet.
            steps.extend(self.blocks(HANDOVER_BLOCK).map(|_| self.refuse(HANDOVER_BLOCK, "too_early", &[])));
            steps.push(self.done());
            return steps;
        }
        let is_good = self.intent().is_some_and(|document| document.contains_key("goal"));
        if is_good || is_due {
            steps.extend(self.hand_over());
        } else {
            steps.push(self.done());
        }
        steps
    }

    /// The last handover that says what they are after, or the last one at all.
    fn intent(&self) -> Option<Document> {
        let documents: Vec<Document> =
            self.blocks(HANDOVER_BLOCK).map(|block| documents::read(&block.fields, &INTENT_FIELDS)).collect();
        let good = documents.iter().rev().find(|document| document.contains_key("goal"));
        good.or_else(|| documents.last()).cloned()
    }

    fn hand_over(&self) -> Vec<Step> {
        let (document, how) = match settle(&self.flow.spec.handovers[INTENT], self.intent(), self.asked(INTENT)) {
            Settlement::Make(checked, how) => (documents::with_exchange(self.view, checked.document), how),
            Settlement::Build(checked) => (documents::built_intent(self.view, checked.document), Provenance::Built),
            Settlement::Ask { missing } => {
                let wish = self.ask_again(ASK_INTENT, json!({"missing": missing}));
                return vec![Step::AskHandover(INTENT.into()), wish];
            }
        };
        let calls = self.calls();
        vec![Step::Hand { kind: INTENT.into(), document, calls, how }, propose(EXPLORER), self.handed_on()]
    }

    /// The calls a document comes from: this one, and the one it was asked again for.
    fn calls(&self) -> Vec<CallId> {
        let first = self.call.note.get("of").and_then(|call| serde_json::from_value(call.clone()).ok());
        first.into_iter().chain([self.call.call]).collect()
    }

    fn ask_again(&self, ask: &str, mut note: serde_json::Value) -> Step {
        note["of"] = json!(self.call.call);
        note["text"] = json!(self.text);
        Step::Call(CallWish { model: self.settings.concierge.clone(), ..CallWish::new(CONCIERGE, ask).note(note) })
    }

    fn explorer(&self) -> Vec<Step> {
        let mut steps = self.misplaced(&[HANDOVER_BLOCK, STEPS_BLOCK, STEP_START_BLOCK, STEP_DONE_BLOCK]);
        let request = self.request();
        if let Some((wish, times)) = self.wished().filter(|_| !request.as_ref().is_some_and(Request::is_for_a_plan)) {
            if times > self.view.state.plan_asked.times {
                steps.push(wish.note());
            }
            if times >= self.settings.plan_by_request {
                steps.extend(self.plan_due());
                return steps;
            }
        }
        match request {
            Some(request) => steps.extend(self.requested(&request)),
            None => steps.extend(self.without_request()),
        }
        steps
    }

    /// The user's plain request for a plan that this answers, and how many there were by then. A message that is answered twice
    /// asks once.
    fn wished(&self) -> Option<(Fact, u32)> {
        let state = self.view.state;
        let said = state.answered.iter().rev().filter(|_| self.phase() == EXPLORER);
        let mut wishes = said.filter_map(|(message, text)| Some((*message, wish::read(&self.view.text(*text))?)));
        let (message, wish) = wishes.next()?;
        let is_new = state.plan_asked.last != Some(message);
        let times = state.plan_asked.times + u32::from(is_new);
        Some((Fact::PlanAsked { message, words: wish.words, times }, times))
    }

    /// The user has asked for a plan often enough: the explorer is asked for its request, once, and done without if that fails.
    fn plan_due(&self) -> Vec<Step> {
        match settle(&self.flow.spec.handovers[EXECUTION], None, self.asked(EXECUTION)) {
            Settlement::Ask { .. } => {
                let note = json!({"missing": [], "wanted": !self.is_cut()});
                vec![Step::AskHandover(EXECUTION.into()), self.ask_again(ASK_BATCH, note)]
            }
            Settlement::Make(..) | Settlement::Build(_) => self.plan_built(Document::new(), None),
        }
    }

    fn asked(&self, kind: &str) -> u32 {
        self.view.session.asked.get(kind).copied().unwrap_or_default()
    }

    fn is_cut(&self) -> bool {
        let is_cut = |complaint: &Complaint| matches!(complaint, Complaint::Unclosed { block } if block == BATCH_BLOCK);
        self.reading.complaints.iter().any(is_cut)
    }

    /// No request was made, or one that was cut off: then it is asked for again.
    fn without_request(&self) -> Vec<Step> {
        if self.is_cut() {
            return vec![self.ask_again(ASK_BATCH, json!({"missing": []}))];
        }
        vec![self.done()]
    }

    /// The last request of a known type, or the last one at all.
    fn request(&self) -> Option<Request> {
        let requests: Vec<Request> = self.blocks(BATCH_BLOCK).map(Request::of).collect();
        let known = requests.iter().rposition(|request| request.purpose.is_some());
        let place = known.or_else(|| requests.len().checked_sub(1))?;
        requests.into_iter().nth(place)
    }

    fn requested(&self, request: &Request) -> Vec<Step> {
        match request.purpose {
            Some(Purpose::Workflow) => self.plan_wanted(request),
            Some(_) if self.phase() == EXECUTOR => self.help_wanted(request),
            Some(_) => vec![self.refuse(BATCH_BLOCK, "help_without_plan", &[]), self.done()],
            None => vec![self.refuse(BATCH_BLOCK, "unknown_type", &[("given", &request.kind)]), self.done()],
        }
    }

    fn plan_wanted(&self, request: &Request) -> Vec<Step> {
        let found = Some(request.handover.clone());
        match settle(&self.flow.spec.handovers[EXECUTION], found, self.asked(EXECUTION)) {
            Settlement::Make(checked, how) => self.plan_made(checked.document, how, request.prompt.clone()),
            Settlement::Build(checked) => self.plan_built(checked.document, request.prompt.clone()),
            Settlement::Ask { missing } => {
                let wish = self.ask_again(ASK_BATCH, json!({"missing": missing}));
                vec![Step::AskHandover(EXECUTION.into()), wish]
            }
        }
    }

    /// The request for a plan from what the rules know; what was understood of the model's own stays.
    fn plan_built(&self, understood: Document, prompt: Option<String>) -> Vec<Step> {
        let document = documents::built_execution(self.view, understood, &self.view.state.visit.said);
        self.plan_made(document, Provenance::Built, prompt)
    }

    fn plan_made(&self, document: Document, how: Provenance, prompt: Option<String>) -> Vec<Step> {
        let goal = match document.get("goal") {
            Some(segue_core::handover::Field::Text(goal)) => goal.clone(),
            _ => String::new(),
        };
        let prompt = prompt.unwrap_or_else(|| {
            let arguments = json!({"help": false, "goal": goal, "context": documents::as_context(&document)});
            fill(include_str!("../../prompts/concierge/task_built.md"), &arguments)
        });
        let task = Task { goal: Some(goal), prompt, call: Some(self.call.call), ..Task::default() };
        let mut steps = vec![Step::Hand { kind: EXECUTION.into(), document, calls: self.calls(), how }];
        steps.extend(self.ask_everyone(Purpose::Workflow, task));
        steps
    }

    fn help_wanted(&self, request: &Request) -> Vec<Step> {
        let Request { step, blocker, context, prompt, .. } = request.clone();
        if prompt.is_none() && blocker.is_none() && step.is_none() {
            return vec![self.refuse(BATCH_BLOCK, "empty_help", &[]), self.done()];
        }
        let prompt = prompt.unwrap_or_else(|| {
            let arguments = json!({"help": true, "goal": null, "context": null});
            fill(include_str!("../../prompts/concierge/task_built.md"), &arguments)
        });
        let task = Task { step, blocker, context, goal: None, prompt, call: Some(self.call.call) };
        self.ask_everyone(Purpose::StepHelp, task)
    }

    fn ask_everyone(&self, purpose: Purpose, task: Task) -> Vec<Step> {
        let messages = self.view.session.turn.iter().flat_map(|turn| &turn.messages);
        let asked = messages.map(|waiting| (waiting.message, waiting.text)).collect();
        let begun = batch::wished(self.view, self.settings, purpose, Some(task), asked);
        if self.settings.confirm_batches {
            let question = Step::Say { text: Speech::New(confirmation(&begun)), by: None, call: None };
            return vec![Fact::Confirm { begun }.note(), question, Step::EndTurn(Outcome::Done)];
        }
        batch::begin(self.view, self.settings, begun)
    }

    /// The answer that this private one is about, read again.
    fn before(&self) -> Option<Reading> {
        let messages = self.view.session.turn.iter().flat_map(|turn| &turn.messages);
        let words: Vec<_> = messages.map(|waiting| self.view.text(waiting.text)).collect();
        let text = stored(self.call)?;
        Some(signal::read_beside(&self.view.text(text), &self.flow.blocks, &words))
    }

    /// The request was asked for again.
    fn requested_again(&self) -> Vec<Step> {
        let first = self
            .before()
            .and_then(|reading| reading.blocks.iter().rev().find(|block| block.name == BATCH_BLOCK).map(Request::of));
        let is_wished = self.wished().is_some();
        match (self.request(), first) {
            (Some(request), _) if request.is_for_a_plan() || (request.purpose.is_some() && !is_wished) => {
                self.requested(&request)
            }
            // What was understood the first time has to do.
            (_, Some(first)) if first.is_for_a_plan() => self.plan_wanted(&first),
            // Both want a plan, and only the words for it do not come.
            _ if is_wished => self.plan_built(Document::new(), None),
            _ => vec![self.refuse(BATCH_BLOCK, "unclosed", &[]), self.done()],
        }
    }

    fn executor(&self) -> Vec<Step> {
        let mut steps = self.misplaced(&[HANDOVER_BLOCK]);
        let Some(workflow) = &self.view.state.workflow else {
            steps.extend(self.presented());
            return steps;
        };
        steps.extend(self.blocks(STEPS_BLOCK).map(|_| self.refuse(STEPS_BLOCK, "steps_again", &[])));
        let mut workflow = workflow.clone();
        steps.extend(self.moved(&mut workflow));
        if workflow.is_complete() {
            steps.extend(self.close(&workflow));
            return steps;
        }
        match self.request() {
            Some(request) => steps.extend(self.requested(&request)),
            None => steps.extend(self.without_request()),
        }
        steps
    }

    /// What the blocks say of the plan's steps, in the order they came.
    fn moved(&self, workflow: &mut Workflow) -> Vec<Step> {
        let mut steps = Vec::new();
        for block in &self.reading.blocks {
            let named = block.fields.text("step").unwrap_or_else(|| block.raw.trim());
            let current = workflow.current_step().map(|step| step.title.clone()).unwrap_or_default();
            let moved = match block.name.as_str() {
                STEP_START_BLOCK => workflow.find(named).map(|step| (step, Move::Start)),
                STEP_DONE_BLOCK => workflow.confirm(named).map(|step| (step, Move::Complete)),
                _ => continue,
            };
            match moved {
                Ok((step, Move::Start)) if step == workflow.current => {}
                Ok((step, Move::Start)) => {
                    let title = workflow.steps[step].title.clone();
                    steps.push(Fact::StepStarted { step, title, call: self.call.call }.note());
                    workflow.start(step);
                }
                Ok((step, Move::Complete)) => {
                    steps.push(Fact::StepDone { step, title: current, call: self.call.call }.note());
                    workflow.complete(step);
                }
                Err(why) => {
                    let kind = if block.name == STEP_START_BLOCK { "not_begun" } else { "not_current" };
                    let known = match why {
                        NotDone::Unknown => "",
                        NotDone::NotCurrent => "later",
                        NotDone::Complete => "complete",
                    };
                    let more = [("given", named), ("current", current.as_str()), ("known", known)];
                    steps.push(self.refuse(&block.name, kind, &more));
                }
            }
        }
        steps
    }

    /// The last step is done: what came of it crosses to the next explorer, and nothing else.
    fn close(&self, workflow: &Workflow) -> Vec<Step> {
        let mut steps: Vec<Step> =
            self.blocks(BATCH_BLOCK).map(|_| self.refuse(BATCH_BLOCK, "plan_closed", &[])).collect();
        let document = documents::built_outcome(handed(self.view), workflow, self.reading.visible.trim());
        let calls = vec![self.call.call];
        steps.push(Fact::WorkflowClosed { goal: workflow.goal.clone(), steps: workflow.steps.len() }.note());
        steps.push(Step::Hand { kind: OUTCOME.into(), document, calls, how: Provenance::Built });
        steps.push(propose(EXPLORER));
        steps.push(self.handed_on());
        steps
    }

    /// A plan was presented.
    fn presented(&self) -> Vec<Step> {
        let mut steps: Vec<Step> = Vec::new();
        for name in [BATCH_BLOCK, STEP_START_BLOCK, STEP_DONE_BLOCK] {
            steps.extend(self.blocks(name).map(|_| self.refuse(name, "plan_first", &[])));
        }
        match self.steps_read() {
            Ok(plan) => steps.extend(self.under_way(plan, Provenance::Emitted)),
            Err(why) => steps.push(self.ask_again(ASK_STEPS, json!({"why": why}))),
        }
        steps
    }

    fn steps_read(&self) -> Result<Vec<PlanStep>, Option<String>> {
        let mut why = None;
        for block in self.blocks(STEPS_BLOCK).rev() {
            match from_block(&block.raw) {
                Ok(steps) => return Ok(steps),
                Err(unreadable) => why = Some(unreadable.to_string()),
            }
        }
        Err(why)
    }

    /// The steps were asked for again; if they still cannot be read, the plan itself must name them.
    fn steps_again(&self) -> Vec<Step> {
        if let Ok(plan) = self.steps_read() {
            return self.under_way(plan, Provenance::Repaired);
        }
        let plan = self.before().map(|reading| reading.visible);
        let mut steps = from_prose(&plan.unwrap_or_default());
        if steps.is_empty() {
            steps.push(PlanStep { title: self.goal(), ..PlanStep::default() });
        }
        self.under_way(steps, Provenance::Built)
    }

    fn goal(&self) -> String {
        handed(self.view).and_then(|handover| handover.text("goal")).unwrap_or_default().to_owned()
    }

    fn under_way(&self, steps: Vec<PlanStep>, how: Provenance) -> Vec<Step> {
        let call = self.calls().first().copied().unwrap_or(self.call.call);
        vec![Fact::Workflow { goal: self.goal(), steps, how, call }.note(), self.done()]
    }
}

/// A BATCH block as it was meant.
#[derive(Debug, Clone)]
struct Request {
    kind: String,
    purpose: Option<Purpose>,
    handover: Document,
    step: Option<String>,
    blocker: Option<String>,
    context: Option<String>,
    prompt: Option<String>,
}

impl Request {
    fn of(block: &Block) -> Self {
        let text =
            |name: &str| block.fields.text(name).map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned);
        let kind = text("type").unwrap_or_default();
        let purpose = match kind.to_ascii_uppercase().replace([' ', '-'], "_").as_str() {
            "WORKFLOW" => Some(Purpose::Workflow),
            "STEP_HELP" => Some(Purpose::StepHelp),
            _ => None,
        };
        let handover = block.fields.section("handover");
        let handover = handover.map(|fields| documents::read(fields, &EXECUTION_FIELDS)).unwrap_or_default();
        let (step, blocker, context, prompt) = (text("step"), text("blocker"), text("context"), text("prompt"));
        Self { kind, purpose, handover, step, blocker, context, prompt }
    }

    fn is_for_a_plan(&self) -> bool {
        self.purpose == Some(Purpose::Workflow)
    }
}

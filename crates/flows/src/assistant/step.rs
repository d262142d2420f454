//! How one step of a plan goes: its records are loaded, Act answers with actions, tools run, and the step ends. Only
//! `step_complete` moves the plan on. Nothing here is endless: tool calls, retrievals, repairs and empty reads are counted.

use segue_core::event::{CallAnswered, CallOpened};
use segue_core::flow::Step;
use serde_json::{Map, Value, json};

use super::answer::{self, Action, Completed, Written, cut};
use super::desk::{Desk, act_go, act_repair, act_result, agent};
use super::facts::{End, Fact, PlannedStep, StepEnd, StepKind};
use super::registry::{Action as Deed, Detail, Draft};
use super::spec::ACT;
use super::state::{Running, StepState};
use super::tools::{Operation, Purpose, RECORDS, REMOTE, Told, Wanted, wanted};
use crate::limits::{NODE_REPAIRS_MAX, OUTCOME_CHARS_MAX, STEP_RETRIEVALS_MAX, STEP_TOOL_CALLS_MAX};

/// The step that a call of Act is for.
pub(super) fn number(call: &CallOpened) -> Option<u32> {
    (call.role == *ACT).then(|| call.note.get("step")?.as_u64()).flatten().and_then(|step| u32::try_from(step).ok())
}

/// Begins a step: what it works with is loaded first, if it is not at hand.
pub(super) fn begin(desk: &Desk<'_>, step: u32) -> Vec<Step> {
    let Some(planned) = desk.running().and_then(|running| running.planned(step)) else { return Vec::new() };
    let entities = &desk.memory().entities;
    let is_missing = |reference: &&String| {
        entities
            .get(reference)
            .is_some_and(|entity| entity.is_saved() && entity.detail != Detail::Full && entity.last != Deed::Deleted)
    };
    let missing = planned.refs.iter().filter(is_missing).filter_map(|reference| {
        let entity = entities.get(reference)?;
        Some(json!({"type": entity.kind, "id": entity.id}))
    });
    let missing: Vec<Value> = missing.collect();
    // A server has no such thing as a record by its id; a read step reads for itself.
    if missing.is_empty() || planned.kind == StepKind::Read || desk.domain.server.is_some() {
        return vec![act_go(step)];
    }
    let told = Told {
        domain: desk.domain.name.clone(),
        op: Operation::Get,
        purpose: Purpose::Load,
        turn: desk.memory().turn(),
        step: Some(step),
        step_type: Some(planned.kind),
        rest: object(json!({"items": missing})),
    };
    vec![run(&told, step)]
}

pub(super) fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        _ => Map::new(),
    }
}

fn run(told: &Told, step: u32) -> Step {
    let tool = if told.op == Operation::Call { REMOTE } else { RECORDS };
    Step::RunTool { tool: tool.into(), arguments: told.arguments(), agent: Some(agent(step)) }
}

/// A step and how it stands.
pub(super) struct Stand<'a> {
    desk: &'a Desk<'a>,
    running: &'a Running,
    planned: &'a PlannedStep,
    pub state: &'a StepState,
}

impl<'a> Stand<'a> {
    /// A step that is under way.
    pub fn of(desk: &'a Desk<'a>, step: u32) -> Option<Self> {
        let running = desk.running()?;
        let (planned, state) = (running.planned(step)?, running.steps.get(&step)?);
        state.end.is_none().then_some(Self { desk, running, planned, state })
    }

    pub fn end(&self, end: End, outcome: String) -> StepEnd {
        StepEnd {
            turn: self.running.turn,
            step: self.planned.step,
            end,
            outcome: cut(&outcome, OUTCOME_CHARS_MAX),
            refs: Vec::new(),
            note: None,
            drafts: Vec::new(),
            question: None,
            partial: None,
            next: None,
            answer: None,
        }
    }

    pub fn failed(&self, why: String) -> Vec<Step> {
        vec![ended(self.end(End::Failed, why))]
    }

    /// What could not be used is asked for once more; then the step has failed.
    fn broken(&self, call: &CallOpened, complaints: &[String]) -> Vec<Step> {
        let step = self.planned.step;
        if self.state.repairs >= NODE_REPAIRS_MAX {
            return self.failed(format!("what came back could not be used: {}", complaints.join("; ")));
        }
        let complaints = complaints.to_vec();
        let again = act_repair(step, &complaints);
        let broken = Fact::Broken { node: ACT.to_owned(), call: call.call, step: Some(step), complaints };
        vec![broken.note(), again]
    }
}

pub(super) fn ended(end: StepEnd) -> Step {
    Fact::StepEnded(Box::new(end)).note()
}

/// Act answered.
pub(super) fn answered(desk: &Desk<'_>, call: &CallOpened, answered: &CallAnswered, text: &str) -> Vec<Step> {
    let Some(stand) = number(call).and_then(|step| Stand::of(desk, step)) else { return Vec::new() };
    let read = answer::action(text, desk.domain, &desk.memory().entities, stand.planned);
    let may_repair = stand.state.repairs < NODE_REPAIRS_MAX;
    match read.value {
        Some(action) if read.complaints.is_empty() => act(&stand, call, answered, action),
        // A question is worth asking even if it comes without what led to it.
        Some(Action::AskUser { question, partial }) if !may_repair => {
            let partial = partial.or_else(|| Some(so_far(stand.running)));
            act(&stand, call, answered, Action::AskUser { question, partial })
        }
        // Names that are unknown are left out; what was written and does not fit is not.
        Some(Action::StepComplete(done))
            if !may_repair && read.complaints.iter().all(|why| why.starts_with("`refs`")) =>
        {
            act(&stand, call, answered, Action::StepComplete(done))
        }
        _ => stand.broken(call, &read.complaints),
    }
}

/// What the steps of a turn have found out.
fn so_far(running: &Running) -> Value {
    let ends = running.steps.values().filter_map(|state| state.end.as_ref());
    json!({"so_far": ends.map(|end| end.outcome.clone()).collect::<Vec<_>>()})
}

fn act(stand: &Stand<'_>, call: &CallOpened, answered: &CallAnswered, action: Action) -> Vec<Step> {
    match action {
        Action::ToolCall { tool, arguments } => tool_call(stand, call, &tool, &arguments),
        Action::StepComplete(done) => complete(stand, call, answered, done),
        Action::AskUser { question, partial } => {
            let outcome = format!("asked: {question}");
            let end = StepEnd { question: Some(question), partial, ..stand.end(End::Asked, outcome) };
            vec![ended(end)]
        }
        Action::RetrieveStep { turn, step } => retrieve(stand, call, turn, step),
        Action::Blocked { reason, next } => vec![ended(StepEnd { next, ..stand.end(End::Blocked, reason) })],
        Action::Fail { reason } => stand.failed(reason),
    }
}

fn tool_call(stand: &Stand<'_>, call: &CallOpened, tool: &str, arguments: &Map<String, Value>) -> Vec<Step> {
    if stand.state.tool_calls >= STEP_TOOL_CALLS_MAX {
        let why =
            format!("a step has {STEP_TOOL_CALLS_MAX} tool calls, and they are used up; answer with another action");
        return stand.broken(call, &[why]);
    }
    let step = (stand.running.turn, stand.planned);
    match wanted(stand.desk.domain, stand.desk.memory(), step, tool, arguments) {
        Ok(Wanted::Run(told)) => vec![run(&told, stand.planned.step)],
        Ok(Wanted::AtHand(refs)) => {
            let go_on = act_result(stand.planned.step, json!({"at_hand": refs}));
            vec![Fact::AtHand { step: stand.planned.step, refs }.note(), go_on]
        }
        Err(complaints) => stand.broken(call, &complaints),
    }
}

fn complete(stand: &Stand<'_>, call: &CallOpened, answered: &CallAnswered, done: Completed) -> Vec<Step> {
    if stand.planned.kind == StepKind::Write && stand.state.wrote == 0 {
        let why = "nothing was written in this step; call the tool that does it, or answer `blocked` or `fail`";
        return stand.broken(call, &[why.to_owned()]);
    }
    let drafts = minted(stand, done.drafts);
    let mut refs = done.refs;
    refs.extend(drafts.iter().map(|draft| draft.reference.clone()));
    let end =
        StepEnd { refs, note: done.note, drafts, answer: Some(answered.text), ..stand.end(End::Done, done.outcome) };
    vec![ended(end)]
}

/// Drafts get their references here and nowhere else.
fn minted(stand: &Stand<'_>, written: Vec<Written>) -> Vec<Draft> {
    let entities = &stand.desk.memory().entities;
    let mut drafts: Vec<Draft> = Vec::new();
    for Written { replaces, kind, content } in written {
        let reference = replaces.unwrap_or_else(|| entities.next_draft(&kind, &drafts));
        let label = stand.desk.domain.find(&kind).and_then(|declared| content.get(&declared.label)?.as_str());
        let label = label.map(|label| entities.get(label).map_or(label, |linked| linked.label.as_str()));
        let label = label.unwrap_or(&kind).to_owned();
        drafts.push(Draft { reference, label, kind, content });
    }
    drafts
}

fn retrieve(stand: &Stand<'_>, call: &CallOpened, turn: Option<u32>, step: u32) -> Vec<Step> {
    if stand.state.retrievals >= STEP_RETRIEVALS_MAX {
        return stand.broken(call, &[format!("a step fetches at most {STEP_RETRIEVALS_MAX} earlier results")]);
    }
    let now = stand.running.turn;
    let own =
        stand.running.steps.iter().filter_map(|(number, state)| Some((now, *number, state.end.as_ref()?.answer?)));
    let past = stand.desk.memory().results.iter().map(|result| (result.turn, result.step, result.answer));
    let all: Vec<_> = past.chain(own).collect();
    let wanted = turn.unwrap_or(now);
    let Some((of_turn, of_step, text)) = all.iter().find(|(turn, number, _)| (*turn, *number) == (wanted, step)) else {
        let known: Vec<String> = all.iter().map(|(turn, step, _)| format!("step {step} of turn {turn}")).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        return stand
            .broken(call, &[format!("there is no result of step {step} of turn {wanted}; there are: {known}")]);
    };
    let fact = Fact::Retrieved { step: stand.planned.step, of_turn: *of_turn, of_step: *of_step };
    let go_on = act_result(stand.planned.step, json!({"retrieved": {"turn": of_turn, "step": of_step}, "text": text}));
    vec![fact.note(), go_on]
}

/// Act did not answer.
pub(super) fn missed(desk: &Desk<'_>, call: &CallOpened, why: &str) -> Vec<Step> {
    let stand = number(call).and_then(|step| Stand::of(desk, step));
    stand.map(|stand| stand.failed(format!("no answer came: {why}"))).unwrap_or_default()
}

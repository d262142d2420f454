//! How one step of a plan goes: its records are loaded, Act answers with actions, tools run, and the step ends. Only
//! `step_complete` moves the plan on. Nothing here is endless: tool calls, retrievals, repairs and empty reads are counted.

use segue_core::event::{CallAnswered, CallOpened, ToolOpened, ToolOutcome};
use segue_core::flow::Step;
use segue_core::ids::ToolRunId;
use serde_json::{Map, Value, json};

use super::answer::{self, Action, Completed, Written, cut};
use super::desk::{Desk, act_go, act_repair, act_result, agent};
use super::facts::{End, Fact, PlannedStep, StepEnd, StepKind};
use super::registry::{Action as Deed, Detail, Draft};
use super::spec::ACT;
use super::state::{Running, StepState};
use super::tools::{Operation, Purpose, RECORDS, REMOTE, Reported, Told, Wanted, taken, wanted};
use crate::limits::{EMPTY_READS_MAX, NODE_REPAIRS_MAX, OUTCOME_CHARS_MAX, STEP_RETRIEVALS_MAX, STEP_TOOL_CALLS_MAX};

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

fn object(value: Value) -> Map<String, Value> {
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
struct Stand<'a> {
    desk: &'a Desk<'a>,
    running: &'a Running,
    planned: &'a PlannedStep,
    state: &'a StepState,
}

impl<'a> Stand<'a> {
    /// A step that is under way.
    fn of(desk: &'a Desk<'a>, step: u32) -> Option<Self> {
        let running = desk.running()?;
        let (planned, state) = (running.planned(step)?, running.steps.get(&step)?);
        state.end.is_none().then_some(Self { desk, running, planned, state })
    }

    fn end(&self, end: End, outcome: String) -> StepEnd {
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

    fn failed(&self, why: String) -> Vec<Step> {
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

fn ended(end: StepEnd) -> Step {
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
    match wanted(stand.desk.domain, &stand.desk.memory().entities, step, tool, arguments) {
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

/// A tool has ended.
pub(super) fn tool_ended(
    desk: &Desk<'_>,
    opened: &ToolOpened,
    outcome: ToolOutcome,
    text: segue_core::body::Text,
) -> Vec<Step> {
    let Some(told) = Told::of(&opened.arguments) else { return Vec::new() };
    let words = desk.view.text(text);
    let reported = (outcome == ToolOutcome::Done).then(|| Reported::read(&words)).flatten();
    match (told.purpose, reported) {
        (Purpose::Undo, reported) => super::undo::ended(desk, opened.run, &told, reported, text, &words),
        (Purpose::Settle, Some(reported)) => settled(desk, &told, reported, text),
        (Purpose::Settle, None) => {
            let why = "it is not known whether this was done; look at the records".to_owned();
            let failed = told.settles().map(|(run, was)| tool_failed(run, was.step, &why));
            let stand = desk.is_current().then(|| told.step.and_then(|step| Stand::of(desk, step))).flatten();
            failed.into_iter().chain(stand.map(|stand| stand.failed(why)).into_iter().flatten()).collect()
        }
        (Purpose::Load, reported) => loaded(desk, opened.run, &told, reported, text, &words),
        (Purpose::Call, Some(reported)) => came(desk, opened.run, &told, reported, text),
        // A write that was cut off may have been done: whoever keeps the records knows.
        (Purpose::Call, None) if told.op.writes() => vec![settle(opened.run, &told)],
        (Purpose::Call, None) => {
            let failed = tool_failed(opened.run, told.step, &words);
            std::iter::once(failed).chain(go_on(desk, &told, json!({"why": cut(&words, OUTCOME_CHARS_MAX)}))).collect()
        }
        (Purpose::Describe, _) => Vec::new(),
    }
}

fn tool_failed(run: ToolRunId, step: Option<u32>, why: &str) -> Step {
    Fact::ToolFailed { run, step, why: cut(why, OUTCOME_CHARS_MAX) }.note()
}

fn settle(run: ToolRunId, was: &Told) -> Step {
    let told = Told {
        op: Operation::Settle,
        purpose: Purpose::Settle,
        rest: object(json!({"of": run.0, "was": was.arguments()})),
        ..was.clone()
    };
    let step = was.step.map(agent);
    Step::RunTool { tool: RECORDS.into(), arguments: told.arguments(), agent: step }
}

/// What became of a write that was cut off.
fn settled(desk: &Desk<'_>, told: &Told, reported: Reported, text: segue_core::body::Text) -> Vec<Step> {
    let Some((run, was)) = told.settles() else { return Vec::new() };
    if reported.never {
        let why = "it was not done";
        let failed = tool_failed(run, was.step, why);
        return std::iter::once(failed).chain(go_on(desk, &was, json!({"why": why}))).collect();
    }
    let mut steps = came(desk, run, &was, reported, text);
    // Whoever stopped the turn believes that nothing came of it.
    let is_unheard = !desk.is_current();
    let wrote = steps.first().filter(|_| is_unheard).and_then(|step| match step {
        Step::Note { value, .. } => {
            value.get("wrote").filter(|wrote| wrote.as_array().is_some_and(|wrote| !wrote.is_empty()))
        }
        _ => None,
    });
    if let Some(wrote) = wrote {
        steps.push(super::turn::told_late(wrote));
    }
    steps
}

/// Goes on with the step that a run was for, if its turn still runs.
fn go_on(desk: &Desk<'_>, told: &Told, mut note: Value) -> Option<Step> {
    let step = told.step.filter(|_| desk.is_current())?;
    Stand::of(desk, step)?;
    let tool = told.rest.get("tool").and_then(Value::as_str).unwrap_or(told.op.word());
    note["tool"] = json!(tool);
    Some(act_result(step, note))
}

/// What a run brought.
fn came(desk: &Desk<'_>, run: ToolRunId, told: &Told, reported: Reported, text: segue_core::body::Text) -> Vec<Step> {
    if let Some(why) = &reported.refused {
        let failed = tool_failed(run, told.step, why);
        return std::iter::once(failed).chain(go_on(desk, told, json!({"why": cut(why, OUTCOME_CHARS_MAX)}))).collect();
    }
    let mut records = taken(desk.domain, &desk.memory().entities, run, told, &reported, text);
    let writes =
        desk.domain.server.as_ref().and_then(|server| server.tool(&records.tool)).is_some_and(|tool| tool.writes);
    if writes && told.op == Operation::Call {
        records.wrote.push(format!("{} was done", records.tool));
    }
    let empty = records.empty.clone();
    let mut steps = vec![Fact::Records(Box::new(records)).note()];
    let stand = told.step.filter(|_| desk.is_current()).and_then(|step| Stand::of(desk, step));
    let times = |stand: &Stand<'_>, read: &String| stand.state.empty.get(read).copied().unwrap_or(0) + 1;
    match (stand, empty) {
        (Some(stand), Some(read)) if times(&stand, &read) >= EMPTY_READS_MAX => {
            steps.push(ended(stand.end(End::Done, "nothing was found, twice".to_owned())));
        }
        _ => steps.extend(go_on(desk, told, json!({"run": run.0, "text": text}))),
    }
    steps
}

/// The records of a step are at hand, or could not be had; it begins either way.
fn loaded(
    desk: &Desk<'_>,
    run: ToolRunId,
    told: &Told,
    reported: Option<Reported>,
    text: segue_core::body::Text,
    words: &str,
) -> Vec<Step> {
    let fact = match reported {
        Some(reported) if reported.refused.is_none() => {
            let records = taken(desk.domain, &desk.memory().entities, run, told, &reported, text);
            Fact::Records(Box::new(records)).note()
        }
        reported => {
            tool_failed(run, told.step, reported.and_then(|reported| reported.refused).as_deref().unwrap_or(words))
        }
    };
    let begins = told.step.filter(|step| desk.is_current() && Stand::of(desk, *step).is_some());
    std::iter::once(fact).chain(begins.map(act_go)).collect()
}

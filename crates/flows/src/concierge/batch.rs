//! Asking everyone: who is called, when the answers are enough, what becomes of them. An answer that fails is done
//! without, one that is late is kept and counts for nothing; two make a map, one is gone on with as it is, and with none
//! the turn fails and can be tried again, at the price of what failed and no more.

use segue_core::body::Text;
use segue_core::event::{CallAnswered, CallOpened, CallWish, Outcome};
use segue_core::flow::{Step, View};
use segue_core::ids::{CallId, MessageId};
use serde_json::json;

use super::analysis::analyse;
use super::facts::{Begun, Fact, Known, Mapped, Purpose, Task};
use super::map::{self, Complaint, MapError, Reading};
use super::settings::{Seat, Settings};
use super::spec::{ASK_MAP, ASK_QUESTION, ASK_REPAIR, ASK_TASK, EXPERT, MAPPER};
use super::state::{Batch, Memory, Stage};
use crate::limits::{BRIEF_LABELS_MAX, MAP_ANSWERS_MIN, MAP_FACT_BYTES_MAX};

type Sight<'a> = View<'a, Memory>;

/// What a batch of this purpose would be.
pub(super) fn wished(
    view: &Sight<'_>,
    settings: &Settings,
    purpose: Purpose,
    task: Option<Task>,
    asked: Vec<(MessageId, Text)>,
) -> Begun {
    Begun { batch: view.state.batches + 1, purpose, task, asked, seats: settings.seats().len() }
}

/// Asks everyone.
pub(super) fn begin(view: &Sight<'_>, settings: &Settings, begun: Begun) -> Vec<Step> {
    let (batch, purpose) = (begun.batch, begun.purpose);
    let mut steps = forget_slow_ones(view);
    steps.push(Fact::Batch(begun).note());
    let seats = settings.seats();
    steps.extend(seats.iter().enumerate().map(|(place, seat)| call(batch, purpose, place, seat)));
    steps.push(Fact::BatchSent { batch }.note());
    steps
}

/// Asks those who have not answered, and goes on where it stood.
pub(super) fn resume(view: &Sight<'_>, settings: &Settings, batch: &Batch) -> Vec<Step> {
    let (number, purpose) = (batch.begun.batch, batch.begun.purpose);
    if batch.stage == Stage::Closed {
        return closed(view, settings);
    }
    let mut steps = vec![Fact::BatchResumed { batch: number }.note()];
    let seats = settings.seats();
    let missing = seats.iter().enumerate().filter(|(place, _)| !batch.answers.contains_key(place));
    steps.extend(missing.map(|(place, seat)| call(number, purpose, place, seat)));
    steps.push(Fact::BatchSent { batch: number }.note());
    steps
}

fn call(batch: u32, purpose: Purpose, place: usize, seat: &Seat) -> Step {
    let ask = match purpose {
        Purpose::Opening | Purpose::EveryTurn => ASK_QUESTION,
        Purpose::Workflow | Purpose::StepHelp => ASK_TASK,
    };
    let mut wish = CallWish::new(EXPERT, ask).note(json!([batch, place]));
    wish.model.clone_from(&seat.model);
    wish.sample = seat.sample;
    Step::Call(wish)
}

/// Those of an earlier batch of this turn who still have not answered would be asked twice at once.
fn forget_slow_ones(view: &Sight<'_>) -> Vec<Step> {
    let is_asked = |opened: &CallOpened| opened.role == *EXPERT && opened.recomputes.is_none();
    let slow = view.session.calls.iter().filter(|(_, open)| is_asked(&open.opened));
    slow.map(|(call, _)| Step::Cancel { call: *call, reason: "everyone is asked something else".to_owned() }).collect()
}

/// An expert's call is under way: if its answer is not waited for without end, the wait begins.
pub(super) fn opened(view: &Sight<'_>, settings: &Settings, opened: &CallOpened) -> Vec<Step> {
    let seat = view.state.batch.as_ref().and_then(|batch| batch.seat_of(opened));
    let timeout_ms = seat.and_then(|seat| settings.seats().get(seat)?.timeout_ms);
    timeout_ms.map(|after_ms| Step::SetTimer { name: timer(opened.call), after_ms }).into_iter().collect()
}

fn timer(call: CallId) -> String {
    format!("{EXPERT} {call}")
}

/// An answer came, or will not come.
pub(super) fn came(view: &Sight<'_>, settings: &Settings, call: &CallOpened, answered: bool) -> Vec<Step> {
    let mut steps = Vec::new();
    if view.session.timers.values().any(|running| running.name == timer(call.call)) {
        steps.push(Step::StopTimer { name: timer(call.call) });
    }
    if view.session.turn.is_none() || view.about.turn != view.session.turn.as_ref().map(|turn| turn.id) {
        return steps;
    }
    let counts =
        view.state.batch.as_ref().is_some_and(|batch| batch.seat_of(call).is_some() && batch.stage != Stage::Closed);
    if answered && !counts {
        let number = call.note.get(0).and_then(serde_json::Value::as_u64).and_then(|number| u32::try_from(number).ok());
        steps.push(Fact::Late { batch: number.unwrap_or_default(), call: call.call }.note());
    }
    if counts {
        steps.extend(settled(view, settings));
    }
    steps
}

/// A wait is over.
pub(super) fn timer_fired(view: &Sight<'_>, name: &str) -> Vec<Step> {
    let Some(batch) = &view.state.batch else { return Vec::new() };
    let slow = batch.calls.iter().find(|(call, _)| timer(**call) == name);
    let fact = slow.map(|(call, seat)| Fact::Overdue { batch: batch.begun.batch, seat: *seat, call: *call });
    fact.map(Fact::note).into_iter().collect()
}

/// Closes the batch once nothing more is waited for.
pub(super) fn settled(view: &Sight<'_>, settings: &Settings) -> Vec<Step> {
    let Some(batch) = view.state.batch.as_ref().filter(|batch| batch.stage == Stage::Sent) else { return Vec::new() };
    let waits = view.session.deferred.values().any(|wait| wait.wish.role == *EXPERT);
    let answers = batch.answers.len();
    let enough = settings.quorum.is_some_and(|quorum| answers >= quorum);
    if !enough && (waits || batch.awaited().next().is_some()) {
        return Vec::new();
    }
    let (number, missing) = (batch.begun.batch, batch.missing());
    if answers > 0 {
        return vec![Fact::BatchClosed { batch: number, answers, missing }.note()];
    }
    let reason = format!("no answer came ({}); say \"retry\" to try again", missing.join("; "));
    let failed = Fact::BatchFailed { batch: number, missing };
    // Those still under way end with the turn.
    vec![failed.note(), Step::EndTurn(Outcome::Failed { reason })]
}

/// The answers are in.
pub(super) fn closed(view: &Sight<'_>, settings: &Settings) -> Vec<Step> {
    let Some(batch) = &view.state.batch else { return Vec::new() };
    if batch.answers.len() >= MAP_ANSWERS_MIN as usize {
        return vec![map_wish(settings, ASK_MAP, json!({"batch": batch.begun.batch}))];
    }
    let Some((call, text)) = batch.answers.values().next() else { return Vec::new() };
    let why = MapError::TooFewAnswers { answers: 1 }.to_string();
    let number = batch.begun.batch;
    vec![Fact::NoMap { batch: number, why }.note(), learnt(batch, Known::Alone { call: *call, text: *text })]
}

fn map_wish(settings: &Settings, ask: &str, note: serde_json::Value) -> Step {
    Step::Call(CallWish { model: settings.mapper.clone(), ..CallWish::new(MAPPER, ask).note(note) })
}

fn learnt(batch: &Batch, known: Known) -> Step {
    Fact::Learnt { batch: batch.begun.batch, purpose: batch.begun.purpose, known }.note()
}

/// The mapper answered.
pub(super) fn mapped(view: &Sight<'_>, settings: &Settings, call: &CallOpened, answered: &CallAnswered) -> Vec<Step> {
    let Some(batch) = view.state.batch.as_ref().filter(|batch| batch.stage == Stage::Closed) else {
        return Vec::new();
    };
    let answers = u32::try_from(batch.answers.len()).unwrap_or(u32::MAX);
    let asks_again = |why: String| {
        let reply = answered.text;
        let note = json!({"batch": batch.begun.batch, "why": why, "reply": reply, "of": call.call});
        vec![map_wish(settings, ASK_REPAIR, note)]
    };
    match map::parse(&view.text(answered.text), answers) {
        Ok(reading) if call.ask == *ASK_MAP && reading.lost_its_edges() => asks_again(Complaint::CutShort.to_string()),
        Ok(reading) => read(batch, (call.call, answered.text), answers, &reading),
        Err(why) if call.ask == *ASK_MAP => asks_again(why.to_string()),
        Err(why) => as_first_read(view, batch, call, answers).unwrap_or_else(|| unmapped(batch, why.to_string())),
    }
}

fn read(batch: &Batch, (call, text): (CallId, Text), answers: u32, reading: &Reading) -> Vec<Step> {
    let mut steps = vec![map_fact(batch, call, answers, reading).note()];
    steps.push(Fact::Analysis(analysis_value(reading, answers)).note());
    steps.push(learnt(batch, Known::Mapped { call, text, answers }));
    steps
}

/// What could be read of the map before it was asked for again, if anything could.
fn as_first_read(view: &Sight<'_>, batch: &Batch, call: &CallOpened, answers: u32) -> Option<Vec<Step>> {
    let noted = |name: &str| call.note.get(name).cloned();
    let text: Text = serde_json::from_value(noted("reply")?).ok()?;
    let first: CallId = serde_json::from_value(noted("of")?).ok()?;
    let reading = map::parse(&view.text(text), answers).ok()?;
    Some(read(batch, (first, text), answers, &reading))
}

/// The mapper did not answer.
pub(super) fn not_mapped(view: &Sight<'_>, call: &CallOpened, why: String) -> Vec<Step> {
    let Some(batch) = &view.state.batch else { return Vec::new() };
    let answers = u32::try_from(batch.answers.len()).unwrap_or(u32::MAX);
    as_first_read(view, batch, call, answers).unwrap_or_else(|| unmapped(batch, why))
}

fn unmapped(batch: &Batch, why: String) -> Vec<Step> {
    let number = batch.begun.batch;
    vec![Fact::NoMap { batch: number, why }.note(), learnt(batch, Known::Unmapped { texts: batch.texts() })]
}

fn map_fact(batch: &Batch, call: CallId, answers: u32, reading: &Reading) -> Fact {
    let bytes = serde_json::to_string(&reading.map).map_or(usize::MAX, |text| text.len());
    Fact::Map(Mapped {
        batch: batch.begun.batch,
        call,
        answers,
        complaints: reading.complaints.iter().map(ToString::to_string).collect(),
        map: (bytes <= MAP_FACT_BYTES_MAX).then(|| reading.map.clone()),
    })
}

/// What of an analysis is worth a fact: all that is not a list over claims.
fn analysis_value(reading: &Reading, answers: u32) -> serde_json::Value {
    let analysis = analyse(&reading.map, answers);
    let label = |id: &map::ClaimId| {
        reading.map.claims.iter().find(|claim| claim.id == *id).map_or("", |claim| claim.label.as_str())
    };
    let labels =
        |ids: &[map::ClaimId]| ids.iter().take(BRIEF_LABELS_MAX).map(|id| label(id).to_owned()).collect::<Vec<_>>();
    json!({
        "answers": analysis.answers,
        "claims": analysis.claims.len(),
        "edges": analysis.edges,
        "components": analysis.components.len(),
        "shape": analysis.shape,
        "confidence": analysis.confidence,
        "scores": analysis.scores,
        "ratios": analysis.ratios,
        "hub": analysis.hub.as_ref().map(|hub| label(&hub.claim)),
        "keystones": labels(&analysis.keystones),
        "leverage_inversions": labels(&analysis.leverage_inversions),
        "evidence_gaps": labels(&analysis.evidence_gaps.iter().map(|gap| gap.claim.clone()).collect::<Vec<_>>()),
        "fragility": {
            "weak_joints": labels(&analysis.fragility.weak_joints),
            "conditional_conflicts": analysis.fragility.conditional_conflicts,
            "disconnected_consensus": analysis.fragility.has_disconnected_consensus,
        },
        "gaps": reading.map.gaps.len(),
    })
}

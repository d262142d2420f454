//! How a turn begins and how it goes on once everyone has been heard.

use segue_core::event::{CallWish, Outcome, PhaseEntered};
use segue_core::flow::{Step, View};
use segue_core::phase::guard::Proposer;
use segue_core::phase::state::Proposal;

use super::analysis::{Shape, analyse};
use super::consent::{self, Consent};
use super::facts::{Fact, Known, Purpose};
use super::settings::{BatchWhen, Settings, Synthesis};
use super::spec::{ASK_PRESENT, ASK_REPLY, CONCIERGE, EXECUTOR, STARTER, phase_key};
use super::stance::{self, Because};
use super::state::Memory;
use super::words_of::{self, notice};
use super::{batch, documents, map};

type Sight<'a> = View<'a, Memory>;

/// A turn begins.
pub(super) fn began(view: &Sight<'_>, settings: &Settings, is_again: bool) -> Vec<Step> {
    let state = view.state;
    let message = words_of::newest(view);
    if let Some(begun) = &state.confirm {
        let read = if begun.purpose == Purpose::Workflow { consent::read_for_plan } else { consent::read };
        let (fact, told) = match read(&message) {
            Consent::Yes => {
                let mut steps = vec![Fact::Confirmed.note()];
                steps.extend(batch::begin(view, settings, begun.clone()));
                return steps;
            }
            Consent::No => (Fact::Declined, "declined"),
            Consent::Neither if state.unsettled => (Fact::Declined, "no_yes"),
            Consent::Neither => (Fact::Unsettled, "unsettled"),
        };
        let mut steps = vec![fact.note(), notice(None, "BATCH", told, &[])];
        steps.extend(ordinary(view, settings));
        return steps;
    }
    if let Some(left) = &state.batch {
        if is_again || consent::is_retry(&message) {
            return batch::resume(view, settings, left);
        }
        let why = "the user went on with something else".to_owned();
        let mut steps = vec![Fact::BatchDropped { batch: left.begun.batch, why }.note()];
        if left.begun.task.is_some() {
            steps.push(notice(None, "BATCH", "no_answer", &[]));
        }
        steps.extend(ordinary(view, settings));
        return steps;
    }
    ordinary(view, settings)
}

fn ordinary(view: &Sight<'_>, settings: &Settings) -> Vec<Step> {
    let state = view.state;
    let phase = phase(view);
    let opens = phase == STARTER && state.opening.is_none();
    // A plan that waits to be presented is what everyone was asked for last.
    let has_news = state.findings.is_some() || (phase == EXECUTOR && state.workflow.is_none());
    let purpose = match settings.batch {
        _ if opens => Some(Purpose::Opening),
        BatchWhen::EveryTurn if !has_news => Some(Purpose::EveryTurn),
        BatchWhen::EveryTurn | BatchWhen::OnSignal => None,
    };
    match purpose {
        Some(purpose) => {
            let begun = batch::wished(view, settings, purpose, None, state.open.clone());
            batch::begin(view, settings, begun)
        }
        None => vec![speak(view, settings)],
    }
}

/// The phase the concierge is in.
pub(super) fn phase(view: &Sight<'_>) -> String {
    let stand = view.session.phases.get(&phase_key());
    stand.map_or_else(|| STARTER.to_owned(), |stand| stand.now.current.to_string())
}

/// The concierge's turn to speak: a plan that is not there yet is presented, anything else is answered.
fn speak(view: &Sight<'_>, settings: &Settings) -> Step {
    let presents = phase(view) == EXECUTOR && view.state.workflow.is_none();
    let wish = CallWish::new(CONCIERGE, if presents { ASK_PRESENT } else { ASK_REPLY });
    Step::Call(CallWish { model: settings.concierge.clone(), ..wish })
}

/// Everyone has been heard.
pub(super) fn learnt(view: &Sight<'_>, settings: &Settings, purpose: Purpose, known: &Known) -> Vec<Step> {
    match purpose {
        Purpose::Opening => vec![stance_fact(view, settings, known), speak(view, settings)],
        Purpose::EveryTurn => vec![speak(view, settings)],
        Purpose::Workflow => vec![propose(EXECUTOR)],
        Purpose::StepHelp => vec![end(view)],
    }
}

/// The turn ends, unless the user was told nothing in it.
pub(super) fn end(view: &Sight<'_>) -> Step {
    if view.state.said { Step::EndTurn(Outcome::Done) } else { Fact::Silent { call: None, told: None }.note() }
}

/// The user was told nothing: whoever has the word now is asked, once.
pub(super) fn silent(view: &Sight<'_>, settings: &Settings) -> Vec<Step> {
    if view.state.silences > 1 {
        let reason = "the answer held nothing to show; say \"retry\" to try again".to_owned();
        return vec![Step::EndTurn(Outcome::Failed { reason })];
    }
    vec![speak(view, settings)]
}

/// The concierge asks to be let into a phase; the graph decides.
pub(super) fn propose(to: &str) -> Step {
    Step::Propose { phase: phase_key(), proposal: Proposal::new(to, Proposer::Role(CONCIERGE.into())) }
}

/// The graph let the concierge into a phase: if it is there to present a plan, it does. Who was let in by hand with nothing
/// handed over gets what the rules can say.
pub(super) fn entered(view: &Sight<'_>, settings: &Settings, entered: &PhaseEntered) -> Vec<Step> {
    let transition = &entered.transition;
    if entered.phase == phase_key() && transition.begins_visit() && view.state.visit.handed.is_none() {
        return documents::by_hand(view, transition.to.as_str()).into_iter().collect();
    }
    let presents = entered.phase == phase_key()
        && transition.to == *EXECUTOR
        && transition.by == Proposer::Role(CONCIERGE.into())
        && transition.begins_visit()
        && view.state.plan.is_some()
        && view.session.turn.is_some();
    match settings.synthesis {
        _ if !presents => Vec::new(),
        Synthesis::SameTurn => vec![speak(view, settings)],
        Synthesis::NextTurn => vec![end(view)],
    }
}

fn stance_fact(view: &Sight<'_>, settings: &Settings, known: &Known) -> Step {
    let said: Vec<String> = view.state.open.iter().map(|(_, text)| view.text(*text).to_string()).collect();
    let choice = stance::choose(settings.stance, &said.join("\n\n"), shape(view, known));
    let because = match choice.because {
        Because::Set => "it is set".to_owned(),
        Because::Cue(cue) => format!("the message says \"{cue}\""),
        Because::Shape(shape) => format!("it suits the shape {}", shape.name()),
        Because::Nothing => "nothing speaks for another".to_owned(),
    };
    Fact::Stance { stance: choice.stance, because }.note()
}

/// The shape of what is known, where there is a map.
pub(super) fn shape(view: &Sight<'_>, known: &Known) -> Option<Shape> {
    let Known::Mapped { text, answers, .. } = known else { return None };
    let reading = map::parse(&view.text(*text), *answers).ok()?;
    Some(analyse(&reading.map, *answers).shape)
}

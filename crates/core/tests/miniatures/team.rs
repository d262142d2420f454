//! Three agents with state machines of their own, messages between them, a reviewer whose threads are keyed by (peer, work
//! item), an urgent lane.

use expect_test::expect;
use segue_core::context::{FragmentSpec, Layer, Rendered, Source};
use segue_core::event::{CallWish, Event, Lane, MessagePosted, Outcome, Owner, PhaseKey, Recorded};
use segue_core::flow::{Asking, Flow, FlowSpec, RoleSpec, Step, View};
use segue_core::ids::{AgentName, FragmentName, WorkName};
use segue_core::phase::guard::{Guard, Proposer};
use segue_core::phase::state::Proposal;
use segue_core::phase::{Attached, Edge, Phase, PhaseGraph};
use segue_core::scope::Scope;
use segue_testkit::Stage;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{instruction, words};

pub struct Team {
    spec: FlowSpec,
}

/// The message each agent has in hand.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Desks {
    in_hand: Vec<MessagePosted>,
}

fn phase(agent: &AgentName) -> PhaseKey {
    let graph = if agent.as_str() == "arch" { "architect" } else { "coder" };
    PhaseKey { graph: graph.into(), owner: Owner::Agent(agent.clone()) }
}

fn graph(name: &str, path: &[&str]) -> PhaseGraph {
    let edges = path.iter().zip(path.iter().cycle().skip(1));
    PhaseGraph {
        name: name.into(),
        attached: Attached::Agent,
        start: path[0].into(),
        phases: path.iter().map(|name| Phase::named(*name)).collect(),
        edges: edges.map(|(from, to)| Edge { from: (*from).into(), to: (*to).into(), guard: Guard::Always }).collect(),
        gates: Vec::new(),
    }
}

impl Team {
    pub fn new() -> Self {
        let letter = || FragmentSpec::changing("letter", Layer::Task);
        let coder = RoleSpec::new("coder", Scope::session().until(segue_core::scope::Until::Work)).lives_by("coder");
        let architect = RoleSpec::new("architect", Scope::peer_and_work()).lives_by("architect");
        let spec = FlowSpec::new("mini-team", "an architect and two coders")
            .graph(graph("coder", &["waiting", "coding", "review"]))
            .graph(graph("architect", &["waiting", "request"]))
            .role(coder.opens_with(instruction()).ask("letter", [letter()]))
            .role(architect.opens_with(instruction()).ask("letter", [letter()]));
        Self { spec }
    }

    /// An agent that waits takes its next letter, urgent ones first.
    fn take(&self, view: &View<'_, Desks>, agent: &AgentName) -> Vec<Step> {
        let at_rest = view
            .session
            .visit(&self.spec, &role(agent), Some(agent))
            .is_some_and(|visit| visit.phase != "coding" && visit.phase != "request");
        match view.session.next_mail(agent) {
            Some(_) if at_rest => vec![Step::Take { agent: agent.clone() }],
            _ => Vec::new(),
        }
    }
}

fn role(agent: &AgentName) -> segue_core::ids::RoleName {
    if agent.as_str() == "arch" { "architect".into() } else { "coder".into() }
}

fn go(agent: &AgentName, to: &str) -> Step {
    Step::Propose { phase: phase(agent), proposal: Proposal::new(to, Proposer::Agent(agent.clone())) }
}

fn post(from: &str, to: &str, topic: &str, text: &str) -> Step {
    let lane = if topic == "knowledge" { Lane::Urgent } else { Lane::Ordinary };
    Step::Post { from: from.into(), to: to.into(), lane, topic: topic.into(), text: text.into(), answers: None }
}

impl Flow for Team {
    type State = Desks;

    fn spec(&self) -> &FlowSpec {
        &self.spec
    }

    fn apply(&self, state: &mut Desks, event: &Recorded) {
        if let Event::MessagePosted(posted) = &event.event {
            state.in_hand.push(posted.clone());
        }
    }

    fn react(&self, view: &View<'_, Desks>, event: &Recorded) -> Vec<Step> {
        match (&event.event, view.about.call.as_deref()) {
            // "story-1 to ann" gives ann a story; "fact to ann" is knowledge, which is urgent.
            (Event::TurnStarted { .. }, _) => {
                let turn = view.session.turn.as_ref().expect("a turn has begun");
                let text = view.text(turn.messages[0].text);
                let (what, who) = text.split_once(" to ").unwrap_or(("", ""));
                let mut steps = Vec::new();
                if what.starts_with("story") {
                    steps.push(Step::Lease { agent: who.into(), work: Some(WorkName::from(what)) });
                }
                steps.push(post("user", who, if what.starts_with("story") { "story" } else { "knowledge" }, what));
                steps.push(Step::EndTurn(Outcome::Done));
                steps
            }
            (Event::MessagePosted(posted), _) => self.take(view, &posted.to),
            (Event::MessageTaken { message }, _) => {
                let mail = view.state.in_hand.iter().find(|mail| mail.message == *message).expect("it was posted");
                let to = if mail.to.as_str() == "arch" { "request" } else { "coding" };
                let mut wish = CallWish::new(role(&mail.to).as_str(), "letter").by(&mail.to).note(json!(message));
                if mail.to.as_str() == "arch" {
                    wish = wish.with(&mail.from);
                }
                vec![go(&mail.to, to), Step::Call(wish)]
            }
            (Event::CallAnswered(answered), Some(call)) => {
                let agent = call.agent.clone().expect("an agent spoke");
                let text = view.text(answered.text).to_string();
                match &call.peer {
                    Some(peer) => vec![go(&agent, "waiting"), post("arch", peer.as_str(), "response", &text)],
                    None if text.ends_with('?') => {
                        vec![go(&agent, "review"), post(agent.as_str(), "arch", "request", &text)]
                    }
                    None => vec![go(&agent, "review"), go(&agent, "waiting")],
                }
            }
            (Event::PhaseEntered(entered), _) => match &entered.phase.owner {
                // On its way through review a coder takes nothing: it will be waiting in a moment.
                Owner::Agent(agent) if entered.transition.to != "review" => self.take(view, agent),
                Owner::Agent(_) | Owner::Session | Owner::Role(_) => Vec::new(),
            },
            _ => Vec::new(),
        }
    }

    fn fragment(&self, view: &View<'_, Desks>, asking: &Asking<'_>, name: &FragmentName) -> Rendered {
        if name.as_str() == "instruction" {
            let agent = asking.wish.agent.as_ref().expect("an agent speaks");
            let worker = asking.wish.peer.as_ref().unwrap_or(agent);
            let work = view.session.leases.get(worker).map_or("nothing", |work| work.as_str());
            return words(format!("{agent} on {work} with {worker}"));
        }
        let message = serde_json::from_value(asking.wish.note.clone()).expect("every call has its letter");
        let mail = view.state.in_hand.iter().find(|mail| mail.message == message).expect("it was posted");
        Rendered::Stored { text: mail.text, source: Source::Message(message), why: mail.topic.clone() }
    }
}

#[test]
fn the_reviewer_remembers_within_a_story_and_forgets_with_it() {
    let mut stage = Stage::open(Team::new());
    stage.say("story-1 to ann").say("story-2 to bob");
    stage.answer("coder", "plan one?").answer("architect", "change it");
    stage.answer("coder", "plan bob?").answer("architect", "fine, bob").log();
    // ann resubmits: the architect sees its own earlier review of ann, and nothing of bob's.
    stage.answer("coder", "plan two?");
    assert_eq!(
        stage.prompt_lines("architect"),
        "System: arch on story-1 with ann\nUser: plan one?\nAssistant: change it\nUser: plan two?\n"
    );
    stage.answer("architect", "good").answer("coder", "done").answer("coder", "done");
    // A new story: no event says "reset", yet the thread is another.
    stage.say("story-3 to ann").answer("coder", "plan three?");
    assert_eq!(stage.prompt_lines("architect"), "System: arch on story-3 with ann\nUser: plan three?\n");
}

#[test]
fn an_urgent_letter_is_taken_first_and_none_is_lost() {
    let mut stage = Stage::open(Team::new());
    stage.say("story-1 to ann").say("story-2 to ann").say("fact to ann").log();
    stage.answer("coder", "done");
    expect![[r#"
        c1 answered: done
        coder of ann: coding → review by agent `ann`
        coder of ann: review → waiting by agent `ann`
        m6 taken
        coder of ann: waiting → coding by agent `ann`
        c2 coder ann asked letter on plain in coding, th2 new: another work item; prefix kept 0, broken by instruction
    "#]]
    .assert_eq(&stage.log());
    assert_eq!(stage.prompt_lines("coder"), "System: ann on story-2 with ann\nUser: fact\n");
    stage.answer("coder", "noted");
    assert_eq!(
        stage.prompt_lines("coder"),
        "System: ann on story-2 with ann\nUser: fact\nAssistant: noted\nUser: story-2\n"
    );
}

#[test]
fn a_crash_between_two_letters_loses_neither() {
    let mut stage = Stage::open(Team::new());
    stage.say("story-1 to ann").say("story-2 to bob").answer("coder", "plan one?").crash();
    assert_eq!(stage.open_roles(), ["coder", "architect"]);
    stage.answer("architect", "good").answer("coder", "done").answer("coder", "done");
    assert!(stage.session().is_idle());
    assert!(stage.session().inboxes.is_empty());
}

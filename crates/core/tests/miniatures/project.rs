//! A router that sends two agents at once into guarded phases, with a tool and a gate.

use std::collections::BTreeSet;

use expect_test::expect;
use segue_core::context::{FragmentSpec, Layer, Rendered, Source};
use segue_core::decide::Command;
use segue_core::event::{CallWish, Event, Outcome, Owner, PhaseKey, Recorded, ToolOutcome};
use segue_core::flow::{Asking, Flow, FlowSpec, RoleSpec, Runs, Step, ToolDef, UnknownPolicy, View};
use segue_core::ids::{AgentName, FragmentName};
use segue_core::phase::guard::{Guard, Proposer};
use segue_core::phase::state::Proposal;
use segue_core::phase::{Attached, Edge, Gate, Phase, PhaseGraph, PhaseKind, ToolRule};
use segue_core::prompt::ToolSpec;
use segue_core::scope::Scope;
use segue_core::signal::json;
use segue_testkit::Stage;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{instruction, message, user_message, words};

pub struct Project {
    spec: FlowSpec,
}

/// The open routing turn: who is still expected, and what the router must be told.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Routing {
    expected: BTreeSet<AgentName>,
    completed: BTreeSet<AgentName>,
    told: String,
}

pub fn work() -> PhaseKey {
    PhaseKey { graph: "work".into(), owner: Owner::Session }
}

fn tool(name: &str, runs: Runs) -> ToolDef {
    let spec = ToolSpec { name: name.into(), description: name.into(), parameters: json!({"type": "object"}) };
    ToolDef { spec, runs, unknown: UnknownPolicy::Retry }
}

impl Project {
    pub fn new() -> Self {
        let edge = |from: &str, to: &str| Edge { from: from.into(), to: to.into(), guard: Guard::Always };
        let mut end = Phase::named("end");
        end.kind = PhaseKind::End;
        let mut chat = Phase::named("chat");
        chat.tools = ToolRule::Only(BTreeSet::from(["complete".into()]));
        let graph = PhaseGraph {
            name: "work".into(),
            attached: Attached::Session,
            start: "chat".into(),
            phases: vec![chat, Phase::named("execute"), Phase::named("verify"), end],
            edges: vec![
                edge("chat", "execute"),
                edge("execute", "verify"),
                edge("execute", "end"),
                edge("verify", "execute"),
                edge("verify", "end"),
            ],
            gates: vec![Gate {
                name: "tested".into(),
                opened_by: "execute".into(),
                satisfied_by: "verify".into(),
                blocks: BTreeSet::new(),
            }],
        };
        let worker = RoleSpec::new("worker", Scope::session())
            .lives_by("work")
            .opens_with(instruction())
            .ask("work", [FragmentSpec::changing("phase", Layer::Task), message()])
            .may_use("look")
            .may_use("complete");
        let told = FragmentSpec::changing("told", Layer::Task);
        let router = RoleSpec::new("router", Scope::turn()).opens_with(instruction()).ask("route", [told, message()]);
        let spec = FlowSpec::new("mini-project", "a router and its agents").graph(graph).role(worker).role(router);
        Self { spec: spec.tool(tool("look", Runs::Host)).tool(tool("complete", Runs::Flow)) }
    }
}

impl Flow for Project {
    type State = Routing;

    fn spec(&self) -> &FlowSpec {
        &self.spec
    }

    fn apply(&self, state: &mut Routing, event: &Recorded) {
        match &event.event {
            Event::Fact { kind, value } if kind == "routed" => {
                *state = Routing {
                    expected: serde_json::from_value(value.clone()).unwrap_or_default(),
                    ..Routing::default()
                };
            }
            Event::Fact { kind, value } if kind == "completed" => {
                state.completed.extend(serde_json::from_value::<AgentName>(value.clone()));
            }
            Event::PhaseRefused(refused) => state.told = refused.refusal.to_string(),
            _ => {}
        }
    }

    fn react(&self, view: &View<'_, Routing>, event: &Recorded) -> Vec<Step> {
        let ask_router = || vec![Step::Call(CallWish::new("router", "route"))];
        match (&event.event, view.about.call.as_deref()) {
            (Event::TurnStarted { .. }, _) => ask_router(),
            (Event::CallAnswered(answered), Some(call)) if call.role == "router" => {
                let decision = json::find(&view.text(answered.text)).value.unwrap_or_default();
                let agents: Vec<AgentName> = serde_json::from_value(decision["agents"].clone()).unwrap_or_default();
                let mut steps = vec![Step::Note { kind: "routed".into(), value: json!(agents) }];
                if let Some(to) = decision["phase"].as_str() {
                    steps.push(Step::Propose {
                        phase: work(),
                        proposal: Proposal::new(to, Proposer::Role("router".into())),
                    });
                }
                steps.extend(agents.iter().map(|agent| Step::Call(CallWish::new("worker", "work").by(agent))));
                steps
            }
            (Event::PhaseRefused(_), _) if view.session.turn.is_some() => ask_router(),
            (Event::PhaseEntered(entered), _) if entered.transition.to == "end" => {
                vec![Step::EndTurn(Outcome::Done), Step::Close { reason: "the project is done".into() }]
            }
            (Event::ToolOpened(opened), _) if opened.tool == "complete" => {
                let text = "noted".to_owned();
                let agent = json!(opened.agent);
                vec![
                    Step::AnswerTool { run: opened.run, outcome: ToolOutcome::Done, text },
                    Step::Note { kind: "completed".into(), value: agent },
                ]
            }
            (Event::CallAnswered(answered), Some(call)) if answered.tool_calls.is_empty() => {
                let workers_open = view.session.calls.values().any(|open| open.opened.role == "worker");
                let all_done = view.state.completed.is_superset(&view.state.expected) && !workers_open;
                match (call.role.as_str(), all_done && view.session.rounds.is_empty()) {
                    ("worker", true) => ask_router(),
                    _ => Vec::new(),
                }
            }
            _ => Vec::new(),
        }
    }

    fn fragment(&self, view: &View<'_, Routing>, asking: &Asking<'_>, name: &FragmentName) -> Rendered {
        match name.as_str() {
            "instruction" => {
                words(format!("be {}", asking.wish.agent.as_ref().map_or("router", |agent| agent.as_str())))
            }
            "phase" => {
                let current = view.session.phases[&work()].now.current.to_string();
                Rendered::New { text: format!("[{current}]"), source: Source::Phase, why: "the phase".into() }
            }
            "told" if view.state.told.is_empty() => Rendered::Out("nothing was refused".into()),
            "told" => words(view.state.told.clone()),
            _ => user_message(view),
        }
    }
}

#[test]
fn two_agents_work_at_once_and_the_router_waits_for_both() {
    let mut stage = Stage::open(Project::new());
    stage.say("build it").answer("router", r#"{"agents": ["ann", "bob"], "phase": "execute"}"#);
    assert_eq!(stage.open_roles(), ["worker", "worker"]);
    stage.log();
    stage.wants_tool("worker", "look", json!({"at": "src"}));
    stage.wants_tool("worker", "complete", json!({}));
    stage.tool("look", Ok("two files"));
    expect![[r#"
        c2 answered:  [wants look]
        x1 look {"at":"src"}
        c3 answered:  [wants complete]
        x2 complete {}
        x2 done: noted
        completed "bob"
        c4 worker bob asked work on plain in execute, th3 continued (3 messages)
        x1 done: two files
        c5 worker ann asked work on plain in execute, th2 continued (3 messages)
    "#]]
    .assert_eq(&stage.log());
    stage.answer("worker", "bob is done");
    assert_eq!(stage.open_roles(), ["worker"], "the router is not asked while ann works");
    assert_eq!(
        stage.prompt_lines("worker"),
        "System: be ann\nUser: [execute]⏎⏎build it\nAssistant: \nTool: two files\n"
    );
    stage.wants_tool("worker", "complete", json!({})).answer("worker", "ann is done");
    assert_eq!(stage.open_roles(), ["router"]);
}

#[test]
fn an_open_gate_bars_the_end_until_it_is_met_and_the_router_is_told() {
    let mut stage = Stage::open(Project::new());
    stage.say("build it").answer("router", r#"{"agents": [], "phase": "execute"}"#);
    // No agent, nothing owed: the turn does not hang.
    assert!(stage.session().is_idle());
    stage.say("finish").answer("router", r#"{"agents": [], "phase": "end"}"#);
    expect!["System: be router\nUser: finish\nAssistant: {\"agents\": [], \"phase\": \"end\"}\nUser: `end` cannot be entered from `execute`: gate `tested` is open: after `execute`, `verify` comes first (only the user can grant a skip); allowed now: `verify`⏎⏎finish\n"]
        .assert_eq(&stage.prompt_lines("router"));
    stage.command(Command::Grant { phase: work(), to: "end".into() });
    stage.answer("router", r#"{"agents": [], "phase": "end"}"#);
    assert_eq!(stage.session().closed.as_deref(), Some("the project is done"));
}

#[test]
fn a_tool_that_the_phase_forbids_is_refused_and_the_model_is_told() {
    let mut stage = Stage::open(Project::new());
    stage.say("look around").answer("router", r#"{"agents": ["ann"]}"#);
    assert_eq!(stage.prompt("worker").tools.len(), 1, "chat leaves only `complete`");
    stage.wants_tool("worker", "look", json!({}));
    assert!(stage.prompt_lines("worker").ends_with("Tool: `look` may not be used in this phase\n"));
}

#[test]
fn a_phase_can_be_rolled_back_and_nothing_is_deleted() {
    let mut stage = Stage::open(Project::new());
    stage.say("build it").answer("router", r#"{"agents": [], "phase": "execute"}"#);
    let before = stage.journal().len();
    stage.command(Command::RollBack { phase: work(), visit: 1 });
    let now = &stage.session().phases[&work()].now;
    assert_eq!((now.current.as_str(), now.visit, now.open_gates.len()), ("chat", 3, 0));
    assert_eq!(stage.journal().len(), before + 1);
}

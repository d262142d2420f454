//! A flow that does what the user's message orders, and a play that makes every kind of event happen. Its journal is
//! golden: see `tests/golden/README.md`.

use std::collections::BTreeSet;

use segue_core::context::{FragmentSpec, Layer, Over, Rendered, Source};
use segue_core::decide::{Command, Input, Resolution};
use segue_core::event::{
    Busy, CallWish, Event, Lane, Next, Outcome, Owner, PhaseKey, Recorded, SessionOpened, ToolOutcome,
};
use segue_core::flow::{
    Asking, Flow, FlowSpec, RoleSpec, Runs, Speech, Step, Summariser, ToolDef, UnknownPolicy, View,
};
use segue_core::handover::{Document, Field, FieldSpec, Form, Need, Provenance, Schema};
use segue_core::ids::{CallId, FragmentName};
use segue_core::phase::guard::{Guard, Proposer};
use segue_core::phase::state::{Note, Proposal};
use segue_core::phase::{Attached, Edge, Gate, Phase, PhaseGraph, PhaseKind, PhaseLimit};
use segue_core::prompt::{Failure, FailureKind, Output, Reply, Stop, ToolCall, ToolSpec, Usage};
use segue_core::scope::{Scope, Until};
use segue_testkit::Stage;
use serde_json::{Value, json};

use segue_testkit::miniatures::{user_message, words};

pub struct All {
    spec: FlowSpec,
}

pub fn talk() -> PhaseKey {
    PhaseKey { graph: "talk".into(), owner: Owner::Session }
}

fn graph() -> PhaseGraph {
    let edge = |from: &str, to: &str, guard| Edge { from: from.into(), to: to.into(), guard };
    let mut draft = Phase::named("draft");
    draft.limit = Some(PhaseLimit { turns_max: Some(6), ms_max: Some(60_000), exit: "review".into() });
    let mut end = Phase::named("end");
    end.kind = PhaseKind::End;
    PhaseGraph {
        name: "talk".into(),
        attached: Attached::Session,
        start: "draft".into(),
        phases: vec![draft, Phase::named("review"), Phase::named("test"), end],
        edges: vec![
            edge("draft", "review", Guard::Handover("intent".into())),
            edge("review", "test", Guard::Always),
            edge("review", "end", Guard::Always),
            edge("test", "end", Guard::Always),
            edge("test", "draft", Guard::Always),
        ],
        gates: vec![Gate {
            name: "tested".into(),
            opened_by: "review".into(),
            satisfied_by: "test".into(),
            blocks: BTreeSet::new(),
        }],
    }
}

fn tool(name: &str, runs: Runs) -> ToolDef {
    let spec = ToolSpec { name: name.into(), description: name.into(), parameters: json!({"type": "object"}) };
    ToolDef { spec, runs, unknown: UnknownPolicy::Fail }
}

impl All {
    pub fn new() -> Self {
        let said = || FragmentSpec::changing("said", Layer::Words).within(40, Over::KeepStart);
        let note = || FragmentSpec::changing("note", Layer::Task);
        let mut speaker = RoleSpec::new("speaker", Scope::phase().until(Until::Model))
            .lives_by("talk")
            .opens_with(FragmentSpec::stable("instruction", Layer::Instruction))
            .opens_with(FragmentSpec::changing("brief", Layer::Handover))
            .ask("reply", [said()])
            .ask("note", [note().pinned(), said()])
            .may_use("look")
            .may_use("tick");
        speaker.compaction.by = Some(Summariser { role: "scribe".into(), ask: "fold".into() });
        speaker.reply_tokens_max = 200;
        let mut expert = RoleSpec::new("expert", Scope::model().aged(5_000)).ask("note", [note()]);
        expert.output = Output::Json(json!({"type": "object"}));
        expert.unknown = UnknownPolicy::Ask;
        let coder = RoleSpec::new("coder", Scope::peer_and_work()).ask("note", [note()]);
        let scribe = RoleSpec::new("scribe", Scope::Fresh).ask("fold", [FragmentSpec::changing("folded", Layer::Task)]);
        let goal = FieldSpec { name: "goal".into(), form: Form::Text, need: Need::Required };
        let spec = FlowSpec::new("all", "every kind of event")
            .graph(graph())
            .handover(Schema { kind: "intent".into(), fields: vec![goal], repairs_max: 1 })
            .role(speaker)
            .role(expert)
            .role(coder)
            .role(scribe)
            .tool(tool("look", Runs::Host))
            .tool(tool("tick", Runs::Flow));
        Self { spec }
    }
}

/// What an order comes to: `[what, …]`.
fn obey(view: &View<'_, ()>, order: &Value) -> Option<Step> {
    let word = |place: usize| order[place].as_str().unwrap_or_default();
    let number = |place: usize| order[place].as_u64().unwrap_or_default();
    Some(match word(0) {
        "call" => Step::Call(CallWish::new(word(1), "note").note(order[2].clone())),
        "talk" => Step::Call(CallWish::new("speaker", "reply")),
        "code" => {
            Step::Call(CallWish::new("coder", "note").by(&"arch".into()).with(&word(1).into()).note(order[2].clone()))
        }
        "expert" => {
            let mut wish = CallWish::new("expert", "note").on(&word(1).into()).note(order[2].clone());
            wish.sample = 1;
            Step::Call(wish)
        }
        "say" => Step::Say { text: Speech::New(word(1).to_owned()), by: None, call: None },
        "end" => Step::EndTurn(Outcome::Done),
        "fail" => Step::EndTurn(Outcome::Failed { reason: word(1).to_owned() }),
        "go" => {
            let note =
                Note { reason: Some("it is time".into()), summary: Some("all is well".into()), ..Note::default() };
            let by = Proposer::Role("speaker".into());
            Step::Propose { phase: talk(), proposal: Proposal { to: word(1).into(), by, note } }
        }
        "hand" => {
            let document = Document::from([
                ("goal".to_owned(), Field::List(vec![word(1).to_owned()])),
                ("mood".to_owned(), Field::Text("fine".to_owned())),
            ]);
            Step::Hand { kind: "intent".into(), document, calls: vec![CallId(1)], how: Provenance::Repaired }
        }
        "ask" => Step::AskHandover("intent".into()),
        "note" => Step::Note { kind: word(1).to_owned(), value: order[2].clone() },
        "run" => Step::RunTool { tool: word(1).into(), arguments: json!({"n": 1}), agent: Some("ann".into()) },
        "timer" => Step::SetTimer { name: word(1).to_owned(), after_ms: number(2) },
        "stop" => Step::StopTimer { name: word(1).to_owned() },
        "post" => Step::Post {
            from: "pm".into(),
            to: word(1).into(),
            lane: Lane::Urgent,
            topic: "story".into(),
            text: word(2).to_owned(),
            answers: view.session.next_mail(&word(1).into()).map(|mail| mail.message),
        },
        "take" => Step::Take { agent: word(1).into() },
        "lease" => Step::Lease { agent: word(1).into(), work: order[2].as_str().map(Into::into) },
        "forget" => Step::Forget { wish: CallWish::new(word(1), "note"), reason: "a new start".to_owned() },
        "cancel" => Step::Cancel { call: *view.session.calls.keys().next()?, reason: "not wanted".to_owned() },
        "title" => Step::Title(word(1).to_owned()),
        "close" => Step::Close { reason: word(1).to_owned() },
        _ => return None,
    })
}

impl Flow for All {
    type State = ();

    fn spec(&self) -> &FlowSpec {
        &self.spec
    }

    fn react(&self, view: &View<'_, ()>, event: &Recorded) -> Vec<Step> {
        match &event.event {
            Event::TurnStarted { .. } => {
                let turn = view.session.turn.as_ref().expect("a turn has begun");
                let texts = turn.messages.iter().map(|waiting| view.text(waiting.text));
                let orders = texts.flat_map(|text| serde_json::from_str::<Vec<Value>>(&text).unwrap_or_default());
                orders.filter_map(|order| obey(view, &order)).collect()
            }
            Event::CallAnswered(answered) if answered.tool_calls.is_empty() => {
                let text = Speech::Stored(answered.text);
                let call = view.about.call.as_ref();
                let by = call.map(|call| call.role.clone());
                let mut steps = vec![Step::Say { text, by, call: call.map(|call| call.call) }];
                if view.session.calls.is_empty() && view.session.deferred.is_empty() && view.session.turn.is_some() {
                    steps.push(Step::EndTurn(Outcome::Done));
                }
                steps
            }
            Event::CallFailed { next: Next::GiveUp, failure, .. } if view.about.turn.is_some() => {
                vec![Step::EndTurn(Outcome::Failed { reason: failure.to_string() })]
            }
            Event::ToolOpened(opened) if opened.tool == "tick" => {
                vec![Step::AnswerTool { run: opened.run, outcome: ToolOutcome::Done, text: "tock".into() }]
            }
            _ => Vec::new(),
        }
    }

    fn fragment(&self, view: &View<'_, ()>, asking: &Asking<'_>, name: &FragmentName) -> Rendered {
        match name.as_str() {
            "instruction" => words(format!("be {}", asking.wish.role)),
            "brief" => match view.session.handover("intent") {
                Some(intent) => Rendered::New {
                    text: intent.text("goal").unwrap_or("none").to_owned(),
                    source: Source::Handover(intent.id),
                    why: "what was handed over".into(),
                },
                None => Rendered::Out("nothing was handed over".into()),
            },
            "said" => user_message(view),
            "note" => words(asking.wish.note.as_str().unwrap_or("nothing")),
            "folded" => {
                let folded = asking.folding.map(|folding| folding.entries.as_slice()).unwrap_or_default();
                words(format!("{} messages", folded.len()))
            }
            _ => words(asking.folding.and_then(|folding| folding.summary.clone()).unwrap_or_else(|| "cut".into())),
        }
    }
}

fn order(stage: &mut Stage, orders: &Value) {
    stage.say(&orders.to_string());
}

fn long() -> String {
    "word ".repeat(180)
}

/// Makes every kind of event happen at least once.
pub fn play_all() -> Stage {
    let opened = SessionOpened {
        format: 1,
        session: "golden".into(),
        flow: "all".into(),
        title: Some("every kind".into()),
        busy: Busy::Coalesce,
        settings: json!({"depth": 2}),
        cast: std::collections::BTreeMap::new(),
    };
    let mut stage = Stage::open_as(All::new(), opened);
    stage.window(1_024);
    calls(&mut stage);
    tools(&mut stage);
    phases(&mut stage);
    agents(&mut stage);
    compaction(&mut stage);
    stage.fork();
    ending(&mut stage);
    stage
}

fn calls(stage: &mut Stage) {
    let keyed = Input::Message {
        text: json!([["call", "speaker", "one"], ["call", "speaker", "two"], ["call", "nobody", ""]]).to_string(),
        key: Some("k-1".into()),
        busy: None,
        images: Vec::new(),
    };
    stage.give(keyed);
    stage.fail("speaker", FailureKind::Network);
    let usage = Some(Usage { input: 100, output: 9, cached: 64, reasoning: 4, ..Usage::default() });
    let full = Reply {
        text: "hello".into(),
        reasoning: "hm".into(),
        tool_calls: Vec::new(),
        stop: Stop::Length,
        usage,
        sent_back: None,
        seal: None,
    };
    stage.reply("speaker", full);
    let (call, attempt) = stage.open_call("speaker");
    let reply = Reply { text: "again".into(), ..Reply::default() };
    stage.give(Input::Answer { call, attempt, reply, cost_microusd: None, ms: 3 });
    order(stage, &json!([["expert", "bee", "a question"]]));
    stage.crash();
    let call = stage.session().last.call;
    stage.command(Command::Resolve { call, how: Resolution::Retry }).crash();
    stage.command(Command::Resolve { call, how: Resolution::Fail });
    order(stage, &json!([["call", "speaker", "slow"], ["call", "speaker", "waits"]]));
    let (call, attempt) = stage.open_call("speaker");
    let limited = Failure { retry_after_ms: Some(900), ..Failure::new(FailureKind::RateLimit, "slow down") };
    stage.give(Input::Failure { call, attempt, failure: limited }).command(Command::Cancel);
    let reply = Reply { text: "too late".into(), ..Reply::default() };
    stage.give(Input::Answer { call, attempt: 2, reply, cost_microusd: Some(4), ms: 9 });
}

fn tools(stage: &mut Stage) {
    order(stage, &json!([["run", "look"], ["call", "speaker", "use tools"]]));
    let wish = |id: &str, name: &str| ToolCall { id: id.into(), name: name.into(), arguments: json!({"at": id}) };
    let tool_calls = vec![wish("a", "look"), wish("b", "tick"), wish("c", "sing")];
    stage.reply("speaker", Reply { tool_calls, stop: Stop::Tools, ..Reply::default() });
    stage.tool("look", Err("nothing there")).tool("look", Ok("two files"));
    stage.answer("speaker", "two files");
    order(
        stage,
        &json!([["call", "speaker", "look again"], ["timer", "bell", 50], ["timer", "other", 5000], ["stop", "other"]]),
    );
    stage.wants_tool("speaker", "look", json!({})).pass(60).crash().answer("speaker", "gone");
}

fn phases(stage: &mut Stage) {
    order(
        stage,
        &json!([
            ["go", "nowhere"],
            ["go", "review"],
            ["ask"],
            ["hand", "ship it"],
            ["go", "review"],
            ["go", "end"],
            ["end"]
        ]),
    );
    stage.command(Command::Grant { phase: talk(), to: "end".into() });
    stage.command(Command::Propose { phase: talk(), to: "end".into(), reason: Some("enough".into()) });
    stage.command(Command::Propose { phase: talk(), to: "draft".into(), reason: None });
    stage.command(Command::RollBack { phase: talk(), visit: 1 });
    for _ in 0..6 {
        order(stage, &json!([["call", "speaker", "again"]]));
        stage.answer("speaker", "yes");
    }
}

fn agents(stage: &mut Stage) {
    order(
        stage,
        &json!([
            ["lease", "ann", "story-1"],
            ["post", "ann", "build it"],
            ["post", "ann", "soon"],
            ["take", "ann"],
            ["take", "bob"],
            ["note", "mood", {"is": ["fine", 1, null]}],
            ["code", "ann", "review this"],
            ["lease", "ann", null],
            ["code", "ann", "and that"],
            ["title", "agents"],
        ]),
    );
    stage.answer("coder", "good").answer("coder", "good too");
    order(stage, &json!([["end"], ["code", "bob", "beside the turns"]]));
    order(stage, &json!([["cancel"], ["say", "no more"], ["fail", "on purpose"]]));
}

fn compaction(stage: &mut Stage) {
    for _ in 0..6 {
        order(stage, &json!([["talk", "tell me more"]]));
        if stage.open_roles() == ["scribe"] {
            stage.answer("scribe", "they talked");
        }
        stage.answer("speaker", &long());
    }
    order(stage, &json!([["talk", "use tools"]]));
    stage.answer("scribe", "they talked more");
    for _ in 0..4 {
        stage.wants_tool("speaker", "look", json!({"deep": true})).tool("look", Ok(&long()));
        if stage.open_roles() == ["scribe"] {
            stage.fail("scribe", FailureKind::Refused);
        }
    }
    stage.answer("speaker", "enough");
    stage.command(Command::Forget { role: "speaker".into(), agent: None, peer: None });
    order(stage, &json!([["forget", "speaker"], ["call", "speaker", "who am I?"]]));
    let busy = Some(Busy::Interrupt);
    stage.give(Input::Message {
        text: json!([["call", "speaker", "never mind"]]).to_string(),
        key: None,
        busy,
        images: Vec::new(),
    });
    stage.answer("speaker", "fine");
    order(stage, &json!([["call", "speaker", long().repeat(6)]]));
}

fn ending(stage: &mut Stage) {
    stage.command(Command::Rename { title: "the end".into() });
    order(stage, &json!([["end"], ["call", "speaker", "beside"], ["timer", "never", 99_999]]));
    stage.wants_tool("speaker", "look", json!({}));
    order(stage, &json!([["call", "expert", "last words"], ["close", "all is said"]]));
    stage.answer("expert", "{}");
}

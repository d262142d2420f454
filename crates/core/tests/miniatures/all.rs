//! A flow that follows orders in the user's messages, and a script that produces every kind of event. Its journal is a
//! golden file: see `tests/golden/README.md`.

use std::collections::BTreeSet;

use segue_core::context::{
    FragmentContentKind, FragmentOverflowPolicy, FragmentRetention, FragmentSource, FragmentSpec, RenderedFragment,
};
use segue_core::decide::{OperatorCommand, SessionInput, UnknownCallOutcomeResolution};
use segue_core::event::{
    AgentMessagePriority, CallRequest, Event, MidTurnPolicy, PhaseGraphKey, PhaseStateOwner, RecordedEvent,
    RetryDecision, SessionOpened, ToolRunOutcome, TurnOutcome,
};
use segue_core::flow::{
    Flow, FlowContext, FlowSpec, FlowStep, FlowToolDeclaration, FragmentRenderContext, NewOrStoredReplyText, RoleSpec,
    SummarizerRole, ToolRunnerKind, UnknownOutcomePolicy,
};
use segue_core::handover::{
    HandoverDocument, HandoverFieldPresence, HandoverFieldSpec, HandoverFieldType, HandoverFieldValue,
    HandoverProvenance, HandoverSpec,
};
use segue_core::ids::{CallId, FragmentName};
use segue_core::phase::{
    Guard, PhaseEdge, PhaseEntryGate, PhaseGraph, PhaseGraphOwnerKind, PhaseKind, PhaseLimit, PhaseSpec,
    PhaseTransitionNote, PhaseTransitionProposer,
};
use segue_core::prompt::{
    CallFailure, CallFailureKind, ModelOutputFormat, ModelReply, ModelToolSpec, StopReason, TokenUsage, ToolCall,
};
use segue_core::scope::{Scope, ThreadEndTrigger, ThreadPartitionCriterion};
use segue_testkit::SessionHarness;
use serde_json::{Value, json};

use segue_testkit::sample_flows::{latest_user_message, template_text};

pub(crate) struct All {
    spec: FlowSpec,
}

pub(crate) fn talk() -> PhaseGraphKey {
    PhaseGraphKey { graph: "talk".into(), owner: PhaseStateOwner::Session }
}

fn graph() -> PhaseGraph {
    let edge = |from: &str, to: &str, guard| PhaseEdge { from: from.into(), to: to.into(), guard };
    let mut draft = PhaseSpec::new("draft");
    draft.limit = Some(PhaseLimit { turns_max: Some(6), ms_max: Some(60_000), ..PhaseLimit::new("review") });
    let mut end = PhaseSpec::new("end");
    end.kind = PhaseKind::End;
    PhaseGraph {
        name: "talk".into(),
        owner_kind: PhaseGraphOwnerKind::Session,
        start: "draft".into(),
        phases: vec![draft, PhaseSpec::new("review"), PhaseSpec::new("test"), end],
        edges: vec![
            edge("draft", "review", Guard::Handover("intent".into())),
            edge("review", "test", Guard::Always),
            edge("review", "end", Guard::Always),
            edge("test", "end", Guard::Always),
            edge("test", "draft", Guard::Always),
        ],
        gates: vec![PhaseEntryGate {
            name: "tested".into(),
            opened_by: "review".into(),
            satisfied_by: "test".into(),
            condition: None,
            blocks: BTreeSet::new(),
        }],
    }
}

fn tool(name: &str, runs: ToolRunnerKind) -> FlowToolDeclaration {
    let spec = ModelToolSpec { name: name.into(), description: name.into(), parameters: json!({"type": "object"}) };
    FlowToolDeclaration { runner: runs, ..FlowToolDeclaration::for_host(spec) }
}

impl All {
    pub(crate) fn new() -> Self {
        let said = || {
            FragmentSpec::changing("said", FragmentContentKind::UserWords)
                .with_budget(40, FragmentOverflowPolicy::KeepStart)
        };
        let note = || FragmentSpec::changing("note", FragmentContentKind::Task);
        let mut speaker = RoleSpec::new("speaker", Scope::per_phase().ended_by(ThreadEndTrigger::Model))
            .with_phase_graph("talk")
            .with_opening_fragment(FragmentSpec::stable("instruction", FragmentContentKind::Instruction))
            .with_opening_fragment(FragmentSpec::changing("brief", FragmentContentKind::Handover))
            .with_ask("reply", [said()])
            .with_ask("note", [note().with_retention(FragmentRetention::Pinned), said()])
            .with_tool("look")
            .with_tool("tick");
        speaker.compaction.summarizer = Some(SummarizerRole { role: "scribe".into(), ask: "fold".into() });
        speaker.reply_tokens_max = 200;
        let aged_per_model = Scope::Persistent {
            partitions: [ThreadPartitionCriterion::Model].into(),
            boundaries: [].into(),
            age_ms_max: Some(5_000),
        };
        let mut expert = RoleSpec::new("expert", aged_per_model).with_ask("note", [note()]);
        expert.output = ModelOutputFormat::Json(json!({"type": "object"}));
        expert.unknown_outcome = UnknownOutcomePolicy::AskOperator;
        let coder =
            RoleSpec::new("coder", Scope::per_peer().ended_by(ThreadEndTrigger::WorkItem)).with_ask("note", [note()]);
        let scribe = RoleSpec::new("scribe", Scope::Fresh)
            .with_ask("fold", [FragmentSpec::changing("folded", FragmentContentKind::Task)]);
        let goal = HandoverFieldSpec {
            name: "goal".into(),
            field_type: HandoverFieldType::Text,
            presence: HandoverFieldPresence::Required,
        };
        let spec = FlowSpec::new("all", "every kind of event")
            .with_graph(graph())
            .with_handover(HandoverSpec { kind: "intent".into(), fields: vec![goal], repairs_max: 1 })
            .with_role(speaker)
            .with_role(expert)
            .with_role(coder)
            .with_role(scribe)
            .with_tool(tool("look", ToolRunnerKind::Host))
            .with_tool(tool("tick", ToolRunnerKind::Flow));
        Self { spec }
    }
}

/// Returns the step for an order `[name, …]`.
fn step_for_order(view: &FlowContext<'_, ()>, order: &Value) -> Option<FlowStep> {
    let word = |place: usize| order[place].as_str().unwrap_or_default();
    let number = |place: usize| order[place].as_u64().unwrap_or_default();
    Some(match word(0) {
        "call" => FlowStep::Call(CallRequest { metadata: order[2].clone(), ..CallRequest::new(word(1), "note") }),
        "talk" => FlowStep::Call(CallRequest::new("speaker", "reply")),
        "code" => FlowStep::Call(CallRequest {
            agent: Some("arch".into()),
            peer: Some(word(1).into()),
            metadata: order[2].clone(),
            ..CallRequest::new("coder", "note")
        }),
        "expert" => FlowStep::Call(CallRequest {
            model: Some(word(1).into()),
            sample: 1,
            metadata: order[2].clone(),
            ..CallRequest::new("expert", "note")
        }),
        "say" => FlowStep::Reply { text: NewOrStoredReplyText::New(word(1).to_owned()), role: None, call: None },
        "end" => FlowStep::EndTurn(TurnOutcome::Done),
        "fail" => FlowStep::EndTurn(TurnOutcome::Failed { reason: word(1).to_owned() }),
        "go" => {
            let note = PhaseTransitionNote {
                reason: Some("it is time".into()),
                summary: Some("all is well".into()),
                ..PhaseTransitionNote::default()
            };
            let by = PhaseTransitionProposer::Role("speaker".into());
            FlowStep::ProposePhase { phase: talk(), to: word(1).into(), by, note }
        }
        "hand" => {
            let document = HandoverDocument::from([
                ("goal".to_owned(), HandoverFieldValue::List(vec![word(1).to_owned()])),
                ("mood".to_owned(), HandoverFieldValue::Text("fine".to_owned())),
            ]);
            FlowStep::MakeHandover {
                kind: "intent".into(),
                document,
                calls: vec![CallId(1)],
                provenance: HandoverProvenance::Repaired,
            }
        }
        "ask" => FlowStep::RequestHandover("intent".into()),
        "note" => FlowStep::RecordFact { kind: word(1).to_owned(), value: order[2].clone() },
        "run" => FlowStep::RunTool { tool: word(1).into(), arguments: json!({"n": 1}), agent: Some("ann".into()) },
        "timer" => FlowStep::SetTimer { name: word(1).to_owned(), after_ms: number(2) },
        "stop" => FlowStep::StopTimer { name: word(1).to_owned() },
        "post" => FlowStep::Send {
            from: "pm".into(),
            to: word(1).into(),
            priority: AgentMessagePriority::Urgent,
            topic: "story".into(),
            text: word(2).to_owned(),
            in_reply_to: view.session.next_inbox_message(&word(1).into()).map(|mail| mail.message),
        },
        "take" => FlowStep::Receive { agent: word(1).into() },
        "lease" => FlowStep::AssignWork { agent: word(1).into(), work: order[2].as_str().map(Into::into) },
        "forget" => {
            FlowStep::ResetThread { request: CallRequest::new(word(1), "note"), reason: "a new start".to_owned() }
        }
        "cancel" => {
            FlowStep::CancelCall { call: *view.session.open_calls.keys().next()?, reason: "not wanted".to_owned() }
        }
        "title" => FlowStep::SetTitle(word(1).to_owned()),
        "close" => FlowStep::CloseSession { reason: word(1).to_owned() },
        _ => return None,
    })
}

impl Flow for All {
    type State = ();

    fn spec(&self) -> &FlowSpec {
        &self.spec
    }

    fn react(&self, view: &FlowContext<'_, ()>, event: &RecordedEvent) -> Vec<FlowStep> {
        match &event.event {
            Event::TurnStarted { .. } => {
                let turn = view.session.current_turn.as_ref().expect("a turn has begun");
                let texts = turn.messages.iter().map(|waiting| view.read_text(waiting.text));
                let orders = texts.flat_map(|text| serde_json::from_str::<Vec<Value>>(&text).unwrap_or_default());
                orders.filter_map(|order| step_for_order(view, &order)).collect()
            }
            Event::CallAnswered(answered) if answered.tool_calls.is_empty() => {
                let text = NewOrStoredReplyText::Stored(answered.text);
                let call = view.subject.call.as_ref();
                let by = call.map(|call| call.role.clone());
                let mut steps = vec![FlowStep::Reply { text, role: by, call: call.map(|call| call.call) }];
                if view.session.open_calls.is_empty()
                    && view.session.deferred_calls.is_empty()
                    && view.session.current_turn.is_some()
                {
                    steps.push(FlowStep::EndTurn(TurnOutcome::Done));
                }
                steps
            }
            Event::CallFailed { next: RetryDecision::GiveUp, failure, .. } if view.subject.turn.is_some() => {
                vec![FlowStep::EndTurn(TurnOutcome::Failed { reason: failure.to_string() })]
            }
            Event::ToolRunOpened(opened) if opened.tool == "tick" => {
                vec![FlowStep::AnswerTool { run: opened.run, outcome: ToolRunOutcome::Done, text: "tock".into() }]
            }
            _ => Vec::new(),
        }
    }

    fn render_fragment(
        &self,
        view: &FlowContext<'_, ()>,
        asking: &FragmentRenderContext<'_>,
        name: &FragmentName,
    ) -> RenderedFragment {
        match name.as_str() {
            "instruction" => template_text(format!("be {}", asking.call_request.role)),
            "brief" => match view.session.latest_handover("intent") {
                Some(intent) => RenderedFragment::New {
                    text: intent.text_field("goal").unwrap_or("none").to_owned(),
                    source: FragmentSource::Handover(intent.id),
                    why: "what was handed over".into(),
                },
                None => RenderedFragment::Omitted("nothing was handed over".into()),
            },
            "said" => latest_user_message(view),
            "note" => template_text(asking.call_request.metadata.as_str().unwrap_or("nothing")),
            "folded" => {
                let folded = asking.compacted.map(|folding| folding.messages.as_slice()).unwrap_or_default();
                template_text(format!("{} messages", folded.len()))
            }
            _ => template_text(
                asking.compacted.and_then(|folding| folding.summary.clone()).unwrap_or_else(|| "cut".into()),
            ),
        }
    }
}

fn order(harness: &mut SessionHarness, orders: &Value) {
    harness.send_message(&orders.to_string());
}

fn long() -> String {
    "word ".repeat(180)
}

/// Produces every kind of event at least once.
pub(crate) fn play_all() -> SessionHarness {
    let opened = SessionOpened {
        flow_definition: None,
        format: 1,
        session: "golden".into(),
        flow: "all".into(),
        title: Some("every kind".into()),
        mid_turn_policy: MidTurnPolicy::Coalesce,
        settings: json!({"depth": 2}),
        model_overrides: std::collections::BTreeMap::new(),
        child_origin: None,
    };
    let mut harness = SessionHarness::open_session(All::new(), opened);
    harness.set_window(1_024);
    calls(&mut harness);
    tools(&mut harness);
    phases(&mut harness);
    agents(&mut harness);
    compaction(&mut harness);
    harness.fork();
    ending(&mut harness);
    harness
}

fn calls(harness: &mut SessionHarness) {
    let keyed = SessionInput::Message {
        text: json!([["call", "speaker", "one"], ["call", "speaker", "two"], ["call", "nobody", ""]]).to_string(),
        idempotency_key: Some("k-1".into()),
        mid_turn_policy: None,
        images: Vec::new(),
    };
    harness.apply_input(keyed);
    harness.fail_call("speaker", CallFailureKind::Network);
    let usage = Some(TokenUsage {
        input_tokens: 100,
        output_tokens: 9,
        cached_tokens: 64,
        reasoning_tokens: 4,
        ..TokenUsage::default()
    });
    let full = ModelReply {
        text: "hello".into(),
        reasoning: "hm".into(),
        tool_calls: Vec::new(),
        stop_reason: StopReason::Length,
        usage,
        rejected_usage: None,
        vendor_state: None,
    };
    harness.reply_to_call("speaker", full);
    let (call, attempt) = harness.oldest_open_call("speaker");
    let reply = ModelReply { text: "again".into(), ..ModelReply::default() };
    harness.apply_input(SessionInput::Answer { call, attempt, reply, cost_microusd: None, duration_ms: 3 });
    order(harness, &json!([["expert", "bee", "a question"]]));
    harness.crash_and_recover();
    let call = harness.session().last_ids.call;
    harness
        .run_command(OperatorCommand::Resolve { call, resolution: UnknownCallOutcomeResolution::Retry })
        .crash_and_recover();
    harness.run_command(OperatorCommand::Resolve { call, resolution: UnknownCallOutcomeResolution::Fail });
    order(harness, &json!([["call", "speaker", "slow"], ["call", "speaker", "waits"]]));
    let (call, attempt) = harness.oldest_open_call("speaker");
    let limited =
        CallFailure { retry_after_ms: Some(900), ..CallFailure::new(CallFailureKind::RateLimit, "slow down") };
    harness
        .apply_input(SessionInput::CallFailure { call, attempt, failure: limited })
        .run_command(OperatorCommand::Cancel { turn: None });
    let reply = ModelReply { text: "too late".into(), ..ModelReply::default() };
    harness.apply_input(SessionInput::Answer { call, attempt: 2, reply, cost_microusd: Some(4), duration_ms: 9 });
}

fn tools(harness: &mut SessionHarness) {
    order(harness, &json!([["run", "look"], ["call", "speaker", "use tools"]]));
    let tool_call = |id: &str, name: &str| ToolCall { id: id.into(), name: name.into(), arguments: json!({"at": id}) };
    let tool_calls = vec![tool_call("a", "look"), tool_call("b", "tick"), tool_call("c", "sing")];
    harness.reply_to_call(
        "speaker",
        ModelReply { tool_calls, stop_reason: StopReason::ToolCalls, ..ModelReply::default() },
    );
    harness.finish_tool("look", Err("nothing there")).finish_tool("look", Ok("two files"));
    harness.answer_call("speaker", "two files");
    order(
        harness,
        &json!([["call", "speaker", "look again"], ["timer", "bell", 50], ["timer", "other", 5000], ["stop", "other"]]),
    );
    harness
        .answer_with_tool_call("speaker", "look", json!({}))
        .advance_and_tick(60)
        .crash_and_recover()
        .answer_call("speaker", "gone");
}

fn phases(harness: &mut SessionHarness) {
    order(
        harness,
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
    harness.run_command(OperatorCommand::Grant { phase: talk(), to: "end".into() });
    harness.run_command(OperatorCommand::Propose { phase: talk(), to: "end".into(), reason: Some("enough".into()) });
    harness.run_command(OperatorCommand::Propose { phase: talk(), to: "draft".into(), reason: None });
    harness.run_command(OperatorCommand::RollBack { phase: talk(), visit: 1 });
    for _ in 0..6 {
        order(harness, &json!([["call", "speaker", "again"]]));
        harness.answer_call("speaker", "yes");
    }
}

fn agents(harness: &mut SessionHarness) {
    order(
        harness,
        &json!([
            ["lease", "ann", "story-1"],
            ["post", "ann", "build it"],
            ["post", "ann", "soon"],
            ["take", "ann"],
            ["take", "bob"],
            ["note", "mood", {"type": ["fine", 1, null]}],
            ["code", "ann", "review this"],
            ["lease", "ann", null],
            ["code", "ann", "and that"],
            ["title", "agents"],
        ]),
    );
    harness.answer_call("coder", "good").answer_call("coder", "good too");
    order(harness, &json!([["end"], ["code", "bob", "beside the turns"]]));
    order(harness, &json!([["cancel"], ["say", "no more"], ["fail", "on purpose"]]));
}

fn compaction(harness: &mut SessionHarness) {
    for _ in 0..6 {
        order(harness, &json!([["talk", "tell me more"]]));
        if harness.open_call_roles() == ["scribe"] {
            harness.answer_call("scribe", "they talked");
        }
        harness.answer_call("speaker", &long());
    }
    order(harness, &json!([["talk", "use tools"]]));
    harness.answer_call("scribe", "they talked more");
    for _ in 0..4 {
        harness.answer_with_tool_call("speaker", "look", json!({"deep": true})).finish_tool("look", Ok(&long()));
        if harness.open_call_roles() == ["scribe"] {
            harness.fail_call("scribe", CallFailureKind::Refused);
        }
    }
    harness.answer_call("speaker", "enough");
    harness.run_command(OperatorCommand::Forget { role: "speaker".into(), agent: None, peer: None });
    order(harness, &json!([["forget", "speaker"], ["call", "speaker", "who am I?"]]));
    let busy = Some(MidTurnPolicy::Interrupt);
    harness.apply_input(SessionInput::Message {
        text: json!([["call", "speaker", "never mind"]]).to_string(),
        idempotency_key: None,
        mid_turn_policy: busy,
        images: Vec::new(),
    });
    harness.answer_call("speaker", "fine");
    order(harness, &json!([["call", "speaker", long().repeat(6)]]));
}

fn ending(harness: &mut SessionHarness) {
    harness.run_command(OperatorCommand::Rename { title: "the end".into() });
    order(harness, &json!([["end"], ["call", "speaker", "beside"], ["timer", "never", 99_999]]));
    harness.answer_with_tool_call("speaker", "look", json!({}));
    order(harness, &json!([["call", "expert", "last words"], ["close", "all is said"]]));
    harness.answer_call("expert", "{}");
}

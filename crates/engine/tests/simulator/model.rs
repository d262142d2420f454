//! A model with random behaviour: any text, in any chunks, at any time, or no answer at all.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use segue_core::prompt::{CallFailure, CallFailureKind, Prompt, StopReason, TokenUsage, ToolCall};
use segue_engine::clock::{Clock, PausableTokioClock};
use segue_models::{
    LanguageModel, ModelBackendKind, ModelCallOrigin, ModelDescription, ModelRequest, ReplyChunk, ReplyChunkStream,
    ReplyFinish,
};
use serde_json::json;

use crate::actions::read_head;
use crate::assistant::{ASSISTANT_FLOW, assistant_answer};
use crate::seeded_random::SeededRandom;
use crate::world::{FinishedAnswer, SimWorld, StartedCall};

/// How a model behaves.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ModelBehavior {
    /// Percentage of calls that fail.
    pub failure_percent: u64,
    /// Longest time between two chunks of an answer.
    pub chunk_gap_ms_max: u64,
    /// Most words of an answer.
    pub words_max: u64,
    pub window_tokens: u32,
}

pub(crate) struct SimModel {
    world: Arc<SimWorld>,
    behavior: ModelBehavior,
    random: Mutex<SeededRandom>,
    clock: PausableTokioClock,
}

impl std::fmt::Debug for SimModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SimModel")
    }
}

/// The next chunk of a stream, and the delay before it.
type StreamStep = (u64, Option<Result<ReplyChunk, CallFailure>>);

const FAILURE_KINDS: [CallFailureKind; 11] = [
    CallFailureKind::InvalidApiKey,
    CallFailureKind::ModelNotFound,
    CallFailureKind::ContextTooLong,
    CallFailureKind::RateLimit,
    CallFailureKind::Overload,
    CallFailureKind::Network,
    CallFailureKind::Timeout,
    CallFailureKind::MalformedReply,
    CallFailureKind::UnusableReply,
    CallFailureKind::Refused,
    CallFailureKind::BadRequest,
];

impl SimModel {
    pub(crate) fn new(
        world: &Arc<SimWorld>,
        behavior: ModelBehavior,
        random: SeededRandom,
        clock: PausableTokioClock,
    ) -> Self {
        Self { world: world.clone(), behavior, random: Mutex::new(random), clock }
    }

    /// Draws the whole course of a reply.
    fn plan_steps(&self, random: &mut SeededRandom, call: &ModelCallOrigin, prompt: &Prompt) -> Vec<StreamStep> {
        let random_gap = |random: &mut SeededRandom| random.below(self.behavior.chunk_gap_ms_max + 1);
        let mut steps: Vec<StreamStep> = Vec::new();
        // Some experts take so long that a turn may end without them.
        if call.role == "expert" && random.chance_percent(10) {
            steps.push((random.below(3_000), Some(Ok(ReplyChunk::Reasoning("hm, ".to_owned())))));
        }
        if random.chance_percent(20) {
            steps.push((random_gap(random), Some(Ok(ReplyChunk::Reasoning("hm ".to_owned())))));
        }
        let text = self.text(random, call, prompt);
        for chunk in split_into_chunks(random, &text) {
            steps.push((random_gap(random), Some(Ok(ReplyChunk::Text(chunk)))));
        }
        for tool_call in random_tool_calls(random, call) {
            steps.push((random_gap(random), Some(Ok(ReplyChunk::ToolCall(tool_call)))));
        }
        let usage = random.chance_percent(70).then(|| TokenUsage {
            input_tokens: u32::try_from(random.below(100)).expect("small"),
            output_tokens: u32::try_from(random.below(50)).expect("small"),
            cached_tokens: u32::try_from(random.below(20)).expect("small"),
            ..TokenUsage::default()
        });
        let end = Some(Ok(ReplyChunk::Finish(ReplyFinish { stop: StopReason::Done, usage, rejected_usage: None })));
        steps.push((random_gap(random), end));
        if random.chance_percent(self.behavior.failure_percent) {
            let index = usize::try_from(random.below(steps.len() as u64)).expect("it fits");
            steps.truncate(index);
            match random.below(8) {
                // The stream ends early.
                0 => {}
                // It never answers.
                1 => steps.push((u64::MAX, None)),
                _ => {
                    let mut failure = CallFailure::new(*random.pick(&FAILURE_KINDS), "as the dice fell");
                    failure.retry_after_ms = random.chance_percent(20).then(|| random.below(3_000));
                    steps.push((random_gap(random), Some(Err(failure))));
                }
            }
        }
        steps
    }

    /// Returns the text of an answer. Its marker names the call and attempt.
    fn text(&self, random: &mut SeededRandom, call: &ModelCallOrigin, prompt: &Prompt) -> String {
        let marker = answer_mark(call);
        if random.chance_percent(4) {
            return marker;
        }
        if random.chance_percent(4) {
            return format!("{marker} <<<HANDOVER>>> {{\"agents\": [\"ann\", ```json <<<END>>> ?");
        }
        if call.flow == ASSISTANT_FLOW {
            return assistant_answer(random, call, prompt, &marker);
        }
        let text = random_words(random, self.behavior.words_max);
        match call.role.as_str() {
            "router" => {
                let agents = random.pick(&[json!([]), json!(["ann"]), json!(["ann", "bob"]), json!("ann")]).clone();
                let phase = *random.pick(&[Some("execute"), Some("verify"), Some("end"), Some("nowhere"), None]);
                format!("{marker} {}", json!({"agents": agents, "phase": phase}))
            }
            "think" => format!("{marker} ```json\n{{\"steps\": {}}}\n```", random.below(4)),
            "speaker" if random.chance_percent(40) => {
                format!("{marker} {text}\n<<<HANDOVER>>>\ngoal: {text}\n<<<END>>>\n{text}")
            }
            "mapper" => claim_map(random, &marker),
            "concierge" => random_concierge_reply(random, &marker, &text),
            "coder" if random.chance_percent(40) => format!("{marker} {text}?"),
            _ => format!("{marker} {text}"),
        }
    }
}

/// Returns a claim map: valid, in prose, or cut off.
fn claim_map(random: &mut SeededRandom, marker: &str) -> String {
    let claim = |id: u64, role: &str| {
        json!({"id": format!("p{id}"), "label": format!("go {id}"), "text": "So it is.", "supporters": [1, 2],
            "type": "prescriptive", "role": role, "challenges": "p0"})
    };
    let edge = |to: u64, kind: &str| json!({"from": "p0", "to": format!("p{to}"), "kind": kind});
    let (roles, kinds) = (["anchor", "challenger", "?"], ["supports", "conflicts", "prerequisite"]);
    let count = random.between(1, 4);
    let claims: Vec<_> = (0..count).map(|id| claim(id, random.pick::<&str>(&roles))).collect();
    let edges: Vec<_> = (1..4).map(|to| edge(to, random.pick::<&str>(&kinds))).collect();
    let json_map = json!({"claims": claims, "edges": edges, "gaps": ["How long?"]}).to_string();
    match random.below(10) {
        0 => format!("{marker} They would go."),
        1 => format!("{marker} <map>{}", &json_map[..json_map.len() / 2]),
        _ => format!("<map>{json_map}</map> {marker}"),
    }
}

/// Returns a concierge reply: text, and a block of any kind with or without text, in any phase.
fn random_concierge_reply(random: &mut SeededRandom, marker: &str, text: &str) -> String {
    let step = random.between(1, 3);
    let steps = "<<<STEPS>>>\n- title: go\n  done_when: gone\n- title: come\n<<<END>>>";
    let plan = "HANDOVER:\n  goal: a way\nPROMPT:\nWhich way?";
    let block = match random.below(9) {
        0..=1 => return format!("{marker} {text}"),
        2..=3 => format!("<<<HANDOVER>>>\ngoal: {text}\n<<<END>>>"),
        4 => format!("<<<BATCH>>>\nTYPE: WORKFLOW\n{plan}\n<<<END BATCH>>>"),
        5 => format!("<<<BATCH>>>\nTYPE: STEP_HELP\nSTEP: {step}\nBLOCKER: a wall\n<<<END>>>"),
        6 => steps.to_owned(),
        7 => format!("<<<STEP_START>>>\nstep: {step}\n<<<END>>>"),
        _ => format!("<<<STEP_DONE>>>\nstep: {step}\n<<<END>>>"),
    };
    match random.below(10) {
        // This one has no visible text.
        0..=1 => block.replacen("<<<END", &format!("{marker}\n<<<END"), 1),
        2 => {
            let half: String = block.chars().take(block.chars().count() / 2).collect();
            format!("{marker} {text}\n{half}")
        }
        3 => format!("{marker}\n{steps}\n{block}"),
        _ => format!("{marker} {text}\n{block}"),
    }
}

/// Returns the marker that is part of every answer.
pub(crate) fn answer_mark(call: &ModelCallOrigin) -> String {
    format!("⟦{}.{}⟧", call.call, call.attempt)
}

fn random_words(random: &mut SeededRandom, words_max: u64) -> String {
    const WORD_LIST: [&str; 8] = ["left", "right", "über", "<<<", "`code`", "\n", "home", "🙂"];
    let count = random.between(1, words_max);
    (0..count).map(|_| *random.pick(&WORD_LIST)).collect::<Vec<_>>().join(" ")
}

fn split_into_chunks(random: &mut SeededRandom, text: &str) -> Vec<String> {
    let mut chunks = Vec::new();
    let mut rest: Vec<char> = text.chars().collect();
    while !rest.is_empty() {
        let size = usize::try_from(random.between(1, 24)).expect("small").min(rest.len());
        chunks.push(rest.drain(..size).collect());
    }
    chunks
}

fn random_tool_calls(random: &mut SeededRandom, call: &ModelCallOrigin) -> Vec<ToolCall> {
    let percent = if call.role == "worker" { 50 } else { 3 };
    if !random.chance_percent(percent) {
        return Vec::new();
    }
    let count = random.between(1, 3);
    (0..count)
        .map(|index| ToolCall {
            // Some models use the same id for all tool calls.
            id: if random.chance_percent(10) { "same".to_owned() } else { format!("w{index}") },
            name: (*random.pick(&["look", "complete", "nothing"])).into(),
            arguments: json!({"at": index}),
        })
        .collect()
}

impl LanguageModel for SimModel {
    fn stream(&self, request: ModelRequest) -> ReplyChunkStream {
        let ModelRequest { prompt, metadata: call, .. } = request;
        let mut random = self.random.lock().expect("not poisoned").split();
        let head = read_head(&self.world.disk, &call.session);
        self.world.observations().streams.push(StartedCall {
            session: call.session.clone(),
            call: call.call,
            attempt: call.attempt,
            head,
            prompt: prompt.clone(),
        });
        if random.chance_percent(self.behavior.failure_percent / 4) {
            // Does not call the panic hook, which is faster and prints nothing.
            std::panic::resume_unwind(Box::new("the adapter breaks down"));
        }
        let steps = self.plan_steps(&mut random, &call, &prompt).into_iter();
        let (world, clock) = (self.world.clone(), self.clock);
        let record_answer = move || {
            let mut observations = world.observations();
            let (session, process, at) = (call.session.clone(), observations.process, clock.now());
            observations.finished_answers.push(FinishedAnswer {
                session,
                call: call.call,
                attempt: call.attempt,
                at,
                process,
            });
        };
        stream::unfold((steps, record_answer), |(mut steps, record_answer)| async move {
            let (ms, chunk) = steps.next()?;
            if ms == u64::MAX {
                std::future::pending::<()>().await;
            }
            if ms > 0 {
                tokio::time::sleep(Duration::from_millis(ms)).await;
            }
            let chunk = chunk?;
            if matches!(chunk, Ok(ReplyChunk::Finish(_))) {
                record_answer();
            }
            Some((chunk, (steps, record_answer)))
        })
        .boxed()
    }

    fn describe(&self) -> ModelDescription {
        ModelDescription {
            kind: ModelBackendKind::Scripted,
            label: "anything".to_owned(),
            window_tokens: self.behavior.window_tokens,
        }
    }
}

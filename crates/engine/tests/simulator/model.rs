//! A model that says anything, in any order, at any time, or nothing at all.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use segue_core::prompt::{CallFailure, FailureKind, StopReason, TokenUsage, ToolCall};
use segue_engine::clock::{Clock, TokioClock};
use segue_models::{
    CallMetadata, LanguageModel, ModelDescription, ModelRequest, ModelSource, ReplyChunk, ReplyChunkStream, ReplyFinish,
};
use serde_json::json;

use crate::actions::read_head;
use crate::seeded_random::SeededRandom;
use crate::world::{FinishedAnswer, SimWorld, StartedCall};

/// How a model behaves.
#[derive(Debug, Clone, Copy)]
pub struct ModelBehavior {
    /// How many of a hundred calls go wrong.
    pub failure_percent: u64,
    /// Longest time between two pieces of an answer.
    pub chunk_gap_ms_max: u64,
    /// Most words of an answer.
    pub words_max: u64,
    pub window_tokens: u32,
}

/// A model that says anything.
pub struct SimModel {
    world: Arc<SimWorld>,
    temper: ModelBehavior,
    dice: Mutex<SeededRandom>,
    clock: TokioClock,
}

impl std::fmt::Debug for SimModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SimModel")
    }
}

/// What a model does next, and after how long.
type StreamStep = (u64, Option<Result<ReplyChunk, CallFailure>>);

const KINDS: [FailureKind; 11] = [
    FailureKind::InvalidApiKey,
    FailureKind::ModelNotFound,
    FailureKind::ContextTooLong,
    FailureKind::RateLimit,
    FailureKind::Overload,
    FailureKind::Network,
    FailureKind::Timeout,
    FailureKind::MalformedReply,
    FailureKind::UnusableReply,
    FailureKind::Refused,
    FailureKind::BadRequest,
];

impl SimModel {
    pub fn new(world: &Arc<SimWorld>, temper: ModelBehavior, dice: SeededRandom, clock: TokioClock) -> Self {
        Self { world: world.clone(), temper, dice: Mutex::new(dice), clock }
    }

    /// What will happen, from beginning to end.
    fn moves(&self, dice: &mut SeededRandom, call: &CallMetadata) -> Vec<StreamStep> {
        let pause = |dice: &mut SeededRandom| dice.below(self.temper.chunk_gap_ms_max + 1);
        let mut moves: Vec<StreamStep> = Vec::new();
        // Some experts take so long that a turn may well end without them.
        if call.role == "expert" && dice.chance_percent(10) {
            moves.push((dice.below(3_000), Some(Ok(ReplyChunk::Reasoning("hm, ".to_owned())))));
        }
        if dice.chance_percent(20) {
            moves.push((pause(dice), Some(Ok(ReplyChunk::Reasoning("hm ".to_owned())))));
        }
        let text = self.text(dice, call);
        for piece in pieces(dice, &text) {
            moves.push((pause(dice), Some(Ok(ReplyChunk::Text(piece)))));
        }
        for wish in wishes(dice, call) {
            moves.push((pause(dice), Some(Ok(ReplyChunk::ToolCall(wish)))));
        }
        let usage = dice.chance_percent(70).then(|| TokenUsage {
            input_tokens: u32::try_from(dice.below(100)).expect("small"),
            output_tokens: u32::try_from(dice.below(50)).expect("small"),
            cached_tokens: u32::try_from(dice.below(20)).expect("small"),
            ..TokenUsage::default()
        });
        let end = Some(Ok(ReplyChunk::Finish(ReplyFinish { stop: StopReason::Done, usage, rejected_usage: None })));
        moves.push((pause(dice), end));
        if dice.chance_percent(self.temper.failure_percent) {
            let place = usize::try_from(dice.below(moves.len() as u64)).expect("it fits");
            moves.truncate(place);
            match dice.below(8) {
                // It breaks off.
                0 => {}
                // It never answers.
                1 => moves.push((u64::MAX, None)),
                _ => {
                    let mut failure = CallFailure::new(*dice.pick(&KINDS), "as the dice fell");
                    failure.retry_after_ms = dice.chance_percent(20).then(|| dice.below(3_000));
                    moves.push((pause(dice), Some(Err(failure))));
                }
            }
        }
        moves
    }

    /// The text of an answer. Its mark says which call and try it came from.
    fn text(&self, dice: &mut SeededRandom, call: &CallMetadata) -> String {
        let mark = answer_mark(call);
        if dice.chance_percent(4) {
            return mark;
        }
        if dice.chance_percent(4) {
            return format!("{mark} <<<HANDOVER>>> {{\"agents\": [\"ann\", ```json <<<END>>> ?");
        }
        let words = words(dice, self.temper.words_max);
        match call.role.as_str() {
            "router" => {
                let agents = dice.pick(&[json!([]), json!(["ann"]), json!(["ann", "bob"]), json!("ann")]).clone();
                let phase = *dice.pick(&[Some("execute"), Some("verify"), Some("end"), Some("nowhere"), None]);
                format!("{mark} {}", json!({"agents": agents, "phase": phase}))
            }
            "think" => format!("{mark} ```json\n{{\"steps\": {}}}\n```", dice.below(4)),
            "speaker" if dice.chance_percent(40) => {
                format!("{mark} {words}\n<<<HANDOVER>>>\ngoal: {words}\n<<<END>>>\n{words}")
            }
            "mapper" => map(dice, &mark),
            "concierge" => speech(dice, &mark, &words),
            "coder" if dice.chance_percent(40) => format!("{mark} {words}?"),
            _ => format!("{mark} {words}"),
        }
    }
}

/// A map, as mappers write them: well, in prose, or cut off.
fn map(dice: &mut SeededRandom, mark: &str) -> String {
    let claim = |id: u64, role: &str| {
        json!({"id": format!("p{id}"), "label": format!("go {id}"), "text": "So it is.", "supporters": [1, 2],
            "type": "prescriptive", "role": role, "challenges": "p0"})
    };
    let edge = |to: u64, kind: &str| json!({"from": "p0", "to": format!("p{to}"), "kind": kind});
    let (roles, kinds) = (["anchor", "challenger", "?"], ["supports", "conflicts", "prerequisite"]);
    let count = dice.between(1, 4);
    let claims: Vec<_> = (0..count).map(|id| claim(id, dice.pick::<&str>(&roles))).collect();
    let edges: Vec<_> = (1..4).map(|to| edge(to, dice.pick::<&str>(&kinds))).collect();
    let map = json!({"claims": claims, "edges": edges, "gaps": ["How long?"]}).to_string();
    match dice.below(10) {
        0 => format!("{mark} They would go."),
        1 => format!("{mark} <map>{}", &map[..map.len() / 2]),
        _ => format!("<map>{map}</map> {mark}"),
    }
}

/// What a concierge says: words, a block of any kind with or without words, in any phase.
fn speech(dice: &mut SeededRandom, mark: &str, words: &str) -> String {
    let step = dice.between(1, 3);
    let steps = "<<<STEPS>>>\n- title: go\n  done_when: gone\n- title: come\n<<<END>>>";
    let plan = "HANDOVER:\n  goal: a way\nPROMPT:\nWhich way?";
    let block = match dice.below(9) {
        0..=1 => return format!("{mark} {words}"),
        2..=3 => format!("<<<HANDOVER>>>\ngoal: {words}\n<<<END>>>"),
        4 => format!("<<<BATCH>>>\nTYPE: WORKFLOW\n{plan}\n<<<END BATCH>>>"),
        5 => format!("<<<BATCH>>>\nTYPE: STEP_HELP\nSTEP: {step}\nBLOCKER: a wall\n<<<END>>>"),
        6 => steps.to_owned(),
        7 => format!("<<<STEP_START>>>\nstep: {step}\n<<<END>>>"),
        _ => format!("<<<STEP_DONE>>>\nstep: {step}\n<<<END>>>"),
    };
    match dice.below(10) {
        // Nothing is heard of this one.
        0..=1 => block.replacen("<<<END", &format!("{mark}\n<<<END"), 1),
        2 => {
            let half: String = block.chars().take(block.chars().count() / 2).collect();
            format!("{mark} {words}\n{half}")
        }
        3 => format!("{mark}\n{steps}\n{block}"),
        _ => format!("{mark} {words}\n{block}"),
    }
}

/// The mark in every answer.
pub fn answer_mark(call: &CallMetadata) -> String {
    format!("⟦{}.{}⟧", call.call, call.attempt)
}

fn words(dice: &mut SeededRandom, most: u64) -> String {
    const WORDS: [&str; 8] = ["left", "right", "über", "<<<", "`code`", "\n", "home", "🙂"];
    let count = dice.between(1, most);
    (0..count).map(|_| *dice.pick(&WORDS)).collect::<Vec<_>>().join(" ")
}

fn pieces(dice: &mut SeededRandom, text: &str) -> Vec<String> {
    let mut pieces = Vec::new();
    let mut rest: Vec<char> = text.chars().collect();
    while !rest.is_empty() {
        let size = usize::try_from(dice.between(1, 24)).expect("small").min(rest.len());
        pieces.push(rest.drain(..size).collect());
    }
    pieces
}

fn wishes(dice: &mut SeededRandom, call: &CallMetadata) -> Vec<ToolCall> {
    let percent = if call.role == "worker" { 50 } else { 3 };
    if !dice.chance_percent(percent) {
        return Vec::new();
    }
    let count = dice.between(1, 3);
    (0..count)
        .map(|place| ToolCall {
            // Some models call everything by the same id.
            id: if dice.chance_percent(10) { "same".to_owned() } else { format!("w{place}") },
            name: (*dice.pick(&["look", "complete", "nothing"])).into(),
            arguments: json!({"at": place}),
        })
        .collect()
}

impl LanguageModel for SimModel {
    fn stream(&self, request: ModelRequest) -> ReplyChunkStream {
        let ModelRequest { prompt, metadata: call, .. } = request;
        let mut dice = self.dice.lock().expect("nobody panics here").split();
        let head = read_head(&self.world.disk, &call.session);
        self.world.observations().streams.push(StartedCall {
            session: call.session.clone(),
            call: call.call,
            attempt: call.attempt,
            head,
            prompt,
        });
        if dice.chance_percent(self.temper.failure_percent / 4) {
            // No hook is told of it, so it is quick and quiet.
            std::panic::resume_unwind(Box::new("the adapter breaks down"));
        }
        let moves = self.moves(&mut dice, &call).into_iter();
        let (world, clock) = (self.world.clone(), self.clock);
        let given = move || {
            let mut notes = world.observations();
            let (session, life, at) = (call.session.clone(), notes.process, clock.now());
            notes.finished_answers.push(FinishedAnswer {
                session,
                call: call.call,
                attempt: call.attempt,
                at,
                process: life,
            });
        };
        stream::unfold((moves, given), |(mut moves, given)| async move {
            let (ms, chunk) = moves.next()?;
            if ms == u64::MAX {
                std::future::pending::<()>().await;
            }
            if ms > 0 {
                tokio::time::sleep(Duration::from_millis(ms)).await;
            }
            let chunk = chunk?;
            if matches!(chunk, Ok(ReplyChunk::Finish(_))) {
                given();
            }
            Some((chunk, (moves, given)))
        })
        .boxed()
    }

    fn describe(&self) -> ModelDescription {
        ModelDescription {
            kind: ModelSource::Scripted,
            label: "anything".to_owned(),
            window_tokens: self.temper.window_tokens,
        }
    }
}

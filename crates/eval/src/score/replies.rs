//! What the user saw: whether every message got a reply that is meant for the user, in the user's language, without signals.

use segue_core::context::FragmentContentKind;

use super::{ANSWERED, EvalConversationScore, LANGUAGE_KEPT, TURNS_COMPLETED, WITHOUT_SIGNALS, failure_note};
use crate::language::DetectableLanguage;
use crate::limits::{ECHOED_SENTENCE_CHARS_MIN, HANDOVER_FIELD_LINES_MIN};
use crate::record::{EvalConversationRecord, EvalConversationTurn};

/// Words that only occur in signals.
const SIGNAL_WORDS: [&str; 8] =
    ["HANDOVER", "BATCH", "WORKFLOW", "STEPS", "STEP_DONE", "STEP_START", "STEP_HELP", "PROMPT"];

pub(super) fn score_replies(record: &EvalConversationRecord, score: &mut EvalConversationScore) {
    let role = record.visible_role().to_owned();
    let turns = record.turns();
    let has_code_accounts = record.conversation.workspace.is_some();
    let mut previous: Option<String> = None;
    for turn in &turns {
        let failure = (!turn.is_done).then(|| {
            let why = record.failure.as_deref().unwrap_or_default();
            failure_note(record, turn.number, "the turn was not completed", why)
        });
        score.count_case(&role, TURNS_COMPLETED, failure);
        for reply in &turn.replies {
            let failure = find_signal_text(record, reply.text)
                .map(|signal| failure_note(record, turn.number, "signal text was shown", &signal));
            score.count_case(&role, WITHOUT_SIGNALS, failure);
        }
        let shown = turn.replies.iter().map(|reply| reply.text).collect::<Vec<_>>().join(" ");
        // Where code writes the accounts, a turn without words of a model lacks nothing.
        let is_account = has_code_accounts && turn.replies.iter().all(|reply| reply.call.is_none());
        if !is_account {
            let problem = find_reply_problem(record, turn, previous.as_deref());
            score.count_case(&role, ANSWERED, problem.map(|what| failure_note(record, turn.number, what, &shown)));
        }
        if let Some(language) = DetectableLanguage::from_language_code(&record.conversation.language) {
            for reply in turn.replies.iter().filter(|reply| reply.call.is_some()) {
                let failure = (!language.may_be_language_of(reply.text))
                    .then(|| failure_note(record, turn.number, "the reply is in another language", reply.text));
                score.count_case(&role, LANGUAGE_KEPT, failure);
            }
        }
        previous = Some(normalize(&shown));
    }
    // A conversation that ended early misses turns, which counts as well.
    for number in turns.len() + 1..=record.messages.len() {
        let why = record.failure.as_deref().unwrap_or_default();
        score.count_case(&role, TURNS_COMPLETED, Some(failure_note(record, number, "the turn was not started", why)));
    }
}

/// Returns the first signal text in a reply.
fn find_signal_text(record: &EvalConversationRecord, text: &str) -> Option<String> {
    let mut field_lines = 0;
    for line in text.lines() {
        let line = line.trim();
        let bare = line.trim_matches(|letter: char| !letter.is_alphanumeric() && letter != '_');
        let is_marked = line.contains("<<<") || line.contains(">>>") || bare.len() < line.len();
        if line.contains("<<<") || line.contains(">>>") || (is_marked && SIGNAL_WORDS.contains(&bare)) {
            return Some(line.to_owned());
        }
        let key = line.trim_start_matches(['-', '*', '"', ' ']).split(['"', ':', '*']).next().unwrap_or_default();
        let is_field =
            line.contains(':') && record.handover_fields.iter().any(|field| field == key && field.contains('_'));
        field_lines += usize::from(is_field);
        if field_lines >= HANDOVER_FIELD_LINES_MIN {
            return Some(line.to_owned());
        }
    }
    None
}

/// Returns why a turn does not answer the user, or `None` if it does.
fn find_reply_problem(
    record: &EvalConversationRecord,
    turn: &EvalConversationTurn<'_>,
    previous: Option<&str>,
) -> Option<&'static str> {
    let written: Vec<&str> =
        turn.replies.iter().filter(|reply| reply.call.is_some()).map(|reply| reply.text.trim()).collect();
    let text = written.join(" ");
    if text.split_whitespace().count() < 2 {
        return Some("the model wrote no reply");
    }
    let shown = normalize(&text);
    if previous.is_some_and(|previous| previous == shown) {
        return Some("the reply repeats the last one");
    }
    if shown == normalize(turn.message) {
        return Some("the reply repeats the user's message");
    }
    let lower = text.to_lowercase();
    if lower.contains("the user ") && !turn.message.to_lowercase().contains("the user") {
        return Some("the reply speaks about the user, not to the user");
    }
    if echoes_instruction(record, turn, &text) {
        return Some("the reply repeats the instruction");
    }
    let topic = &record.conversation.topic;
    if !topic.is_empty() && !topic.iter().any(|word| lower.contains(&word.to_lowercase())) {
        return Some("the reply is about something else");
    }
    None
}

/// Returns whether a reply contains a sentence of the instruction that the model was given.
fn echoes_instruction(record: &EvalConversationRecord, turn: &EvalConversationTurn<'_>, reply: &str) -> bool {
    let reply = normalize(reply);
    let calls: Vec<_> = turn.replies.iter().filter_map(|reply| reply.call).collect();
    let is_instruction =
        |layer: FragmentContentKind| matches!(layer, FragmentContentKind::Instruction | FragmentContentKind::Task);
    let opened = record.answered_calls();
    let mine = opened.iter().filter(|call| calls.contains(&call.opened.call));
    // A thread is opened once; its instruction is that of the newest call before this one which opened it.
    let threads: Vec<_> = mine.map(|call| call.opened.receipt.thread.thread_id()).collect();
    let fragments = opened
        .iter()
        .filter(|call| threads.contains(&call.opened.receipt.thread.thread_id()))
        .flat_map(|call| call.opened.receipt.opening.iter().chain(&call.opened.receipt.ask))
        .filter(|fragment| is_instruction(fragment.layer));
    fragments.filter_map(|fragment| fragment.text).any(|text| {
        let sentences = record.text(text).split(['.', '\n', ':', '?', '!']);
        let mut long = sentences.map(normalize).filter(|text| text.chars().count() >= ECHOED_SENTENCE_CHARS_MIN);
        long.any(|sentence| reply.contains(&sentence))
    })
}

/// Returns the words of a text in lower case, without punctuation.
fn normalize(text: &str) -> String {
    let words = text.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect::<Vec<_>>().join(" ")
}

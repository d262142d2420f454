use proptest::prelude::*;
use segue_core::event::{CallAnswered, ThreadCompacted};
use segue_core::ids::Seq;
use segue_core::prompt::{CallFailure, CallFailureKind, StopReason, TokenUsage};

use super::super::screen::tests::TestTerminal;
use super::*;

/// A display on a terminal in memory, driven by single events.
struct Scene {
    terminal: TestTerminal,
    screen: Screen,
    display: ChatTurnRenderer,
    session: Session,
}

impl Scene {
    fn new(names: SpeakerNameVisibility, (terminal, screen): (TestTerminal, Screen)) -> Self {
        Self { terminal, screen, display: ChatTurnRenderer::new(names), session: Session::default() }
    }

    fn interactive() -> Self {
        Self::new(SpeakerNameVisibility::Hidden, TestTerminal::new())
    }

    fn chunk(&mut self, call: u32, text: &str) -> &mut Self {
        self.display.show_chunk(&mut self.screen, CallId(call), 1, text).expect("written");
        self
    }

    fn reply(&mut self, call: Option<u32>, text: &str) -> &mut Self {
        self.display.show_reply(&mut self.screen, call.map(CallId), Some("guide"), text).expect("written");
        self
    }

    fn event(&mut self, event: Event) -> &mut Self {
        let recorded = RecordedEvent { seq: Seq(1), at: UnixMillis(1_000), event };
        self.display.show_event(&mut self.screen, &self.session, &recorded).expect("written");
        self
    }

    fn answered(&mut self, call: u32) -> &mut Self {
        let text = segue_core::body::TextRef { body: segue_core::body::BodyId::hash_text(""), tokens: 0 };
        self.event(Event::CallAnswered(Box::new(CallAnswered {
            call: CallId(call),
            attempt: 1,
            text,
            reasoning: None,
            tool_calls: Vec::new(),
            vendor_state: None,
            stop_reason: StopReason::Done,
            usage: TokenUsage::default(),
            rejected_usage: None,
            usage_source: segue_core::event::UsageSource::Estimated,
            cost_microusd: None,
            duration_ms: 1,
        })))
    }

    fn failed(&mut self, call: u32, next: RetryDecision) -> &mut Self {
        let failure = CallFailure::new(CallFailureKind::RateLimit, "slow down");
        self.event(Event::CallFailed { call: CallId(call), attempt: 1, failure, next })
    }

    fn ended(&mut self, outcome: &TurnOutcome) -> &mut Self {
        self.display.end_turn(&mut self.screen, outcome).expect("written");
        self
    }

    #[track_caller]
    fn shows(&mut self, text: &str) -> &mut Self {
        assert_eq!(self.terminal.text(), text);
        self
    }
}

#[test]
fn chunks_are_shown_and_the_rest_comes_with_the_reply() {
    let mut scene = Scene::interactive();
    scene.chunk(1, "Hel").shows("Hel").chunk(1, "lo").answered(1).reply(Some(1), "Hello there").shows("Hello there");
    scene.ended(&TurnOutcome::Done).reply(None, "And this.").shows("Hello there\nAnd this.");
}

#[test]
fn a_streamed_text_is_replaced_by_the_reply() {
    let mut scene = Scene::interactive();
    scene.reply(None, "before").chunk(1, "This is wrong,\nall of it").answered(1);
    scene.reply(Some(1), "This is right.").shows("before\nThis is right.");
    scene.chunk(2, "Ends in a break\n").answered(2).reply(Some(2), "Ends in a break");
    scene.shows("before\nThis is right.\nEnds in a break");
}

#[test]
fn a_text_that_cannot_be_erased_is_followed_by_the_reply() {
    let mut scene = Scene::interactive();
    scene.chunk(1, &"wrong\n".repeat(20)).answered(1).reply(Some(1), "right");
    assert!(scene.terminal.text().ends_with("wrong\n— the reply is: —\nright"));
}

#[test]
fn an_answer_without_a_reply_is_erased() {
    let mut scene = Scene::interactive();
    scene.chunk(1, "Let me look.").answered(1).shows("Let me look.");
    scene.chunk(2, "It is there.").shows("It is there.").answered(2).reply(Some(2), "It is there.");
    scene.chunk(3, "Nobody says this").answered(3).ended(&TurnOutcome::Done).shows("It is there.");
    scene.chunk(4, "Nor this").answered(4);
    scene.display.retract_unrecorded_reply(&mut scene.screen).expect("written");
    scene.shows("It is there.");
}

#[test]
fn concurrent_answers_are_shown_one_after_the_other() {
    let mut scene = Scene::interactive();
    scene.chunk(1, "one ").chunk(2, "other ").chunk(1, "more").chunk(2, "end").shows("one more");
    scene.answered(1).reply(Some(1), "one more").shows("one more\nother end");
    scene.answered(2).reply(Some(2), "other end!").shows("one more\nother end!");
}

#[test]
fn a_reply_during_another_answer_is_shown_after_it() {
    let mut scene = Scene::interactive();
    scene.chunk(1, "one ").reply(Some(2), "other").shows("one").chunk(1, "more").answered(1);
    scene.reply(Some(1), "one more").shows("one more\nother");
}

#[test]
fn replies_have_the_speakers_name_if_there_are_several() {
    let mut scene = Scene::new(SpeakerNameVisibility::Shown, TestTerminal::new());
    scene.display.speakers.insert(CallId(1), "critic".to_owned());
    scene.chunk(1, "Wrong").answered(1).reply(Some(1), "Boo").shows("critic:\nBoo");
    scene.reply(None, "Bravo").shows("critic:\nBoo\nguide:\nBravo");
}

#[test]
fn a_retry_is_shown_as_a_note_and_starts_again() {
    let mut scene = Scene::interactive();
    scene.chunk(1, "Half an ans").failed(1, RetryDecision::Retry { at: UnixMillis(2_200) });
    scene.shows("Half an ans\nc1: rate limit; attempt 2 in 1.2 s");
    scene.display.show_chunk(&mut scene.screen, CallId(1), 2, "A whole answer").expect("written");
    scene.answered(1).reply(Some(1), "A whole answer");
    scene.shows("Half an ans\nc1: rate limit; attempt 2 in 1.2 s\nA whole answer");
}

#[test]
fn notes_during_an_answer_are_shown_after_it() {
    let mut scene = Scene::interactive();
    scene.chunk(1, "I am ").failed(2, RetryDecision::GiveUp).chunk(1, "speaking").shows("I am speaking");
    scene.answered(1).reply(Some(1), "I am speaking");
    scene.shows("I am speaking\nc2: rate limit: slow down");
}

#[test]
fn the_failure_of_an_abandoned_call_is_not_shown() {
    let mut scene = Scene::interactive();
    let abandoned = segue_core::session::AbandonedUnansweredCall {
        call: CallId(1),
        turn: None,
        role: "guide".into(),
        model: "any".into(),
        ledger_phase: None,
        prompt_tokens: 0,
        turn_stopped: false,
        in_flight: false,
    };
    scene.session.abandoned_calls.push_back(abandoned);
    scene
        .failed(1, RetryDecision::GiveUp)
        .shows("")
        .failed(2, RetryDecision::GiveUp)
        .shows("c2: rate limit: slow down");
}

#[test]
fn cancelled_and_failed_turns_are_shown() {
    let mut scene = Scene::interactive();
    scene.chunk(1, "Half").event(Event::CallCancelled {
        call: CallId(1),
        reason: "stopped".to_owned(),
        in_flight: true,
    });
    scene.ended(&TurnOutcome::Cancelled).shows("Half\n— cancelled —");
    scene.ended(&TurnOutcome::Failed { reason: "no key".to_owned() });
    scene.shows("Half\n— cancelled —\nthe turn failed: no key");
}

#[test]
fn a_call_that_waits_for_an_operator_shows_the_commands() {
    let mut scene = Scene::interactive();
    scene.event(Event::CallOutcomeUnknown { call: CallId(3), attempt: 1, next: RetryDecision::AwaitOperator });
    assert!(scene.terminal.text().replace('\n', "").ends_with("/retry c3 makes it again, /fail c3 gives up"));
}

#[test]
fn a_pipe_gets_replies_only() {
    let mut scene = Scene::new(SpeakerNameVisibility::Shown, TestTerminal::piped());
    scene
        .chunk(1, "wrong")
        .failed(2, RetryDecision::GiveUp)
        .answered(1)
        .reply(Some(1), "right\n")
        .ended(&TurnOutcome::Cancelled);
    scene.reply(None, "more").shows("right\nmore");
}

#[test]
fn a_compaction_is_shown() {
    let mut scene = Scene::interactive();
    scene.event(Event::ThreadCompacted(Box::new(ThreadCompacted {
        thread: segue_core::ids::ThreadId(1),
        folded_entries: 8,
        kept_indices: Vec::new(),
        summary: Vec::new(),
        user_texts: Vec::new(),
        tokens_before: 900,
        tokens_after: 120,
        summary_call: None,
    })));
    assert_eq!(scene.terminal.text().replace('\n', ""), "— thread compacted: 8 messages, 900 → 120 tokens —");
}

/// The text without white space. On a full row, a line break read from the screen depends on the width of characters.
fn letters(text: &str) -> String {
    text.split_whitespace().collect()
}

proptest! {
    #[test]
    fn the_screen_shows_exactly_the_reply(
        chunks in prop::collection::vec("[a-z日é .\n]{0,30}", 0..8),
        reply in "[a-z日é .\n]{0,160}",
        kept in 0_usize..4,
    ) {
        // Sometimes the reply begins with the streamed text.
        let shown: String = chunks.concat();
        let reply = if kept == 0 { format!("{shown}{reply}") } else { reply };
        let mut scene = Scene::new(SpeakerNameVisibility::Hidden, TestTerminal::narrow());
        scene.reply(None, "before");
        chunks.iter().filter(|chunk| !chunk.is_empty()).for_each(|chunk| { scene.chunk(1, chunk); });
        scene.answered(1).reply(Some(1), &reply).ended(&TurnOutcome::Done).reply(None, "after");
        let text = scene.terminal.text();
        let between = text.strip_prefix("before\n").and_then(|text| text.strip_suffix("after"));
        prop_assert_eq!(between.map(letters), Some(letters(&reply)));
    }
}

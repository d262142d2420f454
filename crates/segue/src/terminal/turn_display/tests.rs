use proptest::prelude::*;
use segue_core::event::{CallAnswered, ThreadCompacted};
use segue_core::ids::Seq;
use segue_core::prompt::{CallFailure, FailureKind, StopReason, TokenUsage};

use super::super::screen::tests::TestTerminal;
use super::*;

/// A display before a terminal in memory, driven by hand.
struct Scene {
    glass: TestTerminal,
    screen: Screen,
    display: TurnDisplay,
    session: Session,
}

impl Scene {
    fn new(names: SpeakerNames, (glass, screen): (TestTerminal, Screen)) -> Self {
        Self { glass, screen, display: TurnDisplay::new(names), session: Session::default() }
    }

    fn live() -> Self {
        Self::new(SpeakerNames::Hidden, TestTerminal::new())
    }

    fn words(&mut self, call: u32, text: &str) -> &mut Self {
        self.display.show_chunk(&mut self.screen, CallId(call), 1, text).expect("written");
        self
    }

    fn said(&mut self, call: Option<u32>, text: &str) -> &mut Self {
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
        let failure = CallFailure::new(FailureKind::RateLimit, "slow down");
        self.event(Event::CallFailed { call: CallId(call), attempt: 1, failure, next })
    }

    fn ended(&mut self, outcome: &TurnResult) -> &mut Self {
        self.display.end_turn(&mut self.screen, outcome).expect("written");
        self
    }

    #[track_caller]
    fn shows(&mut self, text: &str) -> &mut Self {
        assert_eq!(self.glass.text(), text);
        self
    }
}

#[test]
fn words_come_one_by_one_and_the_rest_with_what_is_said() {
    let mut scene = Scene::live();
    scene.words(1, "Hel").shows("Hel").words(1, "lo").answered(1).said(Some(1), "Hello there").shows("Hello there");
    scene.ended(&TurnResult::Done).said(None, "And this.").shows("Hello there\nAnd this.");
}

#[test]
fn words_that_were_not_said_are_corrected() {
    let mut scene = Scene::live();
    scene.said(None, "before").words(1, "This is wrong,\nall of it").answered(1);
    scene.said(Some(1), "This is right.").shows("before\nThis is right.");
    scene.words(2, "Ends in a break\n").answered(2).said(Some(2), "Ends in a break");
    scene.shows("before\nThis is right.\nEnds in a break");
}

#[test]
fn words_that_can_no_longer_be_taken_back_are_followed_by_the_right_ones() {
    let mut scene = Scene::live();
    scene.words(1, &"wrong\n".repeat(20)).answered(1).said(Some(1), "right");
    assert!(scene.glass.text().ends_with("wrong\n— what was said is this: —\nright"));
}

#[test]
fn words_of_an_answer_that_is_never_said_are_taken_back() {
    let mut scene = Scene::live();
    scene.words(1, "Let me look.").answered(1).shows("Let me look.");
    scene.words(2, "It is there.").shows("It is there.").answered(2).said(Some(2), "It is there.");
    scene.words(3, "Nobody says this").answered(3).ended(&TurnResult::Done).shows("It is there.");
    scene.words(4, "Nor this").answered(4);
    scene.display.retract_if_unsent(&mut scene.screen).expect("written");
    scene.shows("It is there.");
}

#[test]
fn two_who_speak_at_once_are_heard_one_after_the_other() {
    let mut scene = Scene::live();
    scene.words(1, "one ").words(2, "other ").words(1, "more").words(2, "end").shows("one more");
    scene.answered(1).said(Some(1), "one more").shows("one more\nother end");
    scene.answered(2).said(Some(2), "other end!").shows("one more\nother end!");
}

#[test]
fn what_is_said_while_another_speaks_comes_after_it() {
    let mut scene = Scene::live();
    scene.words(1, "one ").said(Some(2), "other").shows("one").words(1, "more").answered(1);
    scene.said(Some(1), "one more").shows("one more\nother");
}

#[test]
fn who_speaks_is_said_where_several_do() {
    let mut scene = Scene::new(SpeakerNames::Shown, TestTerminal::new());
    scene.display.speakers.insert(CallId(1), "critic".to_owned());
    scene.words(1, "Wrong").answered(1).said(Some(1), "Boo").shows("critic:\nBoo");
    scene.said(None, "Bravo").shows("critic:\nBoo\nguide:\nBravo");
}

#[test]
fn a_retry_is_told_quietly_and_begins_anew() {
    let mut scene = Scene::live();
    scene.words(1, "Half an ans").failed(1, RetryDecision::Retry { at: UnixMillis(2_200) });
    scene.shows("Half an ans\nc1: try 2 in 1.2 s: rate limit");
    scene.display.show_chunk(&mut scene.screen, CallId(1), 2, "A whole answer").expect("written");
    scene.answered(1).said(Some(1), "A whole answer");
    scene.shows("Half an ans\nc1: try 2 in 1.2 s: rate limit\nA whole answer");
}

#[test]
fn what_happens_while_somebody_speaks_is_told_afterwards() {
    let mut scene = Scene::live();
    scene.words(1, "I am ").failed(2, RetryDecision::GiveUp).words(1, "speaking").shows("I am speaking");
    scene.answered(1).said(Some(1), "I am speaking");
    scene.shows("I am speaking\nc2: rate limit: slow down");
}

#[test]
fn the_failure_of_a_call_that_was_given_up_is_not_told() {
    let mut scene = Scene::live();
    let given_up = segue_core::session::AbandonedCall {
        call: CallId(1),
        turn: None,
        role: "guide".into(),
        model: "any".into(),
        ledger_phase: None,
        prompt_tokens: 0,
        turn_stopped: false,
        in_flight: false,
    };
    scene.session.abandoned_calls.push_back(given_up);
    scene
        .failed(1, RetryDecision::GiveUp)
        .shows("")
        .failed(2, RetryDecision::GiveUp)
        .shows("c2: rate limit: slow down");
}

#[test]
fn a_turn_that_did_not_end_well_says_so() {
    let mut scene = Scene::live();
    scene.words(1, "Half").event(Event::CallCancelled {
        call: CallId(1),
        reason: "stopped".to_owned(),
        in_flight: true,
    });
    scene.ended(&TurnResult::Cancelled).shows("Half\n— cancelled —");
    scene.ended(&TurnResult::Failed { reason: "no key".to_owned() });
    scene.shows("Half\n— cancelled —\nthe turn failed: no key");
}

#[test]
fn a_call_that_waits_for_a_person_says_what_they_can_do() {
    let mut scene = Scene::live();
    scene.event(Event::CallOutcomeUnknown { call: CallId(3), attempt: 1, next: RetryDecision::AwaitOperator });
    assert!(scene.glass.text().replace('\n', "").ends_with("/retry c3 asks again, /fail c3 gives it up"));
}

#[test]
fn a_file_gets_what_was_said_and_nothing_else() {
    let mut scene = Scene::new(SpeakerNames::Shown, TestTerminal::piped());
    scene
        .words(1, "wrong")
        .failed(2, RetryDecision::GiveUp)
        .answered(1)
        .said(Some(1), "right\n")
        .ended(&TurnResult::Cancelled);
    scene.said(None, "more").shows("right\nmore");
}

#[test]
fn a_memory_that_was_shortened_is_told_of() {
    let mut scene = Scene::live();
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
    assert_eq!(scene.glass.text().replace('\n', ""), "— memory shortened: 8 messages folded, 900 → 120 tokens —");
}

/// The letters of a text. Where a row is full, whether a line break is read off a screen depends on the width of letters.
fn letters(text: &str) -> String {
    text.split_whitespace().collect()
}

proptest! {
    #[test]
    fn in_the_end_exactly_what_was_said_can_be_read(
        chunks in prop::collection::vec("[a-z日é .\n]{0,30}", 0..8),
        said in "[a-z日é .\n]{0,160}",
        kept in 0_usize..4,
    ) {
        // Sometimes what is said begins with what was shown.
        let shown: String = chunks.concat();
        let said = if kept == 0 { format!("{shown}{said}") } else { said };
        let mut scene = Scene::new(SpeakerNames::Hidden, TestTerminal::narrow());
        scene.said(None, "before");
        chunks.iter().filter(|chunk| !chunk.is_empty()).for_each(|chunk| { scene.words(1, chunk); });
        scene.answered(1).said(Some(1), &said).ended(&TurnResult::Done).said(None, "after");
        let text = scene.glass.text();
        let between = text.strip_prefix("before\n").and_then(|text| text.strip_suffix("after"));
        prop_assert_eq!(between.map(letters), Some(letters(&said)));
    }
}

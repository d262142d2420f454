//! Vendor token counts: the reported counts decide how much of a conversation fits into a window.

use segue_core::event::{CallOpened, Event};
use segue_core::prompt::{ModelReply, TokenUsage};
use segue_testkit::{ClosureFlow, SessionHarness};

use super::{brief, events, outcomes, words};

const WINDOW: u32 = 8_000;
/// The tokens that a call reserves for its answer and the reserve.
const BESIDE: u32 = 400 + 256;

fn chat() -> SessionHarness {
    let mut speaker = brief(ClosureFlow::speaker_role(), 400);
    speaker.compaction.summary_tokens_max = 60;
    let mut harness = SessionHarness::open(ClosureFlow::single_speaker(speaker));
    harness.set_window(WINDOW);
    harness
}

fn opened(harness: &SessionHarness) -> Vec<CallOpened> {
    events(harness, |event| match event {
        Event::CallOpened(opened) => Some((**opened).clone()),
        _ => None,
    })
}

/// Answers the oldest open call, with the vendor counting this many thousandths of our tokens.
fn answer(harness: &mut SessionHarness, permille: u32) {
    let tokens = opened(harness).last().expect("a call is open").receipt.tokens;
    let input = u32::try_from(u64::from(tokens) * u64::from(permille) / 1_000).expect("small");
    let usage = Some(TokenUsage { input_tokens: input, cached_tokens: input / 2, ..TokenUsage::default() });
    harness.reply_to_call("speaker", ModelReply { text: words(300), usage, ..ModelReply::default() });
}

/// Plays turns until the thread is compacted. Returns its size just before, by our count.
fn full_at(permille: u32) -> u32 {
    let mut harness = chat();
    for turn in 0..100 {
        harness.send_message(&format!("question {turn}"));
        let compacted = events(&harness, |event| match event {
            Event::ThreadCompacted(compacted) => Some(compacted.tokens_before),
            _ => None,
        });
        if let [tokens] = compacted.as_slice() {
            return *tokens;
        }
        answer(&mut harness, permille);
    }
    panic!("it never filled up")
}

#[test]
fn thread_is_compacted_earlier_by_the_token_ratio() {
    let even = full_at(1_000);
    assert!((WINDOW - BESIDE - 20..=WINDOW - BESIDE + 320).contains(&even), "{even}");
    for permille in [1_400, 1_500, 2_000, 700] {
        let full = u64::from(full_at(permille)) * u64::from(permille) / 1_000;
        let apart = full.abs_diff(u64::from(even));
        // The thread grows by about 300 tokens per turn, and the first reports do not count fully.
        assert!(apart <= 900, "{permille}: {full} compared with {even}");
    }
}

#[test]
fn vendor_with_a_ratio_of_one_and_a_half_never_gets_an_oversized_prompt() {
    let mut harness = chat();
    for turn in 0..80 {
        harness.send_message(&format!("question {turn}"));
        let call = opened(&harness).pop().expect("a call is open");
        let reported = call.receipt.tokens * 3 / 2;
        assert!(reported + BESIDE <= WINDOW, "turn {turn}: {reported} tokens");
        answer(&mut harness, 1_500);
    }
    assert!(outcomes(&harness).iter().all(|outcome| outcome == "done"));
    let calls = opened(&harness);
    assert_eq!(calls[0].receipt.vendor_tokens_estimate, None, "nothing was reported yet");
    let last = &calls[79].receipt;
    let ratio = harness.session().token_ratio_permille(&"plain".into());
    assert!((1_450..=1_500).contains(&ratio), "{ratio}");
    let vendor_tokens = last.vendor_tokens_estimate.expect("it was reckoned");
    assert!(vendor_tokens > last.tokens * 14 / 10, "{last:?}");
}

#[test]
fn each_model_has_its_own_ratio_and_estimates_do_not_change_it() {
    let mut harness = chat();
    harness.send_message(&words(2_000));
    answer(&mut harness, 1_500);
    let heavy = harness.session().token_ratio_permille(&"plain".into());
    assert!(heavy > 1_200, "{heavy}");
    harness.assign_model("speaker", "other");
    harness.send_message(&words(2_000)).answer_call("speaker", "fine");
    assert_eq!(harness.session().token_ratio_permille(&"other".into()), 1_000);
    assert_eq!(opened(&harness)[1].receipt.vendor_tokens_estimate, None);
    assert_eq!(harness.session().token_ratio_permille(&"plain".into()), heavy);
}

#[test]
fn ratio_uses_the_first_prompt_if_an_answer_was_rejected() {
    let mut harness = chat();
    harness.send_message(&words(3_000));
    let tokens = opened(&harness)[0].receipt.tokens;
    let input = |input| TokenUsage { input_tokens: input, ..TokenUsage::default() };
    let (usage, sent_back) = (Some(input(tokens * 2 + 700)), Some(input(tokens)));
    harness.reply_to_call(
        "speaker",
        ModelReply { text: "{}".into(), usage, rejected_usage: sent_back, ..ModelReply::default() },
    );
    assert_eq!(harness.session().token_ratio_permille(&"plain".into()), 1_000);
}

#[test]
fn prompt_that_is_too_long_only_by_estimate_is_sent() {
    let mut harness = chat();
    harness.send_message(&words(3_000));
    answer(&mut harness, 3_000);
    harness.send_message(&words(5_000));
    let call = opened(&harness).pop().expect("it is made all the same");
    assert!(call.receipt.tokens < WINDOW && call.receipt.vendor_tokens_estimate > Some(WINDOW), "{:?}", call.receipt);
    assert_eq!((harness.open_call_roles(), outcomes(&harness)), (vec!["speaker".to_owned()], vec!["done".to_owned()]));
    let folded = events(&harness, |event| matches!(event, Event::ThreadCompacted(_)).then_some(()));
    assert_eq!(folded.len(), 1, "made as short as our own count asks for");
}

#[test]
fn ratios_are_part_of_the_state_and_survive_a_crash() {
    let mut harness = chat();
    harness.send_message(&words(2_000));
    answer(&mut harness, 1_500);
    let before = harness.session().token_ratio_permille(&"plain".into());
    harness.crash_and_recover();
    assert_eq!(harness.session().token_ratio_permille(&"plain".into()), before);
    assert_ne!(before, 1_000);
}

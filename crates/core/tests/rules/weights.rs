//! Vendors count in tokens of their own: what they report decides how much of a conversation fits into a window.

use segue_core::event::{CallOpened, Event};
use segue_core::prompt::{ModelReply, TokenUsage};
use segue_core::token_ratio::VendorTokenRatio;
use segue_testkit::{ClosureFlow, SessionHarness};

use super::{brief, events, outcomes, words};

const WINDOW: u32 = 8_000;
/// What a call leaves free beside its prompt: the answer, and the reserve.
const BESIDE: u32 = 400 + 256;

fn chat() -> SessionHarness {
    let mut speaker = brief(ClosureFlow::speaker_role(), 400);
    speaker.compaction.summary_tokens_max = 60;
    let mut stage = SessionHarness::open(ClosureFlow::single_speaker(speaker));
    stage.set_window(WINDOW);
    stage
}

fn opened(stage: &SessionHarness) -> Vec<CallOpened> {
    events(stage, |event| match event {
        Event::CallOpened(opened) => Some((**opened).clone()),
        _ => None,
    })
}

/// The oldest open call is answered by a vendor that counts so many thousandths of our tokens.
fn answer(stage: &mut SessionHarness, permille: u32) {
    let tokens = opened(stage).last().expect("a call is open").receipt.tokens;
    let input = u32::try_from(u64::from(tokens) * u64::from(permille) / 1_000).expect("small");
    let usage = Some(TokenUsage { input_tokens: input, cached_tokens: input / 2, ..TokenUsage::default() });
    stage.reply_to_call("speaker", ModelReply { text: words(300), usage, ..ModelReply::default() });
}

/// Talks until the thread is shortened; its tokens by our count just before that.
fn full_at(permille: u32) -> u32 {
    let mut stage = chat();
    for turn in 0..100 {
        stage.send_message(&format!("question {turn}"));
        let compacted = events(&stage, |event| match event {
            Event::ThreadCompacted(compacted) => Some(compacted.tokens_before),
            _ => None,
        });
        if let [tokens] = compacted.as_slice() {
            return *tokens;
        }
        answer(&mut stage, permille);
    }
    panic!("it never filled up")
}

#[test]
fn a_model_with_heavier_tokens_is_shortened_for_earlier_by_that_factor() {
    let even = full_at(1_000);
    assert!((WINDOW - BESIDE - 20..=WINDOW - BESIDE + 320).contains(&even), "{even}");
    for permille in [1_400, 1_500, 2_000, 700] {
        let full = u64::from(full_at(permille)) * u64::from(permille) / 1_000;
        let apart = full.abs_diff(u64::from(even));
        // The thread grows by some 300 tokens a turn, and the first reports are not believed outright.
        assert!(apart <= 900, "{permille}: {full} beside {even}");
    }
}

#[test]
fn a_vendor_that_counts_half_as_much_again_never_gets_a_prompt_that_does_not_fit() {
    let mut stage = chat();
    for turn in 0..80 {
        stage.send_message(&format!("question {turn}"));
        let call = opened(&stage).pop().expect("a call is open");
        let reported = call.receipt.tokens * 3 / 2;
        assert!(reported + BESIDE <= WINDOW, "turn {turn}: {reported} tokens");
        answer(&mut stage, 1_500);
    }
    assert!(outcomes(&stage).iter().all(|outcome| outcome == "done"));
    let calls = opened(&stage);
    assert_eq!(calls[0].receipt.vendor_tokens_estimate, None, "nothing was reported yet");
    let last = &calls[79].receipt;
    let weight = stage.session().token_ratio(&"plain".into());
    assert!((1_450..=1_500).contains(&weight.permille()), "{weight:?}");
    assert_eq!(last.vendor_tokens(), last.vendor_tokens_estimate.expect("it was reckoned"));
    assert!(last.vendor_tokens() > last.tokens * 14 / 10, "{last:?}");
}

#[test]
fn each_model_has_a_weight_of_its_own_and_our_own_figures_teach_nothing() {
    let mut stage = chat();
    stage.send_message(&words(2_000));
    answer(&mut stage, 1_500);
    let heavy = stage.session().token_ratio(&"plain".into());
    assert!(heavy.permille() > 1_200, "{heavy:?}");
    stage.assign_model("speaker", "other");
    stage.send_message(&words(2_000)).answer_call("speaker", "fine");
    assert_eq!(stage.session().token_ratio(&"other".into()), VendorTokenRatio::default());
    assert_eq!(opened(&stage)[1].receipt.vendor_tokens_estimate, None);
    assert_eq!(stage.session().token_ratio(&"plain".into()), heavy);
}

#[test]
fn of_an_answer_that_was_sent_back_only_the_first_prompt_is_compared() {
    let mut stage = chat();
    stage.send_message(&words(3_000));
    let tokens = opened(&stage)[0].receipt.tokens;
    let input = |input| TokenUsage { input_tokens: input, ..TokenUsage::default() };
    let (usage, sent_back) = (Some(input(tokens * 2 + 700)), Some(input(tokens)));
    stage.reply_to_call(
        "speaker",
        ModelReply { text: "{}".into(), usage, rejected_usage: sent_back, ..ModelReply::default() },
    );
    assert!(stage.session().token_ratio(&"plain".into()).is_unity());
}

#[test]
fn a_prompt_that_is_only_reckoned_too_long_is_for_the_vendor_to_refuse() {
    let mut stage = chat();
    stage.send_message(&words(3_000));
    answer(&mut stage, 3_000);
    stage.send_message(&words(5_000));
    let call = opened(&stage).pop().expect("it is made all the same");
    assert!(call.receipt.tokens < WINDOW && call.receipt.vendor_tokens() > WINDOW, "{:?}", call.receipt);
    assert_eq!((stage.open_call_roles(), outcomes(&stage)), (vec!["speaker".to_owned()], vec!["done".to_owned()]));
    let folded = events(&stage, |event| matches!(event, Event::ThreadCompacted(_)).then_some(()));
    assert_eq!(folded.len(), 1, "made as short as our own count asks for");
}

#[test]
fn the_weights_are_part_of_the_state_and_survive_a_crash() {
    let mut stage = chat();
    stage.send_message(&words(2_000));
    answer(&mut stage, 1_500);
    let before = stage.session().token_ratios.clone();
    stage.crash_and_recover();
    assert_eq!(stage.session().token_ratios, before);
    assert_eq!(before.len(), 1);
}

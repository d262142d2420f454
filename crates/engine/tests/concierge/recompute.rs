//! Running a past call again and comparing both answers; the conversation does not change.

use segue_core::decide::RecomputeCallOverrides;
use segue_core::ids::CallId;
use segue_engine::RecomputedCallComparison;
use serde_json::{Value, json};

use crate::harness::{ConciergeHarness, MESSAGES_TO_PLAN};

const OTHER_REPLIES: &str = r#"
[[reply]]
role = "mapper"
model = "owl"
text = '<map>{"claims": [{"id": "x", "label": "wait", "text": "Wait.", "supporters": [1, 2, 3]}], "edges": []}</map>'

[[reply]]
role = "concierge"
model = "dog"
text = "Buy, I say."

[[reply]]
role = "concierge"
system_contains = "wants their view to be tested"
text = "Why buy at all?\n<<<HANDOVER>>>\ngoal: another\n<<<END>>>"
"#;

async fn recompute(
    harness: &ConciergeHarness,
    call: CallId,
    change: RecomputeCallOverrides,
) -> RecomputedCallComparison {
    harness.engine.recompute_call(&harness.session, call, &change).await.expect("the call is run again")
}

#[tokio::test(start_paused = true)]
async fn s32_reruns_with_another_model_or_setting_are_compared_with_the_original() {
    let harness = ConciergeHarness::start(OTHER_REPLIES, Value::Null).await;
    harness.send_all(&MESSAGES_TO_PLAN).await;
    let (mapper, starter) = (harness.calls("mapper").await[0].clone(), harness.calls("concierge").await[0].clone());
    let (_, before) = harness.engine.load_session(&harness.session).await.expect("it can be read");
    let (replies, handovers) = (harness.replies().await, harness.handovers().await);

    let map = recompute(
        &harness,
        mapper.call,
        RecomputeCallOverrides { model: Some("owl".into()), ..RecomputeCallOverrides::default() },
    )
    .await;
    let (original, rerun) = (map.original.answer.expect("it was answered"), map.rerun.answer.expect("it is answered"));
    assert!(original.text.contains("rent first") && rerun.text.contains("wait"));
    let (original, rerun) =
        (original.answer_summary.expect("a map has a summary"), rerun.answer_summary.expect("a map has a summary"));
    assert!(original.starts_with("shape: contested") && rerun.starts_with("shape: settled"), "{original}\n{rerun}");
    assert_eq!(
        harness.prompt_text(map.rerun.call).await,
        harness.prompt_text(mapper.call).await,
        "the same prompt, byte for byte"
    );

    let stance = recompute(
        &harness,
        starter.call,
        RecomputeCallOverrides { settings: json!({"stance": "challenge"}), ..RecomputeCallOverrides::default() },
    )
    .await;
    assert_eq!(stance.original.answer.expect("it was answered").text, "Rent, unless you stay for long.");
    assert!(stance.rerun.answer.expect("it is answered").text.starts_with("Why buy at all?"));
    assert_eq!(stance.changed_fragments, ["guidance"]);
    let made = harness.calls("concierge").await.pop().expect("it was made");
    assert_eq!(
        made.recomputation.as_ref().map(|it| (it.call, it.changed_fragments.clone())),
        Some((starter.call, vec!["guidance".into()]))
    );

    let concierge = recompute(
        &harness,
        starter.call,
        RecomputeCallOverrides { model: Some("dog".into()), ..RecomputeCallOverrides::default() },
    )
    .await;
    assert_eq!((concierge.original.model.as_str(), concierge.rerun.model.as_str()), ("scripted", "dog"));
    assert_eq!(concierge.rerun.answer.expect("it is answered").text, "Buy, I say.");

    let (_, after) = harness.engine.load_session(&harness.session).await.expect("it can be read");
    assert_eq!(
        (&after.session.threads, &after.session.phase_graphs),
        (&before.session.threads, &before.session.phase_graphs)
    );
    assert_eq!(
        (harness.replies().await, harness.handovers().await),
        (replies, handovers),
        "the conversation is not affected"
    );
    assert_eq!(harness.facts("map_parsed").await.len(), 2);
    assert_eq!(
        harness.send("go on").await.replies,
        ["Ask the second bank."],
        "the conversation continues where it was"
    );
}

#[tokio::test(start_paused = true)]
async fn s32_an_invalid_rerun_is_refused_and_costs_nothing() {
    let harness = ConciergeHarness::start("", Value::Null).await;
    harness.send("rent or buy?").await;
    let mapper = harness.calls("mapper").await[0].call;
    let before = harness.events().await.len();
    let refused = async |call: CallId, change: RecomputeCallOverrides| {
        let error = harness.engine.recompute_call(&harness.session, call, &change).await.expect_err("it is refused");
        (error.code(), error.to_string())
    };
    assert_eq!(refused(CallId(99), RecomputeCallOverrides::default()).await.0, "no-such-call");
    let (code, message) = refused(
        mapper,
        RecomputeCallOverrides { settings: json!({"stanze": "decide"}), ..RecomputeCallOverrides::default() },
    )
    .await;
    assert!(code == "bad-settings" && message.contains("`stanze` is not a setting"), "{message}");
    assert_eq!(harness.events().await.len(), before);
    harness.send("I stay five years").await;
    let second = harness.calls("concierge").await[1].call;
    let (code, message) = refused(
        second,
        RecomputeCallOverrides { settings: json!({"stance": "decide"}), ..RecomputeCallOverrides::default() },
    )
    .await;
    assert_eq!(
        (code, message.as_str()),
        ("nothing-changes", "the prompt of c6 does not depend on these settings; try c5, which opened its thread")
    );
}

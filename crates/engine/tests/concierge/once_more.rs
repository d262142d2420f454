//! One past step once more, set beside the first; the conversation does not move.

use segue_core::decide::RecomputeOptions;
use segue_core::ids::CallId;
use segue_engine::RecomputeResult;
use serde_json::{Value, json};

use crate::play::{Play, TO_THE_PLAN};

const OTHERS: &str = r#"
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

async fn again(play: &Play, call: CallId, change: RecomputeOptions) -> RecomputeResult {
    play.engine.recompute_call(&play.session, call, &change).await.expect("it is made once more")
}

#[tokio::test(start_paused = true)]
async fn s32_another_mapper_another_stance_and_another_concierge_stand_beside_the_first() {
    let play = Play::begin(OTHERS, Value::Null).await;
    play.say_all(&TO_THE_PLAN).await;
    let (mapper, starter) = (play.calls("mapper").await[0].clone(), play.calls("concierge").await[0].clone());
    let (_, before) = play.engine.load_session(&play.session).await.expect("it can be read");
    let (heard, handovers) = (play.heard().await, play.handovers().await);

    let map =
        again(&play, mapper.call, RecomputeOptions { model: Some("owl".into()), ..RecomputeOptions::default() }).await;
    let (then, now) = (map.original.answer.expect("it was answered"), map.rerun.answer.expect("it is answered"));
    assert!(then.text.contains("rent first") && now.text.contains("wait"));
    let (then, now) = (then.answer_summary.expect("a map is told"), now.answer_summary.expect("a map is told"));
    assert!(then.starts_with("shape: contested") && now.starts_with("shape: settled"), "{then}\n{now}");
    assert_eq!(play.sent(map.rerun.call).await, play.sent(mapper.call).await, "from the same inputs, to the byte");

    let stance = again(
        &play,
        starter.call,
        RecomputeOptions { settings: json!({"stance": "challenge"}), ..RecomputeOptions::default() },
    )
    .await;
    assert_eq!(stance.original.answer.expect("it was answered").text, "Rent, unless you stay for long.");
    assert!(stance.rerun.answer.expect("it is answered").text.starts_with("Why buy at all?"));
    assert_eq!(stance.changed_fragments, ["guidance"]);
    let made = play.calls("concierge").await.pop().expect("it was made");
    assert_eq!(
        made.recomputation.as_ref().map(|it| (it.call, it.changed_fragments.clone())),
        Some((starter.call, vec!["guidance".into()]))
    );

    let voice =
        again(&play, starter.call, RecomputeOptions { model: Some("dog".into()), ..RecomputeOptions::default() }).await;
    assert_eq!((voice.original.model.as_str(), voice.rerun.model.as_str()), ("scripted", "dog"));
    assert_eq!(voice.rerun.answer.expect("it is answered").text, "Buy, I say.");

    let (_, after) = play.engine.load_session(&play.session).await.expect("it can be read");
    assert_eq!(
        (&after.session.threads, &after.session.phase_graphs),
        (&before.session.threads, &before.session.phase_graphs)
    );
    assert_eq!((play.heard().await, play.handovers().await), (heard, handovers), "nobody heard of it");
    assert_eq!(play.facts("map_parsed").await.len(), 2);
    assert_eq!(
        play.say("go on").await.replies,
        ["Ask the second bank."],
        "and the conversation goes on where it stood"
    );
}

#[tokio::test(start_paused = true)]
async fn s32_what_cannot_be_made_once_more_is_refused_and_costs_nothing() {
    let play = Play::begin("", Value::Null).await;
    play.say("rent or buy?").await;
    let mapper = play.calls("mapper").await[0].call;
    let before = play.events().await.len();
    let refused = async |call: CallId, change: RecomputeOptions| {
        let error = play.engine.recompute_call(&play.session, call, &change).await.expect_err("it is refused");
        (error.code(), error.to_string())
    };
    assert_eq!(refused(CallId(99), RecomputeOptions::default()).await.0, "no-such-call");
    let (code, why) =
        refused(mapper, RecomputeOptions { settings: json!({"stanze": "decide"}), ..RecomputeOptions::default() })
            .await;
    assert!(code == "bad-settings" && why.contains("`stanze` is unknown"), "{why}");
    assert_eq!(play.events().await.len(), before);
    play.say("I stay five years").await;
    let second = play.calls("concierge").await[1].call;
    let (code, why) =
        refused(second, RecomputeOptions { settings: json!({"stance": "decide"}), ..RecomputeOptions::default() })
            .await;
    assert_eq!(
        (code, why.as_str()),
        (
            "nothing-changes",
            "nothing in the prompt of c6 depends on these settings; its thread began with c5, so try that one"
        )
    );
}

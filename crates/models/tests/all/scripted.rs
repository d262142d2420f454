//! The scripted model beyond its page.

use std::time::Duration;

use proptest::prelude::*;
use segue_core::ids::TurnId;
use segue_core::prompt::{ChatRole, FailureKind, PromptMessage, StopReason, TokenUsage};
use segue_models::scripted::{AnsweredBy, Scenario, ScriptedModel, ScriptedReply};
use segue_models::{LanguageModel, ModelSource, ReplyChunk, collect_reply};
use serde_json::json;
use tokio::time::{Instant, timeout};

use crate::support::{Asking, ask, nothing};

fn broken(toml: &str) -> String {
    toml.parse::<Scenario>().expect_err("a mistake").to_string()
}

fn in_turn(asking: Asking, turn: u32) -> Asking {
    let mut asking = asking;
    asking.call.turn = Some(TurnId(turn));
    asking
}

#[tokio::test]
async fn a_model_written_in_code_answers_and_remembers() {
    let usage = TokenUsage { input_tokens: 10, output_tokens: 2, ..TokenUsage::default() };
    let model = ScriptedModel::builder()
        .name("demo")
        .reply(ScriptedReply::text("first").role("speaker").turn(1).usage(usage).reasoning("hm"))
        .reply(ScriptedReply::json(json!({"said": "{{last}}"})).contains("\"quoted\""))
        .reply(ScriptedReply::tool_call("look", json!({"at": "{{last}}"})).turns(3..=4).stop(StopReason::Length))
        .reply(ScriptedReply::text("never").model("other"))
        .default_reply(ScriptedReply::text("default {{n}}"))
        .window_tokens(99)
        .build();
    let reply = in_turn(ask("hi"), 1).system("be kind").of(&model).await.expect("an answer");
    assert_eq!((reply.text.as_str(), reply.reasoning.as_str(), reply.usage), ("first", "hm", Some(usage)));
    let reply = in_turn(ask("a \"quoted\"\nword"), 2).of(&model).await.expect("an answer");
    assert_eq!(serde_json::from_str::<serde_json::Value>(&reply.text).expect("JSON")["said"], "a \"quoted\"\nword");
    let reply = in_turn(ask("sky"), 3).of(&model).await.expect("an answer");
    assert_eq!((reply.tool_calls[0].arguments["at"].as_str(), reply.stop_reason), (Some("sky"), StopReason::Length));
    for n in 1..3 {
        assert_eq!(nothing().of(&model).await.expect("an answer").text, format!("default {n}"));
    }

    let seen = model.clone().received_requests();
    assert_eq!(model.call_count(), 5);
    assert_eq!((seen[0].last_user_text().as_str(), seen[0].system_text().as_str()), ("hi", "be kind"));
    let answered: Vec<_> = seen.iter().map(|seen| seen.answered_by).collect();
    assert_eq!(answered[..2], [AnsweredBy::Reply(1), AnsweredBy::Reply(2)]);
    assert_eq!(answered[2..], [AnsweredBy::Reply(3), AnsweredBy::Default, AnsweredBy::Default]);
    assert_eq!(model.unused_replies(), ["[[reply]] 4"]);
    let description = model.describe();
    assert_eq!((description.kind, description.window_tokens), (ModelSource::Scripted, 99));
    assert_eq!(description.label, "scripted: demo");
}

#[tokio::test]
async fn tool_call_ids_differ_from_use_to_use() {
    let model =
        ScriptedModel::builder().reply(ScriptedReply::tool_call("a", json!({})).and_tool_call("b", json!({}))).build();
    let mut ids = std::collections::BTreeSet::new();
    for _ in 0..3 {
        ids.extend(ask("x").of(&model).await.expect("an answer").tool_calls.into_iter().map(|call| call.id));
    }
    assert_eq!(ids.len(), 6);
}

#[tokio::test]
async fn a_failure_carries_its_kind_and_its_wish() {
    let model =
        ScriptedModel::builder().reply(ScriptedReply::fail(FailureKind::Overload, "full").retry_after_ms(7)).build();
    let failure = ask("x").of(&model).await.expect_err("it fails");
    assert_eq!((failure.kind, failure.retry_after_ms), (FailureKind::Overload, Some(7)));
}

#[tokio::test]
async fn a_broken_stream_shows_what_came_before() {
    let model = ScriptedModel::builder().reply(ScriptedReply::chunks(["a", "b", "c"]).and_fail_after_chunks(2)).build();
    let mut shown = Vec::new();
    let outcome = collect_reply(model.stream(ask("x").request()), |chunk| shown.push(chunk.clone())).await;
    assert_eq!(outcome.expect_err("it breaks").kind, FailureKind::Network);
    assert_eq!(shown, [ReplyChunk::Text("a".into()), ReplyChunk::Text("b".into())]);
}

#[tokio::test(start_paused = true)]
async fn dropping_the_stream_cancels_the_call() {
    let model = ScriptedModel::builder()
        .reply(ScriptedReply::text("abc").chunk_chars(1).chunk_delay_ms(1000).contains("slow"))
        .reply(ScriptedReply::hang())
        .build();
    for (message, said) in [("slow", "ab"), ("hang", "")] {
        let mut shown = String::new();
        let call = collect_reply(model.stream(ask(message).request()), |chunk| {
            if let ReplyChunk::Text(text) = chunk {
                shown.push_str(text);
            }
        });
        assert!(timeout(Duration::from_millis(1500), call).await.is_err(), "{message} is still running");
        assert_eq!(shown, said);
        let left = tokio::runtime::Handle::current().metrics().num_alive_tasks();
        assert_eq!(left, 0, "nothing goes on behind a dropped stream");
    }
}

#[tokio::test(start_paused = true)]
async fn delays_follow_the_clock_they_are_given() {
    let model = ScriptedModel::builder()
        .reply(ScriptedReply::text("abcd").chunk_chars(2).delay_ms(3_600_000).chunk_delay_ms(5))
        .build();
    let start = Instant::now();
    assert_eq!(ask("x").of(&model).await.expect("an answer").text, "abcd");
    assert_eq!(start.elapsed(), Duration::from_millis(3_600_005));
}

#[tokio::test]
async fn an_empty_name_means_that_the_call_has_none() {
    let model = ScriptedModel::builder()
        .reply(ScriptedReply::text("alone").agent(""))
        .reply(ScriptedReply::text("someone").agent("?*"))
        .build();
    assert_eq!(ask("x").of(&model).await.expect("an answer").text, "alone");
    let mut asking = ask("x");
    asking.call.agent = Some("coder-1".into());
    assert_eq!(asking.of(&model).await.expect("an answer").text, "someone");
}

#[tokio::test]
async fn only_the_newest_requests_are_remembered() {
    let model = ScriptedModel::builder().reply(ScriptedReply::text("x")).received_requests_max(2).build();
    for message in ["a", "b", "c"] {
        let _ = ask(message).of(&model).await;
    }
    let last: Vec<_> =
        model.received_requests().iter().map(segue_models::scripted::ReceivedRequest::last_user_text).collect();
    assert_eq!((last, model.call_count()), (vec!["b".to_owned(), "c".to_owned()], 3));
}

#[test]
fn the_users_side_is_read_and_kept() {
    let scenario: Scenario = r#"
        [scenario]
        name = "n"
        flow = "chat"
        [[say]]
        text = "one"
        expect_contains = "a"
        expect_lacks = ["b", "c"]
        expect_phase = "explore"
        expect_calls = 3
        expect_failure = "timeout"
        [[say]]
        text = "two"
    "#
    .parse()
    .expect("a scenario");
    assert_eq!((scenario.name.as_deref(), scenario.flow), (Some("n"), Some("chat".into())));
    let (first, second) = (&scenario.user_messages[0], &scenario.user_messages[1]);
    assert_eq!((first.text.as_str(), first.line), ("one", 5));
    assert_eq!((first.expect.contains.len(), first.expect.lacks.len(), first.expect.calls), (1, 2, Some(3)));
    assert_eq!(first.expect.phase, Some("explore".into()));
    assert_eq!(first.expect.failure, Some(FailureKind::Timeout));
    assert_eq!(second.expect, segue_models::scripted::TurnExpectation::default());
}

#[test]
fn mistakes_are_named_with_their_place() {
    let cases = [
        ("[[reply]\n", "line 1: "),
        ("x = 1", "line 1: unknown key `x`; known are scenario, say, reply, default"),
        ("[[replay]]\ntext = 'a'", "line 1: unknown key `replay`; did you mean `reply`?"),
        ("[[reply]]\ntext = 5", "line 2, [[reply]] 1: `text`: expected a text in quotes, found integer"),
        ("[[reply]]\ntext = 'a'\njson = {}", "line 3, [[reply]] 1: `json`: `text` is given already"),
        ("[[reply]]\njson = 'nope'", "line 2, [[reply]] 1: `json`: this is no JSON"),
        ("[[reply]]\ntext = 'a'\ntimes = 0", "line 3, [[reply]] 1: `times`: "),
        ("[[reply]]\ntext = 'a'\nturn = '4..2'", "line 3, [[reply]] 1: `turn`: the range `4..2` is empty"),
        ("[[reply]]\ntext = 'a'\nattempt = -1", "line 3, [[reply]] 1: `attempt`: expected a number"),
        ("[[reply]]\ntext = 'a'\nmessage = 'm'", "line 1, [[reply]] 1: `message` belongs to `fail`"),
        ("[[reply]]\nfail = 'network'\nhang = true", "line 1, [[reply]] 1: `fail` and `hang` exclude each other"),
        ("[[reply]]\nchunks = ['a']\nchunk_chars = 2", "line 1, [[reply]] 1: `chunk_chars` cuts"),
        (
            "[[reply]]\ntext = 'a'\nusage = { inptu = 3 }",
            "line 3, [[reply]] 1: unknown key `inptu`; did you mean `input`?",
        ),
        ("[[reply]]\ntool_calls = [{ arguments = {} }]", "line 2, [[reply]] 1: a tool call needs a `name`"),
        (
            "[[reply]]\ntext = 'a'\nstop = 'dome'",
            "line 3, [[reply]] 1: `stop`: unknown word `dome`; did you mean `done`?",
        ),
        ("[default]\ntext = 'a'\nrole = 'b'", "line 3: `role`: the default takes no conditions"),
        ("[[say]]\nexpect_calls = 1", "line 1, [[say]] 1: `text` is missing"),
        ("reply = 3", "line 1: `reply`: expected a list of tables"),
    ];
    for (toml, wanted) in cases {
        let found = broken(toml);
        assert!(found.starts_with(wanted), "{toml:?}\nwanted {wanted}\nfound  {found}");
    }
    let long = format!("[[reply]]\ntext = 'a'\npattern = '{}'", "*".repeat(2000));
    assert!(broken(&long).contains("too long"));
    assert!(broken(&"[[reply]]\ntext = 'a'\n".repeat(5000)).contains("too many"));
    assert!(broken(&" ".repeat(5 << 20)).contains("too long"));
}

#[tokio::test]
async fn a_miss_without_any_entry_still_says_what_was_asked() {
    let failure = nothing().of(&ScriptedModel::new(Scenario::default())).await.expect_err("nobody answers");
    assert_eq!(failure.kind, FailureKind::BadRequest);
    assert_eq!(
        failure.message,
        "no scripted reply for this call: role `speaker`, ask `answer`, call 1, attempt 1, model `any`, no user message"
    );
}

#[tokio::test]
async fn megabytes_are_matched_and_echoed() {
    let model = ScriptedModel::builder()
        .reply(ScriptedReply::text("{{last}}").pattern("*needle*z?").chunk_chars(3))
        .reply(ScriptedReply::text("no"))
        .build();
    let hay = "żółć ".repeat(200_000) + "needle zż";
    assert_eq!(ask(&hay).of(&model).await.expect("an answer").text, hay);
    let mut asking = nothing();
    asking.prompt.messages_mut().push(PromptMessage::empty(ChatRole::User));
    assert_eq!(asking.of(&model).await.expect("an answer").text, "no");
}

proptest! {
    #[test]
    fn no_text_makes_reading_panic(text in "([\\[\\]a-z=\"'{}0-9. \n]|reply|text|turn|json)*") {
        let _ = text.parse::<Scenario>();
    }

    #[test]
    fn the_first_entry_that_fits_and_is_left_wins(limits in prop::collection::vec(1u32..4, 1..5), calls in 1usize..12) {
        let builder = limits.iter().enumerate().fold(ScriptedModel::builder(), |builder, (index, times)| {
            builder.reply(ScriptedReply::text(index.to_string()).times(*times))
        });
        let model = builder.default_reply(ScriptedReply::text("rest")).build();
        let expected = limits.iter().enumerate().flat_map(|(index, times)| vec![index.to_string(); *times as usize]);
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        for expected in expected.chain(std::iter::repeat("rest".to_owned())).take(calls) {
            let reply = runtime.block_on(ask("x").of(&model)).expect("an answer");
            prop_assert_eq!(reply.text, expected);
        }
    }
}

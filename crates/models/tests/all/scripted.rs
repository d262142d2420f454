//! The scripted model beyond the examples on its documentation page.

use std::sync::Arc;

use std::time::Duration;

use proptest::prelude::*;
use segue_core::ids::TurnId;
use segue_core::prompt::{CallFailureKind, ChatRole, PromptMessage, StopReason, TokenUsage};
use segue_models::scripted::{MatchedScriptedReply, Scenario, ScriptedModel, ScriptedReply};
use segue_models::{LanguageModel, ModelBackendKind, ReplyChunk, collect_reply};
use serde_json::json;
use tokio::time::{Instant, timeout};

use crate::support::{TestRequest, ask, empty_request};

fn parse_error(toml: &str) -> String {
    toml.parse::<Scenario>().expect_err("an error").to_string()
}

fn in_turn(request: TestRequest, turn: u32) -> TestRequest {
    let mut request = request;
    request.call.turn = Some(TurnId(turn));
    request
}

#[tokio::test]
async fn a_model_built_in_code_answers_and_records_requests() {
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
    let reply = in_turn(ask("hi"), 1).system("be kind").send_to(&model).await.expect("a reply");
    assert_eq!((reply.text.as_str(), reply.reasoning.as_str(), reply.usage), ("first", "hm", Some(usage)));
    let reply = in_turn(ask("a \"quoted\"\nword"), 2).send_to(&model).await.expect("a reply");
    assert_eq!(serde_json::from_str::<serde_json::Value>(&reply.text).expect("JSON")["said"], "a \"quoted\"\nword");
    let reply = in_turn(ask("sky"), 3).send_to(&model).await.expect("a reply");
    assert_eq!((reply.tool_calls[0].arguments["at"].as_str(), reply.stop_reason), (Some("sky"), StopReason::Length));
    for n in 1..3 {
        assert_eq!(empty_request().send_to(&model).await.expect("a reply").text, format!("default {n}"));
    }

    let received = model.clone().received_requests();
    assert_eq!(model.call_count(), 5);
    assert_eq!((received[0].last_user_text().as_str(), received[0].system_text().as_str()), ("hi", "be kind"));
    let answered_by: Vec<_> = received.iter().map(|received| received.answered_by).collect();
    assert_eq!(answered_by[..2], [MatchedScriptedReply::Reply(1), MatchedScriptedReply::Reply(2)]);
    assert_eq!(
        answered_by[2..],
        [MatchedScriptedReply::Reply(3), MatchedScriptedReply::Default, MatchedScriptedReply::Default]
    );
    assert_eq!(model.unused_replies(), ["[[reply]] 4"]);
    let description = model.describe();
    assert_eq!((description.kind, description.window_tokens), (ModelBackendKind::Scripted, 99));
    assert_eq!(description.label, "scripted: demo");
}

#[tokio::test]
async fn tool_call_ids_differ_from_use_to_use() {
    let model =
        ScriptedModel::builder().reply(ScriptedReply::tool_call("a", json!({})).and_tool_call("b", json!({}))).build();
    let mut ids = std::collections::BTreeSet::new();
    for _ in 0..3 {
        ids.extend(ask("x").send_to(&model).await.expect("a reply").tool_calls.into_iter().map(|call| call.id));
    }
    assert_eq!(ids.len(), 6);
}

#[tokio::test]
async fn a_failure_carries_its_kind_and_retry_delay() {
    let model = ScriptedModel::builder()
        .reply(ScriptedReply::fail(CallFailureKind::Overload, "full").retry_after_ms(7))
        .build();
    let failure = ask("x").send_to(&model).await.expect_err("a failure");
    assert_eq!((failure.kind, failure.retry_after_ms), (CallFailureKind::Overload, Some(7)));
}

#[tokio::test]
async fn a_broken_stream_shows_what_came_before() {
    let model = ScriptedModel::builder().reply(ScriptedReply::chunks(["a", "b", "c"]).and_fail_after_chunks(2)).build();
    let mut shown = Vec::new();
    let outcome = collect_reply(model.stream(ask("x").model_request()), |chunk| shown.push(chunk.clone())).await;
    assert_eq!(outcome.expect_err("a failure").kind, CallFailureKind::Network);
    assert_eq!(shown, [ReplyChunk::Text("a".into()), ReplyChunk::Text("b".into())]);
}

#[tokio::test(start_paused = true)]
async fn dropping_the_stream_cancels_the_call() {
    let model = ScriptedModel::builder()
        .reply(ScriptedReply::text("abc").chunk_chars(1).chunk_delay_ms(1000).contains("slow"))
        .reply(ScriptedReply::hang())
        .build();
    for (message, expected) in [("slow", "ab"), ("hang", "")] {
        let mut shown = String::new();
        let call = collect_reply(model.stream(ask(message).model_request()), |chunk| {
            if let ReplyChunk::Text(text) = chunk {
                shown.push_str(text);
            }
        });
        assert!(timeout(Duration::from_millis(1500), call).await.is_err(), "{message} is still running");
        assert_eq!(shown, expected);
        let left = tokio::runtime::Handle::current().metrics().num_alive_tasks();
        assert_eq!(left, 0, "no task is left after a dropped stream");
    }
}

#[tokio::test(start_paused = true)]
async fn delays_follow_the_tokio_clock() {
    let model = ScriptedModel::builder()
        .reply(ScriptedReply::text("abcd").chunk_chars(2).delay_ms(3_600_000).chunk_delay_ms(5))
        .build();
    let start = Instant::now();
    assert_eq!(ask("x").send_to(&model).await.expect("a reply").text, "abcd");
    assert_eq!(start.elapsed(), Duration::from_millis(3_600_005));
}

#[tokio::test]
async fn an_empty_name_matches_a_call_without_one() {
    let model = ScriptedModel::builder()
        .reply(ScriptedReply::text("alone").agent(""))
        .reply(ScriptedReply::text("someone").agent("?*"))
        .build();
    assert_eq!(ask("x").send_to(&model).await.expect("a reply").text, "alone");
    let mut request = ask("x");
    request.call.agent = Some("coder-1".into());
    assert_eq!(request.send_to(&model).await.expect("a reply").text, "someone");
}

#[tokio::test]
async fn only_the_newest_requests_are_kept() {
    let model = ScriptedModel::builder().reply(ScriptedReply::text("x")).received_requests_max(2).build();
    for message in ["a", "b", "c"] {
        let _ = ask(message).send_to(&model).await;
    }
    let last: Vec<_> = model
        .received_requests()
        .iter()
        .map(segue_models::scripted::ScriptedModelReceivedRequest::last_user_text)
        .collect();
    assert_eq!((last, model.call_count()), (vec!["b".to_owned(), "c".to_owned()], 3));
}

#[test]
fn the_users_side_is_parsed() {
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
    assert_eq!(first.expect.failure, Some(CallFailureKind::Timeout));
    assert_eq!(second.expect, segue_models::scripted::ScenarioTurnExpectation::default());
}

#[test]
fn errors_name_their_line_and_entry() {
    let cases = [
        ("[[reply]\n", "line 1: "),
        ("x = 1", "line 1: unknown key `x`; expected one of scenario, say, reply, default"),
        ("[[replay]]\ntext = 'a'", "line 1: unknown key `replay`; did you mean `reply`?"),
        ("[[reply]]\ntext = 5", "line 2, [[reply]] 1: `text`: expected a string, found integer"),
        ("[[reply]]\ntext = 'a'\njson = {}", "line 3, [[reply]] 1: `json`: `text` is already given"),
        ("[[reply]]\njson = 'nope'", "line 2, [[reply]] 1: `json`: not valid JSON"),
        ("[[reply]]\ntext = 'a'\ntimes = 0", "line 3, [[reply]] 1: `times`: "),
        ("[[reply]]\ntext = 'a'\nturn = '4..2'", "line 3, [[reply]] 1: `turn`: the range `4..2` is empty"),
        ("[[reply]]\ntext = 'a'\nattempt = -1", "line 3, [[reply]] 1: `attempt`: expected a number"),
        ("[[reply]]\ntext = 'a'\nmessage = 'm'", "line 1, [[reply]] 1: `message` is only allowed with `fail`"),
        ("[[reply]]\nfail = 'network'\nhang = true", "line 1, [[reply]] 1: `fail` and `hang` exclude each other"),
        ("[[reply]]\nchunks = ['a']\nchunk_chars = 2", "line 1, [[reply]] 1: `chunk_chars` needs"),
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
    for (toml, expected) in cases {
        let found = parse_error(toml);
        assert!(found.starts_with(expected), "{toml:?}\nexpected {expected}\nfound    {found}");
    }
    let long = format!("[[reply]]\ntext = 'a'\npattern = '{}'", "*".repeat(2000));
    assert!(parse_error(&long).contains("too long"));
    assert!(parse_error(&"[[reply]]\ntext = 'a'\n".repeat(5000)).contains("too many"));
    assert!(parse_error(&" ".repeat(5 << 20)).contains("too long"));
}

#[tokio::test]
async fn a_mismatch_without_entries_still_describes_the_call() {
    let failure = empty_request().send_to(&ScriptedModel::new(Scenario::default())).await.expect_err("no entry");
    assert_eq!(failure.kind, CallFailureKind::BadRequest);
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
    let text = "żółć ".repeat(200_000) + "needle zż";
    assert_eq!(ask(&text).send_to(&model).await.expect("a reply").text, text);
    let mut request = empty_request();
    Arc::make_mut(&mut request.prompt.messages)
        .push(PromptMessage { parts: vec![], ..PromptMessage::from_text(ChatRole::User, "") });
    assert_eq!(request.send_to(&model).await.expect("a reply").text, "no");
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in "([\\[\\]a-z=\"'{}0-9. \n]|reply|text|turn|json)*") {
        let _ = text.parse::<Scenario>();
    }

    #[test]
    fn the_first_matching_entry_that_is_not_used_up_wins(limits in prop::collection::vec(1u32..4, 1..5), calls in 1usize..12) {
        let builder = limits.iter().enumerate().fold(ScriptedModel::builder(), |builder, (index, times)| {
            builder.reply(ScriptedReply::text(index.to_string()).times(*times))
        });
        let model = builder.default_reply(ScriptedReply::text("rest")).build();
        let expected = limits.iter().enumerate().flat_map(|(index, times)| vec![index.to_string(); *times as usize]);
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        for expected in expected.chain(std::iter::repeat("rest".to_owned())).take(calls) {
            let reply = runtime.block_on(ask("x").send_to(&model)).expect("a reply");
            prop_assert_eq!(reply.text, expected);
        }
    }
}

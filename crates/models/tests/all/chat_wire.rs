//! OpenAI's chat completions: the request as it is sent, the stream as it is read.

use segue_core::prompt::{
    ChatRole, FailureKind, ImageMediaType, ModelReply, PromptImage, PromptMessage, StopReason, TokenUsage, ToolCall,
};
use segue_models::vendor::{
    ChatDialect, FeatureSupport, GenerationParams, JsonMode, MaxTokensField, ModelCapabilities, ReasoningEffort,
    ThinkingSupport, WireFormat,
};
use segue_models::{LanguageModel, ReplyChunk};
use serde_json::json;

use crate::server::{KEY, Server, answer, events, of, stream};
use crate::support::{Asking, ask, nothing};

const HELLO: [&str; 4] = [
    r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}"#,
    r#"{"choices":[{"index":0,"delta":{"content":"Hel"},"finish_reason":null}]}"#,
    r#"{"choices":[{"index":0,"delta":{"content":"lo"},"finish_reason":"stop"}]}"#,
    "[DONE]",
];

async fn reply(data: &[&str]) -> ModelReply {
    let server = Server::new(vec![events(data)]).await;
    ask("hi").of(&server.vendor(WireFormat::Chat)).await.expect("an answer")
}

/// A conversation with everything in it.
fn everything() -> Asking {
    let look = ToolCall { id: "call_1".into(), name: "look.up".into(), arguments: json!({"at": "sky"}) };
    let mut asking = nothing().system("Be brief.").user("What is up?");
    asking
        .prompt
        .messages_mut()
        .push(PromptMessage { tool_calls: vec![look], ..PromptMessage::empty(ChatRole::Assistant) });
    asking.prompt.messages_mut().push(PromptMessage {
        tool_call_id: Some("call_1".into()),
        ..PromptMessage::from_text(ChatRole::Tool, "blue")
    });
    let mut asking = asking.assistant("The sky.").user("And this?").user("Look well.");
    let image = PromptImage { media_type: ImageMediaType::Png, data: "aWk=".into() };
    let last = PromptMessage { images: vec![image], ..PromptMessage::from_text(ChatRole::User, "Here.") };
    asking.prompt.messages_mut().push(last);
    asking.tool("look.up", "Looks.", json!({"type": "object", "properties": {"at": {"type": "string"}}}))
}

#[tokio::test]
async fn a_conversation_is_sent_as_the_format_wants_it() {
    let server = Server::new(vec![events(&HELLO)]).await;
    everything().of(&server.vendor(WireFormat::Chat)).await.expect("an answer");
    let seen = server.only();
    assert_eq!(seen.line, "POST /v1/chat/completions HTTP/1.1");
    assert_eq!(seen.header("authorization"), Some(format!("Bearer {KEY}").as_str()));
    assert_eq!(seen.header("content-type"), Some("application/json"));
    assert_eq!(
        seen.body,
        json!({
            "model": "m-1",
            "stream": true,
            "stream_options": { "include_usage": true },
            "max_tokens": 4096,
            "messages": [
                { "role": "system", "content": "Be brief." },
                { "role": "user", "content": "What is up?" },
                { "role": "assistant", "content": null, "tool_calls": [
                    { "id": "call_1", "type": "function", "function": { "name": "look_up", "arguments": "{\"at\":\"sky\"}" } }
                ]},
                { "role": "tool", "tool_call_id": "call_1", "content": "blue" },
                { "role": "assistant", "content": "The sky." },
                { "role": "user", "content": "And this?\n\nLook well." },
                { "role": "user", "content": [
                    { "type": "text", "text": "Here." },
                    { "type": "image_url", "image_url": { "url": "data:image/png;base64,aWk=" } }
                ]},
            ],
            "tools": [{ "type": "function", "function": {
                "name": "look_up",
                "description": "Looks.",
                "parameters": { "type": "object", "properties": { "at": { "type": "string" } } },
            }}],
        })
    );
}

#[tokio::test]
async fn openai_itself_is_told_the_longest_answer_in_its_own_word_with_room_to_think() {
    let server = Server::new(vec![events(&HELLO)]).await;
    let mut connection = server.connection(WireFormat::Chat);
    let dialect = ChatDialect { max_tokens_field: MaxTokensField::MaxCompletionTokens, ..ChatDialect::default() };
    connection.capabilities = ModelCapabilities {
        thinking: ThinkingSupport::Budget,
        output_tokens_max: Some(10_000),
        dialect,
        ..ModelCapabilities::with_unknown_support(100_000)
    };
    connection.params = GenerationParams { temperature: Some(0.5), effort: Some(ReasoningEffort::Low) };
    ask("hi").of(&of(connection)).await.expect("an answer");
    let body = server.only().body;
    assert_eq!(body["max_completion_tokens"], json!(4096 + 1024));
    assert_eq!((body.get("temperature"), &body["reasoning_effort"]), (None, &json!("low")), "it takes no temperature");
    assert!(body.get("max_tokens").is_none());
}

#[tokio::test]
async fn instructions_are_marked_where_the_cache_can_be_marked() {
    let server = Server::new(vec![events(&HELLO)]).await;
    let mut connection = server.connection(WireFormat::Chat);
    connection.capabilities.cache_breakpoints = true;
    nothing().system("Be brief.").user("hi").of(&of(connection)).await.expect("an answer");
    let marked = json!([{ "type": "text", "text": "Be brief.", "prompt_cache_breakpoint": { "mode": "explicit" } }]);
    assert_eq!(server.only().body["messages"][0]["content"], marked);
}

#[tokio::test]
async fn a_schema_is_sent_in_the_way_the_model_can_follow() {
    let closed = json!({"type": "object", "additionalProperties": false, "required": ["a"], "properties": {"a": {"type": "string"}}});
    let open = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    let say = events(&[r#"{"choices":[{"delta":{"content":"{\"a\":\"b\"}"},"finish_reason":"stop"}]}"#, "[DONE]"]);
    let server = Server::new(vec![say]).await;
    for (json, schema) in
        [(JsonMode::Schema, &closed), (JsonMode::Schema, &open), (JsonMode::Object, &open), (JsonMode::Prompt, &open)]
    {
        let mut connection = server.connection(WireFormat::Chat);
        connection.capabilities.json = json;
        let reply = nothing().system("S").user("U").json(schema.clone()).of(&of(connection)).await.expect("an answer");
        assert_eq!(reply.text, r#"{"a":"b"}"#);
    }
    let seen = server.seen();
    let format = |place: usize| seen[place].body.get("response_format").cloned();
    let sent = |strict: bool, schema| json!({"type": "json_schema", "json_schema": {"name": "answer", "strict": strict, "schema": schema}});
    assert_eq!(format(0), Some(sent(true, &closed)));
    assert_eq!(format(1), Some(sent(false, &open)));
    assert_eq!(format(2), Some(json!({"type": "json_object"})));
    assert_eq!(format(3), None);
    let system = |place: usize| seen[place].body["messages"][0]["content"].as_str().expect("a text").to_owned();
    assert_eq!(system(0), "S");
    assert!(system(2).starts_with("S\n\n") && system(2).ends_with(&open.to_string()), "{}", system(2));
    assert_eq!(system(2), system(3));
}

#[tokio::test]
async fn words_thoughts_and_figures_are_told_apart() {
    let reply = reply(&[
        r#"{"choices":[{"delta":{"reasoning_content":"hm, "}}]}"#,
        r#"{"choices":[{"delta":{"reasoning":"so"}}]}"#,
        r#"{"choices":[{"delta":{"content":"Yes."}}]}"#,
        r#"{"choices":[{"delta":{},"finish_reason":"length"}]}"#,
        r#"{"choices":[],"usage":{"prompt_tokens":100,"completion_tokens":20,"prompt_tokens_details":{"cached_tokens":64},"completion_tokens_details":{"reasoning_tokens":5}}}"#,
        "[DONE]",
    ])
    .await;
    assert_eq!(
        (reply.text.as_str(), reply.reasoning.as_str(), reply.stop_reason),
        ("Yes.", "hm, so", StopReason::Length)
    );
    assert_eq!(
        reply.usage,
        Some(TokenUsage {
            input_tokens: 100,
            output_tokens: 20,
            cached_tokens: 64,
            reasoning_tokens: 5,
            ..TokenUsage::default()
        })
    );
}

#[tokio::test]
async fn figures_are_found_wherever_a_server_puts_them() {
    let usage = async |figures: &str| {
        let last = format!(r#"{{"choices":[{{"delta":{{"content":"x"}},"finish_reason":"stop"}}],{figures}}}"#);
        reply(&[&last, "[DONE]"]).await.usage
    };
    let cached = |cached| {
        Some(TokenUsage { input_tokens: 10, output_tokens: 2, cached_tokens: cached, ..TokenUsage::default() })
    };
    assert_eq!(
        usage(r#""usage":{"prompt_tokens":10,"completion_tokens":2,"prompt_cache_hit_tokens":7}"#).await,
        cached(7)
    );
    assert_eq!(usage(r#""x_groq":{"usage":{"prompt_tokens":10,"completion_tokens":2}}"#).await, cached(0));
    assert_eq!(usage(r#""usage":{"prompt_tokens":10,"completion_tokens":2},"timings":{"cache_n":8}"#).await, cached(8));
    assert_eq!(usage(r#""usage":null"#).await, None);
    let apart = usage(r#""usage":{"prompt_tokens":10,"completion_tokens":2,"total_tokens":17,"completion_tokens_details":{"reasoning_tokens":5}}"#).await;
    assert_eq!(
        apart,
        Some(TokenUsage { input_tokens: 10, output_tokens: 7, reasoning_tokens: 5, ..TokenUsage::default() }),
        "thoughts count as answer"
    );
}

#[tokio::test]
async fn thoughts_in_tags_are_no_part_of_the_answer() {
    let reply = reply(&[
        r#"{"choices":[{"delta":{"content":"<thi"}}]}"#,
        r#"{"choices":[{"delta":{"content":"nk>hm</th"}}]}"#,
        r#"{"choices":[{"delta":{"content":"ink>\n\nYes."},"finish_reason":"stop"}]}"#,
        "[DONE]",
    ])
    .await;
    assert_eq!((reply.text.as_str(), reply.reasoning.as_str()), ("Yes.", "hm"));
}

#[tokio::test]
async fn an_answer_that_begins_within_a_thought_is_told_from_it_where_that_is_known() {
    let words = |key: &str, words: &str| json!({ "choices": [{ "delta": { key: words } }] }).to_string();
    let end = r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#;
    let told = async |told: &[&str]| {
        let server = Server::new(vec![events(told)]).await;
        let mut connection = server.connection(WireFormat::Chat);
        connection.capabilities.dialect.starts_in_thinking = true;
        ask("hi").of(&of(connection)).await
    };
    let reply =
        told(&[&words("content", "hm, </th"), &words("content", "ink>\n\nYes."), end]).await.expect("an answer");
    assert_eq!((reply.text.as_str(), reply.reasoning.as_str()), ("Yes.", "hm, "));
    let reply = told(&[&words("reasoning_content", "hm"), &words("content", "Yes."), end]).await.expect("an answer");
    assert_eq!((reply.text.as_str(), reply.reasoning.as_str()), ("Yes.", "hm"), "the server tells them apart itself");
    let failure = told(&[&words("content", "hm, so"), end]).await.expect_err("it only thought");
    assert_eq!(failure.kind, FailureKind::UnusableReply);
}

#[tokio::test]
async fn tool_calls_in_pieces_become_whole_and_get_their_own_names_back() {
    let server = Server::new(vec![events(&[
        r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"look_up","arguments":""}}]}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"at\":"}},{"index":1,"id":"b","function":{"name":"other","arguments":"{}"}}]}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\"sky\"}"}}]},"finish_reason":"tool_calls"}]}"#,
        "[DONE]",
    ])])
    .await;
    let reply = everything().of(&server.vendor(WireFormat::Chat)).await.expect("an answer");
    let calls: Vec<_> =
        reply.tool_calls.iter().map(|call| (call.id.as_str(), call.name.as_str(), call.arguments.clone())).collect();
    assert_eq!(calls, [("a", "look.up", json!({"at": "sky"})), ("b", "other", json!({}))]);
    assert_eq!(reply.stop_reason, StopReason::ToolCalls);
}

#[tokio::test]
async fn chunks_come_as_they_are_sent_however_the_bytes_are_cut() {
    let text: String = HELLO.iter().map(|data| format!("data: {data}\r\n\r\n")).collect();
    let letters: Vec<String> = text.chars().map(String::from).collect();
    let letters: Vec<&str> = letters.iter().map(String::as_str).collect();
    let server = Server::new(vec![stream(&letters)]).await;
    let chunks = ask("hi").chunks(&server.vendor(WireFormat::Chat)).await;
    let texts: Vec<_> = chunks
        .iter()
        .filter_map(|chunk| if let Ok(ReplyChunk::Text(text)) = chunk { Some(text.as_str()) } else { None })
        .collect();
    assert_eq!(texts, ["Hel", "lo"]);
    assert!(matches!(chunks.last(), Some(Ok(ReplyChunk::Finish(_)))));
}

#[tokio::test]
async fn a_server_that_never_says_done_but_gives_a_reason_is_done() {
    assert_eq!(reply(&HELLO[..3]).await.text, "Hello");
}

#[tokio::test]
async fn an_answer_in_one_piece_is_taken_too() {
    let body = r#"{"choices":[{"message":{"role":"assistant","content":"Hello","tool_calls":[{"id":"a","function":{"name":"x","arguments":{"n":1}}}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":3,"completion_tokens":1}}"#;
    let server = Server::new(vec![answer(200, "application/json; charset=utf-8", body)]).await;
    let reply = ask("hi").of(&server.vendor(WireFormat::Chat)).await.expect("an answer");
    assert_eq!(
        (reply.text.as_str(), reply.stop_reason, reply.usage.map(|usage| usage.input_tokens)),
        ("Hello", StopReason::ToolCalls, Some(3))
    );
    assert_eq!(reply.tool_calls[0].arguments, json!({"n": 1}));
}

#[tokio::test]
async fn a_refusal_in_words_is_a_filtered_answer() {
    let reply = reply(&[
        r#"{"choices":[{"delta":{"refusal":"I will not."}}]}"#,
        r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#,
        "[DONE]",
    ])
    .await;
    assert_eq!((reply.text.as_str(), reply.stop_reason), ("I will not.", StopReason::ContentFilter));
}

#[tokio::test]
async fn what_a_model_cannot_do_is_not_even_asked() {
    let server = Server::new(vec![events(&HELLO)]).await;
    let mut connection = server.connection(WireFormat::Chat);
    connection.capabilities = ModelCapabilities { images: FeatureSupport::No, ..connection.capabilities };
    let failure = everything().of(&of(connection.clone())).await.expect_err("it cannot see");
    assert_eq!(failure.to_string(), "bad request: `m-1` cannot look at images");
    connection.capabilities =
        ModelCapabilities { tools: FeatureSupport::No, ..ModelCapabilities::with_unknown_support(1) };
    let failure = everything().of(&of(connection)).await.expect_err("it has no hands");
    assert_eq!(failure.to_string(), "bad request: `m-1` cannot call tools");
    assert!(server.seen().is_empty());
}

#[tokio::test]
async fn it_says_what_it_is() {
    let server = Server::new(vec![events(&HELLO)]).await;
    let described = server.vendor(WireFormat::Chat).describe();
    assert!(described.label.starts_with("m-1 of acme at 127.0.0.1:"), "{}", described.label);
    assert_eq!(described.window_tokens, 100_000);
    let other = Server::new(vec![events(&HELLO)]).await;
    let place = server.vendor(WireFormat::Chat).provider().map(str::to_owned);
    assert_eq!(place, Some(format!("acme at {}", server.connection(WireFormat::Chat).host())));
    assert_ne!(place.as_deref(), other.vendor(WireFormat::Chat).provider(), "two servers do not fail together");
}

#[tokio::test]
async fn prompt_and_answer_fit_into_the_window_together() {
    let server = Server::new(vec![events(&HELLO)]).await;
    let mut connection = server.connection(WireFormat::Chat);
    let mut most = async |window_tokens, thinking, prompt_tokens, reply_tokens_max| {
        connection.capabilities = ModelCapabilities { window_tokens, thinking, ..connection.capabilities };
        let mut asking = ask("hi");
        (asking.prompt_tokens, asking.prompt.reply_tokens_max) = (prompt_tokens, reply_tokens_max);
        asking.of(&of(connection.clone())).await.expect("an answer");
        server.seen().last().expect("asked").body["max_tokens"].as_u64().expect("a number")
    };
    assert_eq!(most(8_192, ThinkingSupport::None, 100, 2_048).await, 2_048);
    assert_eq!(most(8_192, ThinkingSupport::Unknown, 100, 2_048).await, 4_096, "whoever may think is left room for it");
    assert_eq!(most(100_000, ThinkingSupport::Unknown, 100, 4_096).await, 4_096 + 8_192);
    assert_eq!(
        most(8_192, ThinkingSupport::Unknown, 4_000, 2_048).await,
        8_192 - 5_000 - 256,
        "the prompt may be longer than we count"
    );
    assert_eq!(most(8_192, ThinkingSupport::Unknown, 5_000, 2_048).await, 2_048, "what was planned stays");
    assert_eq!(most(8_192, ThinkingSupport::None, 7_900, 2_048).await, 36);
    assert_eq!(most(8_192, ThinkingSupport::None, 9_000, 2_048).await, 16, "the server says better why not");
}

#[tokio::test]
async fn thoughts_without_an_answer_are_no_answer() {
    let thinks = r#"{"choices":[{"delta":{"reasoning":"hm, "}}]}"#;
    let figures = r#"{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":64}}"#;
    for end in [
        r#"{"choices":[{"delta":{},"finish_reason":"length"}]}"#,
        r#"{"choices":[{"delta":{"content":" \n"},"finish_reason":"length"}]}"#,
    ] {
        let server = Server::new(vec![events(&[thinks, end, figures, "[DONE]"])]).await;
        let failure = ask("hi").of(&server.vendor(WireFormat::Chat)).await.expect_err("nothing was said");
        assert_eq!(failure.kind, FailureKind::UnusableReply);
        assert!(failure.message.contains("no room left to answer"), "{failure}");
        let spent = failure.cost.expect("it was made all the same");
        assert_eq!(spent.usage, Some(TokenUsage { input_tokens: 10, output_tokens: 64, ..TokenUsage::default() }));
    }
}

#[tokio::test]
async fn a_wish_for_figures_that_is_refused_is_not_repeated() {
    let refusal = r#"{"message":"Extra inputs are not permitted: stream_options"}"#;
    let server = Server::new(vec![answer(422, "application/json", refusal), events(&HELLO)]).await;
    let vendor = server.vendor(WireFormat::Chat);
    for _ in 0..2 {
        assert_eq!(ask("hi").of(&vendor).await.expect("an answer").text, "Hello");
    }
    let asks: Vec<bool> = server.seen().iter().map(|seen| seen.body.get("stream_options").is_some()).collect();
    assert_eq!(asks, [true, false, false]);
    let mut connection = server.connection(WireFormat::Chat);
    connection.capabilities.dialect.usage_always_sent = true;
    ask("hi").of(&of(connection)).await.expect("an answer");
    assert!(server.seen().last().expect("asked").body.get("stream_options").is_none(), "nor where it is known");
}

#[tokio::test]
async fn tool_calls_at_the_same_place_stay_apart() {
    let reply = reply(&[
        r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"look","arguments":"{\"at\":\"sky\"}"}}]}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"b","function":{"name":"look","arguments":"{\"at\":\"sea\"}"}}]},"finish_reason":"tool_calls"}]}"#,
        "[DONE]",
    ])
    .await;
    let calls: Vec<_> = reply.tool_calls.iter().map(|call| (call.id.as_str(), call.arguments.clone())).collect();
    assert_eq!(calls, [("a", json!({"at": "sky"})), ("b", json!({"at": "sea"}))]);
}

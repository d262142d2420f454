//! OpenAI's chat completions: requests and response streams.

use std::sync::Arc;

use segue_core::prompt::{
    CallFailureKind, ChatRole, ImageMediaType, ModelReply, PromptImage, PromptMessage, StopReason, TokenUsage, ToolCall,
};
use segue_models::vendor::{
    ChatCompletionsDialect, FeatureSupport, GenerationParams, JsonMode, MaxTokensField, ModelCapabilities,
    ReasoningEffort, ThinkingSupport, WireFormat,
};
use segue_models::{LanguageModel, ReplyChunk};
use serde_json::json;

use crate::server::{KEY, Server, events, full_response, stream, vendor_model};
use crate::support::{TestRequest, ask, empty_request};

const HELLO: [&str; 4] = [
    r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}"#,
    r#"{"choices":[{"index":0,"delta":{"content":"Hel"},"finish_reason":null}]}"#,
    r#"{"choices":[{"index":0,"delta":{"content":"lo"},"finish_reason":"stop"}]}"#,
    "[DONE]",
];

async fn reply(data: &[&str]) -> ModelReply {
    let server = Server::new(vec![events(data)]).await;
    ask("hi").send_to(&server.vendor(WireFormat::Chat)).await.expect("a reply")
}

/// A conversation with tool calls, images and tools.
fn full_conversation() -> TestRequest {
    let look = ToolCall { id: "call_1".into(), name: "look.up".into(), arguments: json!({"at": "sky"}) };
    let mut request = empty_request().system("Be brief.").user("What is up?");
    Arc::make_mut(&mut request.prompt.messages).push(PromptMessage {
        tool_calls: vec![look],
        parts: vec![],
        ..PromptMessage::from_text(ChatRole::Assistant, "")
    });
    Arc::make_mut(&mut request.prompt.messages).push(PromptMessage {
        tool_call_id: Some("call_1".into()),
        ..PromptMessage::from_text(ChatRole::Tool, "blue")
    });
    let mut request = request.assistant("The sky.").user("And this?").user("Look well.");
    let image = PromptImage { media_type: ImageMediaType::Png, data: "aWk=".into() };
    let last = PromptMessage { images: vec![image], ..PromptMessage::from_text(ChatRole::User, "Here.") };
    Arc::make_mut(&mut request.prompt.messages).push(last);
    request.tool("look.up", "Looks.", json!({"type": "object", "properties": {"at": {"type": "string"}}}))
}

#[tokio::test]
async fn a_conversation_is_sent_in_the_vendors_format() {
    let server = Server::new(vec![events(&HELLO)]).await;
    full_conversation().send_to(&server.vendor(WireFormat::Chat)).await.expect("a reply");
    let received = server.only_request();
    assert_eq!(received.line, "POST /v1/chat/completions HTTP/1.1");
    assert_eq!(received.header("authorization"), Some(format!("Bearer {KEY}").as_str()));
    assert_eq!(received.header("content-type"), Some("application/json"));
    assert_eq!(
        received.body,
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
async fn openai_gets_max_completion_tokens_with_room_for_thinking() {
    let server = Server::new(vec![events(&HELLO)]).await;
    let mut endpoint = server.endpoint(WireFormat::Chat);
    let dialect = ChatCompletionsDialect {
        max_tokens_field: MaxTokensField::MaxCompletionTokens,
        ..ChatCompletionsDialect::default()
    };
    endpoint.capabilities = ModelCapabilities {
        thinking: ThinkingSupport::Budget,
        output_tokens_max: Some(10_000),
        dialect,
        ..ModelCapabilities::with_unknown_support(100_000)
    };
    endpoint.params = GenerationParams { temperature: Some(0.5), effort: Some(ReasoningEffort::Low) };
    ask("hi").send_to(&vendor_model(endpoint)).await.expect("a reply");
    let body = server.only_request().body;
    assert_eq!(body["max_completion_tokens"], json!(4096 + 1024));
    assert_eq!(
        (body.get("temperature"), &body["reasoning_effort"]),
        (None, &json!("low")),
        "it accepts no temperature"
    );
    assert!(body.get("max_tokens").is_none());
}

#[tokio::test]
async fn instructions_end_with_a_cache_breakpoint_if_supported() {
    let server = Server::new(vec![events(&HELLO)]).await;
    let mut endpoint = server.endpoint(WireFormat::Chat);
    endpoint.capabilities.cache_breakpoints = true;
    empty_request().system("Be brief.").user("hi").send_to(&vendor_model(endpoint)).await.expect("a reply");
    let with_breakpoint =
        json!([{ "type": "text", "text": "Be brief.", "prompt_cache_breakpoint": { "mode": "explicit" } }]);
    assert_eq!(server.only_request().body["messages"][0]["content"], with_breakpoint);
}

#[tokio::test]
async fn a_schema_is_sent_in_the_models_json_mode() {
    let closed = json!({"type": "object", "additionalProperties": false, "required": ["a"], "properties": {"a": {"type": "string"}}});
    let open = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    let say = events(&[r#"{"choices":[{"delta":{"content":"{\"a\":\"b\"}"},"finish_reason":"stop"}]}"#, "[DONE]"]);
    let server = Server::new(vec![say]).await;
    for (json, schema) in
        [(JsonMode::Schema, &closed), (JsonMode::Schema, &open), (JsonMode::Object, &open), (JsonMode::Prompt, &open)]
    {
        let mut endpoint = server.endpoint(WireFormat::Chat);
        endpoint.capabilities.json = json;
        let reply = empty_request()
            .system("S")
            .user("U")
            .json(schema.clone())
            .send_to(&vendor_model(endpoint))
            .await
            .expect("a reply");
        assert_eq!(reply.text, r#"{"a":"b"}"#);
    }
    let received = server.received();
    let format = |index: usize| received[index].body.get("response_format").cloned();
    let sent = |strict: bool, schema| json!({"type": "json_schema", "json_schema": {"name": "answer", "strict": strict, "schema": schema}});
    assert_eq!(format(0), Some(sent(true, &closed)));
    assert_eq!(format(1), Some(sent(false, &open)));
    assert_eq!(format(2), Some(json!({"type": "json_object"})));
    assert_eq!(format(3), None);
    let system = |index: usize| received[index].body["messages"][0]["content"].as_str().expect("a text").to_owned();
    assert_eq!(system(0), "S");
    assert!(system(2).starts_with("S\n\n") && system(2).ends_with(&open.to_string()), "{}", system(2));
    assert_eq!(system(2), system(3));
}

#[tokio::test]
async fn text_reasoning_and_usage_are_separated() {
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
async fn usage_is_found_in_every_known_field() {
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
        "reasoning counts as output"
    );
}

#[tokio::test]
async fn reasoning_in_tags_is_not_part_of_the_reply() {
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
async fn a_reply_that_starts_in_thinking_is_split_if_that_is_known() {
    let words = |key: &str, words: &str| json!({ "choices": [{ "delta": { key: words } }] }).to_string();
    let end = r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#;
    let reply_to = async |data: &[&str]| {
        let server = Server::new(vec![events(data)]).await;
        let mut endpoint = server.endpoint(WireFormat::Chat);
        endpoint.capabilities.dialect.starts_in_thinking = true;
        ask("hi").send_to(&vendor_model(endpoint)).await
    };
    let reply =
        reply_to(&[&words("content", "hm, </th"), &words("content", "ink>\n\nYes."), end]).await.expect("a reply");
    assert_eq!((reply.text.as_str(), reply.reasoning.as_str()), ("Yes.", "hm, "));
    let reply = reply_to(&[&words("reasoning_content", "hm"), &words("content", "Yes."), end]).await.expect("a reply");
    assert_eq!((reply.text.as_str(), reply.reasoning.as_str()), ("Yes.", "hm"), "the server separates them itself");
    let failure = reply_to(&[&words("content", "hm, so"), end]).await.expect_err("only reasoning");
    assert_eq!(failure.kind, CallFailureKind::UnusableReply);
}

#[tokio::test]
async fn tool_call_fragments_are_assembled_and_names_restored() {
    let server = Server::new(vec![events(&[
        r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"look_up","arguments":""}}]}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"at\":"}},{"index":1,"id":"b","function":{"name":"other","arguments":"{}"}}]}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\"sky\"}"}}]},"finish_reason":"tool_calls"}]}"#,
        "[DONE]",
    ])])
    .await;
    let reply = full_conversation().send_to(&server.vendor(WireFormat::Chat)).await.expect("a reply");
    let calls: Vec<_> =
        reply.tool_calls.iter().map(|call| (call.id.as_str(), call.name.as_str(), call.arguments.clone())).collect();
    assert_eq!(calls, [("a", "look.up", json!({"at": "sky"})), ("b", "other", json!({}))]);
    assert_eq!(reply.stop_reason, StopReason::ToolCalls);
}

#[tokio::test]
async fn chunks_do_not_depend_on_how_the_bytes_are_split() {
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
async fn a_finish_reason_without_a_done_event_is_enough() {
    assert_eq!(reply(&HELLO[..3]).await.text, "Hello");
}

#[tokio::test]
async fn an_unstreamed_reply_is_accepted() {
    let body = r#"{"choices":[{"message":{"role":"assistant","content":"Hello","tool_calls":[{"id":"a","function":{"name":"x","arguments":{"n":1}}}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":3,"completion_tokens":1}}"#;
    let server = Server::new(vec![full_response(200, "application/json; charset=utf-8", body)]).await;
    let reply = ask("hi").send_to(&server.vendor(WireFormat::Chat)).await.expect("a reply");
    assert_eq!(
        (reply.text.as_str(), reply.stop_reason, reply.usage.map(|usage| usage.input_tokens)),
        ("Hello", StopReason::ToolCalls, Some(3))
    );
    assert_eq!(reply.tool_calls[0].arguments, json!({"n": 1}));
}

#[tokio::test]
async fn a_refusal_text_is_a_content_filter_stop() {
    let reply = reply(&[
        r#"{"choices":[{"delta":{"refusal":"I will not."}}]}"#,
        r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#,
        "[DONE]",
    ])
    .await;
    assert_eq!((reply.text.as_str(), reply.stop_reason), ("I will not.", StopReason::ContentFilter));
}

#[tokio::test]
async fn unsupported_features_are_refused_without_a_request() {
    let server = Server::new(vec![events(&HELLO)]).await;
    let mut endpoint = server.endpoint(WireFormat::Chat);
    endpoint.capabilities = ModelCapabilities { images: FeatureSupport::No, ..endpoint.capabilities };
    let failure = full_conversation().send_to(&vendor_model(endpoint.clone())).await.expect_err("no images");
    assert_eq!(failure.to_string(), "bad request: `m-1` does not accept images");
    endpoint.capabilities =
        ModelCapabilities { tools: FeatureSupport::No, ..ModelCapabilities::with_unknown_support(1) };
    let failure = full_conversation().send_to(&vendor_model(endpoint)).await.expect_err("no tools");
    assert_eq!(failure.to_string(), "bad request: `m-1` does not support tools");
    assert!(server.received().is_empty());
}

#[tokio::test]
async fn the_description_names_model_provider_and_host() {
    let server = Server::new(vec![events(&HELLO)]).await;
    let described = server.vendor(WireFormat::Chat).describe();
    assert!(described.label.starts_with("m-1 of acme at 127.0.0.1:"), "{}", described.label);
    assert_eq!(described.window_tokens, 100_000);
    let other = Server::new(vec![events(&HELLO)]).await;
    let index = server.vendor(WireFormat::Chat).failure_domain().map(str::to_owned);
    assert_eq!(index, Some(format!("acme at {}", server.endpoint(WireFormat::Chat).host_and_port())));
    assert_ne!(index.as_deref(), other.vendor(WireFormat::Chat).failure_domain(), "two servers do not fail together");
}

#[tokio::test]
async fn prompt_and_reply_fit_into_the_window_together() {
    let server = Server::new(vec![events(&HELLO)]).await;
    let mut endpoint = server.endpoint(WireFormat::Chat);
    let mut max_tokens = async |window_tokens, thinking, prompt_tokens, reply_tokens_max| {
        endpoint.capabilities = ModelCapabilities { window_tokens, thinking, ..endpoint.capabilities };
        let mut request = ask("hi");
        (request.prompt_tokens, request.prompt.reply_tokens_max) = (prompt_tokens, reply_tokens_max);
        request.send_to(&vendor_model(endpoint.clone())).await.expect("a reply");
        server.received().last().expect("a request").body["max_tokens"].as_u64().expect("a number")
    };
    assert_eq!(max_tokens(8_192, ThinkingSupport::None, 100, 2_048).await, 2_048);
    assert_eq!(
        max_tokens(8_192, ThinkingSupport::Unknown, 100, 2_048).await,
        4_096,
        "a model that may think gets room for it"
    );
    assert_eq!(max_tokens(100_000, ThinkingSupport::Unknown, 100, 4_096).await, 4_096 + 8_192);
    assert_eq!(
        max_tokens(8_192, ThinkingSupport::Unknown, 4_000, 2_048).await,
        8_192 - 5_000 - 256,
        "the prompt may be longer than we count"
    );
    assert_eq!(
        max_tokens(8_192, ThinkingSupport::Unknown, 5_000, 2_048).await,
        2_048,
        "the requested reply length is kept"
    );
    assert_eq!(max_tokens(8_192, ThinkingSupport::None, 7_900, 2_048).await, 36);
    assert_eq!(max_tokens(8_192, ThinkingSupport::None, 9_000, 2_048).await, 16, "the server reports the problem");
}

#[tokio::test]
async fn reasoning_without_a_reply_is_unusable() {
    let thinks = r#"{"choices":[{"delta":{"reasoning":"hm, "}}]}"#;
    let figures = r#"{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":64}}"#;
    for end in [
        r#"{"choices":[{"delta":{},"finish_reason":"length"}]}"#,
        r#"{"choices":[{"delta":{"content":" \n"},"finish_reason":"length"}]}"#,
    ] {
        let server = Server::new(vec![events(&[thinks, end, figures, "[DONE]"])]).await;
        let failure = ask("hi").send_to(&server.vendor(WireFormat::Chat)).await.expect_err("an empty reply");
        assert_eq!(failure.kind, CallFailureKind::UnusableReply);
        assert!(failure.message.contains("used its whole output budget"), "{failure}");
        let spent = failure.cost.expect("it was paid for");
        assert_eq!(spent.usage, Some(TokenUsage { input_tokens: 10, output_tokens: 64, ..TokenUsage::default() }));
    }
}

#[tokio::test]
async fn rejected_stream_options_are_not_sent_again() {
    let refusal = r#"{"message":"Extra inputs are not permitted: stream_options"}"#;
    let server = Server::new(vec![full_response(422, "application/json", refusal), events(&HELLO)]).await;
    let vendor = server.vendor(WireFormat::Chat);
    for _ in 0..2 {
        assert_eq!(ask("hi").send_to(&vendor).await.expect("a reply").text, "Hello");
    }
    let requests_usage: Vec<bool> =
        server.received().iter().map(|received| received.body.get("stream_options").is_some()).collect();
    assert_eq!(requests_usage, [true, false, false]);
    let mut endpoint = server.endpoint(WireFormat::Chat);
    endpoint.capabilities.dialect.usage_always_sent = true;
    ask("hi").send_to(&vendor_model(endpoint)).await.expect("a reply");
    assert!(
        server.received().last().expect("a request").body.get("stream_options").is_none(),
        "not sent where the server always reports usage"
    );
}

#[tokio::test]
async fn tool_calls_with_the_same_index_stay_separate() {
    let reply = reply(&[
        r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"look","arguments":"{\"at\":\"sky\"}"}}]}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"b","function":{"name":"look","arguments":"{\"at\":\"sea\"}"}}]},"finish_reason":"tool_calls"}]}"#,
        "[DONE]",
    ])
    .await;
    let calls: Vec<_> = reply.tool_calls.iter().map(|call| (call.id.as_str(), call.arguments.clone())).collect();
    assert_eq!(calls, [("a", json!({"at": "sky"})), ("b", json!({"at": "sea"}))]);
}

//! A client's own tools and output formats at the OpenAI-compatible endpoints.

use reqwest::Method;
use serde_json::{Value, json};

use crate::test_server::{SseReader, TestServer, send};

/// The model calls two tools, then one, then answers.
const SCENARIO: &str = r#"
[[reply]]
contains = "weather"
times = 1
text = "Let me see."
tool_calls = [{ name = "get_weather", arguments = { city = "Oslo" } }, { name = "get_weather", arguments = { city = "Rome" } }]
usage = { input = 100, output = 20 }

[[reply]]
contains = "weather"
times = 1
tool_calls = [{ name = "get_time", arguments = {} }]
usage = { input = 150, output = 10 }

[[reply]]
contains = "weather"
text = "Oslo is cold, Rome is warm."
usage = { input = 200, output = 30 }

[[reply]]
contains = "person"
json = { name = "Ada", age = 36 }

[default]
text = "You said: {{last}}"
"#;

fn message(role: &str, text: &str) -> Value {
    json!({"role": role, "content": text})
}

fn tools() -> Value {
    let tool = |name: &str| {
        let parameters = json!({"type": "object", "properties": {"city": {"type": "string"}}});
        json!({"type": "function", "function": {"name": name, "description": "Looks it up.", "parameters": parameters}})
    };
    json!([tool("get_weather"), tool("get_time")])
}

async fn complete(server: &TestServer, messages: &[Value]) -> Value {
    let body = json!({"model": "chat", "messages": messages, "tools": tools()});
    server.post("/v1/chat/completions", body).await.expect_json(200)
}

/// Appends the assistant's message and the client's results to a conversation.
fn answer_calls(messages: &mut Vec<Value>, completion: &Value, results: &[&str]) {
    let reply = &completion["choices"][0]["message"];
    let calls = reply["tool_calls"].as_array().expect("tool calls");
    assert_eq!(calls.len(), results.len(), "{completion}");
    messages.push(reply.clone());
    for (call, result) in calls.iter().zip(results) {
        messages.push(json!({"role": "tool", "tool_call_id": call["id"], "content": result}));
    }
}

async fn events(server: &TestServer, session: &Value) -> Vec<Value> {
    let path = format!("/v1/sessions/{}/export", session.as_str().expect("a name"));
    let export = server.get(&path).await.text;
    export.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()).collect()
}

/// Counts the recorded events of a kind.
async fn count(server: &TestServer, session: &Value, kind: &str) -> usize {
    let is_kind = |line: &&Value| line.to_string().contains(&format!("\"type\":\"{kind}\""));
    events(server, session).await.iter().filter(is_kind).count()
}

#[tokio::test]
async fn tool_calls_go_to_the_client_and_its_results_resume_the_turn() {
    let server = TestServer::with_options(SCENARIO, |_| {}).await;
    let mut messages = vec![message("system", "Be brief."), message("user", "How is the weather?")];
    let first = complete(&server, &messages).await;
    let choice = &first["choices"][0];
    assert_eq!(
        (&choice["finish_reason"], &choice["message"]["content"]),
        (&json!("tool_calls"), &json!("Let me see."))
    );
    let call = &choice["message"]["tool_calls"][0];
    assert_eq!((&call["type"], &call["function"]["name"]), (&json!("function"), &json!("get_weather")));
    assert_eq!(call["function"]["arguments"], r#"{"city":"Oslo"}"#);
    assert_eq!(first["usage"]["total_tokens"], 120);
    answer_calls(&mut messages, &first, &["-3 °C", "21 °C"]);
    let second = complete(&server, &messages).await;
    assert_eq!(second["choices"][0]["message"]["content"], Value::Null);
    assert_eq!((&second["session"], &second["turn"]), (&first["session"], &first["turn"]), "the same turn goes on");
    assert_ne!(second["id"], first["id"]);
    answer_calls(&mut messages, &second, &["noon"]);
    let third = complete(&server, &messages).await;
    assert_eq!(third["choices"][0]["message"]["content"], "Oslo is cold, Rome is warm.");
    assert_eq!((&third["choices"][0]["finish_reason"], &third["usage"]["total_tokens"]), (&json!("stop"), &json!(230)));
    messages.extend([third["choices"][0]["message"].clone(), message("user", "Thank you")]);
    let fourth = complete(&server, &messages).await;
    assert_eq!(fourth["session"], first["session"], "a history with tool messages is found again");
    assert_eq!(count(&server, &first["session"], "tool_run_ended").await, 3);
    let path = format!("/v1/sessions/{}", first["session"].as_str().expect("a name"));
    let session = server.get(&path).await.expect_json(200);
    assert_eq!((&session["turns"], &session["title"]), (&json!(2), &json!("How is the weather?")));
    let calls = server.get(&format!("{path}/calls/c2")).await.expect_json(200);
    assert!(calls.to_string().contains("get_weather"), "the receipt shows the tools: {calls}");
}

#[tokio::test]
async fn repeated_results_are_recorded_once_also_after_a_restart() {
    let server = TestServer::with_options(SCENARIO, |_| {}).await;
    let mut messages = vec![message("user", "How is the weather?")];
    let first = complete(&server, &messages).await;
    answer_calls(&mut messages, &first, &["cold", "warm"]);
    let body = json!({"model": "chat", "messages": messages, "tools": tools()});
    // The same request twice at the same time, and once more.
    let retry = || server.request(Method::POST, "/v1/chat/completions").header("x-stainless-retry-count", "1");
    let (one, two) = tokio::join!(send(retry().json(&body)), send(retry().json(&body)));
    let (one, two) = (one.expect_json(200), two.expect_json(200));
    assert_eq!((&one["session"], &one["choices"]), (&two["session"], &two["choices"]));
    assert_eq!(send(retry().json(&body)).await.expect_json(200)["id"], one["id"]);
    assert_eq!(count(&server, &first["session"], "call_answered").await, 2);
    // Another server on the same store does not know what was delivered.
    let other = TestServer::on_disk(&server.disk, server.folder.clone(), SCENARIO, |_| {}).await;
    let again = other.post("/v1/chat/completions", body).await.expect_json(200);
    assert_eq!((&again["session"], &again["choices"]), (&one["session"], &one["choices"]));
    answer_calls(&mut messages, &one, &["noon"]);
    let last = complete(&other, &messages).await;
    assert_eq!(last["session"], first["session"], "the ids of the calls name the session");
    assert_eq!(count(&other, &first["session"], "tool_run_ended").await, 3);
}

#[tokio::test]
async fn other_results_for_the_same_call_fork_the_session() {
    let server = TestServer::with_options(SCENARIO, |_| {}).await;
    let mut messages = vec![message("user", "How is the weather?")];
    let first = complete(&server, &messages).await;
    let mut other = messages.clone();
    answer_calls(&mut messages, &first, &["cold", "warm"]);
    complete(&server, &messages).await;
    answer_calls(&mut other, &first, &["warm", "cold"]);
    let branch = complete(&server, &other).await;
    assert_ne!(branch["session"], first["session"]);
    assert_eq!(count(&server, &branch["session"], "tool_run_ended").await, 2);
}

#[tokio::test]
async fn tool_calls_are_streamed_as_deltas() {
    let server = TestServer::with_options(SCENARIO, |_| {}).await;
    let body = json!({"model": "chat", "messages": [message("user", "weather")], "tools": tools(), "stream": true});
    let text = server.post("/v1/chat/completions", body).await.text;
    let chunks: Vec<Value> = text
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .filter_map(|data| serde_json::from_str(data).ok())
        .collect();
    let deltas: Vec<&Value> =
        chunks.iter().flat_map(|chunk| chunk["choices"][0]["delta"]["tool_calls"].as_array()).flatten().collect();
    let arguments = |index: u64| -> String {
        let parts = deltas.iter().filter(|delta| delta["index"] == index);
        parts.filter_map(|delta| delta["function"]["arguments"].as_str()).collect()
    };
    assert_eq!((arguments(0), arguments(1)), (r#"{"city":"Oslo"}"#.to_owned(), r#"{"city":"Rome"}"#.to_owned()));
    assert!(deltas[0]["id"].is_string() && deltas[0]["function"]["name"] == "get_weather");
    let content: String = chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(content, "Let me see.");
    assert_eq!(chunks.last().expect("the end")["choices"][0]["finish_reason"], "tool_calls");
    assert!(text.trim_end().ends_with("[DONE]"));
}

#[tokio::test]
async fn responses_carry_function_calls_and_take_their_outputs() {
    let server = TestServer::with_options(SCENARIO, |_| {}).await;
    let flat: Vec<Value> = tools()
        .as_array()
        .expect("a list")
        .iter()
        .map(|tool| {
            let mut function = tool["function"].clone();
            function["type"] = json!("function");
            function
        })
        .collect();
    let body = json!({"model": "chat", "input": "weather", "tools": flat, "stream": true});
    let events = SseReader::open(server.request(Method::POST, "/v1/responses").json(&body))
        .await
        .read_until("response.completed")
        .await;
    let response = events.last().expect("the end").data["response"].clone();
    let calls: Vec<&Value> =
        response["output"].as_array().expect("items").iter().filter(|item| item["type"] == "function_call").collect();
    assert_eq!((calls.len(), &calls[1]["arguments"]), (2, &json!(r#"{"city":"Rome"}"#)));
    assert!(events.iter().any(|event| event.kind == "response.function_call_arguments.done"));
    let output =
        |call: &Value, text: &str| json!({"type": "function_call_output", "call_id": call["call_id"], "output": text});
    let outputs = json!([output(calls[0], "cold"), output(calls[1], "warm")]);
    let continued = json!({"model": "chat", "input": outputs, "previous_response_id": response["id"], "tools": flat});
    let second = server.post("/v1/responses", continued.clone()).await.expect_json(200);
    assert_eq!(
        (&second["output"][0]["type"], &second["output"][0]["name"]),
        (&json!("function_call"), &json!("get_time"))
    );
    assert_eq!(second["metadata"]["session"], response["metadata"]["session"]);
    let again = server.get(&format!("/v1/responses/{}", second["id"].as_str().expect("an id"))).await.expect_json(200);
    assert_eq!(again["output"], second["output"]);
    // Without an id, the whole conversation finds the session.
    let mut input = vec![json!({"role": "user", "content": "weather"})];
    input.extend(response["output"].as_array().expect("items").iter().cloned());
    input.extend(outputs.as_array().expect("outputs").iter().cloned());
    input.extend(second["output"].as_array().expect("items").iter().cloned());
    input.push(output(&second["output"][0], "noon"));
    let third =
        server.post("/v1/responses", json!({"model": "chat", "input": input, "tools": flat})).await.expect_json(200);
    assert_eq!(third["output"][0]["content"][0]["text"], "Oslo is cold, Rome is warm.");
    assert_eq!(third["metadata"]["session"], response["metadata"]["session"]);
    let orphan = json!({"model": "chat", "input": [output(calls[0], "cold")]});
    assert!(server.post("/v1/responses", orphan).await.expect_json(400)["error"]["message"].is_string());
}

#[tokio::test]
async fn response_format_reaches_the_model_and_is_recorded() {
    let server = TestServer::with_options(SCENARIO, |_| {}).await;
    let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]});
    let format = json!({"type": "json_schema", "json_schema": {"name": "person", "schema": schema}});
    let body = json!({"model": "chat", "messages": [message("user", "Describe a person")], "response_format": format});
    let answer = server.post("/v1/chat/completions", body).await.expect_json(200);
    let content: Value =
        serde_json::from_str(answer["choices"][0]["message"]["content"].as_str().expect("a text")).expect("JSON");
    assert_eq!(content["name"], "Ada");
    let path = format!("/v1/sessions/{}/calls/c1", answer["session"].as_str().expect("a name"));
    assert!(server.get(&path).await.text.contains("required"), "the prompt shows the schema");
}

#[tokio::test]
async fn other_flows_and_invalid_tool_messages_are_refused() {
    let server = TestServer::with_options(SCENARIO, |_| {}).await;
    let refused = async |body: Value| {
        let answer = server.post("/v1/chat/completions", body).await.expect_json(400);
        answer["error"]["message"].as_str().expect("a message").to_owned()
    };
    let user = || vec![message("user", "hello")];
    let tools_elsewhere = json!({"model": "concierge", "messages": user(), "tools": tools()});
    assert!(refused(tools_elsewhere).await.contains("uses its own tools"));
    let format_elsewhere =
        json!({"model": "concierge", "messages": user(), "response_format": {"type": "json_object"}});
    assert!(refused(format_elsewhere).await.contains("decides the format"));
    let call = json!({"id": "call_x1_a", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let asked = json!({"role": "assistant", "content": null, "tool_calls": [call]});
    let result = json!({"role": "tool", "tool_call_id": "call_x1_a", "content": "4"});
    let with = |rest: Vec<Value>| {
        let messages = [user(), rest].concat();
        json!({"model": "chat", "messages": messages})
    };
    assert!(refused(with(vec![asked.clone(), message("user", "well?")])).await.contains("exactly one result"));
    assert!(refused(with(vec![result.clone()])).await.contains("no tool call"));
    assert!(refused(json!({"model": "chat", "messages": [result.clone()]})).await.contains("need the tool calls"));
    let mut elsewhere = with(vec![asked.clone(), result.clone()]);
    elsewhere["model"] = json!("concierge");
    assert!(refused(elsewhere).await.contains("its own tools"));
    // A conversation that no session holds becomes the first message of a new one.
    let foreign = server.post("/v1/chat/completions", with(vec![asked, result])).await.expect_json(200);
    let content = foreign["choices"][0]["message"]["content"].as_str().expect("a text");
    assert!(content.contains("(called f with {})") && content.ends_with("tool: 4"), "{content}");
}

#[tokio::test]
async fn named_session_that_waits_for_results_takes_no_message() {
    let server = TestServer::with_options(SCENARIO, |_| {}).await;
    let ask = |messages: Value| {
        let body = json!({"model": "chat", "messages": messages, "tools": tools(), "metadata": {"session": "fox"}});
        server.post("/v1/chat/completions", body)
    };
    let first = ask(json!([message("user", "weather")])).await.expect_json(200);
    let refused = ask(json!([message("user", "well?")])).await.expect_json(400);
    assert!(
        refused["error"]["message"].as_str().is_some_and(|text| text.contains("waits for the result")),
        "{refused}"
    );
    let session = server.get("/v1/sessions/fox").await.expect_json(200);
    assert_eq!(session["held_tool_runs"][0]["reason"], "client_result");
    let calls = first["choices"][0]["message"]["tool_calls"].as_array().expect("calls");
    let results: Vec<Value> =
        calls.iter().map(|call| json!({"role": "tool", "tool_call_id": call["id"], "content": "cold"})).collect();
    let second = ask(json!(results)).await.expect_json(200);
    assert_eq!(second["choices"][0]["finish_reason"], "tool_calls");
    assert_eq!(ask(json!(results)).await.expect_json(200)["id"], second["id"], "the results are not given again");
}

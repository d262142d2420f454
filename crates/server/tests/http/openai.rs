//! The OpenAI-compatible endpoints: a conversation that is sent with every request stays in one session.

use reqwest::Method;
use serde_json::{Value, json};

use crate::test_server::{DEFAULT_SCENARIO, HttpResponse, SseReader, TestServer, send};

fn message(role: &str, text: &str) -> Value {
    json!({"role": role, "content": text})
}

/// A client that keeps the conversation itself, as OpenAI clients do.
struct Client<'l> {
    server: &'l TestServer,
    messages: Vec<Value>,
}

impl<'l> Client<'l> {
    fn new(server: &'l TestServer) -> Self {
        Self { server, messages: Vec::new() }
    }

    async fn say(&mut self, text: &str) -> Value {
        self.messages.push(message("user", text));
        let answer = self
            .server
            .post("/v1/chat/completions", json!({"model": "chat", "messages": self.messages}))
            .await
            .expect_json(200);
        self.messages.push(answer["choices"][0]["message"].clone());
        answer
    }
}

async fn turns(server: &TestServer, session: &Value) -> Vec<String> {
    let path = format!("/v1/sessions/{}/turns", session.as_str().expect("a name"));
    let turns = server.get(&path).await.expect_json(200);
    let turns = turns["turns"].as_array().expect("turns").iter();
    turns.map(|turn| turn["messages"][0]["text"].as_str().expect("a text").to_owned()).collect()
}

#[tokio::test]
async fn repeated_conversation_stays_in_one_session() {
    let server = TestServer::new().await;
    let mut client = Client::new(&server);
    let first = client.say("My name is Ada").await;
    assert_eq!(first["choices"][0]["message"]["content"], "You said: My name is Ada");
    assert_eq!(first["usage"]["total_tokens"], 45);
    let second = client.say("What is my name?").await;
    let third = client.say("And again?").await;
    assert_eq!((&first["session"], &second["session"]), (&third["session"], &third["session"]));
    assert_eq!(turns(&server, &first["session"]).await, ["My name is Ada", "What is my name?", "And again?"]);
}

#[tokio::test]
async fn conversation_is_found_after_a_restart_and_by_another_server() {
    let server = TestServer::new().await;
    let mut client = Client::new(&server);
    let first = client.say("one").await;
    client.say("two").await;
    let messages = client.messages.clone();
    let other = TestServer::on_disk(&server.disk, server.folder.clone(), DEFAULT_SCENARIO, |_| {}).await;
    server.stop().await;
    let mut client = Client { server: &other, messages };
    let third = client.say("three").await;
    assert_eq!(third["session"], first["session"]);
    assert_eq!(turns(&other, &first["session"]).await, ["one", "two", "three"]);
}

#[tokio::test]
async fn going_back_forks_the_session() {
    let server = TestServer::new().await;
    let mut client = Client::new(&server);
    let session = client.say("one").await["session"].clone();
    client.say("two").await;
    let mut other = Client { server: &server, messages: client.messages[..2].to_vec() };
    let branch = other.say("else").await["session"].clone();
    assert_ne!(branch, session);
    assert_eq!(turns(&server, &session).await, ["one", "two"]);
    assert_eq!(turns(&server, &branch).await, ["one", "else"]);
    assert_eq!(other.say("more").await["session"], branch);
    assert_eq!(client.say("three").await["session"], session);
    // The same question after a delivered reply asks for another reply.
    let mut again = Client { server: &server, messages: client.messages[..4].to_vec() };
    let regenerated = again.say("three").await["session"].clone();
    assert_ne!(regenerated, session);
    assert_eq!(turns(&server, &regenerated).await, ["one", "two", "three"]);
}

#[tokio::test]
async fn retried_request_is_answered_once() {
    let server = TestServer::new().await;
    let request = json!({"model": "chat", "messages": [message("user", "hello")]});
    let send_with_retries = |retries: &str| {
        let ask = server
            .request(Method::POST, "/v1/chat/completions")
            .header("x-stainless-retry-count", retries)
            .header("idempotency-key", "one");
        send(ask.json(&request))
    };
    let first = send_with_retries("0").await.expect_json(200);
    let mut stream = SseReader::open(server.request(Method::POST, "/v1/chat/completions").json(&json!({
        "model": "chat", "stream": true, "messages": [message("user", "unheard")]
    })))
    .await;
    // The client disconnects after the first chunk.
    let begun = stream.next().await.expect("a chunk");
    drop(stream);
    let again = server.request(Method::POST, "/v1/chat/completions").header("x-stainless-retry-count", "1");
    let again =
        send(again.json(&json!({"model": "chat", "messages": [message("user", "unheard")]}))).await.expect_json(200);
    assert_eq!(again["id"], begun.data["id"], "the retry returns the turn that was started");
    assert_eq!(turns(&server, &again["session"]).await, ["unheard"]);
    assert_ne!(again["session"], first["session"]);
}

#[tokio::test]
async fn named_session_receives_only_the_new_message() {
    let server = TestServer::new().await;
    let say = |text: &str| {
        let body = json!({"model": "chat", "metadata": {"session": "mine"}, "messages": [message("user", text)]});
        send(server.request(Method::POST, "/v1/chat/completions").json(&body))
    };
    let first = say("yes").await;
    assert_eq!(first.headers["segue-session"], "mine");
    first.expect_json(200);
    assert_eq!(say("yes").await.expect_json(200)["turn"], "t2", "the same text twice is two messages");
    let by_header = server.request(Method::POST, "/v1/chat/completions").header("segue-session", "mine");
    send(by_header.json(&json!({"model": "chat", "messages": [message("user", "no")]}))).await.expect_json(200);
    assert_eq!(turns(&server, &json!("mine")).await, ["yes", "yes", "no"]);
    let other_flow = json!({"model": "concierge", "metadata": {"session": "mine"}, "messages": [message("user", "a")]});
    assert_eq!(refusal(server.post("/v1/chat/completions", other_flow).await, 400), "bad-request");
}

#[tokio::test]
async fn system_message_of_a_client_is_the_instruction_of_the_session() {
    let server = TestServer::new().await;
    let with_system = |text: &str| Client { server: &server, messages: vec![message("system", text)] };
    let mut client = with_system("Be brief.");
    let session = client.say("hello").await["session"].clone();
    assert_eq!(client.say("and now?").await["session"], session);
    assert_eq!(turns(&server, &session).await, ["hello", "and now?"], "it is not part of the user's words");
    let path = format!("/v1/sessions/{}", session.as_str().expect("a name"));
    let view = server.get(&path).await.expect_json(200);
    assert_eq!(view["title"], "hello", "nor of the title: {view}");
    let prompt = server.get(&format!("{path}/calls/c2/prompt")).await.expect_json(200);
    assert!(prompt["messages"][0].to_string().contains("Be brief."), "{prompt}");
    // The same words with other instructions, or with none, are another conversation.
    for mut other in [with_system("Be long."), Client::new(&server)] {
        other.messages.push(message("user", "hello"));
        other.messages.push(client.messages[2].clone());
        assert_ne!(other.say("and now?").await["session"], session);
    }
}

#[tokio::test]
async fn unknown_messages_are_part_of_the_first_message() {
    let server = TestServer::new().await;
    let mut client = Client {
        server: &server,
        messages: vec![message("system", "Be brief."), message("user", "hello"), message("assistant", "hi")],
    };
    let session = client.say("who am I?").await["session"].clone();
    client.say("and now?").await;
    assert_eq!(turns(&server, &session).await, ["user: hello\n\nassistant: hi\n\nuser: who am I?", "and now?"]);
}

#[tokio::test]
async fn chunks_add_up_to_the_reply() {
    let server = TestServer::with_options("[default]\nchunks = [\"You \", \"said: \", \"{{last}}\"]", |_| {}).await;
    let request = json!({"model": "chat", "stream": true, "stream_options": {"include_usage": true}, "messages": [message("user", "hello")]});
    let mut stream = SseReader::open(server.request(Method::POST, "/v1/chat/completions").json(&request)).await;
    let (mut content, mut chunks, mut last) = (String::new(), Vec::new(), Value::Null);
    while let Some(event) = stream.next().await {
        if event.data == "[DONE]" {
            last = event.data;
            continue;
        }
        content.push_str(event.data["choices"][0]["delta"]["content"].as_str().unwrap_or_default());
        chunks.push(event.data);
    }
    assert_eq!((content.as_str(), &last), ("You said: hello", &json!("[DONE]")));
    assert!(chunks.iter().all(|chunk| chunk["id"] == chunks[0]["id"] && chunk["object"] == "chat.completion.chunk"));
    let usage = chunks.last().expect("the last");
    assert!(usage["usage"]["total_tokens"].as_u64().expect("a count") > 0 && usage["choices"] == json!([]));
    assert_eq!(chunks[chunks.len() - 2]["choices"][0]["finish_reason"], "stop");
}

#[tokio::test]
async fn turn_without_reply_is_an_error_and_can_be_repeated() {
    let server = TestServer::with_options(
        "[[reply]]\nfail = \"invalid_api_key\"\nmessage = \"no key\"\ntimes = 1\n[default]\ntext = \"here\"",
        |_| {},
    )
    .await;
    let request = json!({"model": "chat", "messages": [message("user", "hello")], "metadata": {"session": "s"}});
    let failed = server.post("/v1/chat/completions", request.clone()).await;
    assert_eq!(failed.headers["x-should-retry"], "false");
    assert!(failed.text.contains("no key"), "{}", failed.text);
    assert_eq!(refusal(failed, 502), "turn-failed");
    assert_eq!(
        server.post("/v1/chat/completions", request).await.expect_json(200)["choices"][0]["message"]["content"],
        "here"
    );
}

#[tokio::test]
async fn unsupported_parameters_are_refused_in_openai_format() {
    let server = TestServer::new().await;
    let chat = |more: Value| {
        let mut body = json!({"model": "chat", "messages": [message("user", "a")]});
        body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        server.post("/v1/chat/completions", body)
    };
    assert_eq!(refusal(chat(json!({"model": "gpt-9"})).await, 404), "no-such-flow");
    assert_eq!(refusal(chat(json!({"n": 2})).await, 400), "bad-request");
    assert_eq!(refusal(chat(json!({"tools": [{"type": "function"}]})).await, 400), "bad-request");
    assert_eq!(refusal(chat(json!({"messages": []})).await, 400), "bad-request");
    assert_eq!(refusal(chat(json!({"metadata": {"session": "a b"}})).await, 400), "bad-session-name");
    assert_eq!(refusal(server.get("/v1/chat/completions").await, 405), "method-not-allowed");
    assert_eq!(refusal(server.get("/v1/models/none").await, 404), "no-such-flow");
    let models = server.get("/v1/models").await.expect_json(200);
    let names: Vec<&Value> = models["data"].as_array().expect("a list").iter().map(|model| &model["id"]).collect();
    assert!(names.contains(&&json!("chat")) && names.contains(&&json!("concierge")));
    chat(json!({"temperature": 0.2, "max_tokens": 5, "user": "u", "store": true})).await.expect_json(200);
}

fn refusal(answer: HttpResponse, status: u16) -> String {
    let body = answer.expect_json(status);
    assert!(body["error"]["message"].is_string(), "{body}");
    body["error"]["code"].as_str().expect("a code").to_owned()
}

#[tokio::test]
async fn response_is_continued_or_forked() {
    let server = TestServer::new().await;
    let respond = |input: &str, previous: Option<&Value>| {
        server.post("/v1/responses", json!({"model": "chat", "input": input, "previous_response_id": previous}))
    };
    let first = respond("one", None).await.expect_json(200);
    assert_eq!(first["output"][0]["content"][0]["text"], "You said: one");
    let second = respond("two", Some(&first["id"])).await.expect_json(200);
    assert_eq!(second["previous_response_id"], first["id"]);
    let session = &first["metadata"]["session"];
    assert_eq!(&second["metadata"]["session"], session);
    let branch = respond("else", Some(&first["id"])).await.expect_json(200);
    assert_ne!(&branch["metadata"]["session"], session);
    assert_eq!(turns(&server, session).await, ["one", "two"]);
    assert_eq!(turns(&server, &branch["metadata"]["session"]).await, ["one", "else"]);
    let again = server.get(&format!("/v1/responses/{}", second["id"].as_str().expect("an id"))).await.expect_json(200);
    assert_eq!((&again["output"], &again["status"]), (&second["output"], &json!("completed")));
    for unknown in ["resp_nobody_m1", "resp_x", "x", "resp_fox_m99"] {
        assert_eq!(refusal(server.get(&format!("/v1/responses/{unknown}")).await, 404), "not-found", "{unknown}");
        assert_eq!(refusal(respond("a", Some(&json!(unknown))).await, 404), "not-found", "{unknown}");
    }
}

#[tokio::test]
async fn response_is_streamed_as_events() {
    let server = TestServer::new().await;
    let request = json!({"model": "chat", "stream": true, "instructions": "Be kind.", "input": [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Tell me a story"}]}
    ]});
    let events = SseReader::open(server.request(Method::POST, "/v1/responses").json(&request))
        .await
        .read_until("response.completed")
        .await;
    assert_eq!(events[0].kind, "response.created");
    let numbers: Vec<u64> =
        events.iter().map(|event| event.data["sequence_number"].as_u64().expect("a number")).collect();
    assert_eq!(numbers, (0..events.len() as u64).collect::<Vec<_>>());
    let words: String = events.iter().filter_map(|event| event.data["delta"].as_str()).collect();
    let end = &events.last().expect("the end").data["response"];
    assert_eq!(
        (Some(words.as_str()), end["status"].as_str()),
        (end["output"][0]["content"][0]["text"].as_str(), Some("completed"))
    );
    assert_eq!(
        turns(&server, &end["metadata"]["session"]).await,
        ["Tell me a story"],
        "instructions are a setting of the session"
    );
}

#[tokio::test]
async fn images_are_part_of_the_conversation() {
    const CAT: &str = "data:image/gif;base64,R0lGODlhAQABAAAAACwAAAAAAQABAAACAkQBADs=";
    const DOG: &str = "data:image/gif;base64,R0lGODdhAQABAAAAACwAAAAAAQABAAACAkQBADs=";
    let server = TestServer::new().await;
    let look = |url: &str| json!({"role": "user", "content": [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": url}}]});
    let ask =
        |messages: Vec<Value>| server.post("/v1/chat/completions", json!({"model": "chat", "messages": messages}));
    let cat = ask(vec![look(CAT)]).await.expect_json(200);
    let reply = cat["choices"][0]["message"].clone();
    let again = ask(vec![look(CAT), reply.clone(), message("user", "and?")]).await.expect_json(200);
    assert_eq!(again["session"], cat["session"]);
    assert_eq!(turns(&server, &cat["session"]).await, ["look", "and?"]);
    let path = format!("/v1/sessions/{}/turns", cat["session"].as_str().expect("a name"));
    assert_eq!(
        server.get(&path).await.expect_json(200)["turns"][0]["messages"][0]["images"][0]["media_type"],
        "image/gif"
    );
    let dog = ask(vec![look(DOG), reply, message("user", "and?")]).await.expect_json(200);
    assert_ne!(dog["session"], cat["session"], "another image is another conversation");
    let item = json!({"role": "user", "content": [{"type": "input_text", "text": "look"}, {"type": "input_image", "image_url": DOG}]});
    let response = server.post("/v1/responses", json!({"model": "chat", "input": [item]})).await.expect_json(200);
    assert_eq!(response["status"], "completed");
    let elsewhere = ask(vec![look("https://example.org/cat.png")]).await.expect_json(400);
    assert_eq!(elsewhere["error"]["code"], "invalid-image");
}

#[tokio::test]
async fn long_conversation_is_looked_up_in_linear_time() {
    let server = TestServer::new().await;
    let text = "long ".repeat(100);
    let mut messages: Vec<Value> = (0..4_999)
        .flat_map(|turn| {
            [("user", format!("{turn} {text}")), ("assistant", format!("answer {turn} {text}"))]
                .map(|(role, content)| json!({"role": role, "content": content}))
        })
        .collect();
    messages.push(json!({"role": "user", "content": "go on"}));
    let ask = server.post("/v1/chat/completions", json!({"model": "chat", "messages": messages}));
    // Hashing every possible beginning of the conversation separately takes minutes.
    let answer = tokio::time::timeout(std::time::Duration::from_secs(20), ask).await.expect("an answer in time");
    assert_eq!(answer.status, 400, "flattened into one message it is too long: {}", answer.text);
}

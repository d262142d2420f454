//! Sessions are created, listed, changed, forked, exported and deleted.

use reqwest::Method;
use serde_json::{Value, json};

use crate::test_server::{TestServer, send};

#[tokio::test]
async fn unnamed_session_gets_a_name_and_a_location() {
    let server = TestServer::new().await;
    let made = server.post("/v1/sessions", json!({})).await;
    let location = made.headers["location"].to_str().expect("text").to_owned();
    let session = made.expect_json(201);
    assert_eq!(location, format!("/v1/sessions/{}", session["session"].as_str().expect("a name")));
    assert_eq!(server.get(&location).await.expect_json(200)["flow"], "chat");
}

#[tokio::test]
async fn invalid_requests_name_the_fault() {
    let server = TestServer::new().await;
    server.open_session("fox", "chat").await;
    let post = |body: Value| server.post("/v1/sessions", body);
    assert_eq!(post(json!({"session": "fox"})).await.problem_code(409), "session-exists");
    assert_eq!(post(json!({"session": "a b"})).await.problem_code(400), "bad-session-name");
    assert_eq!(post(json!({"flow": "chess"})).await.problem_code(404), "no-such-flow");
    assert_eq!(post(json!({"settings": 3})).await.problem_code(400), "bad-request");
    let unknown = post(json!({"flwo": "chat"})).await.expect_json(400);
    assert!(unknown["detail"].as_str().expect("words").contains("unknown field `flwo`"), "{unknown}");
    for path in [
        "/v1/sessions/fox?at=0",
        "/v1/sessions?limit=0",
        "/v1/sessions?limit=201",
        "/v1/sessions?cursor=x",
        "/v1/sessions?flow=a&b=c",
    ] {
        assert_eq!(server.get(path).await.problem_code(400), "bad-request", "{path}");
    }
    for path in ["/v1/sessions/fox/calls/c1", "/v1/sessions/fox/turns/t1", "/v1/sessions/fox/artifacts/x"] {
        assert_eq!(server.get(path).await.status, 404, "{path}");
    }
    assert_eq!(server.get("/v1/sessions/fox/calls/x").await.problem_code(400), "bad-request");
}

#[tokio::test]
async fn session_overrides_models_by_role() {
    let server = TestServer::new().await;
    let post =
        |models: Value| server.post("/v1/sessions", json!({"session": "cast", "flow": "chat", "models": models}));
    assert_eq!(post(json!({"nobody": "scripted"})).await.problem_code(400), "no-such-role");
    assert_eq!(post(json!({"assistant": "oracle"})).await.problem_code(400), "no-such-model");
    post(json!({"assistant": "rehearsal"})).await.expect_json(201);
    server.send_message("cast", "hello").await;
    let calls = server.get("/v1/sessions/cast/calls").await.expect_json(200);
    assert_eq!(calls["calls"][0]["model"], "rehearsal");
}

#[tokio::test]
async fn retry_repeats_the_messages_of_the_failed_turn() {
    let scenario = "[[reply]]\ntimes = 1\nfail = \"invalid_api_key\"\nmessage = \"no\"\n[[reply]]\ntext = \"here\"\n";
    let server = TestServer::with_options(scenario, |_| ()).await;
    server.open_session("again", "chat").await;
    assert_eq!(server.post("/v1/sessions/again/retry", json!({})).await.status, 409, "nothing failed yet");
    server.post("/v1/sessions/again/messages", json!({"text": "are you there?"})).await;
    server.post("/v1/sessions/again/retry", json!({})).await.expect_json(200);
    // Its turn follows the retried one.
    server.send_message("again", "good").await;
    let turns = server.get("/v1/sessions/again/turns").await.expect_json(200);
    let said: Vec<(&Value, &Value)> = turns["turns"]
        .as_array()
        .expect("turns")
        .iter()
        .map(|turn| (&turn["messages"][0]["message"], &turn["outcome"]["type"]))
        .collect();
    let done = json!("done");
    assert_eq!(said, [(&json!("m1"), &json!("failed")), (&json!("m1"), &done), (&json!("m2"), &done)]);
}

#[tokio::test]
async fn sessions_are_paged_and_searched_by_text() {
    let server = TestServer::new().await;
    for name in ["a", "b", "c", "d", "e"] {
        server.open_session(name, "chat").await;
    }
    server.send_message("c", "a word about violins").await;
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = server.get(&format!("/v1/sessions?limit=2{cursor}")).await.expect_json(200);
        seen.extend(
            page["sessions"]
                .as_array()
                .expect("rows")
                .iter()
                .map(|row| row["session"].as_str().expect("a name").to_owned()),
        );
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(seen.len(), 5);
    assert_eq!(seen.iter().collect::<std::collections::BTreeSet<_>>().len(), 5, "{seen:?}");
    let found = server.get("/v1/sessions?search=VIOLIN").await.expect_json(200);
    assert_eq!(found["sessions"][0]["session"], "c");
    assert_eq!(found["sessions"].as_array().map(Vec::len), Some(1));
    assert!(
        server.get("/v1/sessions?flow=concierge").await.expect_json(200)["sessions"]
            .as_array()
            .expect("rows")
            .is_empty()
    );
}

#[tokio::test]
async fn session_is_renamed_closed_and_deleted() {
    let server = TestServer::new().await;
    server.open_session("fox", "chat").await;
    let rename = |title: &str| send(server.request(Method::PATCH, "/v1/sessions/fox").json(&json!({"title": title})));
    assert_eq!(rename("The fox").await.expect_json(200)["title"], "The fox");
    assert_eq!(rename("").await.problem_code(400), "bad-request");
    server.post("/v1/sessions/fox/close", json!({})).await.expect_json(200);
    let closed = server.post("/v1/sessions/fox/messages", json!({"text": "hello"})).await;
    assert_eq!(closed.problem_code(409), "closed");
    server.delete("/v1/sessions/fox").await.expect_json(204);
    assert_eq!(server.delete("/v1/sessions/fox").await.problem_code(404), "no-such-session");
    assert_eq!(server.get("/v1/sessions/fox/turns").await.problem_code(404), "no-such-session");
}

#[tokio::test]
async fn recreated_session_shows_nothing_of_the_old_one() {
    let server = TestServer::new().await;
    server.open_session("fox", "chat").await;
    server.send_message("fox", "the old one").await;
    assert_eq!(server.get("/v1/sessions/fox/turns").await.expect_json(200)["turns"].as_array().map(Vec::len), Some(1));
    server.delete("/v1/sessions/fox").await.expect_json(204);
    server.open_session("fox", "chat").await;
    let turns = server.get("/v1/sessions/fox/turns").await;
    assert!(!turns.text.contains("the old one"));
    assert!(turns.expect_json(200)["turns"].as_array().expect("turns").is_empty());
}

#[tokio::test]
async fn fork_leaves_the_original_unchanged() {
    let server = TestServer::new().await;
    server.open_session("fox", "chat").await;
    server.send_message("fox", "one").await;
    server.send_message("fox", "two").await;
    let turns = server.get("/v1/sessions/fox/turns").await.expect_json(200);
    let second = turns["turns"][1]["messages"][0]["seq"].as_u64().expect("a place");
    let branch = server
        .post("/v1/sessions/fox/fork", json!({"at": second - 1, "session": "other", "title": "Else"}))
        .await
        .expect_json(201);
    assert_eq!(
        (&branch["title"], &branch["forked_from"]),
        (&json!("Else"), &json!({"session": "fox", "at": second - 1}))
    );
    server.send_message("other", "three").await;
    let said = |turns: &Value| {
        turns["turns"]
            .as_array()
            .expect("turns")
            .iter()
            .map(|turn| turn["messages"][0]["text"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(said(&server.get("/v1/sessions/other/turns").await.expect_json(200)), ["one", "three"]);
    assert_eq!(said(&server.get("/v1/sessions/fox/turns").await.expect_json(200)), ["one", "two"]);
    let at_turn = server.post("/v1/sessions/fox/fork", json!({"at": "t1"})).await.expect_json(201);
    assert_eq!(at_turn["turns"], 1);
    assert_eq!(server.post("/v1/sessions/fox/fork", json!({"at": "t9"})).await.problem_code(404), "not-found");
    assert_eq!(server.post("/v1/sessions/fox/fork", json!({"at": 999})).await.problem_code(400), "bad-request");
    assert_eq!(
        server.post("/v1/sessions/fox/fork", json!({"session": "other"})).await.problem_code(409),
        "session-exists"
    );
}

#[tokio::test]
async fn session_is_exported_and_imported() {
    let server = TestServer::new().await;
    server.open_session("fox", "chat").await;
    server.send_message("fox", "Tell me a story").await;
    let lines = server.get("/v1/sessions/fox/export").await;
    assert_eq!(lines.headers["content-type"], "application/x-ndjson");
    let import =
        |name: &str, text: String| send(server.request(Method::POST, &format!("/v1/import?session={name}")).body(text));
    let back = import("again", lines.text.clone()).await.expect_json(201);
    assert_eq!((&back["session"], &back["turns"]), (&json!("again"), &json!(1)));
    assert_eq!(import("again", lines.text.clone()).await.problem_code(409), "session-exists");
    let bad = import("bad", lines.text.replace("Once upon", "Twice upon")).await.expect_json(400);
    assert_eq!(bad["code"], "bad-import");
    assert!(bad["detail"].as_str().expect("words").starts_with("line "), "{bad}");
}

#[tokio::test]
async fn forget_starts_a_new_thread() {
    let server = TestServer::new().await;
    server.open_session("fox", "chat").await;
    server.send_message("fox", "one").await;
    server.post("/v1/sessions/fox/forget", json!({"role": "assistant"})).await.expect_json(200);
    server.send_message("fox", "two").await;
    let threads = server.get("/v1/sessions/fox/threads").await.expect_json(200);
    assert_eq!(
        threads["threads"][1]["opening_reason"],
        json!({"type": "changed", "summary": "new: reset", "changed": ["reset"]})
    );
    assert_eq!(threads["threads"][0]["ended"]["call"], "c2");
    assert_eq!(
        server.post("/v1/sessions/fox/forget", json!({"role": "nobody"})).await.problem_code(400),
        "no-such-role"
    );
}

#[tokio::test]
async fn list_can_leave_out_children_and_select_descendants() {
    let server = TestServer::new().await;
    server.open_session("fox", "chat").await;
    server.open_session("foxy", "chat").await;
    let names = |page: Value| -> Vec<String> {
        let rows = page["sessions"].as_array().expect("a list").clone();
        rows.iter().map(|row| row["session"].as_str().expect("a name").to_owned()).collect()
    };
    let roots = server.get("/v1/sessions?roots=true").await.expect_json(200);
    assert!(roots["sessions"][0]["parent"].is_null());
    assert_eq!(names(roots).len(), 2);
    assert_eq!(names(server.get("/v1/sessions?ancestor=fox").await.expect_json(200)), [""; 0], "`foxy` is no child");
    assert_eq!(server.get("/v1/sessions?ancestor=a%20b").await.problem_code(400), "bad-session-name");
    let session = server.get("/v1/sessions/fox").await.expect_json(200);
    assert_eq!((&session["children"], &session["descendants"]["sessions"]), (&json!([]), &json!(0)));
}

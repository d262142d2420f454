//! Sessions come, are found, change, branch and go.

use reqwest::Method;
use serde_json::{Value, json};

use crate::lab::{Lab, answer};

#[tokio::test]
async fn a_session_without_a_name_gets_one_and_the_answer_leads_to_it() {
    let lab = Lab::new().await;
    let made = lab.post("/v1/sessions", json!({})).await;
    let location = made.headers["location"].to_str().expect("text").to_owned();
    let session = made.expect(201);
    assert_eq!(location, format!("/v1/sessions/{}", session["session"].as_str().expect("a name")));
    assert_eq!(lab.get(&location).await.expect(200)["flow"], "chat");
}

#[tokio::test]
async fn what_is_wrong_with_a_wish_is_named() {
    let lab = Lab::new().await;
    lab.open("fox", "chat").await;
    let post = |body: Value| lab.post("/v1/sessions", body);
    assert_eq!(post(json!({"session": "fox"})).await.problem(409), "session-exists");
    assert_eq!(post(json!({"session": "a b"})).await.problem(400), "bad-session-name");
    assert_eq!(post(json!({"flow": "chess"})).await.problem(404), "no-such-flow");
    assert_eq!(post(json!({"settings": 3})).await.problem(400), "bad-request");
    let unknown = post(json!({"flwo": "chat"})).await.expect(400);
    assert!(unknown["detail"].as_str().expect("words").contains("unknown field `flwo`"), "{unknown}");
    for path in [
        "/v1/sessions/fox?at=0",
        "/v1/sessions?limit=0",
        "/v1/sessions?limit=201",
        "/v1/sessions?cursor=x",
        "/v1/sessions?flow=a&b=c",
    ] {
        assert_eq!(lab.get(path).await.problem(400), "bad-request", "{path}");
    }
    for path in ["/v1/sessions/fox/calls/c1", "/v1/sessions/fox/turns/t1", "/v1/sessions/fox/artifacts/x"] {
        assert_eq!(lab.get(path).await.status, 404, "{path}");
    }
    assert_eq!(lab.get("/v1/sessions/fox/calls/x").await.problem(400), "bad-request");
}

#[tokio::test]
async fn a_session_may_say_who_plays_in_it() {
    let lab = Lab::new().await;
    let post = |models: Value| lab.post("/v1/sessions", json!({"session": "cast", "flow": "chat", "models": models}));
    assert_eq!(post(json!({"nobody": "scripted"})).await.problem(400), "no-such-role");
    assert_eq!(post(json!({"assistant": "oracle"})).await.problem(400), "no-such-model");
    post(json!({"assistant": "rehearsal"})).await.expect(201);
    lab.say("cast", "hello").await;
    let calls = lab.get("/v1/sessions/cast/calls").await.expect(200);
    assert_eq!(calls["calls"][0]["model"], "rehearsal");
}

#[tokio::test]
async fn a_turn_that_failed_is_tried_again_with_what_was_said_in_it() {
    let scenario = "[[reply]]\ntimes = 1\nfail = \"invalid_api_key\"\nmessage = \"no\"\n[[reply]]\ntext = \"here\"\n";
    let lab = Lab::with(scenario, |_| ()).await;
    lab.open("again", "chat").await;
    assert_eq!(lab.post("/v1/sessions/again/retry", json!({})).await.status, 409, "nothing failed yet");
    lab.post("/v1/sessions/again/messages", json!({"text": "are you there?"})).await;
    lab.post("/v1/sessions/again/retry", json!({})).await.expect(200);
    // Its turn comes after the one that is tried again.
    lab.say("again", "good").await;
    let turns = lab.get("/v1/sessions/again/turns").await.expect(200);
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
async fn sessions_are_listed_page_by_page_and_found_by_what_was_said() {
    let lab = Lab::new().await;
    for name in ["a", "b", "c", "d", "e"] {
        lab.open(name, "chat").await;
    }
    lab.say("c", "a word about violins").await;
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = lab.get(&format!("/v1/sessions?limit=2{cursor}")).await.expect(200);
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
    let found = lab.get("/v1/sessions?search=VIOLIN").await.expect(200);
    assert_eq!(found["sessions"][0]["session"], "c");
    assert_eq!(found["sessions"].as_array().map(Vec::len), Some(1));
    assert!(lab.get("/v1/sessions?flow=concierge").await.expect(200)["sessions"].as_array().expect("rows").is_empty());
}

#[tokio::test]
async fn a_session_is_renamed_closed_and_erased() {
    let lab = Lab::new().await;
    lab.open("fox", "chat").await;
    let rename = |title: &str| answer(lab.ask(Method::PATCH, "/v1/sessions/fox").json(&json!({"title": title})));
    assert_eq!(rename("The fox").await.expect(200)["title"], "The fox");
    assert_eq!(rename("").await.problem(400), "bad-request");
    lab.post("/v1/sessions/fox/close", json!({})).await.expect(200);
    let closed = lab.post("/v1/sessions/fox/messages", json!({"text": "hello"})).await;
    assert_eq!(closed.problem(409), "closed");
    lab.delete("/v1/sessions/fox").await.expect(204);
    assert_eq!(lab.delete("/v1/sessions/fox").await.problem(404), "no-such-session");
    assert_eq!(lab.get("/v1/sessions/fox/turns").await.problem(404), "no-such-session");
}

#[tokio::test]
async fn a_new_session_of_an_old_name_has_nothing_of_the_old_one() {
    let lab = Lab::new().await;
    lab.open("fox", "chat").await;
    lab.say("fox", "the old one").await;
    assert_eq!(lab.get("/v1/sessions/fox/turns").await.expect(200)["turns"].as_array().map(Vec::len), Some(1));
    lab.delete("/v1/sessions/fox").await.expect(204);
    lab.open("fox", "chat").await;
    let turns = lab.get("/v1/sessions/fox/turns").await;
    assert!(!turns.text.contains("the old one"));
    assert!(turns.expect(200)["turns"].as_array().expect("turns").is_empty());
}

#[tokio::test]
async fn a_message_is_edited_in_a_branch_and_the_first_one_stays() {
    let lab = Lab::new().await;
    lab.open("fox", "chat").await;
    lab.say("fox", "one").await;
    lab.say("fox", "two").await;
    let turns = lab.get("/v1/sessions/fox/turns").await.expect(200);
    let second = turns["turns"][1]["messages"][0]["seq"].as_u64().expect("a place");
    let branch = lab
        .post("/v1/sessions/fox/fork", json!({"at": second - 1, "session": "other", "title": "Else"}))
        .await
        .expect(201);
    assert_eq!(
        (&branch["title"], &branch["forked_from"]),
        (&json!("Else"), &json!({"session": "fox", "at": second - 1}))
    );
    lab.say("other", "three").await;
    let said = |turns: &Value| {
        turns["turns"]
            .as_array()
            .expect("turns")
            .iter()
            .map(|turn| turn["messages"][0]["text"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(said(&lab.get("/v1/sessions/other/turns").await.expect(200)), ["one", "three"]);
    assert_eq!(said(&lab.get("/v1/sessions/fox/turns").await.expect(200)), ["one", "two"]);
    let at_turn = lab.post("/v1/sessions/fox/fork", json!({"at": "t1"})).await.expect(201);
    assert_eq!(at_turn["turns"], 1);
    assert_eq!(lab.post("/v1/sessions/fox/fork", json!({"at": "t9"})).await.problem(404), "no-such-thing");
    assert_eq!(lab.post("/v1/sessions/fox/fork", json!({"at": 999})).await.problem(400), "bad-request");
    assert_eq!(lab.post("/v1/sessions/fox/fork", json!({"session": "other"})).await.problem(409), "session-exists");
}

#[tokio::test]
async fn a_session_goes_out_as_lines_and_comes_back() {
    let lab = Lab::new().await;
    lab.open("fox", "chat").await;
    lab.say("fox", "Tell me a story").await;
    let lines = lab.get("/v1/sessions/fox/export").await;
    assert_eq!(lines.headers["content-type"], "application/x-ndjson");
    let import =
        |name: &str, text: String| answer(lab.ask(Method::POST, &format!("/v1/import?session={name}")).body(text));
    let back = import("again", lines.text.clone()).await.expect(201);
    assert_eq!((&back["session"], &back["turns"]), (&json!("again"), &json!(1)));
    assert_eq!(import("again", lines.text.clone()).await.problem(409), "session-exists");
    let bad = import("bad", lines.text.replace("Once upon", "Twice upon")).await.expect(400);
    assert_eq!(bad["code"], "bad-import");
    assert!(bad["detail"].as_str().expect("words").starts_with("line "), "{bad}");
}

#[tokio::test]
async fn a_role_forgets_when_it_is_told_to() {
    let lab = Lab::new().await;
    lab.open("fox", "chat").await;
    lab.say("fox", "one").await;
    lab.post("/v1/sessions/fox/forget", json!({"role": "assistant"})).await.expect(200);
    lab.say("fox", "two").await;
    let threads = lab.get("/v1/sessions/fox/threads").await.expect(200);
    assert_eq!(
        threads["threads"][1]["why"],
        json!({"type": "changed", "words": "new: reset by hand", "parts": ["reset"]})
    );
    assert_eq!(threads["threads"][0]["ended"]["call"], "c2");
    assert_eq!(lab.post("/v1/sessions/fox/forget", json!({"role": "nobody"})).await.problem(400), "no-such-role");
}

//! Streams have no gaps and no repetitions, across reconnects and processes.

use std::collections::BTreeMap;

use reqwest::Method;
use serde_json::json;

use crate::test_server::{DEFAULT_SCENARIO, SseEvent, SseReader, TestServer};

async fn follow(server: &TestServer, session: &str, after: u64) -> SseReader {
    SseReader::open(server.request(Method::GET, &format!("/v1/sessions/{session}/events?after={after}"))).await
}

#[tokio::test]
async fn reconnected_client_continues_without_gap() {
    let server = TestServer::new().await;
    server.open_session("fox", "chat").await;
    for text in ["one", "two", "three"] {
        server.send_message("fox", text).await;
    }
    let mut seen: Vec<u64> = Vec::new();
    // Each connection reads one more event and then disconnects.
    for take in 1.. {
        let last = seen.last().copied().unwrap_or(0);
        let ask = server.request(Method::GET, "/v1/sessions/fox/events").header("last-event-id", last);
        let mut stream = SseReader::open(ask).await;
        for _ in 0..take {
            match stream.next().await.expect("it has no end") {
                SseEvent { kind, id: Some(id), .. } if kind == "event" => seen.push(id),
                SseEvent { kind, .. } if kind == "live" => break,
                _ => {}
            }
        }
        if seen.last().copied() == server.get("/v1/sessions/fox").await.expect_json(200)["seq"].as_u64() {
            break;
        }
    }
    assert_eq!(seen, (1..=seen.len() as u64).collect::<Vec<_>>());
    let bad = server
        .request(Method::GET, "/v1/sessions/fox/events")
        .header("last-event-id", "x")
        .header("accept", "text/event-stream");
    assert_eq!(crate::test_server::send(bad).await.problem_code(400), "bad-request");
}

#[tokio::test]
async fn pages_and_stream_have_the_same_events() {
    let server = TestServer::new().await;
    server.open_session("tour", "concierge").await;
    server.send_message("tour", "Should we split our program?").await;
    let mut paged = Vec::new();
    let mut after = 0;
    loop {
        let page =
            server.get(&format!("/v1/sessions/tour/events?after={after}&limit=7&texts=all")).await.expect_json(200);
        paged.extend(page["events"].as_array().expect("events").clone());
        after = page["last_seq"].as_u64().expect("a place");
        if page["has_more"] == false {
            break;
        }
    }
    let ask = server.request(Method::GET, "/v1/sessions/tour/events?texts=all&deltas=false");
    let streamed = SseReader::open(ask).await.read_until("live").await;
    let streamed: Vec<_> = streamed.into_iter().filter(|event| event.kind == "event").map(|event| event.data).collect();
    assert_eq!(paged, streamed);
    let calls = paged.iter().filter(|event| event["type"] == "call_opened");
    for call in calls {
        assert_eq!(call["turn"], "t1");
        assert!(!call["texts"].as_object().expect("texts").is_empty(), "{call}");
    }
    let bare = server.get("/v1/sessions/tour/events?texts=none").await.expect_json(200);
    assert!(bare["events"].as_array().expect("events").iter().all(|event| event["texts"] == json!({})));
}

#[tokio::test]
async fn stream_works_from_another_server_on_the_same_store() {
    let one = TestServer::new().await;
    let other = TestServer::on_disk(&one.disk, one.folder.clone(), DEFAULT_SCENARIO, |_| {}).await;
    one.open_session("fox", "chat").await;
    let mut stream = follow(&other, "fox", 0).await;
    for text in ["one", "two"] {
        one.send_message("fox", text).await;
    }
    let last = one.get("/v1/sessions/fox").await.expect_json(200)["seq"].as_u64().expect("a place");
    let mut seen = Vec::new();
    while seen.last() != Some(&last) {
        seen.extend(stream.next().await.expect("it has no end").id);
    }
    assert_eq!(seen, (1..=last).collect::<Vec<_>>());
}

#[tokio::test]
async fn all_subscribers_receive_the_same_events() {
    let server = TestServer::new().await;
    server.open_session("fox", "chat").await;
    let mut streams = Vec::new();
    for _ in 0..20 {
        streams.push(follow(&server, "fox", 1).await);
    }
    server.send_message("fox", "Tell me a story").await;
    let mut transcripts: BTreeMap<String, usize> = BTreeMap::new();
    for mut stream in streams {
        let mut transcript = String::new();
        loop {
            let event = stream.next().await.expect("it has no end");
            if event.kind == "event" {
                transcript.push_str(event.data["summary"].as_str().expect("a line"));
                if event.data["type"] == "turn_ended" {
                    break;
                }
            }
        }
        *transcripts.entry(transcript).or_default() += 1;
    }
    assert_eq!(transcripts.into_values().collect::<Vec<_>>(), [20]);
}

#[tokio::test]
async fn stream_sends_live_and_keep_alive() {
    let server = TestServer::with_options(DEFAULT_SCENARIO, |options| options.limits.heartbeat_ms = 20).await;
    server.open_session("fox", "chat").await;
    server.send_message("fox", "one").await;
    let events = follow(&server, "fox", 0).await.read_until("live").await;
    let last = events.iter().rev().find_map(|event| event.id).expect("events");
    assert_eq!(events.last().expect("live").data, json!({"seq": last}));
    let mut response = server
        .request(Method::GET, &format!("/v1/sessions/fox/events?after={last}"))
        .header("accept", "text/event-stream")
        .send()
        .await
        .expect("an answer");
    let mut text = String::new();
    while !text.contains(": keep-alive") {
        text.push_str(&String::from_utf8_lossy(&response.chunk().await.expect("more").expect("no end")));
    }
    assert!(text.starts_with("retry: 500\n\n"), "{text}");
}

#[tokio::test]
async fn stream_reports_shutdown_and_deletion() {
    let mut server = TestServer::new().await;
    server.open_session("fox", "chat").await;
    server.open_session("hare", "chat").await;
    let (mut fox, mut hare) = (follow(&server, "fox", 0).await, follow(&server, "hare", 0).await);
    fox.read_until("live").await;
    hare.read_until("live").await;
    server.delete("/v1/sessions/hare").await.expect_json(204);
    assert_eq!(hare.read_until("deleted").await.last().expect("an end").data, json!({"session": "hare"}));
    assert_eq!(hare.next().await, None);
    server.begin_shutdown();
    let end = fox.read_until("reconnect").await;
    assert_eq!(end.last().expect("an end").data["after"], 1);
    assert_eq!(fox.next().await, None);
}

#[tokio::test]
async fn changes_of_the_session_list_are_streamed() {
    let server = TestServer::new().await;
    server.open_session("fox", "chat").await;
    let mut changes = SseReader::open(server.request(Method::GET, "/v1/changes")).await;
    changes.read_until("live").await;
    // Changes before the first poll may be missed, so messages are sent until one is seen.
    server.send_message("fox", "one").await;
    let mut row = None;
    for number in 0.. {
        if row.is_some() {
            break;
        }
        server.send_message("fox", &format!("more {number}")).await;
        row = tokio::time::timeout(std::time::Duration::from_millis(700), changes.next()).await.ok().flatten();
    }
    let row = row.expect("a change");
    assert_eq!(
        (row.kind.as_str(), &row.data["session"], &row.data["flow"]),
        ("session", &json!("fox"), &json!("chat"))
    );
    server.delete("/v1/sessions/fox").await.expect_json(204);
    assert_eq!(changes.read_until("deleted").await.last().expect("deleted").data, json!({"session": "fox"}));
}

#[tokio::test]
async fn one_stream_follows_several_sessions_and_the_list() {
    let server = TestServer::new().await;
    for session in ["fox", "hen"] {
        server.open_session(session, "chat").await;
        server.send_message(session, &format!("hello {session}")).await;
    }
    let path = "/v1/stream?sessions=fox:0,hen:2,nobody:0&changes=true";
    let mut stream = SseReader::open(server.request(Method::GET, path)).await;
    let (mut seqs, mut live): (BTreeMap<String, Vec<u64>>, Vec<serde_json::Value>) = Default::default();
    let mut problem = None;
    while live.len() < 3 || problem.is_none() {
        let event = stream.next().await.expect("it has no end");
        let (session, data) = (event.data["session"].clone(), &event.data["data"]);
        match event.kind.as_str() {
            "event" => {
                let seq = data["seq"].as_u64().expect("a number");
                seqs.entry(session.as_str().expect("a session").to_owned()).or_default().push(seq);
            }
            "live" => live.push(session),
            "problem" => problem = Some((session, data["code"].clone())),
            _ => {}
        }
    }
    assert_eq!(problem, Some((json!("nobody"), json!("no-such-session"))), "the others continue");
    assert_eq!((seqs["fox"][0], seqs["hen"][0]), (1, 3), "each starts after its own number");
    server.send_message("hen", "more").await;
    let next = loop {
        let event = stream.next().await.expect("it has no end");
        if event.kind == "event" {
            break event.data;
        }
    };
    assert_eq!((&next["session"], &next["data"]["type"]), (&json!("hen"), &json!("user_message_received")));
    for wrong in ["fox", "fox:x", ":"] {
        assert_eq!(
            server.get(&format!("/v1/stream?sessions={wrong}")).await.problem_code(400),
            "bad-request",
            "{wrong}"
        );
    }
}

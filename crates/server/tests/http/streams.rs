//! Streams have no gaps and no repetitions, whoever writes and however often they break.

use std::collections::BTreeMap;

use reqwest::Method;
use serde_json::json;

use crate::lab::{Lab, Reading, Sent, TOUR};

async fn follow(lab: &Lab, session: &str, after: u64) -> Reading {
    Reading::of(lab.ask(Method::GET, &format!("/v1/sessions/{session}/events?after={after}"))).await
}

#[tokio::test]
async fn a_client_that_comes_back_goes_on_where_it_was() {
    let lab = Lab::new().await;
    lab.open("fox", "chat").await;
    for text in ["one", "two", "three"] {
        lab.say("fox", text).await;
    }
    let mut seen: Vec<u64> = Vec::new();
    // Each time it reads one event more and breaks off.
    for take in 1.. {
        let last = seen.last().copied().unwrap_or(0);
        let ask = lab.ask(Method::GET, "/v1/sessions/fox/events").header("last-event-id", last);
        let mut stream = Reading::of(ask).await;
        for _ in 0..take {
            match stream.next().await.expect("it has no end") {
                Sent { kind, id: Some(id), .. } if kind == "event" => seen.push(id),
                Sent { kind, .. } if kind == "live" => break,
                _ => {}
            }
        }
        if seen.last().copied() == lab.get("/v1/sessions/fox").await.expect(200)["seq"].as_u64() {
            break;
        }
    }
    assert_eq!(seen, (1..=seen.len() as u64).collect::<Vec<_>>());
    let bad = lab
        .ask(Method::GET, "/v1/sessions/fox/events")
        .header("last-event-id", "x")
        .header("accept", "text/event-stream");
    assert_eq!(crate::lab::answer(bad).await.problem(400), "bad-request");
}

#[tokio::test]
async fn pages_and_stream_tell_the_same() {
    let lab = Lab::new().await;
    lab.open("tour", "concierge").await;
    lab.say("tour", "Should we split our program?").await;
    let mut paged = Vec::new();
    let mut after = 0;
    loop {
        let page = lab.get(&format!("/v1/sessions/tour/events?after={after}&limit=7&texts=all")).await.expect(200);
        paged.extend(page["events"].as_array().expect("events").clone());
        after = page["last"].as_u64().expect("a place");
        if page["more"] == false {
            break;
        }
    }
    let ask = lab.ask(Method::GET, "/v1/sessions/tour/events?texts=all&words=false");
    let streamed = Reading::of(ask).await.until("live").await;
    let streamed: Vec<_> = streamed.into_iter().filter(|event| event.kind == "event").map(|event| event.data).collect();
    assert_eq!(paged, streamed);
    let calls = paged.iter().filter(|event| event["type"] == "call_opened");
    for call in calls {
        assert_eq!(call["turn"], "t1");
        assert!(!call["texts"].as_object().expect("texts").is_empty(), "{call}");
    }
    let bare = lab.get("/v1/sessions/tour/events?texts=none").await.expect(200);
    assert!(bare["events"].as_array().expect("events").iter().all(|event| event["texts"] == json!({})));
}

#[tokio::test]
async fn a_session_is_followed_from_another_server_on_the_same_store() {
    let one = Lab::new().await;
    let other = Lab::on(&one.disk, one.folder.clone(), TOUR, |_| {}).await;
    one.open("fox", "chat").await;
    let mut stream = follow(&other, "fox", 0).await;
    for text in ["one", "two"] {
        one.say("fox", text).await;
    }
    let last = one.get("/v1/sessions/fox").await.expect(200)["seq"].as_u64().expect("a place");
    let mut seen = Vec::new();
    while seen.last() != Some(&last) {
        seen.extend(stream.next().await.expect("it has no end").id);
    }
    assert_eq!(seen, (1..=last).collect::<Vec<_>>());
}

#[tokio::test]
async fn many_listeners_of_one_session_hear_the_same() {
    let lab = Lab::new().await;
    lab.open("fox", "chat").await;
    let mut streams = Vec::new();
    for _ in 0..20 {
        streams.push(follow(&lab, "fox", 1).await);
    }
    lab.say("fox", "Tell me a story").await;
    let mut heard: BTreeMap<String, usize> = BTreeMap::new();
    for mut stream in streams {
        let mut told = String::new();
        loop {
            let event = stream.next().await.expect("it has no end");
            if event.kind == "event" {
                told.push_str(event.data["line"].as_str().expect("a line"));
                if event.data["type"] == "turn_ended" {
                    break;
                }
            }
        }
        *heard.entry(told).or_default() += 1;
    }
    assert_eq!(heard.into_values().collect::<Vec<_>>(), [20]);
}

#[tokio::test]
async fn a_stream_says_when_what_follows_is_news_and_that_it_is_still_there() {
    let lab = Lab::with(TOUR, |options| options.limits.heartbeat_ms = 20).await;
    lab.open("fox", "chat").await;
    lab.say("fox", "one").await;
    let events = follow(&lab, "fox", 0).await.until("live").await;
    let last = events.iter().rev().find_map(|event| event.id).expect("events");
    assert_eq!(events.last().expect("live").data, json!({"seq": last}));
    let mut response = lab
        .ask(Method::GET, &format!("/v1/sessions/fox/events?after={last}"))
        .header("accept", "text/event-stream")
        .send()
        .await
        .expect("an answer");
    let mut text = String::new();
    while !text.contains(": still here") {
        text.push_str(&String::from_utf8_lossy(&response.chunk().await.expect("more").expect("no end")));
    }
    assert!(text.starts_with("retry: 500\n\n"), "{text}");
}

#[tokio::test]
async fn who_listens_is_told_that_the_server_ends_and_that_a_session_is_gone() {
    let mut lab = Lab::new().await;
    lab.open("fox", "chat").await;
    lab.open("hare", "chat").await;
    let (mut fox, mut hare) = (follow(&lab, "fox", 0).await, follow(&lab, "hare", 0).await);
    fox.until("live").await;
    hare.until("live").await;
    lab.delete("/v1/sessions/hare").await.expect(204);
    assert_eq!(hare.until("gone").await.last().expect("an end").data, json!({"session": "hare"}));
    assert_eq!(hare.next().await, None);
    lab.begin_to_stop();
    let end = fox.until("reconnect").await;
    assert_eq!(end.last().expect("an end").data["after"], 1);
    assert_eq!(fox.next().await, None);
}

#[tokio::test]
async fn whoever_shows_a_list_is_told_which_sessions_changed() {
    let lab = Lab::new().await;
    lab.open("fox", "chat").await;
    let mut changes = Reading::of(lab.ask(Method::GET, "/v1/changes")).await;
    changes.until("live").await;
    // The first look is what later ones are compared with; a change before it may go unseen, one of these does not.
    lab.say("fox", "one").await;
    let mut row = None;
    for number in 0.. {
        if row.is_some() {
            break;
        }
        lab.say("fox", &format!("more {number}")).await;
        row = tokio::time::timeout(std::time::Duration::from_millis(700), changes.next()).await.ok().flatten();
    }
    let row = row.expect("a change");
    assert_eq!(
        (row.kind.as_str(), &row.data["session"], &row.data["flow"]),
        ("session", &json!("fox"), &json!("chat"))
    );
    lab.delete("/v1/sessions/fox").await.expect(204);
    assert_eq!(changes.until("gone").await.last().expect("gone").data, json!({"session": "fox"}));
}

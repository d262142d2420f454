//! The views agree with each other and with the journal, now and for every past event.

use serde_json::{Value, json};

use crate::test_server::TestServer;

const MESSAGES: [&str; 5] = [
    "Should I open a small bakery?",
    "I have some savings and a free year.",
    "What if nobody comes?",
    "I'm going to do it, give me a plan.",
    "It is done.",
];

async fn tour() -> TestServer {
    let server = TestServer::new().await;
    server.open_session("tour", "concierge").await;
    for message in MESSAGES {
        assert_eq!(server.send_message("tour", message).await["outcome"]["type"], "done", "{message}");
    }
    server
}

fn list<'v>(value: &'v Value, name: &str) -> &'v Vec<Value> {
    value[name].as_array().unwrap_or_else(|| panic!("`{name}` in {value}"))
}

#[tokio::test]
async fn receipt_accounts_for_every_token_of_the_prompt() {
    let server = tour().await;
    let calls = server.get("/v1/sessions/tour/calls?limit=1000").await.expect_json(200);
    for call in list(&calls, "calls") {
        let name = call["call"].as_str().expect("a name");
        let receipt = server.get(&format!("/v1/sessions/tour/calls/{name}")).await.expect_json(200);
        assert_eq!(receipt["call"], *call);
        let tokens: u64 =
            list(&receipt, "fragments").iter().map(|fragment| fragment["tokens"].as_u64().expect("a count")).sum();
        let all = call["prompt_tokens"].as_u64().expect("a count");
        // Each message adds a few tokens besides its fragments.
        assert!(tokens <= all && all - tokens <= 12, "{name}: {tokens} of {all}");
        assert!(receipt["cached_tokens"].as_u64().expect("a count") <= all, "{name}");
        let prompt = server.get(&format!("/v1/sessions/tour/calls/{name}/prompt")).await.expect_json(200);
        let written = prompt["messages"].to_string();
        for fragment in list(&receipt, "fragments").iter().filter(|fragment| fragment["part"] != "carried") {
            let text = serde_json::to_string(&fragment["text"]).expect("JSON");
            assert!(written.contains(text.trim_matches('"')), "{name}: {text} is not in the prompt");
        }
    }
    let bare = server.get("/v1/sessions/tour/calls/c1?texts=false").await.expect_json(200);
    assert!(list(&bare, "fragments").iter().all(|fragment| fragment["text"].is_null()));
}

#[tokio::test]
async fn threads_follow_the_scopes_of_their_roles() {
    let server = tour().await;
    let threads = server.get("/v1/sessions/tour/threads").await.expect_json(200);
    let of = |role: &str| {
        list(&threads, "threads").iter().filter(|thread| thread["role"] == role).cloned().collect::<Vec<_>>()
    };
    let mappers = of("mapper");
    assert!(
        mappers.len() >= 2
            && mappers.iter().all(|thread| thread["opening_reason"]["type"] == "fresh" && thread["is_active"] == false)
    );
    let concierges = of("concierge");
    let phases: Vec<&Value> = concierges.iter().map(|thread| &thread["valid_for"]["phase"]).collect();
    assert_eq!(phases, ["starter", "explorer", "executor"]);
    let is_active: Vec<&Value> = concierges.iter().map(|thread| &thread["is_active"]).collect();
    assert_eq!(is_active, [false, false, true]);
    assert_eq!(of("expert").len(), 3, "experts keep their threads across phases");
    let first = server.get("/v1/sessions/tour/threads?at=30").await.expect_json(200);
    assert!(list(&first, "threads").len() < list(&threads, "threads").len());
}

#[tokio::test]
async fn phases_show_visits_and_figures() {
    let server = tour().await;
    let phases = server.get("/v1/sessions/tour/phases").await.expect_json(200);
    let graph = &phases["graphs"][0];
    let path: Vec<&Value> = list(graph, "visits").iter().map(|visit| &visit["phase"]).collect();
    assert_eq!(path, ["starter", "explorer", "executor"]);
    let turns: Vec<u64> = list(graph, "phases").iter().map(|phase| phase["turns"].as_u64().expect("a count")).collect();
    assert_eq!(turns, [2, 2, 2], "the turn of a transition counts in each phase with a call");
    let early = server.get("/v1/sessions/tour/phases?at=10").await.expect_json(200);
    assert_eq!(early["graphs"][0]["current"]["phase"], "starter");
    assert!(list(&early["graphs"][0], "events").is_empty());
    let granted = server.post("/v1/sessions/tour/phases/grant", json!({"to": "explorer"})).await.expect_json(200);
    assert_eq!(granted["current"]["grants"][0]["to"], "explorer");
    let moved = server
        .post("/v1/sessions/tour/phases/propose", json!({"to": "explorer", "reason": "let us talk"}))
        .await
        .expect_json(200);
    assert_eq!(moved["current"]["phase"], "explorer");
    let last = list(&moved, "events").last().expect("a move");
    assert_eq!((&last["cause"], &last["reason"]), (&json!("granted"), &json!("let us talk")));
    assert!(last["warning"].as_str().expect("a warning").contains("skipped"));
    let back = server.post("/v1/sessions/tour/phases/rollback", json!({"visit": 3})).await.expect_json(200);
    assert_eq!((&back["current"]["phase"], &back["current"]["visit"]), (&json!("executor"), &json!(5)));
    assert_eq!(server.post("/v1/sessions/tour/phases/rollback", json!({"visit": 99})).await.problem_code(409), "phase");
    assert_eq!(
        server.post("/v1/sessions/tour/phases/grant", json!({"to": "x", "graph": "y"})).await.problem_code(404),
        "not-found"
    );
}

#[tokio::test]
async fn ledger_sums_agree() {
    let server = tour().await;
    let ledger = server.get("/v1/sessions/tour/ledger").await.expect_json(200);
    let sum = |name: &str, field: &str| {
        list(&ledger, name).iter().map(|account| account["spent"][field].as_u64().expect("a count")).sum::<u64>()
    };
    for field in ["answered", "input", "output"] {
        let total = ledger["total"][field].as_u64().expect("a count");
        assert!(total > 0);
        for by in ["roles", "models", "turns"] {
            assert_eq!(sum(by, field), total, "{field} by {by}");
        }
    }
    assert_eq!(server.get("/v1/sessions/tour").await.expect_json(200)["spent"], ledger["total"]);
}

#[tokio::test]
async fn every_view_can_show_every_past_event() {
    let server = tour().await;
    let last = server.get("/v1/sessions/tour").await.expect_json(200)["seq"].as_u64().expect("a place");
    let mut has_artifacts = Vec::new();
    for at in 1..=last {
        let state = server.get(&format!("/v1/sessions/tour/state?at={at}")).await.expect_json(200);
        assert_eq!((&state["seq"], &state["session"]["last_seq"]), (&json!(at), &json!(at)));
        let session = server.get(&format!("/v1/sessions/tour?at={at}")).await.expect_json(200);
        assert_eq!(session["seq"], at);
        let turns = server.get(&format!("/v1/sessions/tour/turns?at={at}")).await.expect_json(200);
        assert_eq!(session["turns"].as_u64(), Some(list(&turns, "turns").len() as u64));
        let calls = server.get(&format!("/v1/sessions/tour/calls?at={at}&limit=1000")).await.expect_json(200);
        assert_eq!(session["calls"].as_u64(), Some(list(&calls, "calls").len() as u64));
        has_artifacts.push(session["available_sections"].as_array().expect("a list").contains(&json!("artifacts")));
    }
    assert!(!has_artifacts[0] && has_artifacts[has_artifacts.len() - 1]);
    for view in ["calls", "phases", "threads", "handovers", "facts", "artifacts", "ledger", "turns"] {
        let now = server.get(&format!("/v1/sessions/tour/{view}")).await.expect_json(200);
        let then = server.get(&format!("/v1/sessions/tour/{view}?at={last}")).await.expect_json(200);
        assert_eq!(now, then, "{view}");
    }
}

#[tokio::test]
async fn artifacts_are_a_checklist_and_a_graph() {
    let server = tour().await;
    let workflow = server.get("/v1/sessions/tour/artifacts/workflow").await.expect_json(200);
    assert_eq!(workflow["type"], "checklist");
    let statuses: Vec<&Value> = list(&workflow, "items").iter().map(|item| &item["status"]).collect();
    assert_eq!(statuses, ["complete", "active", "pending"]);
    let map = server.get("/v1/sessions/tour/artifacts/map").await.expect_json(200);
    let ids: Vec<&Value> = list(&map, "nodes").iter().map(|node| &node["id"]).collect();
    assert!(list(&map, "edges").iter().all(|edge| ids.contains(&&edge["from"]) && ids.contains(&&edge["to"])));
    let facts = server.get("/v1/sessions/tour/facts?kind=map_parsed").await.expect_json(200);
    assert_eq!(list(&facts, "facts").len() as u64, facts["counts_by_kind"]["map_parsed"].as_u64().expect("a count"));
}

#[tokio::test]
async fn turns_are_paged_back_from_the_newest() {
    let server = TestServer::new().await;
    server.open_session("fox", "chat").await;
    for number in 0..7 {
        server.send_message("fox", &format!("message {number}")).await;
    }
    let (mut seen, mut before) = (Vec::new(), String::new());
    loop {
        let page = server.get(&format!("/v1/sessions/fox/turns?limit=3{before}")).await.expect_json(200);
        let mut turns: Vec<String> =
            list(&page, "turns").iter().map(|turn| turn["turn"].as_str().expect("a name").to_owned()).collect();
        turns.extend(seen);
        seen = turns;
        match page["next"].as_str() {
            Some(next) => before = format!("&before={next}"),
            None => break,
        }
    }
    assert_eq!(seen, ["t1", "t2", "t3", "t4", "t5", "t6", "t7"]);
    assert_eq!(server.get("/v1/sessions/fox/turns/t4").await.expect_json(200)["messages"][0]["text"], "message 3");
}

#[tokio::test]
async fn recomputation_leaves_the_timeline_unchanged() {
    let server = tour().await;
    let before = server.get("/v1/sessions/tour/turns").await.expect_json(200);
    let made = server.post("/v1/sessions/tour/calls/c1/recompute", json!({"model": "scripted"})).await.expect_json(200);
    assert_eq!((&made["recomputes"], &made["model"]), (&json!("c1"), &json!("scripted")));
    assert_ne!(made["previous_answer"], made["new_answer"]);
    let again = server
        .get(&format!("/v1/sessions/tour/calls/{}", made["call"].as_str().expect("a name")))
        .await
        .expect_json(200);
    assert_eq!((&again["call"]["recomputes"], &again["call"]["turn"]), (&json!("c1"), &Value::Null));
    let after = server.get("/v1/sessions/tour/turns").await.expect_json(200);
    assert_eq!(before["turns"], after["turns"], "the timeline is unchanged");
    let unknown = server.post("/v1/sessions/tour/calls/c1/recompute", json!({"model": "nobody"})).await;
    assert_eq!(unknown.problem_code(400), "bad-request");
    assert_eq!(
        server.post("/v1/sessions/tour/calls/c1/resolve", json!({"action": "retry"})).await.problem_code(409),
        "not-held"
    );
}

#[tokio::test]
async fn prompt_and_texts_are_served_as_plain_text() {
    let server = TestServer::new().await;
    server.open_session("fox", "chat").await;
    server.send_message("fox", "Tell me a story").await;
    let ask = server.request(reqwest::Method::GET, "/v1/sessions/fox/calls/c1/prompt").header("accept", "text/plain");
    let text = crate::test_server::send(ask).await;
    assert!(text.text.ends_with("── user ──\nTell me a story\n"), "{}", text.text);
    let receipt = server.get("/v1/sessions/fox/calls/c1").await.expect_json(200);
    let body = receipt["answer"]["body"].as_str().expect("an id").to_owned();
    let one = server.get(&format!("/v1/sessions/fox/texts/{body}")).await;
    assert_eq!(
        (one.text.as_str(), one.headers["content-type"].to_str().expect("text")),
        ("Once upon a time there was a fox.", "text/plain; charset=utf-8")
    );
    let several = server.post("/v1/sessions/fox/texts", json!({"bodies": [body]})).await.expect_json(200);
    assert_eq!(several["texts"].as_object().map(serde_json::Map::len), Some(1));
    assert_eq!(server.get(&format!("/v1/sessions/fox/texts/{}", "A".repeat(32))).await.problem_code(404), "not-found");
    assert_eq!(server.get("/v1/sessions/fox/texts/short").await.problem_code(400), "bad-request");
    let too_many: Vec<String> = vec![body; 201];
    assert_eq!(
        server.post("/v1/sessions/fox/texts", json!({"bodies": too_many})).await.problem_code(400),
        "bad-request"
    );
}

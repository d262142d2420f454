//! The views agree with each other and with the journal, at any time.

use serde_json::{Value, json};

use crate::lab::Lab;

const MESSAGES: [&str; 5] = [
    "Should I open a small bakery?",
    "I have some savings and a free year.",
    "What if nobody comes?",
    "I'm going to do it, give me a plan.",
    "It is done.",
];

async fn tour() -> Lab {
    let lab = Lab::new().await;
    lab.open("tour", "concierge").await;
    for message in MESSAGES {
        assert_eq!(lab.say("tour", message).await["outcome"]["type"], "done", "{message}");
    }
    lab
}

fn list<'v>(value: &'v Value, name: &str) -> &'v Vec<Value> {
    value[name].as_array().unwrap_or_else(|| panic!("`{name}` in {value}"))
}

#[tokio::test]
async fn a_receipt_accounts_for_every_token_of_the_prompt() {
    let lab = tour().await;
    let calls = lab.get("/v1/sessions/tour/calls?limit=1000").await.expect(200);
    for call in list(&calls, "calls") {
        let name = call["call"].as_str().expect("a name");
        let receipt = lab.get(&format!("/v1/sessions/tour/calls/{name}")).await.expect(200);
        assert_eq!(receipt["call"], *call);
        let tokens: u64 =
            list(&receipt, "fragments").iter().map(|fragment| fragment["tokens"].as_u64().expect("a count")).sum();
        let all = call["tokens"].as_u64().expect("a count");
        // Beside fragments there are a few tokens for the frame of each message.
        assert!(tokens <= all && all - tokens <= 12, "{name}: {tokens} of {all}");
        assert!(receipt["cached_tokens"].as_u64().expect("a count") <= all, "{name}");
        let prompt = lab.get(&format!("/v1/sessions/tour/calls/{name}/prompt")).await.expect(200);
        let written = prompt["messages"].to_string();
        for fragment in list(&receipt, "fragments").iter().filter(|fragment| fragment["part"] != "carried") {
            let text = serde_json::to_string(&fragment["text"]).expect("JSON");
            assert!(written.contains(text.trim_matches('"')), "{name}: {text} is not in the prompt");
        }
    }
    let bare = lab.get("/v1/sessions/tour/calls/c1?texts=false").await.expect(200);
    assert!(list(&bare, "fragments").iter().all(|fragment| fragment["text"].is_null()));
}

#[tokio::test]
async fn lanes_show_that_the_mapper_is_fresh_and_the_concierge_resets() {
    let lab = tour().await;
    let threads = lab.get("/v1/sessions/tour/threads").await.expect(200);
    let of = |role: &str| {
        list(&threads, "threads").iter().filter(|thread| thread["role"] == role).cloned().collect::<Vec<_>>()
    };
    let mappers = of("mapper");
    assert!(
        mappers.len() >= 2 && mappers.iter().all(|thread| thread["why"]["type"] == "fresh" && thread["stands"] == false)
    );
    let concierges = of("concierge");
    let phases: Vec<&Value> = concierges.iter().map(|thread| &thread["until"]["phase"]).collect();
    assert_eq!(phases, ["starter", "explorer", "executor"]);
    let stands: Vec<&Value> = concierges.iter().map(|thread| &thread["stands"]).collect();
    assert_eq!(stands, [false, false, true]);
    assert_eq!(of("expert").len(), 3, "experts keep their threads across phases");
    let first = lab.get("/v1/sessions/tour/threads?at=30").await.expect(200);
    assert!(list(&first, "threads").len() < list(&threads, "threads").len());
}

#[tokio::test]
async fn phases_tell_the_path_and_the_figures_of_each() {
    let lab = tour().await;
    let phases = lab.get("/v1/sessions/tour/phases").await.expect(200);
    let graph = &phases["graphs"][0];
    let path: Vec<&Value> = list(graph, "visits").iter().map(|visit| &visit["phase"]).collect();
    assert_eq!(path, ["starter", "explorer", "executor"]);
    let turns: Vec<u64> = list(graph, "phases").iter().map(|phase| phase["turns"].as_u64().expect("a count")).collect();
    assert_eq!(turns, [2, 2, 2], "the turn that moves on counts where somebody spoke");
    let early = lab.get("/v1/sessions/tour/phases?at=10").await.expect(200);
    assert_eq!(early["graphs"][0]["now"]["phase"], "starter");
    assert!(list(&early["graphs"][0], "history").is_empty());
    let granted = lab.post("/v1/sessions/tour/phases/grant", json!({"to": "explorer"})).await.expect(200);
    assert_eq!(granted["now"]["grants"][0]["to"], "explorer");
    let moved = lab
        .post("/v1/sessions/tour/phases/propose", json!({"to": "explorer", "reason": "let us talk"}))
        .await
        .expect(200);
    assert_eq!(moved["now"]["phase"], "explorer");
    let last = list(&moved, "history").last().expect("a move");
    assert_eq!((&last["how"], &last["reason"]), (&json!("granted"), &json!("let us talk")));
    assert!(last["warning"].as_str().expect("a warning").contains("left out"));
    let back = lab.post("/v1/sessions/tour/phases/rollback", json!({"visit": 3})).await.expect(200);
    assert_eq!((&back["now"]["phase"], &back["now"]["visit"]), (&json!("executor"), &json!(5)));
    assert_eq!(lab.post("/v1/sessions/tour/phases/rollback", json!({"visit": 99})).await.problem(409), "phase");
    assert_eq!(
        lab.post("/v1/sessions/tour/phases/grant", json!({"to": "x", "graph": "y"})).await.problem(404),
        "no-such-thing"
    );
}

#[tokio::test]
async fn what_a_session_cost_is_the_same_however_it_is_added_up() {
    let lab = tour().await;
    let ledger = lab.get("/v1/sessions/tour/ledger").await.expect(200);
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
    assert_eq!(lab.get("/v1/sessions/tour").await.expect(200)["spent"], ledger["total"]);
}

#[tokio::test]
async fn every_view_can_be_had_as_of_every_event() {
    let lab = tour().await;
    let last = lab.get("/v1/sessions/tour").await.expect(200)["seq"].as_u64().expect("a place");
    let mut exhibits = Vec::new();
    for at in 1..=last {
        let state = lab.get(&format!("/v1/sessions/tour/state?at={at}")).await.expect(200);
        assert_eq!((&state["seq"], &state["session"]["seq"]), (&json!(at), &json!(at)));
        let session = lab.get(&format!("/v1/sessions/tour?at={at}")).await.expect(200);
        assert_eq!(session["seq"], at);
        let turns = lab.get(&format!("/v1/sessions/tour/turns?at={at}")).await.expect(200);
        assert_eq!(session["turns"].as_u64(), Some(list(&turns, "turns").len() as u64));
        let calls = lab.get(&format!("/v1/sessions/tour/calls?at={at}&limit=1000")).await.expect(200);
        assert_eq!(session["calls"].as_u64(), Some(list(&calls, "calls").len() as u64));
        exhibits.push(session["holds"].as_array().expect("a list").contains(&json!("exhibits")));
    }
    assert!(!exhibits[0] && exhibits[exhibits.len() - 1]);
    for view in ["calls", "phases", "threads", "handovers", "facts", "exhibits", "ledger", "turns"] {
        let now = lab.get(&format!("/v1/sessions/tour/{view}")).await.expect(200);
        let then = lab.get(&format!("/v1/sessions/tour/{view}?at={last}")).await.expect(200);
        assert_eq!(now, then, "{view}");
    }
}

#[tokio::test]
async fn the_plan_is_a_checklist_and_the_answers_are_a_map() {
    let lab = tour().await;
    let workflow = lab.get("/v1/sessions/tour/artifacts/workflow").await.expect(200);
    assert_eq!(workflow["type"], "checklist");
    let stands: Vec<&Value> = list(&workflow, "items").iter().map(|item| &item["status"]).collect();
    assert_eq!(stands, ["complete", "active", "pending"]);
    let map = lab.get("/v1/sessions/tour/artifacts/map").await.expect(200);
    let ids: Vec<&Value> = list(&map, "nodes").iter().map(|node| &node["id"]).collect();
    assert!(list(&map, "edges").iter().all(|edge| ids.contains(&&edge["from"]) && ids.contains(&&edge["to"])));
    let facts = lab.get("/v1/sessions/tour/facts?kind=map").await.expect(200);
    assert_eq!(list(&facts, "facts").len() as u64, facts["kinds"]["map"].as_u64().expect("a count"));
}

#[tokio::test]
async fn turns_page_back_from_the_newest() {
    let lab = Lab::new().await;
    lab.open("fox", "chat").await;
    for number in 0..7 {
        lab.say("fox", &format!("message {number}")).await;
    }
    let (mut seen, mut before) = (Vec::new(), String::new());
    loop {
        let page = lab.get(&format!("/v1/sessions/fox/turns?limit=3{before}")).await.expect(200);
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
    assert_eq!(lab.get("/v1/sessions/fox/turns/t4").await.expect(200)["messages"][0]["text"], "message 3");
}

#[tokio::test]
async fn a_past_call_is_made_once_more_beside_the_timeline() {
    let lab = tour().await;
    let before = lab.get("/v1/sessions/tour/turns").await.expect(200);
    let made = lab.post("/v1/sessions/tour/calls/c1/recompute", json!({"model": "scripted"})).await.expect(200);
    assert_eq!((&made["recomputes"], &made["model"]), (&json!("c1"), &json!("scripted")));
    assert_ne!(made["before"], made["now"]);
    let again =
        lab.get(&format!("/v1/sessions/tour/calls/{}", made["call"].as_str().expect("a name"))).await.expect(200);
    assert_eq!((&again["call"]["recomputes"], &again["call"]["turn"]), (&json!("c1"), &Value::Null));
    let after = lab.get("/v1/sessions/tour/turns").await.expect(200);
    assert_eq!(before["turns"], after["turns"], "the timeline does not move");
    let unknown = lab.post("/v1/sessions/tour/calls/c1/recompute", json!({"model": "nobody"})).await;
    assert_eq!(unknown.problem(400), "bad-request");
    assert_eq!(lab.post("/v1/sessions/tour/calls/c1/resolve", json!({"how": "retry"})).await.problem(409), "not-held");
}

#[tokio::test]
async fn a_prompt_is_there_as_text_too_and_a_text_by_its_id() {
    let lab = Lab::new().await;
    lab.open("fox", "chat").await;
    lab.say("fox", "Tell me a story").await;
    let ask = lab.ask(reqwest::Method::GET, "/v1/sessions/fox/calls/c1/prompt").header("accept", "text/plain");
    let text = crate::lab::answer(ask).await;
    assert!(text.text.ends_with("── user ──\nTell me a story\n"), "{}", text.text);
    let receipt = lab.get("/v1/sessions/fox/calls/c1").await.expect(200);
    let body = receipt["answer"]["body"].as_str().expect("an id").to_owned();
    let one = lab.get(&format!("/v1/sessions/fox/texts/{body}")).await;
    assert_eq!(
        (one.text.as_str(), one.headers["content-type"].to_str().expect("text")),
        ("Once upon a time there was a fox.", "text/plain; charset=utf-8")
    );
    let several = lab.post("/v1/sessions/fox/texts", json!({"bodies": [body]})).await.expect(200);
    assert_eq!(several["texts"].as_object().map(serde_json::Map::len), Some(1));
    assert_eq!(lab.get(&format!("/v1/sessions/fox/texts/{}", "A".repeat(32))).await.problem(404), "no-such-thing");
    assert_eq!(lab.get("/v1/sessions/fox/texts/short").await.problem(400), "bad-request");
    let too_many: Vec<String> = vec![body; 201];
    assert_eq!(lab.post("/v1/sessions/fox/texts", json!({"bodies": too_many})).await.problem(400), "bad-request");
}

//! Claims about lists, searches and what recovery asks for.

use segue_core::ids::{Millis, Seq};

use super::{Place, Writing, inner, name, said, summary};
use crate::{Owes, Query, Store, Summary};

pub async fn sessions_are_listed_newest_first(place: &impl Place) {
    let store = place.open();
    for (session, updated) in [("a", 5), ("b", 9), ("c", 2), ("d", 9)] {
        Writing::begin(&store, session).await.bring(2, Vec::new(), Some(summary(session, updated))).await;
    }
    let _unsaid = Writing::begin(&store, "nothing to tell yet").await;
    let page = store.list(&Query::newest(10)).await.expect("listed");
    let listed: Vec<&str> = page.rows.iter().map(|row| row.session.as_str()).collect();
    assert_eq!(listed, ["d", "b", "a", "c"]);
    assert_eq!(page.next, None);
    assert!(page.rows.iter().all(|row| row.head == Seq(2) && row.excerpt.is_none()));
}

pub async fn pages_follow_each_other_without_gap(place: &impl Place) {
    let store = place.open();
    for number in 0..11u64 {
        let session = format!("s{number:02}");
        Writing::begin(&store, &session).await.bring(1, Vec::new(), Some(summary("", number / 3))).await;
    }
    let mut seen = Vec::new();
    let mut query = Query::newest(4);
    loop {
        let page = store.list(&query).await.expect("listed");
        assert!(page.rows.len() <= 4);
        seen.extend(page.rows.into_iter().map(|row| row.session));
        query.before = page.next;
        if query.before.is_none() {
            break;
        }
    }
    let all: Vec<_> = (0..11).rev().map(|number| name(&format!("s{number:02}"))).collect();
    assert_eq!(seen, all);
}

pub async fn a_flow_can_be_singled_out(place: &impl Place) {
    let store = place.open();
    for (session, flow) in [("a", "chat"), ("b", "team"), ("c", "chat")] {
        let summary = Summary { flow: flow.into(), ..summary(session, 1) };
        Writing::begin(&store, session).await.bring(1, Vec::new(), Some(summary)).await;
    }
    let query = Query { flows: vec!["team".into()], ..Query::newest(10) };
    assert_eq!(found(&*store, &query).await, ["b"]);
    let query = Query { flows: vec!["team".into(), "chat".into(), "none".into()], ..Query::newest(10) };
    assert_eq!(found(&*store, &query).await, ["c", "b", "a"]);
}

pub async fn names_that_begin_alike_can_be_singled_out(place: &impl Place) {
    let store = place.open();
    for (session, flow) in
        [("acme.a", "chat"), ("acme", "chat"), ("acme2.a", "chat"), ("acme.b", "team"), ("Acme.c", "chat")]
    {
        let summary = Summary { flow: flow.into(), ..summary(session, 1) };
        Writing::begin(&store, session).await.bring(1, Vec::new(), Some(summary)).await;
    }
    let within = Query { within: Some("acme.".into()), ..Query::newest(10) };
    assert_eq!(found(&*store, &within).await, ["acme.b", "acme.a"]);
    let first = store.list(&Query { limit: 1, ..within.clone() }).await.expect("listed");
    let rest = Query { before: first.next, ..within.clone() };
    assert_eq!(found(&*store, &rest).await, ["acme.a"], "pages too");
    assert_eq!(found(&*store, &Query { flows: vec!["chat".into()], ..within.clone() }).await, ["acme.a"]);
    assert_eq!(found(&*store, &Query { text: Some("ACME2".into()), ..within }).await, [""; 0], "a search too");
}

pub async fn titles_and_said_texts_are_searched(place: &impl Place) {
    let store = place.open();
    let long = format!("{} the Violin has four strings {}", "well ".repeat(300), "indeed ".repeat(300));
    let mut a = Writing::begin(&store, "a").await;
    a.bring(1, vec![said("nothing of the kind")], Some(summary("About VIOLINS", 3))).await;
    let mut b = Writing::begin(&store, "b").await;
    b.bring(1, vec![said("not yet")], Some(summary("strings", 2))).await;
    b.bring(1, vec![said(&long)], None).await;
    let mut c = Writing::begin(&store, "c").await;
    c.bring(1, vec![said("a cello")], Some(summary("cellos", 1))).await;
    let query = |text: &str, limit| Query { text: Some(text.into()), ..Query::newest(limit) };
    assert_eq!(found(&*store, &query("violin", 10)).await, ["a", "b"]);
    assert_eq!(found(&*store, &query("CELLO", 10)).await, ["c"]);
    assert_eq!(found(&*store, &query("100%", 10)).await, [""; 0], "no wildcard");
    let page = store.list(&query("violin has", 10)).await.expect("listed");
    let excerpt = page.rows[0].excerpt.as_deref().expect("a hit is shown");
    assert!(excerpt.contains("the Violin has four") && excerpt.len() < 200, "{excerpt}");
    let first = store.list(&query("violin", 1)).await.expect("listed");
    let rest = Query { before: first.next, ..query("violin", 1) };
    assert_eq!(found(&*store, &rest).await, ["b"], "a search has pages too");
}

pub async fn inner_texts_are_not_searched_until_they_are_said(place: &impl Place) {
    let store = place.open();
    let mut a = Writing::begin(&store, "a").await;
    a.bring(1, vec![inner("the oboe gives the note")], Some(summary("", 1))).await;
    let mut b = Writing::begin(&store, "b").await;
    b.bring(1, vec![said("the oboe gives the note")], Some(summary("", 2))).await;
    let query = Query { text: Some("oboe".into()), ..Query::newest(10) };
    assert_eq!(found(&*store, &query).await, ["b"], "said by one does not mean said by all");
    a.bring(1, vec![said("the oboe gives the note")], None).await;
    assert_eq!(found(&*store, &query).await, ["b", "a"]);
}

pub async fn the_summary_is_the_last_one_given(place: &impl Place) {
    let store = place.open();
    let mut a = Writing::begin(&store, "a").await;
    a.bring(1, Vec::new(), Some(summary("first", 1))).await;
    let last =
        Summary { turns: 9, cost_microusd: None, owes: Owes::At(Millis(77)), ..summary("a longer second title", 2) };
    a.bring(1, Vec::new(), Some(last.clone())).await;
    a.append(3).await;
    let page = store.list(&Query::newest(1)).await.expect("listed");
    assert_eq!(page.rows[0].summary, last);
    assert_eq!(page.rows[0].head, Seq(5));
}

pub async fn only_sessions_that_owe_are_recovered(place: &impl Place) {
    let store = place.open();
    let mut b = Writing::begin(&store, "b").await;
    for (session, owes) in [("c", Owes::Now), ("a", Owes::At(Millis(5))), ("z", Owes::Nothing)] {
        let summary = Summary { owes, ..summary("", 1) };
        Writing::begin(&store, session).await.bring(1, Vec::new(), Some(summary)).await;
    }
    b.bring(1, Vec::new(), Some(Summary { owes: Owes::Now, ..summary("", 1) })).await;
    b.bring(1, Vec::new(), Some(summary("", 2))).await;
    let owing = store.owing().await.expect("listed");
    assert_eq!(owing, [(name("a"), Owes::At(Millis(5))), (name("c"), Owes::Now)]);
}

async fn found(store: &dyn Store, query: &Query) -> Vec<String> {
    let page = store.list(query).await.expect("listed");
    page.rows.iter().map(|row| row.session.to_string()).collect()
}

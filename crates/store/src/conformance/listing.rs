//! Tests of lists, searches and recovery.

use segue_core::ids::{Seq, UnixMillis};

use super::{StoreFixture, TestJournalWriter, internal_body, sample_summary, session_id, visible_body};
use crate::{PendingWorkQuery, PendingWorkStatus, SessionQuery, SessionSummary, Store};

pub async fn sessions_are_listed_newest_first(fixture: &impl StoreFixture) {
    let store = fixture.open_store();
    for (session, updated) in [("a", 5), ("b", 9), ("c", 2), ("d", 9)] {
        TestJournalWriter::create_session(&store, session)
            .await
            .append_records_with(2, Vec::new(), Some(sample_summary(session, updated)))
            .await;
    }
    let _without_summary = TestJournalWriter::create_session(&store, "no summary yet").await;
    let page = store.list_sessions(&SessionQuery::newest(10)).await.expect("listed");
    let listed: Vec<&str> = page.entries.iter().map(|row| row.session.as_str()).collect();
    assert_eq!(listed, ["d", "b", "a", "c"]);
    assert_eq!(page.next_cursor, None);
    assert!(page.entries.iter().all(|row| row.head == Seq(2) && row.excerpt.is_none()));
}

pub async fn pages_follow_each_other_without_gap(fixture: &impl StoreFixture) {
    let store = fixture.open_store();
    for number in 0..11u64 {
        let session = format!("s{number:02}");
        TestJournalWriter::create_session(&store, &session)
            .await
            .append_records_with(1, Vec::new(), Some(sample_summary("", number / 3)))
            .await;
    }
    let mut seen = Vec::new();
    let mut query = SessionQuery::newest(4);
    loop {
        let page = store.list_sessions(&query).await.expect("listed");
        assert!(page.entries.len() <= 4);
        seen.extend(page.entries.into_iter().map(|row| row.session));
        query.after_cursor = page.next_cursor;
        if query.after_cursor.is_none() {
            break;
        }
    }
    let all: Vec<_> = (0..11).rev().map(|number| session_id(&format!("s{number:02}"))).collect();
    assert_eq!(seen, all);
}

pub async fn sessions_can_be_filtered_by_flow(fixture: &impl StoreFixture) {
    let store = fixture.open_store();
    for (session, flow) in [("a", "chat"), ("b", "team"), ("c", "chat")] {
        let summary = SessionSummary { flow: flow.into(), ..sample_summary(session, 1) };
        TestJournalWriter::create_session(&store, session)
            .await
            .append_records_with(1, Vec::new(), Some(summary))
            .await;
    }
    let query = SessionQuery { flows: vec!["team".into()], ..SessionQuery::newest(10) };
    assert_eq!(list_session_names(&*store, &query).await, ["b"]);
    let query = SessionQuery { flows: vec!["team".into(), "chat".into(), "none".into()], ..SessionQuery::newest(10) };
    assert_eq!(list_session_names(&*store, &query).await, ["c", "b", "a"]);
}

pub async fn sessions_can_be_filtered_by_name_prefix(fixture: &impl StoreFixture) {
    let store = fixture.open_store();
    for (session, flow) in
        [("acme.a", "chat"), ("acme", "chat"), ("acme2.a", "chat"), ("acme.b", "team"), ("Acme.c", "chat")]
    {
        let summary = SessionSummary { flow: flow.into(), ..sample_summary(session, 1) };
        TestJournalWriter::create_session(&store, session)
            .await
            .append_records_with(1, Vec::new(), Some(summary))
            .await;
    }
    for session in ["acme.a~1", "acme.shop~workspace"] {
        TestJournalWriter::create_session(&store, session)
            .await
            .append_records_with(1, Vec::new(), Some(sample_summary(session, 1)))
            .await;
    }
    let prefix_query = SessionQuery { name_prefix: Some("acme.".into()), roots_only: true, ..SessionQuery::newest(10) };
    assert_eq!(list_session_names(&*store, &prefix_query).await, ["acme.b", "acme.a"]);
    let first = store.list_sessions(&SessionQuery { limit: 1, ..prefix_query.clone() }).await.expect("listed");
    let rest = SessionQuery { after_cursor: first.next_cursor, ..prefix_query.clone() };
    assert_eq!(list_session_names(&*store, &rest).await, ["acme.a"], "pages too");
    assert_eq!(
        list_session_names(&*store, &SessionQuery { flows: vec!["chat".into()], ..prefix_query.clone() }).await,
        ["acme.a"]
    );
    assert_eq!(
        list_session_names(&*store, &SessionQuery { text: Some("ACME2".into()), ..prefix_query }).await,
        [""; 0],
        "a search too"
    );
}

pub async fn titles_and_visible_texts_are_searched(fixture: &impl StoreFixture) {
    let store = fixture.open_store();
    let long = format!("{} the Violin has four strings {}", "well ".repeat(300), "indeed ".repeat(300));
    let mut a = TestJournalWriter::create_session(&store, "a").await;
    a.append_records_with(1, vec![visible_body("nothing of the kind")], Some(sample_summary("About VIOLINS", 3))).await;
    let mut b = TestJournalWriter::create_session(&store, "b").await;
    b.append_records_with(1, vec![visible_body("not yet")], Some(sample_summary("strings", 2))).await;
    b.append_records_with(1, vec![visible_body(&long)], None).await;
    let mut c = TestJournalWriter::create_session(&store, "c").await;
    c.append_records_with(1, vec![visible_body("a cello")], Some(sample_summary("cellos", 1))).await;
    let query = |text: &str, limit| SessionQuery { text: Some(text.into()), ..SessionQuery::newest(limit) };
    assert_eq!(list_session_names(&*store, &query("violin", 10)).await, ["a", "b"]);
    assert_eq!(list_session_names(&*store, &query("CELLO", 10)).await, ["c"]);
    assert_eq!(list_session_names(&*store, &query("100%", 10)).await, [""; 0], "no wildcard");
    let page = store.list_sessions(&query("violin has", 10)).await.expect("listed");
    let excerpt = page.entries[0].excerpt.as_deref().expect("a hit is shown");
    assert!(excerpt.contains("the Violin has four") && excerpt.len() < 200, "{excerpt}");
    let first = store.list_sessions(&query("violin", 1)).await.expect("listed");
    let rest = SessionQuery { after_cursor: first.next_cursor, ..query("violin", 1) };
    assert_eq!(list_session_names(&*store, &rest).await, ["b"], "a search has pages too");
}

pub async fn internal_texts_are_not_searched_until_visible(fixture: &impl StoreFixture) {
    let store = fixture.open_store();
    let mut a = TestJournalWriter::create_session(&store, "a").await;
    a.append_records_with(1, vec![internal_body("the oboe gives the note")], Some(sample_summary("", 1))).await;
    let mut b = TestJournalWriter::create_session(&store, "b").await;
    b.append_records_with(1, vec![visible_body("the oboe gives the note")], Some(sample_summary("", 2))).await;
    let query = SessionQuery { text: Some("oboe".into()), ..SessionQuery::newest(10) };
    assert_eq!(list_session_names(&*store, &query).await, ["b"], "visible in one session does not mean visible in all");
    a.append_records_with(1, vec![visible_body("the oboe gives the note")], None).await;
    assert_eq!(list_session_names(&*store, &query).await, ["b", "a"]);
}

pub async fn the_last_summary_is_listed(fixture: &impl StoreFixture) {
    let store = fixture.open_store();
    let mut a = TestJournalWriter::create_session(&store, "a").await;
    a.append_records_with(1, Vec::new(), Some(sample_summary("first", 1))).await;
    let last = SessionSummary {
        turns: 9,
        cost_microusd: None,
        pending_work: PendingWorkStatus::At(UnixMillis(77)),
        ..sample_summary("a longer second title", 2)
    };
    a.append_records_with(1, Vec::new(), Some(last.clone())).await;
    a.append_records(3).await;
    let page = store.list_sessions(&SessionQuery::newest(1)).await.expect("listed");
    assert_eq!(page.entries[0].summary, last);
    assert_eq!(page.entries[0].head, Seq(5));
}

pub async fn only_sessions_with_pending_work_are_recovered(fixture: &impl StoreFixture) {
    let store = fixture.open_store();
    let mut b = TestJournalWriter::create_session(&store, "b").await;
    for (session, pending_work) in
        [("c", PendingWorkStatus::Now), ("a", PendingWorkStatus::At(UnixMillis(5))), ("z", PendingWorkStatus::None)]
    {
        let summary = SessionSummary { pending_work, ..sample_summary("", 1) };
        TestJournalWriter::create_session(&store, session)
            .await
            .append_records_with(1, Vec::new(), Some(summary))
            .await;
    }
    b.append_records_with(
        1,
        Vec::new(),
        Some(SessionSummary { pending_work: PendingWorkStatus::Now, ..sample_summary("", 1) }),
    )
    .await;
    b.append_records_with(1, Vec::new(), Some(sample_summary("", 2))).await;
    let names_due_until = async |due_until| {
        let query = PendingWorkQuery { due_until: UnixMillis(due_until), after_cursor: None, limit: 9 };
        let page = store.sessions_with_pending_work(&query).await.expect("listed");
        page.sessions.into_iter().map(|pending| (pending.session, pending.pending_work)).collect::<Vec<_>>()
    };
    let (c, a) = ((session_id("c"), PendingWorkStatus::Now), (session_id("a"), PendingWorkStatus::At(UnixMillis(5))));
    assert_eq!(names_due_until(5).await, [c.clone(), a]);
    assert_eq!(names_due_until(4).await, [c]);
}

async fn list_session_names(store: &dyn Store, query: &SessionQuery) -> Vec<String> {
    let page = store.list_sessions(query).await.expect("listed");
    page.entries.iter().map(|row| row.session.to_string()).collect()
}

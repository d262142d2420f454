//! Claims about beginning a session and adding to it.

use std::sync::Arc;

use segue_core::body::BodyId;
use segue_core::ids::{Epoch, Millis, Seq};

use super::{Place, Writing, all, commit, inner, long_commit, name, record, records, said, summary};
use crate::{Claim, Commit, Error, Record, Takeover};

pub async fn a_new_session_is_empty_and_ours(place: &impl Place) {
    let store = place.open();
    let claim = store.create(&name("a")).await.expect("a new name");
    assert_eq!(claim.head, Seq(0));
    assert_eq!(all(&store, &name("a")).await, []);
    assert_eq!(store.append(commit(&name("a"), claim, 1)).await, Ok(Seq(1)));
}

pub async fn a_name_is_taken_once(place: &impl Place) {
    let store = place.open();
    let mut a = Writing::begin(&store, "a").await;
    a.append(1).await;
    assert_eq!(store.create(&name("a")).await, Err(Error::Exists { session: name("a") }));
    assert_eq!(all(&store, &name("a")).await.len(), 1, "what was there stays");
    let other = place.open();
    let _empty = Writing::begin(&store, "b").await;
    assert_eq!(
        other.create(&name("b")).await,
        Err(Error::Exists { session: name("b") }),
        "empty, but held by the living"
    );
}

pub async fn an_empty_session_of_the_dead_is_no_obstacle(place: &impl Place) {
    let store = place.open();
    let old = Writing::begin(&store, "a").await.claim;
    let empty = crate::Snapshot { seq: Seq(0), format: 1, bytes: b"of the dead".to_vec() };
    store.keep_snapshot(&name("a"), empty).await.expect("kept");
    drop(store);
    let store = place.open();
    let claim = store.create(&name("a")).await.expect("as good as new");
    assert_eq!(store.snapshot(&name("a")).await, Ok(None), "nothing of the old one comes with it");
    assert!(claim.epoch > old.epoch);
    assert_eq!(store.append(commit(&name("a"), claim, 2)).await, Ok(Seq(2)));
}

pub async fn appended_records_are_read_back_in_order(place: &impl Place) {
    let store = place.open();
    let mut a = Writing::begin(&store, "a").await;
    for count in [1, 3, 2, 7] {
        a.append(count).await;
    }
    assert_eq!(all(&store, &a.session).await, records(&a.session, 13));
}

pub async fn the_head_rises_with_each_commit(place: &impl Place) {
    let store = place.open();
    let mut a = Writing::begin(&store, "a").await;
    a.append(3).await;
    assert_eq!(a.claim.head, Seq(3));
    a.append(1).await;
    let again = store.claim(&a.session, Takeover::IfDead).await.expect("ours");
    assert_eq!(again.head, Seq(4));
}

pub async fn an_append_that_does_not_follow_the_head_is_refused(place: &impl Place) {
    let store = place.open();
    let mut a = Writing::begin(&store, "a").await;
    let early = a.claim;
    a.append(2).await;
    for head in [0, 1, 3] {
        let wrong = Claim { head: Seq(head), ..early };
        let refused = Error::Conflict { session: name("a"), expected: Seq(head), head: Seq(2) };
        assert_eq!(store.append(commit(&a.session, wrong, 1)).await, Err(refused));
    }
    let claim = Claim { epoch: Epoch(1), head: Seq(0) };
    let refused = Error::NoSuchSession { session: name("never") };
    assert_eq!(store.append(commit(&name("never"), claim, 1)).await, Err(refused));
}

pub async fn of_many_appends_at_one_place_one_wins(place: &impl Place) {
    let store = place.open();
    let mut a = Writing::begin(&store, "a").await;
    let mut neighbours = Vec::new();
    for number in 0..8 {
        neighbours.push(Writing::begin(&store, &format!("neighbour-{number}")).await);
    }
    a.append(1).await;
    let mut racing = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let (store, commit) = (store.clone(), commit(&a.session, a.claim, 2));
        racing.spawn(async move { store.append(commit).await });
    }
    let mut steady = tokio::task::JoinSet::new();
    for neighbour in neighbours {
        let store = store.clone();
        steady.spawn(async move { store.append(commit(&neighbour.session, neighbour.claim, 1)).await });
    }
    let results = racing.join_all().await;
    let conflict = Err(Error::Conflict { session: name("a"), expected: Seq(1), head: Seq(3) });
    assert_eq!(results.iter().filter(|result| **result == Ok(Seq(3))).count(), 1);
    assert_eq!(results.iter().filter(|result| **result == conflict).count(), 15);
    assert_eq!(steady.join_all().await, vec![Ok(Seq(1)); 8], "a conflict hurts nobody else");
    assert_eq!(all(&store, &a.session).await, records(&a.session, 3));
}

pub async fn a_refused_append_leaves_nothing(place: &impl Place) {
    let store = place.open();
    let mut a = Writing::begin(&store, "a").await;
    let late = a.claim;
    a.bring(1, Vec::new(), Some(summary("first", 5))).await;
    let text = "a text nobody wanted";
    let commit =
        Commit { bodies: vec![said(text)], summary: Some(summary("second", 6)), ..commit(&a.session, late, 1) };
    store.append(commit).await.expect_err("too late");
    assert_eq!(place.body_count(), 0);
    let page = store.list(&crate::Query::newest(9)).await.expect("listed");
    assert_eq!(page.rows[0].summary.title, "first");
    let missing = Error::NoSuchBody { session: name("a"), body: BodyId::of(text) };
    assert_eq!(store.bodies(&a.session, &[BodyId::of(text)]).await, Err(missing));
}

pub async fn a_commit_that_cannot_be_is_refused(place: &impl Place) {
    let store = place.open();
    let a = Writing::begin(&store, "a").await;
    let good = commit(&a.session, a.claim, 2);
    let mut gap = good.clone();
    gap.records[1].seq = Seq(3);
    let mut misnamed = good.clone();
    misnamed.bodies = vec![inner("one")];
    misnamed.bodies[0].text = "another".into();
    let empty = Commit { records: Vec::new(), ..good.clone() };
    let endless = Commit { expected: Seq(u64::MAX), ..good.clone() };
    for bad in [gap, misnamed, empty, endless] {
        let error = store.append(bad).await.expect_err("impossible");
        assert!(matches!(error, Error::Malformed { .. }), "{error}");
    }
    assert_eq!(store.append(good).await, Ok(Seq(2)));
}

pub async fn names_that_cannot_be_are_refused(place: &impl Place) {
    let store = place.open();
    for bad in ["", "a\0b", &"x".repeat(crate::SESSION_ID_BYTES_MAX + 1)] {
        let error = store.create(&name(bad)).await.expect_err("impossible");
        assert!(matches!(error, Error::Malformed { .. }), "{error}");
    }
    for odd in ["ż ó/../'\"; DROP TABLE sessions", "*", "a%b_c"] {
        Writing::begin(&store, odd).await.append(1).await;
        assert_eq!(all(&store, &name(odd)).await.len(), 1);
    }
}

pub async fn records_keep_the_time_they_came_with(place: &impl Place) {
    let store = place.open();
    let a = Writing::begin(&store, "a").await;
    let times = [5, 3, u64::MAX, 0, 1_800_000_000_000];
    let stamp = |(record, at): (Record, u64)| Record { at: Millis(at), ..record };
    let records: Vec<Record> = (1..=5).map(|seq| record(&a.session, seq)).zip(times).map(stamp).collect();
    let commit = Commit { records: records.clone(), ..commit(&a.session, a.claim, 0) };
    store.append(commit).await.expect("in time");
    assert_eq!(all(&store, &a.session).await, records);
}

pub async fn sessions_do_not_disturb_each_other(place: &impl Place) {
    let store = place.open();
    let mut writers = tokio::task::JoinSet::new();
    for number in 0..12u64 {
        let store: Arc<dyn crate::Store> = store.clone();
        writers.spawn(async move {
            let mut one = Writing::begin(&store, &format!("s{number}")).await;
            for round in 0..10 {
                one.bring(1 + round % 3, vec![said(&format!("{number} says {round}"))], None).await;
            }
        });
    }
    writers.join_all().await;
    for number in 0..12 {
        let session = name(&format!("s{number}"));
        assert_eq!(all(&store, &session).await, records(&session, 19));
    }
}

pub async fn a_long_commit_is_one_commit(place: &impl Place) {
    let store = place.open();
    let a = Writing::begin(&store, "a").await;
    let long = long_commit(&a.session, a.claim, 500);
    let late = Commit { epoch: Epoch(a.claim.epoch.0 + 1), ..long.clone() };
    assert!(matches!(store.append(late).await, Err(Error::Fenced { .. })));
    assert_eq!((all(&store, &a.session).await, place.body_count()), (Vec::new(), 0), "nothing of it is there");
    assert_eq!(store.append(long.clone()).await, Ok(Seq(500)));
    for (after, limit) in [(0, 500), (0, 1), (137, 200), (499, 9), (250, usize::MAX)] {
        let read = store.read(&a.session, Seq(after), limit).await.expect("readable");
        let after = usize::try_from(after).expect("small");
        assert_eq!(read, long.records[after..after.saturating_add(limit).min(500)], "{limit} after {after}");
    }
    let ids: Vec<BodyId> = long.bodies.iter().map(|text| text.id).collect();
    let texts = store.bodies(&a.session, &ids).await.expect("all are there");
    assert!(texts.iter().zip(&long.bodies).all(|(read, text)| *read == text.text));
    let next = Claim { head: Seq(500), ..a.claim };
    assert_eq!(store.append(commit(&a.session, next, 1)).await, Ok(Seq(501)));
    assert!(store.check().await.expect("checked").is_clean());
}

pub async fn a_large_text_and_strange_characters_survive(place: &impl Place) {
    let store = place.open();
    let mut a = Writing::begin(&store, "a").await;
    let mut noise = 1u64;
    let mut large = String::new();
    while large.len() < 3_000_000 {
        noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        large.push(char::from_u32(32 + (noise >> 40) as u32 % 0x3000).unwrap_or('?'));
    }
    let texts = ["", "\0\u{1}\u{7f}\u{202e}", "żółć 🎻\r\n", &"same ".repeat(400_000), large.as_str()];
    a.bring(1, texts.iter().map(|text| said(text)).collect(), None).await;
    let ids: Vec<BodyId> = texts.iter().map(|text| BodyId::of(text)).collect();
    let read = store.bodies(&a.session, &ids).await.expect("readable");
    assert!(read.iter().zip(texts).all(|(read, text)| **read == *text));
}

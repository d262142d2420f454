//! Records, slots, token buckets and sums that several processes share.

use std::sync::Arc;

use super::StoreFixture;
use crate::{
    ConcurrencySlotRequest, RateLimitTokenRequest, SharedRecordReadOutcome, SharedRecordVersion, SharedRecordWrite,
    SharedRecordWriteCondition, SharedRecordWriteOutcome, SharedState, UsageAccountUpdate, UsageAmounts,
};

/// A fixture whose stores share more than sessions.
pub trait SharedStateFixture: StoreFixture {
    /// Opens the store, as a new process.
    fn open_shared_state(&self) -> Arc<dyn SharedState>;
}

fn sample_record_write(name: &str, bytes: &[u8], condition: SharedRecordWriteCondition) -> SharedRecordWrite {
    SharedRecordWrite { name: name.to_owned(), bytes: bytes.to_vec(), condition, expires_in_ms: None }
}

async fn write_and_get_version(store: &Arc<dyn SharedState>, write: SharedRecordWrite) -> SharedRecordVersion {
    match store.write_record(write).await.expect("it can be written") {
        SharedRecordWriteOutcome::Written(version) => version,
        SharedRecordWriteOutcome::Conflict => panic!("the condition is met"),
    }
}

fn sample_slot_request(holder: &str, slots_max: u32) -> ConcurrencySlotRequest {
    ConcurrencySlotRequest { group: "turns/k1".to_owned(), holder: holder.to_owned(), slots_max, hold_ms: 1_000 }
}

fn sample_token_request(wanted: u32) -> RateLimitTokenRequest {
    RateLimitTokenRequest { bucket: "requests/k1".to_owned(), tokens_per_minute: 60, wanted }
}

fn sample_usage_update(source: &str, before: u64, total: u64) -> UsageAccountUpdate {
    let amounts = |amount| UsageAmounts { cost_microusd: amount, input_tokens: 2 * amount, ..UsageAmounts::default() };
    UsageAccountUpdate {
        account: "today/k1".to_owned(),
        source: source.to_owned(),
        before: amounts(before),
        total: amounts(total),
        expires_in_ms: 1_000_000,
    }
}

pub async fn a_record_is_read_by_every_process(fixture: &impl SharedStateFixture) {
    let (one, other) = (fixture.open_shared_state(), fixture.open_shared_state());
    assert_eq!(other.read_record("keys", None).await, Ok(SharedRecordReadOutcome::Missing));
    let first =
        write_and_get_version(&one, sample_record_write("keys", b"one", SharedRecordWriteCondition::Missing)).await;
    let found = SharedRecordReadOutcome::Found { version: first, bytes: b"one".to_vec() };
    assert_eq!(other.read_record("keys", None).await, Ok(found));
    assert_eq!(other.read_record("keys", Some(first)).await, Ok(SharedRecordReadOutcome::Unchanged));
    let second =
        write_and_get_version(&other, sample_record_write("keys", b"", SharedRecordWriteCondition::Always)).await;
    let found = SharedRecordReadOutcome::Found { version: second, bytes: Vec::new() };
    assert_eq!(one.read_record("keys", Some(first)).await, Ok(found));
    one.delete_record("keys").await.expect("deleted");
    one.delete_record("keys").await.expect("deleting a missing record is no error");
    assert_eq!(other.read_record("keys", Some(second)).await, Ok(SharedRecordReadOutcome::Missing));
    let third =
        write_and_get_version(&one, sample_record_write("keys", b"one", SharedRecordWriteCondition::Missing)).await;
    assert!(third != first && third != second, "a version is never used again");
}

pub async fn of_concurrent_writes_of_one_version_only_one_succeeds(fixture: &impl SharedStateFixture) {
    let (one, other) = (fixture.open_shared_state(), fixture.open_shared_state());
    for condition in [None, Some(())] {
        let condition = match condition {
            None => SharedRecordWriteCondition::Missing,
            Some(()) => SharedRecordWriteCondition::Version(
                write_and_get_version(&one, sample_record_write("keys", b"0", SharedRecordWriteCondition::Always))
                    .await,
            ),
        };
        let (a, b) = tokio::join!(
            one.write_record(sample_record_write("keys", b"a", condition)),
            other.write_record(sample_record_write("keys", b"b", condition))
        );
        let conflicts = [a, b].into_iter().filter(|result| *result == Ok(SharedRecordWriteOutcome::Conflict)).count();
        assert_eq!(conflicts, 1, "{condition:?}");
    }
    let stale = sample_record_write("keys", b"c", SharedRecordWriteCondition::Version(SharedRecordVersion(0)));
    assert_eq!(one.write_record(stale).await, Ok(SharedRecordWriteOutcome::Conflict));
    let missing = sample_record_write("other", b"c", SharedRecordWriteCondition::Version(SharedRecordVersion(0)));
    assert_eq!(one.write_record(missing).await, Ok(SharedRecordWriteOutcome::Conflict));
}

pub async fn an_expired_record_is_missing(fixture: &impl SharedStateFixture) {
    let store = fixture.open_shared_state();
    let expiring = SharedRecordWrite {
        expires_in_ms: Some(10_000),
        ..sample_record_write("payer", b"k1", SharedRecordWriteCondition::Always)
    };
    let version = write_and_get_version(&store, expiring.clone()).await;
    assert_ne!(store.read_record("payer", None).await, Ok(SharedRecordReadOutcome::Missing));
    fixture.clock().advance_ms(10_001);
    assert_eq!(store.read_record("payer", Some(version)).await, Ok(SharedRecordReadOutcome::Missing));
    let stale = sample_record_write("payer", b"k2", SharedRecordWriteCondition::Version(version));
    assert_eq!(store.write_record(stale).await, Ok(SharedRecordWriteOutcome::Conflict));
    write_and_get_version(&store, SharedRecordWrite { condition: SharedRecordWriteCondition::Missing, ..expiring })
        .await;
}

pub async fn a_slot_has_one_holder_until_it_is_released_or_expires(fixture: &impl SharedStateFixture) {
    let (one, other) = (fixture.open_shared_state(), fixture.open_shared_state());
    let held = one.hold_slot(sample_slot_request("a", 1)).await.expect("held").expect("it is free");
    assert_eq!(other.hold_slot(sample_slot_request("b", 1)).await, Ok(None));
    assert!(other.hold_slot(sample_slot_request("b", 2)).await.expect("held").is_some(), "there is a second slot");
    one.release_slot("turns/k1", "a", held).await.expect("released");
    let held = other.hold_slot(sample_slot_request("c", 2)).await.expect("held");
    assert!(held.is_some(), "a released slot is free");
    fixture.clock().advance_ms(1_001);
    assert!(one.hold_slot(sample_slot_request("a", 1)).await.expect("held").is_some(), "an expired slot is free");
}

pub async fn a_slot_that_was_extended_is_not_released(fixture: &impl SharedStateFixture) {
    let (one, other) = (fixture.open_shared_state(), fixture.open_shared_state());
    let first = one.hold_slot(sample_slot_request("a", 1)).await.expect("held").expect("it is free");
    fixture.clock().advance_ms(600);
    let second = other.hold_slot(sample_slot_request("a", 1)).await.expect("held").expect("it is the same holder");
    one.release_slot("turns/k1", "a", first).await.expect("nothing to do");
    fixture.clock().advance_ms(600);
    assert_eq!(one.hold_slot(sample_slot_request("b", 1)).await, Ok(None), "it was extended");
    other.release_slot("turns/k1", "a", second).await.expect("released");
    assert!(one.hold_slot(sample_slot_request("b", 1)).await.expect("held").is_some());
}

pub async fn concurrent_requests_never_get_more_slots_than_there_are(fixture: &impl SharedStateFixture) {
    let stores = [fixture.open_shared_state(), fixture.open_shared_state()];
    let requests = (0..12).map(|number| {
        let store = stores[number % 2].clone();
        tokio::spawn(
            async move { store.hold_slot(sample_slot_request(&format!("s{number}"), 5)).await.expect("answered") },
        )
    });
    let requests: Vec<_> = requests.collect();
    let mut held = 0;
    for request in requests {
        held += usize::from(request.await.expect("no panic").is_some());
    }
    assert_eq!(held, 5);
}

pub async fn processes_share_the_tokens_of_a_bucket(fixture: &impl SharedStateFixture) {
    let (one, other) = (fixture.open_shared_state(), fixture.open_shared_state());
    assert_eq!(one.take_tokens(sample_token_request(40)).await.expect("taken").granted, 40);
    assert_eq!(other.take_tokens(sample_token_request(40)).await.expect("taken").granted, 20);
    let empty = one.take_tokens(sample_token_request(1)).await.expect("taken");
    assert_eq!(empty.granted, 0);
    assert!((1..=1_000).contains(&empty.next_in_ms), "{empty:?}");
    fixture.clock().advance_ms(2_000);
    assert_eq!(other.take_tokens(sample_token_request(40)).await.expect("taken").granted, 2, "a token a second");
    fixture.clock().advance_ms(600_000);
    assert_eq!(
        one.take_tokens(sample_token_request(100)).await.expect("taken").granted,
        60,
        "it is never more than full"
    );
}

pub async fn concurrent_requests_never_get_more_tokens_than_there_are(fixture: &impl SharedStateFixture) {
    let stores = [fixture.open_shared_state(), fixture.open_shared_state()];
    let requests = (0..10).map(|number| {
        let store = stores[number % 2].clone();
        tokio::spawn(async move { store.take_tokens(sample_token_request(9)).await.expect("answered").granted })
    });
    let requests: Vec<_> = requests.collect();
    let mut granted = 0;
    for request in requests {
        granted += request.await.expect("no panic");
    }
    // The bucket gains a token a second while the test runs.
    assert!((60..75).contains(&granted), "{granted}");
}

pub async fn usage_is_summed_once_per_source(fixture: &impl SharedStateFixture) {
    let (one, other) = (fixture.open_shared_state(), fixture.open_shared_state());
    let sum = async |store: &Arc<dyn SharedState>| store.read_usage("today/k1").await.expect("read");
    assert_eq!(sum(&one).await, UsageAmounts::default());
    one.report_usage(sample_usage_update("s1", 5, 10)).await.expect("reported");
    assert_eq!(sum(&other).await.cost_microusd, 5, "what an unknown source used before does not count");
    other.report_usage(sample_usage_update("s1", 20, 30)).await.expect("reported");
    assert_eq!(sum(&one).await.cost_microusd, 25, "a part that was not reported is added with the next");
    one.report_usage(sample_usage_update("s1", 20, 30)).await.expect("reported");
    assert_eq!(sum(&other).await.cost_microusd, 25, "a repetition adds nothing");
    one.report_usage(sample_usage_update("s2", 0, 1)).await.expect("reported");
    let total = sum(&other).await;
    assert_eq!((total.cost_microusd, total.input_tokens, total.output_tokens), (26, 52, 0));
    assert_eq!(one.read_usage("today/k2").await, Ok(UsageAmounts::default()));
}

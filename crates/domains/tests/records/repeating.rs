//! A run that comes again is recognised, and one that was cut off is settled.

use segue_domains::SqliteRecordsTool;
use serde_json::{Value, json};

use super::desk::{Desk, domains, told};

fn create() -> Value {
    told("create", json!({"type": "box", "records": [{"name": "first"}]}))
}

fn settle(of: u32, was: &Value) -> Value {
    let mut asked = told("settle", json!({"of": of, "was": was}));
    asked["for"] = json!("settle");
    asked
}

#[test]
fn a_run_that_is_repeated_writes_once_and_says_the_same() {
    let mut desk = Desk::new();
    let first = desk.run(&create()).expect("served");
    for _ in 0..3 {
        assert_eq!(desk.repeat(desk.last_run(), &create()).expect("served"), first);
    }
    assert_eq!(desk.names(json!([])), ["first"]);
    let id = first.rows[0].id.clone();
    let update = told("update", json!({"updates": [{"type": "box", "id": id, "set": {"size": 2}}]}));
    let once = desk.run(&update).expect("served");
    assert_eq!(
        desk.repeat(desk.last_run(), &update).expect("served"),
        once,
        "with what stood there before the first time"
    );
}

#[test]
fn a_repetition_after_a_restart_is_recognised_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("records.db");
    let mut one = Desk::over(SqliteRecordsTool::in_file(&path, domains()));
    let first = one.run(&create()).expect("served");
    drop(one);
    let mut two = Desk::over(SqliteRecordsTool::in_file(&path, domains()));
    assert_eq!(two.repeat(1, &create()).expect("served"), first);
    assert_eq!(two.names(json!([])), ["first"]);
}

#[test]
fn another_session_of_the_same_name_is_another_session() {
    let mut desk = Desk::new();
    let first = desk.run(&create()).expect("served");
    desk.since = 2;
    let second = desk.repeat(1, &create()).expect("served");
    assert_ne!(first.rows[0].id, second.rows[0].id);
    desk.session = "t";
    desk.repeat(1, &create()).expect("served");
    assert_eq!(desk.names(json!([])), ["first", "first", "first"]);
}

#[test]
fn a_run_that_is_settled_is_told_or_never_happens() {
    let mut desk = Desk::new();
    let done = desk.run(&create()).expect("served");
    assert_eq!(desk.run(&settle(1, &create())).expect("served"), done, "it had happened");
    let never = desk.run(&settle(40, &create())).expect("served");
    assert!(never.never_executed);
    let late = desk.repeat(40, &create()).expect("served");
    assert!(late.never_executed && late.rows.is_empty(), "and it comes too late now");
    assert_eq!(desk.names(json!([])), ["first"]);
}

#[test]
fn two_programs_share_a_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("records.db");
    let threads: Vec<_> = ["a", "b"]
        .into_iter()
        .map(|session| {
            let path = path.clone();
            std::thread::spawn(move || {
                let mut desk = Desk::over(SqliteRecordsTool::in_file(&path, domains()));
                desk.session = session;
                for _ in 0..20 {
                    desk.make(json!({"name": session}));
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("it wrote"));
    let mut desk = Desk::over(SqliteRecordsTool::in_file(&path, domains()));
    assert_eq!(desk.names(json!([])).len(), 40);
}

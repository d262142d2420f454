//! `segue backup`, and restoring a backup by copying it.

use crate::support::Place;

#[test]
fn a_backup_can_be_restored_by_copying_it() {
    let place = Place::with_session(&["hello", "again"]);
    let shown = place.ok(&["show", "a", "--full"]);
    assert_eq!(place.ok(&["backup", "monday.db"]), "saved 1 session to monday.db and checked the copy\n");
    // What happens later is not in the backup.
    place.ok(&["send", "--session", "a", "--script", "echo.toml", "later"]);
    place.ok(&["send", "--session", "b", "--script", "echo.toml", "later"]);
    assert_ne!(place.ok(&["show", "a", "--full"]), shown);
    for leftover in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{leftover}", place.store().display()));
    }
    std::fs::copy(place.path().join("monday.db"), place.store()).expect("copied");
    assert_eq!(place.ok(&["show", "a", "--full"]), shown);
    assert!(place.ok(&["doctor"]).contains("1 session checked"));
    assert!(place.fails(&["show", "b"]).contains("there is no session `b`"));
    let sent = place.ok(&["send", "--session", "a", "--script", "echo.toml", "and on"]);
    assert_eq!(sent, "You said: and on\n");
}

#[test]
fn a_backup_includes_the_records() {
    let place = Place::new();
    place.write("segue.toml", "[models.rehearsal]\nkind = \"rehearsal\"\nspeed = \"instant\"\n");
    let run = place.run(&["send", "--session", "k", "--flow", "assistant", "show me the recipes"]);
    assert_eq!(run.code, 0, "{}", run.err);
    let expected = "saved 1 session to all.db and the records to all-records.db, and checked the copies\n";
    assert_eq!(place.ok(&["backup", "all.db"]), expected);
    let json = place.json(&["backup", "more.db", "--json"]);
    assert_eq!(json, serde_json::json!({ "file": "more.db", "records": ["more-records.db"], "sessions": 1 }));
    assert!(place.ok(&["doctor", "--store", "all.db"]).contains("ok      records   all-records.db"));
}

#[test]
fn a_backup_includes_the_records_of_all_owners() {
    let place = Place::new();
    place.write("segue.toml", "[models.rehearsal]\nkind = \"rehearsal\"\nspeed = \"instant\"\n");
    for session in ["k", "acme.k"] {
        let run = place.run(&["send", "--session", session, "--flow", "assistant", "show me the recipes"]);
        assert_eq!(run.code, 0, "{}", run.err);
    }
    let expected =
        "saved 2 sessions to all.db and the records to all-records.db, all-records.acme.db, and checked the copies\n";
    assert_eq!(place.ok(&["backup", "all.db"]), expected);
    assert!(place.path().join("all-records.acme.db").exists());
    place.write("other-records.acme.db", "precious");
    assert!(place.fails(&["backup", "other.db"]).contains("other-records.acme.db"));
    assert_eq!(place.read("other-records.acme.db"), "precious");
    for left in ["other.db", "other-records.db"] {
        assert!(!place.path().join(left).exists(), "{left} would look like a whole backup");
    }
}

#[test]
fn a_backup_does_not_overwrite_a_file() {
    let place = Place::with_session(&["hello"]);
    place.write("old.db", "precious");
    let error = place.fails(&["backup", "old.db"]);
    assert_eq!(error, "error: old.db exists and is not overwritten; choose another name\n");
    assert_eq!(place.read("old.db"), "precious");
    let error = place.fails(&["backup", ".local/share/segue/segue.db"]);
    assert!(error.contains("is not overwritten"), "{error}");
}

#[test]
fn a_damaged_store_is_not_backed_up() {
    let place = Place::with_session(&["hello"]);
    let mut bytes = std::fs::read(place.store()).expect("readable");
    // Overwrites the stored texts, wherever they are.
    let at = bytes.windows(5).position(|window| window == b"hello").expect("the text is in the file");
    bytes[at..at + 5].copy_from_slice(b"jello");
    std::fs::write(place.store(), bytes).expect("written");
    let error = place.fails(&["backup", "copy.db"]);
    assert!(error.contains("the copy of the store is damaged"), "{error}");
    let left: Vec<_> =
        std::fs::read_dir(place.path()).expect("readable").flatten().map(|entry| entry.file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().starts_with("copy.db")), "{left:?}");
}

#[test]
fn a_backup_is_taken_while_a_server_runs() {
    let place = Place::with_session(&["hello"]);
    let mut server = place.start(&["serve", "--port", "0"]);
    let mut line = String::new();
    let out = server.stdout.take().expect("piped");
    std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).expect("it prints its address");
    let run = place.run(&["backup", "live.db"]);
    server.kill().expect("killed");
    server.wait().expect("ended");
    assert_eq!((run.code, run.err.as_str()), (0, ""), "{}", run.out);
    assert!(place.ok(&["show", "a", "--store", "live.db"]).contains("hello"));
}

#[test]
fn there_is_nothing_to_back_up_without_a_store() {
    let place = Place::new();
    assert!(place.fails(&["backup", "copy.db"]).contains("there are no sessions yet"));
}

//! The configuration: where it is found, its effects, and errors in it.

use expect_test::expect;
use serde_json::json;

use crate::support::{ECHO, Place, Run};

#[test]
fn a_configured_model_answers_and_its_price_is_known() {
    let place = Place::new();
    place.write("echo.toml", ECHO);
    place.write(
        "segue.toml",
        "[models.echo]\nkind = \"scripted\"\nfile = \"echo.toml\"\nprice = { input = 3, output = 15.0 }\n",
    );
    assert_eq!(place.ok(&["send", "--session", "a", "hello"]), "You said: hello\n");
    let report = place.json(&["send", "--session", "a", "--json", "again"]);
    assert_eq!((&report["usage"]["cost_microusd"], &report["rehearsal"]), (&json!(195), &json!(false)));
    assert!(place.ok(&["show", "a"]).contains("2 turns · 2 calls · 80 in, 10 out · $0.0004\n"));
    let doctor = place.ok(&["doctor"]);
    let beginning = "ok      config    segue.toml\n\
        ok      store     HOME/.local/share/segue/segue.db: N KB, 1 session checked\n\
        ok      records   HOME/.local/share/segue/segue-records.db (kitchen, reading), created at first use\n\
        ok      model     echo: scripted, N tokens\n";
    assert!(doctor.starts_with(beginning), "{doctor}");
    assert!(doctor.contains("ok      role      chat/assistant: echo\n") && !doctor.contains("canned"), "{doctor}");
}

#[test]
fn every_value_has_its_origin() {
    let place = Place::new();
    place.write(
        "segue.toml",
        "[session]\nmid_turn_policy = \"reject\"\n\n[roles]\nassistant = \"rehearsal\"\n\n[limits.rehearsal]\ncalls_max = 2\n",
    );
    expect![[r#"
        segue.toml

        KEY                         VALUE            FROM
        store.path                  here.db          --store
        session.flow                chat             default
        session.mid_turn_policy     reject           segue.toml:2
        models.default              rehearsal        default
        models.rehearsal.kind       rehearsal        default
        models.rehearsal.speed      realtime         default
        roles.assistant             rehearsal        segue.toml:5
        records.path                here-records.db  --store
        limits.rehearsal.calls_max  2                segue.toml:8
    "#]]
    .assert_eq(&place.ok(&["config", "--store", "here.db"]));
    let mut command = place.command(&["config", "--json"]);
    let run = Run::of(&command.env("SEGUE_STORE", "there.db").output().expect("it runs"));
    let values: serde_json::Value = serde_json::from_str(&run.out).expect("JSON");
    assert_eq!(values["values"][0], json!({ "key": "store.path", "value": "there.db", "from": "SEGUE_STORE" }));
}

#[test]
fn a_file_in_the_current_folder_comes_before_one_in_the_home_folder() {
    let place = Place::new();
    std::fs::create_dir_all(place.path().join(".config/segue")).expect("made");
    place.write(".config/segue/segue.toml", "[store]\npath = \"home.db\"\n");
    let store = |arguments: &[&str]| place.json(arguments)["values"][0]["value"].as_str().map(str::to_owned);
    let at_home = store(&["config", "--json"]).expect("a path");
    assert!(at_home.ends_with(".config/segue/home.db"), "{at_home}");
    place.write("segue.toml", "[store]\npath = \"here.db\"\n");
    assert_eq!(store(&["config", "--json"]).as_deref(), Some("here.db"));
    place.write("other.toml", "");
    let usual = store(&["config", "--json", "--config", "other.toml"]).expect("a path");
    assert!(usual.ends_with(".local/share/segue/segue.db"), "{usual}");
    let mut command = place.command(&["config", "--json"]);
    let output = command.env("XDG_DATA_HOME", "/data").env("SEGUE_CONFIG", "other.toml").output().expect("it runs");
    assert!(Run::of(&output).out.contains("\"/data/segue/segue.db\""));
    let error = place.fails(&["config", "--config", "absent.toml"]);
    assert!(error.starts_with("error: cannot read the configuration absent.toml\n  because: No such file"), "{error}");
}

#[test]
fn a_mistake_in_the_file_is_reported_with_its_line() {
    let place = Place::new();
    let wrong = |text: &str| {
        place.write("segue.toml", text);
        place.fails(&["sessions"])
    };
    assert_eq!(
        wrong("[store]\npath = \"x.db\"\n\n[sesion]\nflow = \"chat\"\n"),
        "error: segue.toml:4: unknown key `sesion`; did you mean `session`?\n"
    );
    assert_eq!(
        wrong("[limits.rehearsal]\ncalls_max = \"many\"\n"),
        "error: segue.toml:2: `limits.rehearsal.calls_max`: expected a whole number of at least 1, found a string\n"
    );
    assert_eq!(
        wrong("[models.gpt]\nkind = \"rehearsal\"\napi_key = \"sk-123\"\n"),
        "error: segue.toml:3: `models.gpt.api_key` looks like a secret; remove it and set it in the environment instead\n"
    );
    let run = place.run(&["doctor"]);
    assert_eq!(run.code, 1);
    assert!(run.out.starts_with("failed  config    segue.toml:3: "), "{}", run.out);
}

#[test]
fn without_a_home_a_store_must_be_named() {
    let place = Place::new();
    let mut command = place.command(&["sessions"]);
    let run = Run::of(&command.env_remove("HOME").output().expect("it runs"));
    assert_eq!(run.code, 1);
    expect![[r#"
        error: there is no default store, because HOME is not set; name a file with --store or SEGUE_STORE
    "#]]
    .assert_eq(&run.err);
}

#[test]
fn colours_are_for_terminals() {
    let place = Place::with_session(&["hello"]);
    for arguments in [&["show", "a"] as &[&str], &["explain", "a", "c1"], &["doctor"], &["flows", "chat"]] {
        assert!(!place.run(arguments).out.contains('\u{1b}'), "{arguments:?}");
    }
}

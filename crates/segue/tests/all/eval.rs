//! `segue eval` through the program: reports, kept results, recording and replay.

use serde_json::{Value, json};

use crate::support::{Place, Run};
use crate::vendor::Vendor;

const RESULTS: &str = ".local/share/segue/evaluations.json";

/// A conversation of the chat flow in which the test server repeats the messages.
const CONVERSATION: &str = "name = \"repeat\"\nflow = \"chat\"\nabout = \"a model that repeats everything\"\n\
    language = \"en\"\nturns = 2\n[user]\nopening = \"Tea or coffee?\"\nlines = [\"And why?\"]\n\
    [[expect]]\nmeasure = \"facts recalled\"\nreply_has = [\"tea\"]\n";

fn home(vendor: &Vendor) -> Place {
    let place = Place::new();
    let model = format!(
        "[models.echo]\nprovider = \"openai-compatible\"\nbase_url = \"{}\"\nwindow_tokens = 9000\n",
        vendor.url()
    );
    place.write("segue.toml", &model);
    place.write("repeat.toml", CONVERSATION);
    place
}

fn evaluate(place: &Place, more: &[&str]) -> (Run, Value) {
    let arguments = [&["eval", "chat", "--add", "repeat.toml", "--json"], more].concat();
    let run = place.run(&arguments);
    let printed = serde_json::from_str(&run.out).unwrap_or_else(|_| panic!("no JSON: {} {}", run.out, run.err));
    (run, printed)
}

/// Returns a measure as (passed, total).
fn measure(printed: &Value, name: &str) -> (u64, u64) {
    let measures = printed["models"][0]["flows"][0]["measures"].as_array().expect("measures");
    let found = measures.iter().find(|measure| measure["name"] == name).unwrap_or_else(|| panic!("{name}: {printed}"));
    (found["passed"].as_u64().expect("a number"), found["total"].as_u64().expect("a number"))
}

#[test]
fn evaluation_reports_what_went_wrong_and_keeps_the_result() {
    let vendor = Vendor::new("");
    let place = home(&vendor);
    let (run, printed) = evaluate(&place, &["--model", "echo"]);
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(run.err.contains("1/1 echo chat/repeat:"), "progress is shown: {}", run.err);
    assert_eq!(measure(&printed, "turns completed"), (2, 2));
    assert_eq!(measure(&printed, "facts recalled"), (0, 1), "the second reply does not mention tea");
    assert_eq!(measure(&printed, "tasks right"), (0, 1));
    assert_eq!(printed["models"][0]["flows"][0]["verdicts"][0]["is_good_enough"], false);
    let kept: Value = serde_json::from_str(&place.read(RESULTS)).expect("results");
    assert_eq!((&kept[0]["model"], &kept[0]["flow"]), (&json!("openai-compatible/echo"), &json!("chat")));
    let text = place.run(&["eval", "chat", "--add", "repeat.toml", "--model", "echo"]).out;
    assert!(text.contains("echo is not good enough for chat."), "{text}");
    assert!(text.contains("facts recalled: 0 of 1 (0 %), wanted 80 %"), "{text}");
    assert!(!place.store().exists(), "the user's own store is not touched");
}

#[test]
fn recorded_evaluation_is_replayed_without_a_model() {
    let vendor = Vendor::new("");
    let place = home(&vendor);
    let (_, recorded) = evaluate(&place, &["--model", "echo", "--record", "echo.cassette"]);
    let asked = vendor.asked().len();
    std::fs::remove_file(place.path().join(RESULTS)).expect("it was kept");
    let (run, replayed) = evaluate(&place, &["--replay", "echo.cassette"]);
    assert_eq!((run.code, vendor.asked().len()), (0, asked), "{}", run.err);
    let measures = |printed: &Value| printed["models"][0]["flows"][0]["measures"].clone();
    assert_eq!(measures(&recorded), measures(&replayed));
    assert!(!place.path().join(RESULTS).exists(), "a replay is no new result");
}

/// If a prompt of the assistant changes, the cassette must be recorded again with the model that docs/evals.md names.
#[test]
fn assistant_with_a_recorded_small_model_does_what_was_measured() {
    let place = Place::new();
    let cassette = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/cassettes/assistant-qwen2.5-coder-1.5b.cassette");
    let run = place.run(&["eval", "assistant", "--replay", cassette, "--json"]);
    assert_eq!(run.code, 0, "{}", run.err);
    let printed: Value = serde_json::from_str(&run.out).expect("JSON");
    assert_eq!(measure(&printed, "steps ended only when done"), (21, 21));
    assert_eq!(measure(&printed, "nothing changed without a request"), (9, 9));
    assert_eq!(measure(&printed, "reads really run"), (7, 7));
    assert_eq!(measure(&printed, "replies without signals"), (15, 15));
    assert_eq!(measure(&printed, "tasks right"), (7, 12));
}

#[test]
fn kept_sessions_can_be_shown() {
    let vendor = Vendor::new("");
    let place = home(&vendor);
    evaluate(&place, &["--model", "echo", "--keep-sessions", "kept.db"]);
    let shown = place.ok(&["--store", "kept.db", "show"]);
    assert!(shown.contains("Tea or coffee?") && shown.contains("And why?"), "{shown}");
}

#[test]
fn result_decides_how_signals_are_requested() {
    let place = Place::new();
    place.write("segue.toml", "[models.big]\nprovider = \"anthropic\"\nmodel = \"claude-sonnet-5-5\"\n");
    let signals = || {
        let models = place.json(&["models", "--json"])["models"].as_array().expect("models").clone();
        models.into_iter().find(|model| model["name"] == "big").expect("configured")["signals"].clone()
    };
    assert_eq!(signals(), "inline", "by the catalog");
    let measure = |name: &str, passed: u32| json!({"role": "concierge", "name": name, "passed": passed, "total": 12});
    let result = |passed: u32| {
        json!([{"model": "anthropic/claude-sonnet-5-5", "flow": "concierge", "signals": "inline", "evaluated_at": 0,
            "conversations": 12, "turns": 48, "verdicts": [], "duration_ms": 0,
            "usage": {"role": "", "calls": 0, "failed_attempts": 0, "input_tokens": 0, "cached_tokens": 0,
                "output_tokens": 0, "cost_microusd": null, "duration_ms": 0},
            "measures": [measure("replies without signals", 12), measure("handover written by the model", passed)]}])
    };
    std::fs::create_dir_all(place.path().join(".local/share/segue")).expect("created");
    place.write(RESULTS, &result(2).to_string());
    assert_eq!(signals(), "structured", "the model wrote too few handovers");
    place.write(RESULTS, &result(12).to_string());
    assert_eq!(signals(), "inline");
    place.write(RESULTS, "broken");
    assert_eq!(signals(), "inline", "a broken file is not used");
}

#[test]
fn mistakes_are_reported_before_a_call_is_made() {
    let vendor = Vendor::new("");
    let place = home(&vendor);
    place.write("bad.toml", "name = \"x\"\n");
    for (arguments, error) in [
        (&["eval", "concierg"][..], "there is no flow `concierg`; did you mean `concierge`?"),
        (&["eval", "chat"], "flow `chat` has no conversations yet; add your own with --add"),
        (&["eval", "--conversation", "find-chickn"], "there is no conversation `find-chickn`; did you mean"),
        (&["eval", "--add", "bad.toml"], "bad.toml is not a valid conversation"),
        (&["eval", "concierge", "--set", "samples=99"], "setting `samples`"),
        (&["eval", "--model", "nobody"], "there is no model `nobody`"),
        (&["eval", "--model", "echo", "--model", "echo", "--record", "x"], "a cassette holds the traffic of one model"),
    ] {
        let printed = place.fails(arguments);
        assert!(printed.contains(error), "{arguments:?}: {printed}");
    }
    assert_eq!(vendor.asked().len(), 0);
}

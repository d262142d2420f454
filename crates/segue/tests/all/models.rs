//! Vendor models through the program: configuration, discovery, recording, replay and fallback. API keys must not appear
//! in any file or output.

use std::process::Command;

use serde_json::json;

use crate::support::{Place, Run};
use crate::vendor::Vendor;

const KEY: &str = "sk-only-for-this-test-42";

/// A home with a model at the test server, whose API key is in the environment.
struct Home {
    place: Place,
    vendor: Vendor,
}

impl Home {
    fn new() -> Self {
        let (place, vendor) = (Place::new(), Vendor::new(KEY));
        place.write(
            "segue.toml",
            &format!(
                "[models.echo]\nprovider = \"openai-compatible\"\nbase_url = \"{}\"\nkey_env = \"ECHO_KEY\"\n\
                 window_tokens = 9000\nprice = {{ input = 1, output = 2, cache_read = 0.1 }}\n",
                vendor.url()
            ),
        );
        Self { place, vendor }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.place.command(arguments);
        command.env("ECHO_KEY", KEY);
        command
    }

    fn run(&self, arguments: &[&str]) -> Run {
        Run::of(&self.command(arguments).output().expect("it runs"))
    }

    fn ok(&self, arguments: &[&str]) -> String {
        let run = self.run(arguments);
        assert_eq!((run.code, run.err.as_str()), (0, ""), "{arguments:?}: {}", run.out);
        run.out
    }

    /// Every file in the home.
    fn files(&self) -> Vec<(String, Vec<u8>)> {
        let mut folders = vec![self.place.path().to_owned()];
        let mut files = Vec::new();
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).expect("readable").flatten() {
                if entry.path().is_dir() {
                    folders.push(entry.path());
                } else {
                    files.push((entry.path().display().to_string(), std::fs::read(entry.path()).expect("readable")));
                }
            }
        }
        files
    }

    fn assert_no_key_anywhere(&self) {
        for (name, bytes) in self.files() {
            let holds = bytes.windows(KEY.len()).any(|window| window == KEY.as_bytes());
            assert!(!holds, "{name} contains the API key");
        }
    }
}

#[test]
fn a_configured_model_answers_with_price_and_cached_tokens() {
    let home = Home::new();
    assert_eq!(home.ok(&["send", "--session", "a", "hello"]), "You said: hello\n");
    assert_eq!(home.ok(&["send", "--session", "a", "again"]), "You said: again\n");
    let asked = home.vendor.asked();
    assert_eq!(asked[1]["messages"].as_array().map(Vec::len), Some(4), "the conversation is resent");
    assert_eq!(asked[0]["model"], json!("echo"));
    let explained = home.ok(&["explain", "a", "c2"]);
    assert!(explained.contains("by the vendor's count") && explained.contains(" of them cached ("), "{explained}");
    assert!(home.ok(&["show", "a"]).contains(" cached ("));
    home.assert_no_key_anywhere();
    home.ok(&["export", "a", "-o", "a.jsonl"]);
    home.assert_no_key_anywhere();
}

#[test]
fn a_refused_api_key_is_reported_but_not_printed() {
    let home = Home::new();
    let run = Run::of(
        &home
            .command(&["send", "--session", "a", "hi"])
            .env("ECHO_KEY", "sk-wrong-9876543210")
            .output()
            .expect("it runs"),
    );
    assert_eq!(run.code, 1);
    assert!(run.err.contains("the key is taken from ECHO_KEY") && run.err.contains("[key]"), "{}", run.err);
    let everything = format!("{}{}{}", run.out, run.err, home.ok(&["show", "a", "--events"]));
    assert!(!everything.contains("sk-wrong-9876543210"), "{everything}");
    let run = home.place.run(&["send", "--session", "b", "hi"]);
    assert!(run.err.contains("needs an API key, but ECHO_KEY is not set"), "{}", run.err);
}

#[test]
fn an_ollama_on_this_machine_is_discovered_and_used() {
    let (place, vendor) = (Place::new(), Vendor::new(""));
    let run = |arguments: &[&str]| {
        let mut command = place.command(arguments);
        let run =
            Run::of(&command.env_remove("SEGUE_DISCOVER").env("OLLAMA_HOST", vendor.host()).output().expect("it runs"));
        assert_eq!((run.code, run.err.as_str()), (0, ""), "{arguments:?}: {}", run.out);
        run.out
    };
    assert_eq!(run(&["send", "hello"]), "You said: hello\n");
    assert_eq!(vendor.asked().last().expect("asked")["options"]["num_ctx"], json!(16_384), "as it is loaded");
    assert!(run(&["doctor"]).contains("ok      found     ollama "));
    let listed = run(&["models"]);
    assert!(listed.contains("ollama/echo:latest") && listed.contains("16,384"), "{listed}");
    assert!(!listed.contains("bge-m3"), "embedding models are left out: {listed}");
    assert!(run(&["models", "ollama"]).contains("ollama/echo:latest"), "the server of OLLAMA_HOST is asked");
    assert_eq!(run(&["send", "--model", "ollama/echo:latest", "hello"]), "You said: hello\n");
    assert!(run(&["config"]).contains("models.default") && run(&["config"]).contains("discovered"));
}

#[test]
fn an_api_key_in_the_environment_makes_its_provider_available() {
    let place = Place::new();
    let mut command = place.command(&["doctor", "--json"]);
    command.env_remove("SEGUE_DISCOVER").env("ANTHROPIC_API_KEY", KEY).env("OLLAMA_HOST", "127.0.0.1:1");
    let run = Run::of(&command.output().expect("it runs"));
    assert!(run.out.contains("claude-") && run.out.contains("key from ANTHROPIC_API_KEY"), "{}", run.out);
    assert!(!run.out.contains(KEY) && !run.out.contains("canned replies"));
}

#[test]
fn without_a_key_or_a_server_the_rehearsal_model_replies_with_a_warning() {
    let place = Place::new();
    let mut command = place.command(&["send", "hello"]);
    command.env_remove("SEGUE_DISCOVER").env("OLLAMA_HOST", "127.0.0.1:1");
    let run = Run::of(&command.output().expect("it runs"));
    assert_eq!(run.code, 0);
    assert!(run.err.contains("the built-in rehearsal model gives canned replies"), "{}", run.err);
}

#[test]
fn a_recording_is_replayed_without_server_key_or_configuration() {
    let home = Home::new();
    for (turn, message) in ["hello", "again"].iter().enumerate() {
        let reply = home.ok(&["send", "--session", &format!("s{turn}"), "--record", "tape.jsonl", message]);
        assert_eq!(reply, format!("You said: {message}\n"));
    }
    home.assert_no_key_anywhere();
    let elsewhere = Place::new();
    elsewhere.write("tape.jsonl", &home.place.read("tape.jsonl"));
    let requests = home.vendor.seen().len();
    let reply = elsewhere.ok(&["send", "--session", "x", "--replay", "tape.jsonl", "again"]);
    assert_eq!(reply, "You said: again\n");
    assert_eq!(home.vendor.seen().len(), requests, "the server got no request");
    let error = elsewhere.fails(&["send", "--session", "x", "--replay", "tape.jsonl", "something else"]);
    assert!(error.contains("the cassette tape.jsonl has no response to this request"), "{error}");
    assert!(elsewhere.fails(&["send", "--replay", "nowhere.jsonl", "x"]).contains("nowhere.jsonl"));
    let error = elsewhere.fails(&["send", "--record", "new.jsonl", "x"]);
    assert!(error.contains("nothing to record"), "{error}");
    let run = elsewhere.run(&["send", "--record", "a", "--replay", "b", "x"]);
    assert_eq!(run.code, 2, "{}", run.err);
}

#[test]
fn a_fallback_model_answers_and_the_journal_records_it() {
    let home = Home::new();
    let config = home.place.read("segue.toml").replace("[models.echo]", "[models.spare]");
    let broken = format!(
        "[models]\ndefault = \"main\"\nfallback = \"spare\"\n[models.main]\nprovider = \"openai-compatible\"\n\
         base_url = \"{}\"\nkey_env = \"OTHER_KEY\"\n{config}",
        home.vendor.url()
    );
    home.place.write("segue.toml", &broken);
    let run = Run::of(
        &home
            .command(&["send", "--session", "a", "--json", "hello"])
            .env("OTHER_KEY", "wrong-key")
            .output()
            .expect("it runs"),
    );
    let report: serde_json::Value = serde_json::from_str(&run.out).expect("JSON");
    assert_eq!((&report["reply"], &report["calls"][0]["model"]), (&json!("You said: hello"), &json!("spare")));
    let shown = home.ok(&["show", "a", "--events"]);
    assert!(shown.contains("c1 failed over from main to spare"), "{shown}");
    assert!(home.ok(&["explain", "a", "c1"]).contains("c1 failed over from main to spare"));
    let doctor = home.run(&["doctor"]).out;
    assert!(doctor.contains("role      chat/assistant: main, fallback spare\n"), "{doctor}");
}

#[test]
fn the_doctor_calls_each_used_model_on_request() {
    let home = Home::new();
    let quiet = home.ok(&["doctor"]);
    assert!(home.vendor.asked().is_empty() && quiet.contains("9,000 tokens, key from ECHO_KEY"), "{quiet}");
    let called = home.ok(&["doctor", "--call-models"]);
    assert!(called.contains("ok      call      echo answered in ") && called.contains("“You said: "), "{called}");
    assert_eq!(home.vendor.asked().len(), 1);
    let mut command = home.command(&["doctor", "--call-models"]);
    let run = Run::of(&command.env("ECHO_KEY", "sk-wrong-9876543210").output().expect("it runs"));
    assert_eq!(run.code, 1);
    assert!(run.out.contains("failed  call      echo: key not accepted"), "{}", run.out);
    let run = home.place.run(&["doctor"]);
    assert!(
        run.code == 1 && run.out.contains("failed  model     echo: ") && run.out.contains("ECHO_KEY is not set"),
        "{}",
        run.out
    );
}

#[test]
fn models_are_listed_with_their_prices() {
    let home = Home::new();
    let listed = home.ok(&["models"]);
    let row = listed.lines().find(|line| line.starts_with("echo ")).expect("a row");
    for part in ["openai-compatible", "9,000", " 1 ", " 0.1 ", " 2 ", "default"] {
        assert!(row.contains(part), "{part}: {listed}");
    }
    assert!(listed.contains("canned replies"), "{listed}");
    let rows: serde_json::Value = serde_json::from_str(&home.ok(&["models", "--json"])).expect("JSON");
    assert_eq!(rows["models"][0]["price"]["input"], json!(1_000_000));
    let error = home.run(&["models", "anthropic"]);
    assert_eq!(error.code, 1, "there is no key for it");
    let error = home.run(&["models", "antropic"]);
    assert!(error.err.contains("did you mean `anthropic`?"), "{}", error.err);
    home.place.write(
        "prices.toml",
        &format!("[providers.mine]\nwire = \"chat\"\nbase_url = \"{}\"\nkeys = [\"ECHO_KEY\"]", home.vendor.url()),
    );
    home.place.write("segue.toml", "[catalog]\nfile = \"prices.toml\"\n");
    let served = home.ok(&["models", "mine"]);
    assert!(served.contains("mine/big") && served.contains("mine/echo"), "{served}");
    assert_eq!(home.ok(&["send", "--model", "mine/big", "hello"]), "You said: hello\n");
    assert_eq!(home.vendor.asked().last().expect("asked")["model"], json!("big"));
    let error = home.run(&["send", "--model", "nine/big", "hello"]);
    assert!(
        error.err.contains("there is no model `nine/big`") && error.err.contains("write provider/model"),
        "{}",
        error.err
    );
}

#[test]
fn an_image_is_sent_with_the_message() {
    let home = Home::new();
    let png = b"\x89PNG\r\n\x1a\n rest";
    std::fs::write(home.place.path().join("cat.png"), png).expect("written");
    home.ok(&["send", "--session", "a", "--image", "cat.png", "what is this?"]);
    home.ok(&["send", "--session", "a", "are you sure?"]);
    for asked in home.vendor.asked() {
        let content = &asked["messages"][1]["content"];
        assert_eq!(content[0]["text"], json!("what is this?"));
        assert_eq!(content[1]["image_url"]["url"], json!("data:image/png;base64,iVBORw0KGgogcmVzdA=="));
    }
    assert!(home.ok(&["show", "a", "--events"]).contains("m1 user: what is this? [1 image]"));
    home.ok(&["export", "a", "-o", "a.jsonl"]);
    home.ok(&["import", "a.jsonl", "--name", "b"]);
    home.ok(&["send", "--session", "b", "still there?"]);
    assert!(
        home.vendor.asked().last().expect("asked").to_string().contains("iVBORw0KGgog"),
        "an export contains the image"
    );
    home.place.write("cat.txt", "meow");
    assert!(home.run(&["send", "--image", "cat.txt", "x"]).err.contains("use PNG, JPEG, GIF or WebP"));
    assert!(home.run(&["send", "--image", "gone.png", "x"]).err.contains("cannot read the image gone.png"));
}

#[test]
fn the_answer_limit_fits_into_the_window_with_the_prompt() {
    let home = Home::new();
    let config = home.place.read("segue.toml").replace("[models.echo]", "[models.narrow]").replace("9000", "4096");
    home.place.write("segue.toml", &format!("[models]\ndefault = \"narrow\"\n{config}"));
    assert_eq!(home.ok(&["send", "--session", "a", "hello"]), "You said: hello\n");
    assert!(home.vendor.asked()[0]["max_tokens"].as_u64().expect("a number") < 4_096);
}

#[test]
fn reasoning_without_an_answer_is_a_failure_and_a_cut_answer_has_a_warning() {
    let home = Home::new();
    let config = home.place.read("segue.toml");
    let named = |name: &str| config.replace("[models.echo]", &format!("[models.{name}]"));
    let models = format!("[models]\ndefault = \"echo\"\n{}{}{config}", named("dreamer"), named("rambler"));
    home.place.write("segue.toml", &models);
    let run = home.run(&["send", "--session", "a", "--model", "dreamer", "hello"]);
    assert!(run.code == 1 && run.err.contains("used its whole output budget"), "{}", run.err);
    assert_eq!(home.vendor.asked().len(), 1, "a retry would fail in the same way");
    assert!(home.ok(&["show", "a"]).contains("1 failed"));
    let report = home.run(&["send", "--session", "b", "--json", "--model", "dreamer", "hello"]).out;
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    assert_eq!(report["usage"]["tokens_out"], json!(5), "the failed answer is billed: {report}");
    let run = home.run(&["send", "--model", "rambler", "hello"]);
    assert_eq!((run.code, run.out.as_str()), (0, "You said: hello, and\n"));
    assert!(run.err.contains("the answer of assistant was cut off"), "{}", run.err);
}

#[test]
fn a_password_in_an_address_is_never_printed_or_written() {
    let (place, vendor) = (Place::new(), Vendor::new(""));
    let host = format!("http://me:secret-word@{}", vendor.host());
    let run = |arguments: &[&str]| {
        let mut command = place.command(arguments);
        Run::of(&command.env_remove("SEGUE_DISCOVER").env("OLLAMA_HOST", &host).output().expect("it runs"))
    };
    let sent = run(&["send", "--session", "a", "--record", "tape.jsonl", "hello"]);
    assert_eq!((sent.code, sent.out.as_str()), (0, "You said: hello\n"), "{}", sent.err);
    assert!(vendor.seen().iter().all(|seen| seen.head.contains("Basic bWU6c2VjcmV0LXdvcmQ=")));
    let everything = format!(
        "{}{}{}{}",
        run(&["doctor"]).out,
        run(&["models"]).out,
        run(&["show", "a", "--events"]).out,
        place.read("tape.jsonl")
    );
    for secret in ["secret-word", "bWU6c2VjcmV0"] {
        assert!(!everything.contains(secret), "{everything}");
    }
    place.write("prices.toml", "[providers.mine]\nwire = \"chat\"\nbase_url = \"http://me:secret-word@box/v1\"");
    place.write("segue.toml", "[catalog]\nfile = \"prices.toml\"\n");
    let error = place.run(&["models"]);
    assert!(
        error.err.contains("contains a user name or password") && !error.err.contains("secret-word"),
        "{}",
        error.err
    );
}

#[test]
fn models_of_a_configured_models_server_can_be_listed() {
    let home = Home::new();
    let served = home.ok(&["models", "echo"]);
    assert!(served.contains("openai-compatible/big"), "{served}");
}

#[test]
fn a_model_name_that_begins_with_its_provider_is_not_doubled() {
    let place = Place::new();
    let models = |key: &str| {
        let mut command = place.command(&["models", "--json"]);
        command.env_remove("SEGUE_DISCOVER").env(key, KEY).env("OLLAMA_HOST", "127.0.0.1:1");
        let listed = Run::of(&command.output().expect("it runs")).out;
        let listed: serde_json::Value = serde_json::from_str(&listed).expect("JSON");
        listed["models"].as_array().expect("a list").clone()
    };
    let named = |rows: &[serde_json::Value], name: &str| rows.iter().find(|row| row["name"] == name).cloned();
    let router = named(&models("OPENROUTER_API_KEY"), "openrouter/auto").expect("found");
    assert!(!router["notes"].to_string().contains("provider's name"), "the names are the same: {router}");
    let groq = named(&models("GROQ_API_KEY"), "groq/openai/gpt-oss-120b").expect("found");
    assert_eq!(groq["provider"], json!("groq"));
    place.write("segue.toml", "[models]\ndefault = \"openrouter/auto\"\n");
    let router = named(&models("OPENROUTER_API_KEY"), "openrouter/auto").expect("named");
    assert!(!router["notes"].to_string().contains("provider's name: auto"), "{router}");
}

#[test]
fn a_cassette_of_another_model_setup_is_not_extended() {
    let home = Home::new();
    home.ok(&["send", "--record", "tape.jsonl", "hello"]);
    home.place.write("segue.toml", &home.place.read("segue.toml").replace("9000", "8000"));
    let run = home.run(&["send", "--record", "tape.jsonl", "hello"]);
    assert!(run.code == 1 && run.err.contains("was recorded with other models"), "{}", run.err);
}

#[test]
fn prompts_fit_a_model_that_counts_more_tokens_than_we_do() {
    let (place, vendor) = (Place::new(), Vendor::new(""));
    let config = "[models.heavy]\nprovider = \"openai-compatible\"\nwindow_tokens = 4096\n";
    place.write("segue.toml", &format!("{config}base_url = \"{}\"\n", vendor.url()));
    for turn in 0..14 {
        let message = format!("number {turn} {}", "and one more ".repeat(50));
        assert!(place.ok(&["send", "--session", "a", &message]).starts_with("You said: number"), "turn {turn}");
    }
    assert_eq!(vendor.refused(), [""; 0], "threads were compacted before the server refused one");
    let events = place.json(&["show", "a", "--json"])["events"].clone();
    let compacted = events.as_array().expect("a list").iter().filter(|it| it["event"]["type"] == "thread_compacted");
    assert!(compacted.count() > 1);
    let page = place.ok(&["explain", "a", "c1"]);
    assert!(!page.contains("by the vendor's count, "), "the vendor's count is unknown at first: {page}");
    let page = place.ok(&["explain", "a", "c4"]).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(page.contains(" by the vendor's count, ") && page.contains(" by our count; the answer may"), "{page}");
}

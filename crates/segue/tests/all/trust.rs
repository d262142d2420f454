//! Trust in the `segue.toml` of a folder: what needs it, how it is given, and when it ends.

use std::process::Command;

use crate::support::{Place, Run};
use crate::vendor::Vendor;

const KEY: &str = "sk-only-for-this-test-43";

/// A command without `SEGUE_TRUST`, with an API key in the environment.
fn command(place: &Place, arguments: &[&str]) -> Command {
    let mut command = place.command(arguments);
    command.env_remove("SEGUE_TRUST").env("ECHO_KEY", KEY).env("PATH", "/usr/bin:/bin");
    command
}

fn run(place: &Place, arguments: &[&str]) -> Run {
    let run = Run::of(&command(place, arguments).output().expect("it runs"));
    Run { out: place.redacted(&run.out), err: place.redacted(&run.err), ..run }
}

fn ok(place: &Place, arguments: &[&str]) -> String {
    let run = run(place, arguments);
    assert_eq!((run.code, run.err.as_str()), (0, ""), "{arguments:?}: {}", run.out);
    run.out
}

/// A folder whose configuration sends the key in `ECHO_KEY` to a test server.
fn place_with_vendor() -> (Place, Vendor) {
    let (place, vendor) = (Place::new(), Vendor::new(KEY));
    place.write("segue.toml", &vendor_config(&vendor));
    (place, vendor)
}

fn vendor_config(vendor: &Vendor) -> String {
    format!(
        "[models.echo]\nprovider = \"openai-compatible\"\nbase_url = \"{}\"\nkey_env = \"ECHO_KEY\"\n\
         window_tokens = 9000\n",
        vendor.url()
    )
}

/// A folder whose configuration starts a program, which leaves the file `started`.
fn place_with_program() -> Place {
    let place = Place::new();
    place.write(
        "segue.toml",
        "[models.rehearsal]\nkind = \"rehearsal\"\nspeed = \"instant\"\n[records]\ndomains = [\"notes.toml\"]\n",
    );
    place.write("notes.toml", &program_domain(&place, "started"));
    place
}

fn program_domain(place: &Place, file: &str) -> String {
    let started = place.path().join(file);
    format!("name = \"notes\"\n[server]\ncommand = [\"touch\", \"{}\"]\n", started.display())
}

#[test]
fn an_untrusted_folder_may_not_use_keys() {
    let (place, vendor) = place_with_vendor();
    let refused = run(&place, &["send", "hello"]);
    let expected = format!(
        "error: HOME/segue.toml is not trusted, so it may not use keys, call other servers or start programs; \
         `segue trust` shows what it wants, `segue trust add` allows it\n  because: it would send the key in ECHO_KEY to {} \
         (model `echo`)\n",
        vendor.url()
    );
    assert_eq!((refused.code, refused.out.as_str(), refused.err), (1, "", expected));
    for arguments in [&["models"] as &[&str], &["models", "echo"], &["serve", "--port", "0"]] {
        let refused = run(&place, arguments);
        assert_eq!(refused.code, 1, "{arguments:?}: {}", refused.out);
        assert!(refused.err.contains("is not trusted"), "{arguments:?}: {}", refused.err);
    }
    run(&place, &["doctor", "--call-models"]);
    ok(&place, &["config"]);
    assert!(vendor.seen().is_empty(), "{:?}", vendor.seen());
    ok(&place, &["trust", "add", "--yes"]);
    assert_eq!(ok(&place, &["send", "hello"]), "You said: hello\n");
}

#[test]
fn trust_ends_when_the_configuration_changes() {
    let (place, vendor) = place_with_vendor();
    ok(&place, &["trust", "add", "--yes"]);
    ok(&place, &["send", "hello"]);
    place.write("segue.toml", &format!("# changed\n{}", vendor_config(&vendor)));
    let refused = run(&place, &["send", "hello"]);
    assert_eq!(refused.code, 1);
    assert!(refused.err.contains("has changed since it was trusted"), "{}", refused.err);
    ok(&place, &["trust", "add", "--yes"]);
    ok(&place, &["send", "hello"]);
    assert_eq!(ok(&place, &["trust", "revoke"]), "HOME is no longer trusted\n");
    assert_eq!(run(&place, &["send", "hello"]).code, 1);
    let refused = run(&place, &["trust", "revoke"]);
    assert_eq!(
        refused.err,
        "error: HOME is not trusted, so there is nothing to revoke; `segue trust` lists the trusted folders\n"
    );
}

#[test]
fn trust_ends_when_a_file_that_the_configuration_names_changes() {
    let place = place_with_program();
    ok(&place, &["trust", "add", "--yes"]);
    assert!(ok(&place, &["trust"]).contains("is trusted"));
    place.write("notes.toml", &program_domain(&place, "other"));
    assert!(ok(&place, &["trust"]).contains("has changed since it was trusted"));
}

#[test]
fn the_doctor_starts_no_program_of_an_untrusted_folder() {
    let place = place_with_program();
    let started = place.path().join("started");
    let doctor = run(&place, &["doctor"]);
    assert!(!started.exists(), "{}", doctor.out);
    assert_eq!(doctor.code, 1, "{}", doctor.out);
    assert!(doctor.out.contains("failed  trust     HOME/segue.toml is not trusted"), "{}", doctor.out);
    ok(&place, &["trust", "add", "--yes"]);
    let doctor = run(&place, &["doctor"]);
    assert!(doctor.out.contains("ok      trust     HOME/segue.toml is trusted"), "{}", doctor.out);
    assert!(started.exists(), "{}", doctor.out);
}

#[test]
fn a_folder_that_wants_nothing_needs_no_trust() {
    let place = Place::new();
    let config = "[session]\nflow = \"chat\"\n[models.rehearsal]\nkind = \"rehearsal\"\nspeed = \"instant\"\n";
    place.write("segue.toml", config);
    assert_eq!(run(&place, &["send", "hello"]).code, 0);
    assert_eq!(
        ok(&place, &["trust"]),
        "HOME/segue.toml needs no trust: it uses no keys, calls no other servers and starts no programs\n"
    );
    assert!(!run(&place, &["doctor"]).out.contains("trust"));
    // Reading is always allowed.
    place.write("segue.toml", "[models]\ndefault = \"anthropic/claude-sonnet-5-5\"\n");
    assert!(ok(&place, &["sessions"]).contains("hello"));
    assert_eq!(run(&place, &["send", "hello"]).code, 1);
    place.write("echo.toml", crate::support::ECHO);
    assert_eq!(ok(&place, &["send", "--script", "echo.toml", "hello"]), "You said: hello\n");
}

#[test]
fn a_catalog_or_a_remote_server_needs_trust() {
    let place = Place::new();
    place.write("prices.toml", "[providers.mine]\nwire = \"chat\"\nbase_url = \"https://mine.invalid/v1\"\n");
    place.write("segue.toml", "[catalog]\nfile = \"prices.toml\"\n");
    assert!(
        run(&place, &["send", "hello"]).err.contains("it would change the addresses of providers with prices.toml")
    );
    let local = "[models.local]\nprovider = \"openai-compatible\"\nbase_url = \"https://other.invalid/v1\"\n";
    place.write("segue.toml", local);
    assert!(
        run(&place, &["send", "hello"])
            .err
            .contains("it would send prompts to https://other.invalid/v1 (model `local`)")
    );
}

#[test]
fn an_explicit_file_and_the_environment_count_as_trust() {
    let (place, _vendor) = place_with_vendor();
    assert_eq!(ok(&place, &["send", "--config", "segue.toml", "hello"]), "You said: hello\n");
    let sent = Run::of(&command(&place, &["send", "hello"]).env("SEGUE_TRUST", "1").output().expect("it runs"));
    assert_eq!((sent.code, sent.out.as_str()), (0, "You said: hello\n"), "{}", sent.err);
    let own = place.path().join(".config/segue");
    std::fs::create_dir_all(&own).expect("created");
    std::fs::rename(place.path().join("segue.toml"), own.join("segue.toml")).expect("moved");
    assert_eq!(ok(&place, &["send", "hello"]), "You said: hello\n");
    let there = Run::of(&command(&place, &["send", "hello"]).current_dir(&own).output().expect("it runs"));
    assert_eq!((there.code, there.out.as_str()), (0, "You said: hello\n"), "{}", there.err);
}

#[test]
fn trust_lists_what_the_configuration_wants_and_the_trusted_folders() {
    let (place, vendor) = place_with_vendor();
    let wants = format!("  send the key in ECHO_KEY to {} (model `echo`)\n", vendor.url());
    assert_eq!(
        ok(&place, &["trust"]),
        format!(
            "HOME/segue.toml is not trusted. It would:\n{wants}`segue trust add` allows this until the file changes\n"
        )
    );
    let refused = run(&place, &["trust", "add"]);
    assert_eq!(refused.err, "error: refusing to trust HOME/segue.toml without confirmation (use --yes)\n");
    assert_eq!(ok(&place, &["trust", "add", "--yes"]), "HOME/segue.toml is trusted until it changes\n");
    assert_eq!(
        ok(&place, &["trust"]),
        format!("HOME/segue.toml is trusted. It may:\n{wants}\ntrusted folders:\n  HOME\n")
    );
    let json: serde_json::Value = serde_json::from_str(&ok(&place, &["trust", "--json"])).expect("JSON");
    assert_eq!((&json["status"], &json["folders"]), (&"trusted".into(), &serde_json::json!(["HOME"])));
    assert!(ok(&place, &["trust", "revoke", &place.path().display().to_string()]).contains("no longer trusted"));
    let nothing = Place::new();
    assert_eq!(ok(&nothing, &["trust"]), "there is no segue.toml in this folder\n");
}

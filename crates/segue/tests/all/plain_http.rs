//! API keys are never sent over plain HTTP, except to this machine.

use crate::support::{Place, Run};

fn place_with_model(base_url: &str, more: &str) -> Place {
    let place = Place::new();
    let config = format!("[models.box]\nprovider = \"openai-compatible\"\nbase_url = \"{base_url}\"\n{more}");
    place.write("segue.toml", &config);
    place
}

fn send(place: &Place) -> Run {
    // Nothing listens at this proxy, so that no request leaves this machine.
    let mut command = place.command(&["send", "hello"]);
    Run::of(&command.env("BOX_KEY", "sk-secret").env("HTTP_PROXY", "http://127.0.0.1:9").output().expect("it runs"))
}

#[test]
fn a_key_is_not_sent_over_plain_http() {
    for url in ["http://192.0.2.7:8080/v1", "http://127.0.0.1.example.invalid/v1", "http://models.invalid/v1"] {
        let place = place_with_model(url, "key_env = \"BOX_KEY\"\n");
        let run = send(&place);
        let expected = format!(
            "error: model `box` cannot be used\n  because: the key in BOX_KEY would be sent unencrypted to {url}; \
             use an https:// address, a server on this machine, or a model without a key\n"
        );
        assert_eq!((run.code, run.err), (1, expected));
        let doctor = place.command(&["doctor"]).env("BOX_KEY", "sk-secret").output().expect("it runs");
        let doctor = Run::of(&doctor);
        assert_eq!(doctor.code, 1, "{}", doctor.out);
        assert!(doctor.out.contains("would be sent unencrypted"), "{}", doctor.out);
    }
}

#[test]
fn plain_http_is_allowed_without_a_key_and_on_this_machine() {
    let allowed = [
        ("http://models.invalid/v1", ""),
        ("http://localhost:9/v1", "key_env = \"BOX_KEY\"\n"),
        ("http://127.0.0.2:9/v1", "key_env = \"BOX_KEY\"\n"),
        ("http://[::1]:9/v1", "key_env = \"BOX_KEY\"\n"),
    ];
    for (url, more) in allowed {
        let run = Run::of(&place_with_model(url, more).command(&["models"]).env("BOX_KEY", "k").output().expect("ran"));
        assert_eq!(run.code, 0, "{url}: {}", run.err);
    }
}

#[test]
fn a_key_of_a_server_is_not_sent_over_plain_http() {
    let place = Place::new();
    let chat = |url: &str| {
        let mut command = place.command(&["chat", "--server", url]);
        Run::of(&command.env("SEGUE_KEY", "sg_secret").output().expect("it runs"))
    };
    let run = chat("http://segue.invalid:7348");
    assert_eq!(run.code, 1, "{}", run.out);
    assert!(run.err.contains("is not encrypted, so SEGUE_KEY is not sent there"), "{}", run.err);
    // Nothing listens there, but it may be asked.
    assert!(chat("http://127.0.0.1:9").err.contains("cannot reach the server"));
    let open = Run::of(&place.command(&["chat", "--server", "http://segue.invalid:7348"]).output().expect("it runs"));
    assert!(open.err.contains("cannot reach the server"), "without a key there is nothing to protect: {}", open.err);
}

//! A fuzz target: no conversation of a client makes the server panic.

use std::path::Path;

use segue_testkit::run_fuzz_target;
use serde_json::{Value, json};

use super::conversation::ClientConversation;

#[test]
fn fuzz_openai_history() {
    let message = |role: &str, content: Value| json!({"role": role, "content": content});
    let image = json!({"type": "image_url", "image_url": {"url": "data:image/gif;base64,R0lGODlhAQABAAAAACwAAAAAAQABAAACAkQBADs="}});
    let seeds = [
        json!([
            message("system", json!("be kind")),
            message("user", json!("a")),
            message("assistant", json!("b")),
            message("user", json!("c"))
        ]),
        json!([message("user", json!([{"type": "text", "text": "look"}, image]))]),
        json!([{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]}, message("tool", json!("y")), message("user", json!(null))]),
    ];
    let seeds = seeds.map(|seed| seed.to_string().into_bytes());
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/openai_history");
    run_fuzz_target("OpenAI history", &corpus, &seeds, |bytes| {
        let Ok(messages) = serde_json::from_slice::<Vec<Value>>(bytes) else { return };
        let Ok(conversation) = ClientConversation::parse(&messages, Some("instructions")) else { return };
        let _ = conversation.flattened_message();
        assert!(conversation.possible_prefixes().count() <= messages.len());
        let again = ClientConversation::parse(&messages, Some("instructions"));
        assert!(again.is_ok_and(|again| again == conversation), "the same messages are the same conversation");
    });
}

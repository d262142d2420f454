//! Recording and replaying HTTP traffic, without keys.

use std::path::PathBuf;
use std::sync::Arc;

use segue_core::prompt::CallFailureKind;
use segue_models::cassette::{CassetteRecordingTransport, CassetteReplayTransport};
use segue_models::http::{CompletionOrProbeTimeouts, ReqwestTransport};
use segue_models::vendor::{ModelEndpoint, VendorModelClient, WireFormat};
use segue_models::{LanguageModel, ReplyChunk};
use serde_json::json;

use crate::server::{KEY, Server, Step, events, full_response};
use crate::support::ask;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("segue-cassette-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    fn cassette_path(&self) -> PathBuf {
        self.0.join("cassette.jsonl")
    }

    fn record(&self, endpoint: ModelEndpoint) -> VendorModelClient {
        let client = Arc::new(ReqwestTransport::new(CompletionOrProbeTimeouts::Completion));
        let recorder =
            CassetteRecordingTransport::new(client, &self.cassette_path(), json!({"who": "me"})).expect("writable");
        VendorModelClient::new(endpoint, Arc::new(recorder))
    }

    fn play(&self, endpoint: ModelEndpoint) -> (VendorModelClient, Arc<CassetteReplayTransport>) {
        let player = Arc::new(CassetteReplayTransport::new(&self.cassette_path()).expect("a cassette"));
        (VendorModelClient::new(endpoint, player.clone()), player)
    }

    fn text(&self) -> String {
        std::fs::read_to_string(self.cassette_path()).expect("a cassette")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn say(text: &str) -> Vec<Step> {
    events(&[&json!({"choices": [{"delta": {"content": text}, "finish_reason": "stop"}]}).to_string(), "[DONE]"])
}

#[tokio::test]
async fn recorded_responses_are_replayed_in_order() {
    let folder = Folder::new("order");
    let head = Step::Head(429, vec![("retry-after", "2".into()), ("set-cookie", "who=me".into())]);
    let slow = vec![head, Step::Chunk(b"{}".to_vec()), Step::End];
    let server = Server::new(vec![say("one"), slow, say("two"), say("three")]).await;
    let vendor = folder.record(server.endpoint(WireFormat::Chat));
    assert_eq!(ask("a").send_to(&vendor).await.expect("a reply").text, "one");
    assert!(ask("b").send_to(&vendor).await.is_err());
    assert_eq!(ask("b").send_to(&vendor).await.expect("a reply").text, "two");
    drop(vendor);
    // A second recording is appended to the first.
    let vendor = folder.record(server.endpoint(WireFormat::Chat));
    assert_eq!(ask("a").send_to(&vendor).await.expect("a reply").text, "three");
    drop(vendor);

    let mut elsewhere = server.endpoint(WireFormat::Chat);
    elsewhere.base_url = "http://nowhere.invalid/v1".into();
    let (vendor, player) = folder.play(elsewhere);
    assert_eq!((player.metadata(), player.remaining_response_count()), (&json!({"who": "me"}), 4));
    let limited = ask("b").send_to(&vendor).await.expect_err("as recorded");
    assert_eq!((limited.kind, limited.retry_after_ms), (CallFailureKind::RateLimit, Some(2_000)));
    assert_eq!(ask("a").send_to(&vendor).await.expect("a reply").text, "one");
    assert_eq!(ask("b").send_to(&vendor).await.expect("a reply").text, "two");
    assert_eq!(ask("a").send_to(&vendor).await.expect("a reply").text, "three");
    let again = ask("a").send_to(&vendor).await.expect_err("used up");
    assert!(again.message.ends_with("it was sent more often than it was recorded"), "{again}");
    assert_eq!(player.remaining_response_count(), 0);
    assert!(!folder.text().contains("who=me"), "cookies are left out");
}

/// What an agent reads depends on what others that work at the same time have done before.
#[tokio::test]
async fn concurrent_responses_end_as_they_did_when_they_were_recorded() {
    let folder = Folder::new("concurrent");
    let server = Server::new(vec![say("one"), say("two")]).await;
    let vendor = folder.record(server.endpoint(WireFormat::Chat));
    ask("a").send_to(&vendor).await.expect("a reply");
    ask("b").send_to(&vendor).await.expect("a reply");
    drop(vendor);
    assert!(!folder.text().contains("others_in_flight"), "{}", folder.text());
    // As if the second request had been sent before the first response ended.
    let recorded = folder.text().replacen("\"outcome\"", "\"others_in_flight\":1,\"outcome\"", 1);
    std::fs::write(folder.cassette_path(), recorded).expect("writable");

    let (vendor, _) = folder.play(server.endpoint(WireFormat::Chat));
    let (question, other_question) = (ask("a"), ask("b"));
    let mut first = Box::pin(question.send_to(&vendor));
    for _ in 0..10 {
        assert!(futures_util::poll!(&mut first).is_pending(), "the second request has not been sent");
        tokio::task::yield_now().await;
    }
    let mut second = Box::pin(other_question.send_to(&vendor));
    assert!(futures_util::poll!(&mut second).is_pending(), "the first response has not ended");
    assert_eq!(first.await.expect("a reply").text, "one");
    assert_eq!(second.await.expect("a reply").text, "two");
}

#[tokio::test]
async fn equal_requests_of_different_calls_get_their_own_responses() {
    let folder = Folder::new("calls");
    let server = Server::new(vec![say("of call 2"), say("of call 1"), say("of call 1 again")]).await;
    let vendor = folder.record(server.endpoint(WireFormat::Chat));
    for call in [2, 1, 1] {
        ask("a").by_call(call).send_to(&vendor).await.expect("a reply");
    }
    drop(vendor);

    let (vendor, _) = folder.play(server.endpoint(WireFormat::Chat));
    let mut replayed = Vec::new();
    for call in [1, 2, 7] {
        replayed.push(ask("a").by_call(call).send_to(&vendor).await.expect("a reply").text);
    }
    assert_eq!(replayed, ["of call 1", "of call 2", "of call 1 again"], "an unknown call gets what is left");
}

#[tokio::test]
async fn a_cassette_never_contains_a_key() {
    let folder = Folder::new("key");
    let body = format!(r#"{{"error":{{"message":"bad key {KEY}"}}}}"#);
    let (first, second) = body.split_at(body.find(KEY).expect("there") + 4);
    let head = Step::Head(401, vec![("content-type", "application/json".into())]);
    let steps = vec![head, Step::Chunk(first.into()), Step::Chunk(second.into()), Step::End];
    let server = Server::new(vec![steps]).await;
    for wire in WireFormat::ALL {
        let vendor = folder.record(server.endpoint(wire));
        let _ = ask(&format!("my key is {KEY}, keep it")).send_to(&vendor).await;
    }
    let mut unreachable = server.endpoint(WireFormat::Chat);
    unreachable.base_url = "http://127.0.0.1:1/v1".into();
    let _ = ask("hi").send_to(&folder.record(unreachable)).await;
    let text = folder.text();
    assert_eq!(text.lines().count(), 7);
    assert!(!text.contains(KEY) && text.contains("[key]"), "{text}");
    let (vendor, _) = folder.play(server.endpoint(WireFormat::Chat));
    assert_eq!(ask("hi").send_to(&vendor).await.expect_err("as recorded").kind, CallFailureKind::Network);
}

#[tokio::test]
async fn a_broken_stream_breaks_again_on_replay() {
    let folder = Folder::new("broke");
    let head = Step::Head(200, vec![("content-type", "text/event-stream".into())]);
    let so_far = "data: {\"choices\":[{\"delta\":{\"content\":\"so fär\"}}]}\n\n".as_bytes();
    // Split in the middle of a character.
    let cut = so_far.iter().position(|byte| *byte > 127).expect("there") + 1;
    let chunks = [Step::Chunk(so_far[..cut].to_vec()), Step::Chunk(so_far[cut..].to_vec())];
    let server = Server::new(vec![std::iter::once(head).chain(chunks).collect()]).await;
    let recorded = ask("hi").chunks(&folder.record(server.endpoint(WireFormat::Chat))).await;
    let (vendor, _) = folder.play(server.endpoint(WireFormat::Chat));
    let played = ask("hi").chunks(&vendor).await;
    assert!(played.contains(&Ok(ReplyChunk::Text("so fär".into()))), "{played:?}");
    assert_eq!(played.last(), recorded.last());
}

#[tokio::test]
async fn a_response_that_was_not_read_to_its_end_is_recorded_so_far() {
    use futures_util::StreamExt;
    let folder = Folder::new("dropped");
    let head = Step::Head(200, vec![("content-type", "text/event-stream".into())]);
    let chunk = Step::Chunk(b"data: {\"choices\":[{\"delta\":{\"content\":\"so\"}}]}\n\n".to_vec());
    let server = Server::new(vec![vec![head, chunk, Step::AwaitDisconnect]]).await;
    let vendor = folder.record(server.endpoint(WireFormat::Chat));
    let mut chunks = vendor.stream(ask("hi").model_request());
    assert_eq!(chunks.next().await, Some(Ok(ReplyChunk::Text("so".into()))));
    drop(chunks);
    let (vendor, _) = folder.play(server.endpoint(WireFormat::Chat));
    let failure = ask("hi").send_to(&vendor).await.expect_err("incomplete");
    assert_eq!(failure.to_string(), "network: the client stopped reading the response");
}

#[tokio::test]
async fn an_unrecorded_request_is_refused_with_its_differences() {
    let folder = Folder::new("differs");
    let server = Server::new(vec![say("one")]).await;
    ask("what is a segue?").send_to(&folder.record(server.endpoint(WireFormat::Chat))).await.expect("a reply");
    let (vendor, _) = folder.play(server.endpoint(WireFormat::Chat));
    let failure = ask("what is a fugue?").send_to(&vendor).await.expect_err("not recorded");
    let expected = r#"the closest recorded request differs at /messages/0/content: recorded "what is a segue?", requested "what is a fugue?""#;
    assert!(failure.message.ends_with(expected), "{failure}");
    let (vendor, _) = folder.play(server.endpoint(WireFormat::Anthropic));
    let failure = ask("hi").send_to(&vendor).await.expect_err("not recorded");
    assert!(failure.message.ends_with("nothing was recorded for /v1/messages"), "{failure}");
}

#[test]
fn other_files_are_refused_and_not_changed() {
    let folder = Folder::new("other");
    let error_for = |text: &str| {
        std::fs::write(folder.cassette_path(), text).expect("written");
        let client = Arc::new(ReqwestTransport::new(CompletionOrProbeTimeouts::Completion));
        let recorded = CassetteRecordingTransport::new(client, &folder.cassette_path(), json!({}))
            .map(|_| ())
            .expect_err("not a cassette")
            .to_string();
        assert_eq!(folder.text(), text, "nothing was written");
        let played =
            CassetteReplayTransport::new(&folder.cassette_path()).map(|_| ()).expect_err("not a cassette").to_string();
        assert_eq!(recorded, played);
        played
    };
    assert!(error_for("dear diary").contains("line 1 has no cassette header"));
    assert!(error_for("{\"segue_cassette\":9,\"metadata\":{}}").contains("has format 9"));
    assert!(error_for("{\"segue_cassette\":1,\"metadata\":{}}\n{}").contains("line 2 is not a recorded exchange"));
    assert!(CassetteReplayTransport::new(&folder.0.join("nowhere")).is_err());
}

#[tokio::test]
async fn a_listing_can_be_recorded_too() {
    let folder = Folder::new("listing");
    let listing = r#"{"data":[{"id":"b"},{"id":"a"}]}"#;
    let server = Server::new(vec![full_response(200, "application/json", listing)]).await;
    let client = Arc::new(ReqwestTransport::new(CompletionOrProbeTimeouts::Completion));
    let recorder = CassetteRecordingTransport::new(client, &folder.cassette_path(), json!({})).expect("writable");
    let endpoint = server.endpoint(WireFormat::Chat);
    let recorded = segue_models::discovery::list_provider_models(&recorder, &endpoint).await.expect("a list");
    let player = CassetteReplayTransport::new(&folder.cassette_path()).expect("a cassette");
    let played = segue_models::discovery::list_provider_models(&player, &endpoint).await.expect("a list");
    assert_eq!((recorded.as_slice(), &played), (["a".to_owned(), "b".to_owned()].as_slice(), &recorded));
}

#[tokio::test]
async fn the_closest_request_is_the_one_that_differs_least() {
    let folder = Folder::new("nearest");
    let server = Server::new(vec![say("one")]).await;
    let vendor = folder.record(server.endpoint(WireFormat::Chat));
    ask("a very long question about something else entirely").send_to(&vendor).await.expect("a reply");
    ask("hello").assistant("hi").user("short").send_to(&vendor).await.expect("a reply");
    drop(vendor);
    let (vendor, _) = folder.play(server.endpoint(WireFormat::Chat));
    let failure = ask("hello").assistant("hi").user("shorter").send_to(&vendor).await.expect_err("not recorded");
    let expected = r#"differs at /messages/2/content: recorded "short", requested "shorter""#;
    assert!(failure.message.ends_with(expected), "{failure}");
}

#[test]
fn a_cassette_with_other_metadata_is_not_appended_to() {
    let folder = Folder::new("metadata");
    let record = |metadata| {
        let client = Arc::new(ReqwestTransport::new(CompletionOrProbeTimeouts::Completion));
        CassetteRecordingTransport::new(client, &folder.cassette_path(), metadata)
            .map(|_| ())
            .map_err(|error| error.to_string())
    };
    assert_eq!(record(json!({"who": "me"})), Ok(()));
    assert_eq!(record(json!({"who": "me"})), Ok(()));
    let before = folder.text();
    let error = record(json!({"who": "you"})).expect_err("other metadata");
    assert!(
        error.contains("recorded with other models") && error.contains(r#"/who: recorded "me", requested "you""#),
        "{error}"
    );
    assert_eq!(folder.text(), before, "the file is not changed");
}

#[cfg(unix)]
#[test]
fn a_cassette_is_readable_by_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new("mode");
    CassetteRecordingTransport::new(
        Arc::new(ReqwestTransport::new(CompletionOrProbeTimeouts::Completion)),
        &folder.cassette_path(),
        json!({}),
    )
    .expect("writable");
    let mode = std::fs::metadata(folder.cassette_path()).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

//! Traffic recorded and played again, without keys.

use std::path::PathBuf;
use std::sync::Arc;

use segue_core::prompt::FailureKind;
use segue_models::cassette::{CassettePlayer, CassetteRecorder};
use segue_models::http::{ReqwestTransport, TimeoutProfile};
use segue_models::vendor::{ModelEndpoint, VendorModel, WireFormat};
use segue_models::{LanguageModel, ReplyChunk};
use serde_json::json;

use crate::server::{KEY, Server, Step, answer, events};
use crate::support::ask;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("segue-cassette-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    fn tape(&self) -> PathBuf {
        self.0.join("tape.jsonl")
    }

    fn record(&self, connection: ModelEndpoint) -> VendorModel {
        let client = Arc::new(ReqwestTransport::new(TimeoutProfile::Completion));
        let recorder = CassetteRecorder::new(client, &self.tape(), json!({"who": "me"})).expect("it can be written");
        VendorModel::new(connection, Arc::new(recorder))
    }

    fn play(&self, connection: ModelEndpoint) -> (VendorModel, Arc<CassettePlayer>) {
        let player = Arc::new(CassettePlayer::new(&self.tape()).expect("a cassette"));
        (VendorModel::new(connection, player.clone()), player)
    }

    fn text(&self) -> String {
        std::fs::read_to_string(self.tape()).expect("a cassette")
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
async fn what_was_recorded_is_played_again_in_its_order() {
    let folder = Folder::new("order");
    let head = Step::Head(429, vec![("retry-after", "2".into()), ("set-cookie", "who=me".into())]);
    let slow = vec![head, Step::Piece(b"{}".to_vec()), Step::End];
    let server = Server::new(vec![say("one"), slow, say("two"), say("three")]).await;
    let vendor = folder.record(server.connection(WireFormat::Chat));
    assert_eq!(ask("a").of(&vendor).await.expect("an answer").text, "one");
    assert!(ask("b").of(&vendor).await.is_err());
    assert_eq!(ask("b").of(&vendor).await.expect("an answer").text, "two");
    drop(vendor);
    // A second recording goes on behind the first.
    let vendor = folder.record(server.connection(WireFormat::Chat));
    assert_eq!(ask("a").of(&vendor).await.expect("an answer").text, "three");
    drop(vendor);

    let mut elsewhere = server.connection(WireFormat::Chat);
    elsewhere.base_url = "http://nowhere.invalid/v1".into();
    let (vendor, player) = folder.play(elsewhere);
    assert_eq!((player.metadata(), player.remaining_count()), (&json!({"who": "me"}), 4));
    let limited = ask("b").of(&vendor).await.expect_err("as it was");
    assert_eq!((limited.kind, limited.retry_after_ms), (FailureKind::RateLimit, Some(2_000)));
    assert_eq!(ask("a").of(&vendor).await.expect("an answer").text, "one");
    assert_eq!(ask("b").of(&vendor).await.expect("an answer").text, "two");
    assert_eq!(ask("a").of(&vendor).await.expect("an answer").text, "three");
    let again = ask("a").of(&vendor).await.expect_err("used up");
    assert!(again.message.ends_with("it was asked as often as it was recorded"), "{again}");
    assert_eq!(player.remaining_count(), 0);
    assert!(!folder.text().contains("who=me"), "cookies are left out");
}

#[tokio::test]
async fn no_key_is_ever_on_a_cassette() {
    let folder = Folder::new("key");
    let body = format!(r#"{{"error":{{"message":"bad key {KEY}"}}}}"#);
    let (first, second) = body.split_at(body.find(KEY).expect("there") + 4);
    let head = Step::Head(401, vec![("content-type", "application/json".into())]);
    let steps = vec![head, Step::Piece(first.into()), Step::Piece(second.into()), Step::End];
    let server = Server::new(vec![steps]).await;
    for wire in WireFormat::ALL {
        let vendor = folder.record(server.connection(wire));
        let _ = ask(&format!("my key is {KEY}, keep it")).of(&vendor).await;
    }
    let mut unreachable = server.connection(WireFormat::Chat);
    unreachable.base_url = "http://127.0.0.1:1/v1".into();
    let _ = ask("hi").of(&folder.record(unreachable)).await;
    let text = folder.text();
    assert_eq!(text.lines().count(), 7);
    assert!(!text.contains(KEY) && text.contains("[key]"), "{text}");
    let (vendor, _) = folder.play(server.connection(WireFormat::Chat));
    assert_eq!(ask("hi").of(&vendor).await.expect_err("as it was").kind, FailureKind::Network);
}

#[tokio::test]
async fn a_stream_that_broke_off_breaks_off_again() {
    let folder = Folder::new("broke");
    let head = Step::Head(200, vec![("content-type", "text/event-stream".into())]);
    let so_far = "data: {\"choices\":[{\"delta\":{\"content\":\"so fär\"}}]}\n\n".as_bytes();
    // Cut in the middle of a letter.
    let cut = so_far.iter().position(|byte| *byte > 127).expect("there") + 1;
    let pieces = [Step::Piece(so_far[..cut].to_vec()), Step::Piece(so_far[cut..].to_vec())];
    let server = Server::new(vec![std::iter::once(head).chain(pieces).collect()]).await;
    let recorded = ask("hi").chunks(&folder.record(server.connection(WireFormat::Chat))).await;
    let (vendor, _) = folder.play(server.connection(WireFormat::Chat));
    let played = ask("hi").chunks(&vendor).await;
    assert!(played.contains(&Ok(ReplyChunk::Text("so fär".into()))), "{played:?}");
    assert_eq!(played.last(), recorded.last());
}

#[tokio::test]
async fn what_nobody_listened_to_is_kept_as_far_as_it_came() {
    use futures_util::StreamExt;
    let folder = Folder::new("dropped");
    let head = Step::Head(200, vec![("content-type", "text/event-stream".into())]);
    let piece = Step::Piece(b"data: {\"choices\":[{\"delta\":{\"content\":\"so\"}}]}\n\n".to_vec());
    let server = Server::new(vec![vec![head, piece, Step::SeeGone]]).await;
    let vendor = folder.record(server.connection(WireFormat::Chat));
    let mut chunks = vendor.stream(ask("hi").request());
    assert_eq!(chunks.next().await, Some(Ok(ReplyChunk::Text("so".into()))));
    drop(chunks);
    let (vendor, _) = folder.play(server.connection(WireFormat::Chat));
    let failure = ask("hi").of(&vendor).await.expect_err("it is not whole");
    assert_eq!(failure.to_string(), "network: nobody listened to the rest");
}

#[tokio::test]
async fn what_was_never_asked_is_refused_with_what_it_differs_in() {
    let folder = Folder::new("differs");
    let server = Server::new(vec![say("one")]).await;
    ask("what is a segue?").of(&folder.record(server.connection(WireFormat::Chat))).await.expect("an answer");
    let (vendor, _) = folder.play(server.connection(WireFormat::Chat));
    let failure = ask("what is a fugue?").of(&vendor).await.expect_err("never asked");
    let expected = r#"the nearest that was recorded differs at /messages/0/content: recorded "what is a segue?", asked "what is a fugue?""#;
    assert!(failure.message.ends_with(expected), "{failure}");
    let (vendor, _) = folder.play(server.connection(WireFormat::Anthropic));
    let failure = ask("hi").of(&vendor).await.expect_err("never asked");
    assert!(failure.message.ends_with("nothing was recorded for /v1/messages"), "{failure}");
}

#[test]
fn other_files_are_no_cassettes_and_are_left_alone() {
    let folder = Folder::new("other");
    let wrong = |text: &str| {
        std::fs::write(folder.tape(), text).expect("written");
        let client = Arc::new(ReqwestTransport::new(TimeoutProfile::Completion));
        let recorded =
            CassetteRecorder::new(client, &folder.tape(), json!({})).map(|_| ()).expect_err("no cassette").to_string();
        assert_eq!(folder.text(), text, "nothing was written");
        let played = CassettePlayer::new(&folder.tape()).map(|_| ()).expect_err("no cassette").to_string();
        assert_eq!(recorded, played);
        played
    };
    assert!(wrong("dear diary").contains("line 1 does not say that it is one"));
    assert!(wrong("{\"segue_cassette\":9,\"cast\":{}}").contains("is of format 9"));
    assert!(wrong("{\"segue_cassette\":1,\"cast\":{}}\n{}").contains("line 2 holds no exchange"));
    assert!(CassettePlayer::new(&folder.0.join("nowhere")).is_err());
}

#[tokio::test]
async fn a_listing_can_be_recorded_too() {
    let folder = Folder::new("listing");
    let listing = r#"{"data":[{"id":"b"},{"id":"a"}]}"#;
    let server = Server::new(vec![answer(200, "application/json", listing)]).await;
    let client = Arc::new(ReqwestTransport::new(TimeoutProfile::Completion));
    let recorder = CassetteRecorder::new(client, &folder.tape(), json!({})).expect("it can be written");
    let connection = server.connection(WireFormat::Chat);
    let recorded = segue_models::discovery::list_provider_models(&recorder, &connection).await.expect("a list");
    let player = CassettePlayer::new(&folder.tape()).expect("a cassette");
    let played = segue_models::discovery::list_provider_models(&player, &connection).await.expect("a list");
    assert_eq!((recorded.as_slice(), &played), (["a".to_owned(), "b".to_owned()].as_slice(), &recorded));
}

#[tokio::test]
async fn the_nearest_request_is_the_one_that_differs_least() {
    let folder = Folder::new("nearest");
    let server = Server::new(vec![say("one")]).await;
    let vendor = folder.record(server.connection(WireFormat::Chat));
    ask("a very long question about something else entirely").of(&vendor).await.expect("an answer");
    ask("hello").assistant("hi").user("short").of(&vendor).await.expect("an answer");
    drop(vendor);
    let (vendor, _) = folder.play(server.connection(WireFormat::Chat));
    let failure = ask("hello").assistant("hi").user("shorter").of(&vendor).await.expect_err("never asked");
    let expected = r#"differs at /messages/2/content: recorded "short", asked "shorter""#;
    assert!(failure.message.ends_with(expected), "{failure}");
}

#[test]
fn a_cassette_of_another_cast_is_not_recorded_on() {
    let folder = Folder::new("cast");
    let record = |cast| {
        let client = Arc::new(ReqwestTransport::new(TimeoutProfile::Completion));
        CassetteRecorder::new(client, &folder.tape(), cast).map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(record(json!({"who": "me"})), Ok(()));
    assert_eq!(record(json!({"who": "me"})), Ok(()));
    let before = folder.text();
    let error = record(json!({"who": "you"})).expect_err("another cast");
    assert!(error.contains("another cast") && error.contains(r#"/who: recorded "me", asked "you""#), "{error}");
    assert_eq!(folder.text(), before, "and it is left alone");
}

#[cfg(unix)]
#[test]
fn a_cassette_is_for_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new("mode");
    CassetteRecorder::new(Arc::new(ReqwestTransport::new(TimeoutProfile::Completion)), &folder.tape(), json!({}))
        .expect("it can be written");
    let mode = std::fs::metadata(folder.tape()).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

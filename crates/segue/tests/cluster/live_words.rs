//! The words of a reply while it is being written, seen through a node that does not hold the session.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::clients::request;
use crate::database::Database;
use crate::model_server::ModelServer;
use crate::nodes::Cluster;

#[test]
fn words_of_a_reply_reach_clients_of_another_node_without_gap_or_repetition() {
    let model = ModelServer::start();
    let cluster = Cluster::start(2, &model, Database::start_temporary());
    let ports = cluster.ports();
    let session = json!({ "session": "talk", "flow": "chat" });
    assert_eq!(request(ports[0], "POST", "/v1/sessions", &session).map(|answer| answer.0), Some(201));
    let mut socket = TcpStream::connect(("127.0.0.1", ports[1])).expect("the node listens");
    let ask = "GET /v1/sessions/talk/events?texts=conversation&deltas=true HTTP/1.1\r\nhost: localhost\r\n\
               accept: text/event-stream\r\n\r\n";
    socket.write_all(ask.as_bytes()).expect("asked");
    let message = json!({ "text": "answer slowly", "wait": false });
    let sent = request(ports[0], "POST", "/v1/sessions/talk/messages", &message);
    assert_eq!(sent.map(|answer| answer.0), Some(202));
    let (mut words, mut deltas) = (String::new(), 0);
    let mut kind = String::new();
    for line in BufReader::new(socket).lines() {
        let line = line.expect("the stream goes on");
        if let Some(name) = line.strip_prefix("event: ") {
            kind = name.to_owned();
        }
        let Some(data) = line.strip_prefix("data: ").and_then(|data| serde_json::from_str::<Value>(data).ok()) else {
            continue;
        };
        if kind == "delta" {
            assert_eq!(data["offset"], words.len(), "no gap and no repetition: {data}");
            words.push_str(data["text"].as_str().expect("a text"));
            deltas += 1;
        }
        if data["type"] == "turn_ended" {
            break;
        }
    }
    assert!(deltas >= 2, "the words came as they were written: {deltas} parts");
    assert_eq!(words, "echo answer slowly");
}

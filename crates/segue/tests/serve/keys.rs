//! `segue keys` with a running server.

use std::process::Output;

use crate::place::Place;

fn run(place: &Place, arguments: &[&str]) -> Output {
    place.command(arguments).output().expect("it runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_key_is_created_listed_used_and_revoked_while_the_server_runs() {
    let place = Place::new("[default]\ntext = \"hello\"");
    let made = run(&place, &["keys", "add", "laptop", "--owner", "acme", "--flow", "chat"]);
    let key = text(&made.stdout).trim().to_owned();
    assert!(key.starts_with("sg_") && text(&made.stderr).contains("shown only once"), "{key}");
    let listed = text(&run(&place, &["keys"]).stdout);
    assert!(listed.contains("laptop") && listed.contains("acme") && listed.contains("chat"), "{listed}");
    let (_, secret) = key.rsplit_once('_').expect("a secret");
    assert!(!listed.contains(secret));
    let server = place.serve(0, &["--require-key"]);
    assert_eq!(server.get("/v1/sessions", None).0, 401);
    assert_eq!(server.get("/v1/sessions", Some(&key)).0, 200);
    let id = key.split('_').nth(1).expect("an id");
    assert!(run(&place, &["keys", "revoke", id]).status.success());
    // The server reloads the file after a moment.
    while server.get("/v1/sessions", Some(&key)).0 == 200 {}
    assert_eq!(server.get("/v1/sessions", Some(&key)).0, 401);
    let gone = run(&place, &["keys", "revoke", id]);
    assert!(!gone.status.success() && text(&gone.stderr).contains("there is no key"), "{}", text(&gone.stderr));
}

#[test]
fn a_server_for_others_does_not_start_without_a_key() {
    let place = Place::new("[default]\ntext = \"hello\"");
    let refused = run(&place, &["serve", "--address", "0.0.0.0", "--port", "0"]);
    assert!(!refused.status.success());
    assert!(text(&refused.stderr).contains("segue keys add NAME"), "{}", text(&refused.stderr));
    let unfit = run(&place, &["keys", "add", "a", "--owner", "A.B"]);
    assert!(text(&unfit.stderr).contains("an owner's name may contain lowercase letters"), "{}", text(&unfit.stderr));
    let unknown = run(&place, &["keys", "add", "a", "--flow", "chess"]);
    assert!(text(&unknown.stderr).contains("there is no flow `chess`"), "{}", text(&unknown.stderr));
}

//! `segue chat` in a pipe: each line is a message, and only replies are printed.

use crate::stage::Stage;

const ECHO: &str = "[default]\nchunks = [\"you said \", \"{{last}}\"]\nchunk_delay_ms = 1";

#[test]
fn each_line_is_a_message_and_only_replies_are_printed() {
    Stage::new(ECHO).pipe(&[], b"hi\nbye\n").prints("you said hi\nyou said bye\n");
    Stage::new(ECHO).pipe(&[], b"no line break at the end").prints("you said no line break at the end\n");
    Stage::new(ECHO).pipe(&[], b"\n  \n").prints("");
}

#[test]
fn several_lines_can_be_one_message() {
    let stage = Stage::new(ECHO);
    stage.pipe(&[], b"one\\\ntwo\n").prints("you said one\ntwo\n");
    stage.pipe(&[], b"\"\"\"\none\n\n/two\n\"\"\"\n").prints("you said one\n\n/two\n");
    stage.pipe(&[], b"```\none\n```\n").prints("you said ```\none\n```\n");
    stage.pipe(&[], b"//quit\n").prints("you said /quit\n");
}

#[test]
fn a_session_is_continued() {
    let stage = Stage::new("[default]\ntext = \"turn {{turn}}: {{first}}, then {{last}}\"");
    stage.pipe(&["--session", "tea"], b"one\n").prints("turn 1: one, then one\n");
    stage.pipe(&["--session", "tea"], b"two\n").prints("turn 2: one, then two\n");
    stage.pipe(&[], b"three\n").prints("turn 1: three, then three\n");
}

#[test]
fn slash_commands_work_in_a_pipe() {
    let stage = Stage::new(ECHO);
    let out = stage.pipe(&["--session", "tea"], b"hello\n/explain\n/cost\n/export copy.jsonl\n/quit\nnot read\n");
    let text = out.out();
    assert!(out.is_success() && out.err().is_empty(), "{}", out.err());
    assert!(text.contains("c1 · assistant asked reply on scripted"), "{text}");
    assert!(text.contains("instruction  instruction"), "{text}");
    assert!(text.contains("exported to copy.jsonl") && !text.contains("not read"), "{text}");
    assert!(stage.read("copy.jsonl").contains("\"session\":\"tea\""));
    let again = stage.pipe(&["--session", "tea"], b"/export copy.jsonl\n");
    assert!(again.err().contains("cannot write copy.jsonl: "), "no file is overwritten: {}", again.err());
}

#[test]
fn errors_do_not_end_the_conversation() {
    let stage = Stage::new("[[reply]]\ncontains = \"key\"\nfail = \"invalid_api_key\"\n[default]\ntext = \"fine\"");
    let out = stage.pipe(&[], b"/phsae\nkey\nhello\n");
    assert_eq!((out.out().as_str(), out.is_success()), ("fine\n", false));
    assert!(out.err().contains("there is no command /phsae; did you mean /phase?"), "{}", out.err());
    assert!(out.err().contains("the turn failed: key not accepted"), "{}", out.err());
}

#[test]
fn invalid_lines_are_refused_and_the_others_are_sent() {
    let stage = Stage::new(ECHO);
    let mut input = b"a\x07b\n\xff\xfe\n".to_vec();
    input.extend(vec![b'x'; 10 << 20]);
    input.extend(b"\nlast\n");
    let out = stage.pipe(&[], &input);
    assert_eq!((out.out().as_str(), out.is_success()), ("you said last\n", false));
    let errors: Vec<String> = out.err().lines().map(ToOwned::to_owned).collect();
    assert!(errors[0].contains("control character U+0007"), "{errors:?}");
    assert!(errors[1].contains("not UTF-8"), "{errors:?}");
    assert!(errors[2].contains("the message has 10485760 bytes"), "{errors:?}");
}

#[test]
fn an_invalid_flow_session_or_scenario_is_refused() {
    let stage = Stage::new(ECHO);
    for (arguments, why) in [
        (["--flow", "nothing"], "there is no flow `nothing`; there are "),
        (["--session", "a b"], "`a b` is not a valid session name"),
        (["--script", "missing.toml"], "cannot read the scenario missing.toml"),
    ] {
        let all: Vec<&str> = ["chat", "--store", "store.db"].into_iter().chain(arguments).collect();
        let out = stage.run(&all, b"hello\n");
        assert!(!out.is_success() && out.out().is_empty(), "{}", out.out());
        assert!(out.err().contains(why), "{}", out.err());
    }
    stage.write("scenario.toml", "[[reply]]\ntxet = \"x\"");
    assert!(stage.pipe(&[], b"hello\n").err().contains("did you mean `text`?"));
}

#[test]
fn the_rehearsal_model_replies_with_a_warning() {
    let out = Stage::new("").run(&["chat", "--store", "store.db"], b"hello\n");
    assert!(out.is_success() && !out.out().is_empty());
    assert!(out.err().starts_with("no model is configured, so the built-in rehearsal model"), "{}", out.err());
}

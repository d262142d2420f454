//! `segue chat` in a terminal: prompt, streaming replies, interrupts and the state of the screen.

use crate::pty::{CTRL_C, CTRL_D, ENTER, Terminal, UP};
use crate::stage::Stage;

const TALK: &str = r#"
[[reply]]
contains = "hang"
attempt = 1
text = "Just a mo"
hang = true

[[reply]]
contains = "silence"
hang = true

[[reply]]
contains = "again"
attempt = 1
chunks = ["Half an ", "ans", "wer"]
chunk_delay_ms = 400
fail_after_chunks = 2
fail = "rate_limit"

[[reply]]
contains = "slow"
delay_ms = 1000
text = "It takes me a while to say all of this, and in the end it is more than one row of the terminal, as long answers are."
chunk_chars = 5
chunk_delay_ms = 5

[default]
chunks = ["you ", "said ", "{{last}}"]
"#;

fn begin(stage: &Stage) -> Terminal {
    let mut terminal = Terminal::start(stage, &["--session", "tea"]);
    terminal.prompts();
    terminal
}

#[test]
fn a_message_is_answered_and_the_prompt_comes_back() {
    let stage = Stage::new(TALK);
    let mut terminal = begin(&stage);
    assert!(terminal.text().starts_with("segue · tea\nflow chat · script scenario.toml\n"), "{}", terminal.text());
    terminal.enter("hello").ends_with("\n> hello\nyou said hello\n\n>");
    terminal.press(CTRL_D);
    assert!(terminal.ended().success());
    assert_eq!(terminal.state(), (false, false), "the terminal is as it was");
}

#[test]
fn the_progress_line_is_shown_until_the_reply_streams_in() {
    let stage = Stage::new(TALK);
    let mut terminal = begin(&stage);
    terminal.enter("slow").shows("asking assistant on scripted · ").shows("It takes me");
    terminal.ends_with("as long answers are.\n\n>");
    let text = terminal.text();
    assert!(text.contains("\n> slow\nIt takes me a while"), "{text}");
    assert!(!text.contains("assistant on scripted"), "{text}");
    let steps = terminal.written.matches("It ta").count();
    assert_eq!(steps, 1, "the text is written once");
}

#[test]
fn ctrl_c_cancels_the_turn_and_the_conversation_continues() {
    let stage = Stage::new(TALK);
    let mut terminal = begin(&stage);
    terminal.enter("hang on").shows("Just a mo").press(CTRL_C).ends_with("Just a mo\n— cancelled —\n\n>");
    terminal.enter("silence").shows("assistant on scripted").press(CTRL_C);
    terminal.ends_with("> silence\n— cancelled —\n\n>");
    terminal.enter("hello").ends_with("you said hello\n\n>");
}

#[test]
fn ctrl_c_at_the_prompt_clears_the_line_and_twice_leaves() {
    let stage = Stage::new(TALK);
    let mut terminal = begin(&stage);
    terminal.press("not this").shows("> not this").press(CTRL_C).prompts();
    terminal.press("nor this").shows("> nor this").press(CTRL_C).prompts();
    terminal.enter("hello").ends_with("you said hello\n\n>");
    terminal.press(CTRL_C).ends_with("to leave)\n>").press(CTRL_C);
    assert!(terminal.ended().success());
}

#[test]
fn a_retry_is_shown_as_a_note_and_starts_again() {
    let stage = Stage::new(TALK);
    let mut terminal = begin(&stage);
    terminal
        .enter("again")
        .shows("Half an ans\nassistant on scripted: rate limit; attempt 2 in ")
        .ends_with("you said again\n\n>");
    let text = terminal.text();
    assert!(text.contains(" ms\nyou said again"), "{text}");
}

#[test]
fn several_lines_can_be_one_message() {
    let stage = Stage::new(TALK);
    let mut terminal = begin(&stage);
    terminal.enter("one\\").ends_with("\n…").enter("two").ends_with("you said one\ntwo\n\n>");
    terminal.enter("```").ends_with("\n…").enter("code").enter("```").ends_with("you said ```\ncode\n```\n\n>");
    terminal.press("\x1b[200~/pasted \\\rtext\x1b[201~").press(ENTER).ends_with("you said /pasted \\\ntext\n\n>");
    terminal.enter("\"\"\"").ends_with("\n…").press(CTRL_C).prompts();
    terminal.enter("hello").ends_with("you said hello\n\n>");
}

#[test]
fn input_during_a_turn_is_sent_after_it_in_order() {
    let stage = Stage::new(TALK);
    let mut terminal = begin(&stage);
    terminal.enter("slow").shows("asking assistant").press("one\rtwo\rthr").ends_with("you said two\n\n> thr");
    let text = terminal.text();
    let end = text.find("answers are.\n\n> one\nyou said one\n\n> two\nyou said two\n\n> thr");
    assert!(end.is_some(), "{text}");
    terminal.enter("ee").ends_with("you said three\n\n>");
    terminal
        .press("four\rfive\rsix\r")
        .ends_with("> four\nyou said four\n\n> five\nyou said five\n\n> six\nyou said six\n\n>");
}

#[test]
fn the_arrow_keys_recall_messages_but_no_secrets() {
    let stage = Stage::new(TALK);
    let mut terminal = begin(&stage);
    terminal.enter("remember me").ends_with("you said remember me\n\n>");
    terminal.enter("my password: hunter2").ends_with("you said my password: hunter2\n\n>");
    terminal.press(UP).ends_with("\n> remember me").press(ENTER).ends_with("you said remember me\n\n>");
    terminal.press(CTRL_D).ended();
    let mut terminal = begin(&stage);
    terminal.press(UP).ends_with("\n> remember me");
    let kept = stage.read("data/segue/history");
    assert!(kept.contains("remember me") && !kept.contains("hunter2"), "{kept}");
    let mode = |name: &str| {
        let metadata = std::fs::metadata(stage.path().join(name)).expect("it exists");
        std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o777
    };
    assert_eq!((mode("data/segue"), mode("data/segue/history")), (0o700, 0o600));
}

#[test]
fn explain_shows_the_receipt_of_the_last_answer() {
    let stage = Stage::new(TALK);
    let mut terminal = begin(&stage);
    terminal.enter("hello").prompts().enter("/explain").shows("FRAGMENT").prompts();
    let text = terminal.text();
    for line in [
        "c1 · assistant asked reply on scripted",
        "thread    th1 is new: it is the first call of assistant in this scope",
        "FRAGMENT     LAYER        TOKENS  SOURCE                     WHY",
        "message      user_words        1  message m1                 what the user said",
    ] {
        assert!(text.contains(line), "`{line}` is missing in\n{text}");
    }
}

#[test]
fn a_killed_turn_resumes_at_the_next_start() {
    let stage = Stage::new(TALK);
    let mut terminal = begin(&stage);
    terminal.enter("hello").ends_with("you said hello\n\n>");
    terminal.enter("hang on").shows("Just a mo").kill();
    let mut other = Terminal::start(&stage, &[]);
    other.shows("Unfinished: `tea`. Resume with `segue chat --session tea`.").prompts();
    other.press(CTRL_D).ended();
    let mut terminal = Terminal::start(&stage, &["--session", "tea"]);
    terminal.ends_with("you said hang on\n\n>");
    let text = terminal.text();
    let (_, below) = text.split_once("2 turns so far; the last messages: —\n").expect("there is a recap");
    assert_eq!(
        below,
        "> hello\nyou said hello\n> hang on\n\n— resuming the unfinished turn —\n\
         assistant on scripted was interrupted by a crash and may have been billed; retrying\nyou said hang on\n\n>"
    );
    terminal.enter("hello").ends_with("you said hello\n\n>");
}

#[test]
fn a_session_in_use_by_another_process_is_refused() {
    let stage = Stage::new(TALK);
    let mut first = begin(&stage);
    first.enter("silence").shows("assistant on scripted");
    let second = stage.pipe(&["--session", "tea"], b"hello\n");
    assert!(second.err().contains("the session `tea` is in use by another process"), "{}", second.err());
    assert!(!second.is_success() && second.out().is_empty());
    first.press(CTRL_C).ends_with("— cancelled —\n\n>").enter("hello").ends_with("you said hello\n\n>");
}

#[test]
fn a_terminated_program_restores_the_terminal() {
    let stage = Stage::new(TALK);
    let mut terminal = begin(&stage);
    assert_eq!(terminal.state(), (true, false), "bracketed paste is on at the prompt");
    terminal.press("half a li").shows("half a li").signal("TERM");
    assert!(terminal.ended().success());
    assert_eq!(terminal.state(), (false, false));
}

#[test]
fn colours_can_be_switched_off() {
    let stage = Stage::new(TALK);
    let mut terminal = begin(&stage);
    terminal.enter("/quit").ended();
    assert!(terminal.written.contains("\x1b[1m"));
    let mut terminal = Terminal::with_environment(&stage, &[], &[("NO_COLOR", "1")]);
    terminal.prompts().enter("hello").prompts().enter("/explain").shows("FRAGMENT").enter("/quit").ended();
    assert!(!terminal.written.contains("\x1b[1m") && !terminal.written.contains("\x1b[2m"), "{}", terminal.written);
}

/// Slow experts, and a concierge that replies in small chunks.
const CONCIERGE: &str = r#"
[[reply]]
role = "expert"
call = "2..3"
delay_ms = 900
text = "Opinion {{call}}: rent first."

[[reply]]
role = "expert"
turn = 3
delay_ms = 700
text = "Advice {{call}}: see the bank."

[[reply]]
role = "concierge"
phase = "starter"
turn = 2
chunk_chars = 3
chunk_delay_ms = 2
text = '''
Then buy.

<<<HANDOVER>>>
goal: a home that lasts
<<<END>>>

Where to?'''
"#;

#[test]
fn the_concierge_shows_progress_and_phases_but_no_blocks() {
    let usual = include_str!("../../../testkit/scenarios/concierge.toml");
    let stage = Stage::new(&format!("{CONCIERGE}\n{usual}"));
    let mut terminal = Terminal::start(&stage, &["--flow", "concierge", "--session", "home"]);
    terminal.prompts();
    terminal.enter("rent or buy?").shows("starter · asking expert (1 of 3): scripted #1 ✓");
    terminal.shows("scripted #2, scripted #3 · ").ends_with("\nRent, unless you stay for long.\n\n>");
    terminal.enter("I stay five years").ends_with("\n— concierge: starter → explorer —\n\n>");
    assert!(terminal.text().contains("\nThen buy.\n\nWhere to?\n"), "{}", terminal.text());
    terminal.enter("give me a plan").shows("explorer · asking expert (").shows("explorer → executor");
    terminal.shows("[>] 1.").prompts();
    terminal.press(CTRL_D);
    assert!(terminal.ended().success());
    assert!(!terminal.written.contains("<<<"), "no part of a block is ever shown");
    assert!(!terminal.text().contains("asking"), "the progress line is erased");
}

//! Whole conversations on a terminal in memory, with an engine, a scenario and a flow for tests.

mod approval;
mod play;

use std::sync::Arc;

use segue_core::event::MidTurnPolicy;
use segue_core::flow::DynFlow;
use segue_engine::{Engine, EngineConfig, SessionOptions, SessionResumePolicy, UserMessage};
use segue_models::{ModelRegistry, ScriptedModel};
use segue_store::memory::{InMemoryStore, InMemoryStoreDisk};

use super::backend::LocalOrRemoteEngine;
use super::chat_loop::chat_in_session;
use super::input_reader::InputReader;
use super::screen::tests::TestTerminal;
use super::screen::{Screen, TerminalOrPipedOutput};
use super::session_entry::{ChatReplySource, TerminalChatOptions, open_or_resume_session};
use super::terminal_mode::TerminalModeGuard;
use play::Play;

async fn engine(disk: &InMemoryStoreDisk, script: &str) -> Engine {
    let model: ScriptedModel = script.parse().expect("a sound script");
    let flows: Vec<Arc<dyn DynFlow>> = vec![Arc::new(Play::new())];
    let models = ModelRegistry::from_single_model(Arc::new(model));
    let setup = EngineConfig::new(Arc::new(InMemoryStore::open(disk)), flows, models, "scripted");
    // As in the program, a session resumes when it is used.
    Engine::start(EngineConfig { recovery: SessionResumePolicy::OnUse, ..setup }).await.expect("it starts")
}

fn options() -> TerminalChatOptions {
    TerminalChatOptions {
        flow: None,
        default_flow: "play".into(),
        mid_turn_policy: MidTurnPolicy::Queue,
        session: Some("stage".into()),
        settings: Vec::new(),
        answer_source: ChatReplySource::Models,
    }
}

async fn run_chat(disk: &InMemoryStoreDisk, script: &str, lines: &str, screen: Screen) -> anyhow::Result<()> {
    let options = options();
    let engine = engine(disk, script).await;
    let session = open_or_resume_session(LocalOrRemoteEngine::Local(&engine), &options).await?;
    let reader = InputReader::from_lines(std::io::Cursor::new(lines.to_owned()));
    let result = chat_in_session(
        LocalOrRemoteEngine::Local(&engine),
        &options,
        session,
        screen,
        (reader, TerminalModeGuard::capture(TerminalOrPipedOutput::Piped)),
    )
    .await;
    engine.shutdown().await;
    result
}

/// The screen after a conversation, without the introduction.
async fn screen_after(disk: &InMemoryStoreDisk, script: &str, lines: &str) -> String {
    let (terminal, screen) = TestTerminal::tall();
    run_chat(disk, script, lines, screen).await.expect("the conversation succeeds");
    let text = terminal.text();
    let (_, below) = text.split_once("leaves.\n").expect("there is an introduction");
    let below = below.replace("\n\n", "\n");
    below.trim_matches('\n').lines().map(without_times).collect::<Vec<_>>().join("\n")
}

/// Replaces dates, times and digests, which differ from run to run.
fn without_times(line: &str) -> String {
    let is_day = |word: &str| word.len() == 10 && word.matches('-').count() == 2;
    let is_time = |word: &str| word.find(':') == Some(2) && word.starts_with(|c: char| c.is_ascii_digit());
    let word = |word: &str| match word {
        day if is_day(day) => "DAY".to_owned(),
        time if is_time(time) => format!("TIME{}", &time[5..]),
        other => other.to_owned(),
    };
    let line = if line.starts_with("digest ") { "digest    …" } else { line };
    line.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

const ECHO: &str = "[default]\nchunks = [\"you said \", \"{{last}}\"]";

#[tokio::test]
async fn the_recorded_reply_replaces_the_streamed_text() {
    let script = "[default]\nchunks = [\"thinks: \", \"many \", \"words\"]";
    assert_eq!(screen_after(&InMemoryStoreDisk::new(), script, "hello\n").await, "What was really said.");
}

#[tokio::test]
async fn a_phase_change_is_shown_as_a_note() {
    let script = "[default]\ntext = \"Then let us act.\"";
    let text = screen_after(&InMemoryStoreDisk::new(), script, "hello\n/phase\n").await;
    expect_test::expect![[r#"
        Then let us act.
        — begin → act —
        stage: act (visit 2, 0 turns, since DAY TIME)
          allowed         none
          not yet         review (needs applause)
          not yet         end (blocked by a gate)
          open gates      looked over
          earlier visits  1 begin"#]]
    .assert_eq(&text);
}

#[tokio::test]
async fn phases_can_be_proposed_granted_and_rolled_back() {
    let lines = "/phase\n/phase act\n/phase end\n/grant end\n/phase end\n/rollback 1\n/rollback 9\n/phase nowhere\n/phase revew\n";
    let text = screen_after(&InMemoryStoreDisk::new(), ECHO, lines).await;
    expect_test::expect![[r#"
        stage: begin (visit 1, 0 turns, since DAY TIME)
          allowed         act
        — begin → act —
        — refused: `end` cannot be entered from `act`: gate `looked over` is open, so after `act` `review` must be completed first (only the user can grant a skip); no other phase can be entered now —
        — granted: `end` may be entered once; this may skip phase `review` (gate `looked over`) —
        — act → end —
          `end` was entered with a grant, which skipped phase `review` (gate `looked over`)
        — back: end → begin —
        visit 9 cannot be restored; possible visits are 1 (begin), 2 (act), 3 (end)
        there is no phase `nowhere`; there are `begin`, `act`, `review`, `end`
        there is no phase `revew`; did you mean `review`?"#]]
    .assert_eq(&text);
}

#[tokio::test]
async fn a_failed_expert_is_shown_and_the_turn_continues() {
    let script = r#"
        [[reply]]
        role = "expert"
        model = "north"
        fail = "refused"
        message = "not my field"

        [default]
        text = "{{role}} on {{model}}"
    "#;
    let text = screen_after(&InMemoryStoreDisk::new(), script, "ask the experts\n/cost\n").await;
    assert!(text.starts_with("expert on north: refused: not my field\nguide on scripted\n"), "{text}");
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().take(4).collect()).collect();
    assert!(rows.contains(&vec!["on", "north", "0", "1"]) && rows.contains(&vec!["on", "south", "1", "0"]), "{text}");
}

#[tokio::test]
async fn explain_shows_the_receipt_of_any_call() {
    let text =
        screen_after(&InMemoryStoreDisk::new(), ECHO, "one\n/phase act\ntwo\n/explain\n/explain c1\n/explain c9\n")
            .await;
    let text: Vec<&str> = text.lines().filter(|line| !line.starts_with("answer ")).collect();
    expect_test::expect![[r#"
        you said one
        — begin → act —
        you said two
        c2 · guide asked reply on scripted
        session stage, t2, phase act, DAY TIME, event 12
        thread    th2 is new: a new phase was entered (scope: until the phase is left)
        prefix    differs from the prompt of c1 at `message`; the first 4 tokens can be cached
        window    13 of 128,000 tokens (0 %); the answer may have 4,096
        digest    …
        FRAGMENT     LAYER        TOKENS  SOURCE            WHY
        instruction  instruction       4  the flow's state  the test wants it
        message      user_words        1  message m2        what the user said
        c1 · guide asked reply on scripted
        session stage, t1, phase begin, DAY TIME, event 5
        thread    th1 is new: it is the first call of guide in this scope (scope: until the phase is left)
        prefix    the first prompt in this slot, so nothing is cached yet
        window    13 of 128,000 tokens (0 %); the answer may have 4,096
        digest    …
        FRAGMENT     LAYER        TOKENS  SOURCE            WHY
        instruction  instruction       4  the flow's state  the test wants it
        message      user_words        1  message m1        what the user said
        session `stage` has no call c9; the nearest are c1, c2"#]]
    .assert_eq(&text.join("\n"));
}

#[tokio::test]
async fn resets_renames_and_forks_are_shown() {
    let lines =
        "one\n/reset guide\n/reset nobody\ntwo\n/explain\n/rename  A fine day\n/fork copy\nthree\n/sessions\n/cancel\n";
    let text = screen_after(&InMemoryStoreDisk::new(), ECHO, lines).await;
    for line in [
        "— guide starts a new thread at its next call —",
        "the flow has no role `nobody`; it has `expert`, `guide`",
        "th2 is new: the thread was reset",
        "— renamed to “A fine day” —",
        "— now in copy, a copy of stage —",
        "you said three",
        "copy     play      3     ?  DAY TIME  A fine day",
        "stage    play      2     ?  DAY TIME  A fine day",
        "no turn is running, so there is nothing to cancel",
    ] {
        assert!(text.contains(line), "`{line}` is missing in\n{text}");
    }
}

/// Simulates a process that dies while a call is in flight.
fn die_during_call(disk: &InMemoryStoreDisk) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let engine = engine(disk, "[default]\nhang = true").await;
        let opening = SessionOptions { session: Some("stage".into()), ..SessionOptions::default() };
        let session = engine.open_session(&"play".into(), opening).await.expect("it opens");
        engine.send_message(&session, UserMessage::from("are you there?")).await.expect("it is taken");
    });
    drop(runtime);
}

#[test]
fn an_interrupted_call_waits_for_a_decision() {
    let in_new_process = |disk: &InMemoryStoreDisk, lines: &str| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let text = runtime.block_on(screen_after(disk, ECHO, lines));
        drop(runtime);
        text
    };
    for (lines, ending) in [
        ("hello\n/retry\n", "you said are you there?\nyou said hello"),
        ("/fail c1\n", "the turn failed: given up by hand"),
        ("/cancel\n/retry\n", "— cancelled —\nthe last turn did not fail, so there is nothing to retry"),
    ] {
        let disk = InMemoryStoreDisk::new();
        die_during_call(&disk);
        let text = in_new_process(&disk, lines);
        assert!(text.contains("> are you there?\n— resuming the unfinished turn —"), "{text}");
        assert!(text.contains("may have been billed; /retry c1 makes it again, /fail c1 gives up"), "{text}");
        assert!(text.ends_with(ending), "{text}");
    }
}

#[tokio::test]
async fn a_pipe_gets_replies_only_and_a_failed_turn_is_an_error() {
    let (terminal, screen) = TestTerminal::piped();
    let script = "[[reply]]\ncontains = \"key\"\nfail = \"invalid_api_key\"\n[default]\ntext = \"Then let us act.\"";
    let error = run_chat(&InMemoryStoreDisk::new(), script, "hello\nkey\n", screen).await.expect_err("a turn failed");
    assert!(error.downcast_ref::<crate::SilentExit>().is_some(), "the error was already printed: {error}");
    // The terminal in memory shows both streams.
    assert_eq!(terminal.text(), "Then let us act.\nthe turn failed: key not accepted: scripted failure");
}

#[tokio::test]
async fn a_session_with_another_flow_is_refused() {
    let engine = engine(&InMemoryStoreDisk::new(), ECHO).await;
    open_or_resume_session(LocalOrRemoteEngine::Local(&engine), &options()).await.expect("it is opened");
    let error = open_or_resume_session(
        LocalOrRemoteEngine::Local(&engine),
        &TerminalChatOptions { flow: Some("chat".into()), ..options() },
    )
    .await
    .err();
    let error = error.expect("it is refused").to_string();
    assert!(error.starts_with("session `stage` uses flow `play`, not `chat`"), "{error}");
}

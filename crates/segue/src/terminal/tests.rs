//! Whole conversations on a terminal in memory, with an engine, a script and a flow made for it.

mod play;

use std::sync::Arc;

use segue_core::event::MidTurnPolicy;
use segue_core::flow::DynFlow;
use segue_engine::{Engine, EngineConfig, RecoveryPolicy, SessionOptions, UserMessage};
use segue_models::{ModelRegistry, ScriptedModel};
use segue_store::memory::{MemoryDisk, MemoryStore};

use super::backend::Backend;
use super::chat_loop::chat_in_session;
use super::input_reader::InputReader;
use super::screen::tests::TestTerminal;
use super::screen::{OutputMode, Screen};
use super::session_entry::{AnswerSource, ChatOptions, open_or_resume_session};
use super::terminal_mode::TerminalMode;
use play::Play;

async fn engine(disk: &MemoryDisk, script: &str) -> Engine {
    let model: ScriptedModel = script.parse().expect("a sound script");
    let flows: Vec<Arc<dyn DynFlow>> = vec![Arc::new(Play::new())];
    let models = ModelRegistry::from_single_model(Arc::new(model));
    let setup = EngineConfig::new(Arc::new(MemoryStore::open(disk)), flows, models, "scripted");
    // As the program does: a session goes on when it is entered.
    Engine::start(EngineConfig { recovery: RecoveryPolicy::OnUse, ..setup }).await.expect("it starts")
}

fn arguments() -> ChatOptions {
    ChatOptions {
        flow: None,
        default_flow: "play".into(),
        mid_turn_policy: MidTurnPolicy::Queue,
        session: Some("stage".into()),
        settings: Vec::new(),
        answer_source: AnswerSource::Models,
    }
}

async fn talk_on(disk: &MemoryDisk, script: &str, lines: &str, screen: Screen) -> anyhow::Result<()> {
    let arguments = arguments();
    let engine = engine(disk, script).await;
    let entered = open_or_resume_session(Backend::Local(&engine), &arguments).await?;
    let reader = InputReader::from_lines(std::io::Cursor::new(lines.to_owned()));
    let result = chat_in_session(
        Backend::Local(&engine),
        &arguments,
        entered,
        screen,
        (reader, TerminalMode::capture(OutputMode::Piped)),
    )
    .await;
    engine.shutdown().await;
    result
}

/// What a conversation looks like once it is over, from below the heading on.
async fn seen(disk: &MemoryDisk, script: &str, lines: &str) -> String {
    let (glass, screen) = TestTerminal::tall();
    talk_on(disk, script, lines, screen).await.expect("it ends well");
    let text = glass.text();
    let (_, below) = text.split_once("leaves.\n").expect("there is a heading");
    let below = below.replace("\n\n", "\n");
    below.trim_matches('\n').lines().map(without_moments).collect::<Vec<_>>().join("\n")
}

/// Days, times of day and fingerprints differ from run to run.
fn without_moments(line: &str) -> String {
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
async fn what_was_really_said_stands_on_the_screen() {
    let script = "[default]\nchunks = [\"thinks: \", \"many \", \"words\"]";
    assert_eq!(seen(&MemoryDisk::new(), script, "hello\n").await, "What was really said.");
}

#[tokio::test]
async fn a_phase_change_is_a_quiet_line() {
    let script = "[default]\ntext = \"Then let us act.\"";
    let text = seen(&MemoryDisk::new(), script, "hello\n/phase\n").await;
    expect_test::expect![[r#"
        Then let us act.
        — begin → act —
        stage: act (visit 2, 0 turns, since DAY TIME)
          you may enter  nothing
          not yet        review (needs applause)
          not yet        end (barred)
          open gates     looked over
          visits before  1 begin"#]]
    .assert_eq(&text);
}

#[tokio::test]
async fn phases_are_proposed_refused_granted_and_rolled_back_by_hand() {
    let lines = "/phase\n/phase act\n/phase end\n/grant end\n/phase end\n/rollback 1\n/rollback 9\n/phase nowhere\n/phase revew\n";
    let text = seen(&MemoryDisk::new(), ECHO, lines).await;
    expect_test::expect![[r#"
        stage: begin (visit 1, 0 turns, since DAY TIME)
          you may enter  act
        — begin → act —
        — refused: `end` cannot be entered from `act`: gate `looked over` is open, so after `act` `review` must be entered first (only the user can grant a skip); no other phase can be entered now —
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
async fn experts_that_fail_are_told_of_and_the_turn_goes_on() {
    let script = r#"
        [[reply]]
        role = "expert"
        model = "north"
        fail = "refused"
        message = "not my field"

        [default]
        text = "{{role}} on {{model}}"
    "#;
    let text = seen(&MemoryDisk::new(), script, "ask the experts\n/cost\n").await;
    assert!(text.starts_with("expert on north: refused: not my field\nguide on scripted\n"), "{text}");
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().take(4).collect()).collect();
    assert!(rows.contains(&vec!["on", "north", "0", "1"]) && rows.contains(&vec!["on", "south", "1", "0"]), "{text}");
}

#[tokio::test]
async fn why_shows_the_receipt_of_any_call() {
    let text = seen(&MemoryDisk::new(), ECHO, "one\n/phase act\ntwo\n/why\n/why c1\n/why c9\n").await;
    let text: Vec<&str> = text.lines().filter(|line| !line.starts_with("answer ")).collect();
    expect_test::expect![[r#"
        you said one
        — begin → act —
        you said two
        c2 · guide asked reply on scripted
        session stage, t2, phase act, DAY TIME, event 12
        thread    th2 is new: a new phase was entered (scope: until the phase is left)
        prefix    differs from the prompt of c1 at `message`; the first 4 tokens can be cached
        window    13 of 128,000 tokens (0 %); the answer may take 4,096
        digest    …
        FRAGMENT     LAYER        TOKENS  SOURCE            WHY
        instruction  instruction       4  the flow's state  the test wants it
        message      user_words        1  message m2        what the user said
        c1 · guide asked reply on scripted
        session stage, t1, phase begin, DAY TIME, event 5
        thread    th1 is new: it is the first call of guide in this scope (scope: until the phase is left)
        prefix    the first prompt in this slot, so nothing is cached yet
        window    13 of 128,000 tokens (0 %); the answer may take 4,096
        digest    …
        FRAGMENT     LAYER        TOKENS  SOURCE            WHY
        instruction  instruction       4  the flow's state  the test wants it
        message      user_words        1  message m1        what the user said
        the session `stage` has no call c9; near it are c1, c2"#]]
    .assert_eq(&text.join("\n"));
}

#[tokio::test]
async fn forgetting_titles_and_forks_are_done_and_told() {
    let lines =
        "one\n/forget guide\n/forget nobody\ntwo\n/why\n/title  A fine day\n/fork copy\nthree\n/sessions\n/cancel\n";
    let text = seen(&MemoryDisk::new(), ECHO, lines).await;
    for line in [
        "— guide forgets, from its next call on —",
        "the flow has no role `nobody`; it has `expert`, `guide`",
        "th2 is new: the thread was reset",
        "— titled “A fine day” —",
        "— now in copy, a copy of stage —",
        "you said three",
        "copy     play      3     ?  DAY TIME  A fine day",
        "stage    play      2     ?  DAY TIME  A fine day",
        "no turn is running, so there is nothing to cancel",
    ] {
        assert!(text.contains(line), "`{line}` is missing in\n{text}");
    }
}

/// A process that dies while a call of the session is under way.
fn die_in_the_middle(disk: &MemoryDisk) {
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
fn a_call_that_was_cut_off_waits_for_a_persons_decision() {
    let in_new_process = |disk: &MemoryDisk, lines: &str| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let text = runtime.block_on(seen(disk, ECHO, lines));
        drop(runtime);
        text
    };
    for (lines, ending) in [
        ("hello\n/retry\n", "you said are you there?\nyou said hello"),
        ("/fail c1\n", "the turn failed: given up by hand"),
        ("/cancel\n/retry\n", "— cancelled —\nthe last turn did not fail, so there is nothing to retry"),
    ] {
        let disk = MemoryDisk::new();
        die_in_the_middle(&disk);
        let text = in_new_process(&disk, lines);
        assert!(text.contains("> are you there?\n— picking up where we left off —"), "{text}");
        assert!(text.contains("may have been billed; /retry c1 asks again, /fail c1 gives it up"), "{text}");
        assert!(text.ends_with(ending), "{text}");
    }
}

#[tokio::test]
async fn a_file_gets_replies_only_and_an_error_for_what_went_wrong() {
    let (glass, screen) = TestTerminal::piped();
    let script = "[[reply]]\ncontains = \"key\"\nfail = \"invalid_api_key\"\n[default]\ntext = \"Then let us act.\"";
    let error = talk_on(&MemoryDisk::new(), script, "hello\nkey\n", screen).await.expect_err("a turn failed");
    assert!(error.downcast_ref::<crate::SilentExit>().is_some(), "what went wrong was said: {error}");
    // This terminal in memory shows both streams.
    assert_eq!(glass.text(), "Then let us act.\nthe turn failed: key not accepted: scripted failure");
}

#[tokio::test]
async fn a_session_that_is_of_another_flow_is_not_taken_for_it() {
    let engine = engine(&MemoryDisk::new(), ECHO).await;
    open_or_resume_session(Backend::Local(&engine), &arguments()).await.expect("it is opened");
    let error =
        open_or_resume_session(Backend::Local(&engine), &ChatOptions { flow: Some("chat".into()), ..arguments() })
            .await
            .err();
    let error = error.expect("it is refused").to_string();
    assert!(error.starts_with("the session `stage` is of the flow `play` and cannot become `chat`"), "{error}");
}

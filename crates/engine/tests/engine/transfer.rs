//! Sessions as files, and sessions from sessions.

use std::sync::Arc;

use segue_core::decide::OperatorCommand;
use segue_core::event::{CallRequest, Event, TurnResult};
use segue_core::flow::{DynFlow, FlowStep};
use segue_core::ids::{CallId, Seq, SessionId};
use segue_core::scope::Scope;
use segue_engine::{Engine, EngineConfig, Error, RecoveryPolicy};
use segue_store::SessionQuery;
use segue_store::memory::{AppendFault, MemoryDisk, MemoryStore};
use segue_testkit::ClosureFlow;

use crate::lab::{Calls, ask, engine, engine_of, events, open, outcomes, pass, setup, state, turn};

type Damage = Box<dyn Fn(&mut Vec<String>)>;

async fn exported(engine: &Engine, session: &SessionId) -> Vec<String> {
    let mut text = String::new();
    let export = engine.export_session(session, |line| -> Result<(), Error> {
        text.push_str(line);
        Ok(())
    });
    export.await.expect("it can be exported");
    text.lines().map(str::to_owned).collect()
}

async fn two_turns(disk: &MemoryDisk) -> (Engine, Calls, SessionId) {
    let (engine, mut calls) = engine(disk).await;
    let session = open(&engine).await;
    turn(&engine, &mut calls, &session, "one", "to one").await;
    turn(&engine, &mut calls, &session, "two", "to two").await;
    (engine, calls, session)
}

#[tokio::test(start_paused = true)]
async fn an_import_is_the_session_that_was_exported() {
    let (one, _calls, session) = two_turns(&MemoryDisk::new()).await;
    let lines = exported(&one, &session).await;
    let (other, mut calls) = engine(&MemoryDisk::new()).await;
    let imported = other.import_session(lines.clone().into_iter(), None).await.expect("it can be imported");
    assert_eq!(imported, session);
    assert_eq!(state(&other, &session).await.session, state(&one, &session).await.session);
    assert_eq!(exported(&other, &session).await, lines);
    let asked = ask(&other, &session, "three");
    let call = calls.next().await;
    assert_eq!(call.prompt.messages.len(), 6, "it remembers");
    call.answer("to three");
    assert_eq!(asked.await.expect("it lives").expect("it is answered").turn.0, 3);
}

#[tokio::test(start_paused = true)]
async fn an_import_under_another_name_is_a_branch() {
    let (engine, _calls, session) = two_turns(&MemoryDisk::new()).await;
    let lines = exported(&engine, &session).await;
    let error = engine.import_session(lines.clone().into_iter(), None).await.expect_err("the name is taken");
    assert_eq!(error.code(), "session-exists");
    let copy = engine.import_session(lines.into_iter(), Some("copy".into())).await.expect("it can be imported");
    let forked = Event::SessionForked {
        session: copy.clone(),
        from: session.clone(),
        at_seq: Seq(state(&engine, &session).await.session.last_seq.0),
    };
    assert_eq!(events(&engine, &copy).await.last(), Some(&forked));
    assert_eq!(state(&engine, &copy).await.session.id, Some(copy));
}

#[tokio::test(start_paused = true)]
async fn a_file_that_was_changed_is_refused_and_nothing_of_it_is_kept() {
    let (engine, _calls, session) = two_turns(&MemoryDisk::new()).await;
    let lines = exported(&engine, &session).await;
    let word = lines.iter().position(|line| line.contains("\"to one\"")).expect("it was said");
    let damages: [(&str, Damage); 6] = [
        ("another word", Box::new(move |lines| lines[word] = lines[word].replace("to one", "to won"))),
        ("a missing line", Box::new(move |lines| drop(lines.remove(word)))),
        ("no heading", Box::new(|lines| drop(lines.remove(0)))),
        ("two headings", Box::new(|lines| lines.insert(1, lines[0].clone()))),
        ("no events", Box::new(|lines| lines.truncate(1))),
        ("no JSON", Box::new(|lines| lines.push("and so on".to_owned()))),
    ];
    for (what, damage) in damages {
        let mut lines = lines.clone();
        damage(&mut lines);
        let error = engine.import_session(lines.into_iter(), Some("copy".into())).await.expect_err(what);
        assert!(matches!(error, Error::BadImport { .. }), "{what}: {error}");
        assert_eq!(state_of(&engine, "copy").await, "no-such-session", "{what}");
    }
}

async fn state_of(engine: &Engine, session: &str) -> &'static str {
    engine.load_session(&session.into()).await.map_or_else(|error| error.code(), |_| "there")
}

#[tokio::test(start_paused = true)]
async fn an_import_that_finds_no_room_leaves_the_name_free() {
    let disk = MemoryDisk::new();
    let (engine, _calls, session) = two_turns(&disk).await;
    let lines = exported(&engine, &session).await;
    disk.inject_fault(AppendFault::DiskFull);
    let error = engine.import_session(lines.clone().into_iter(), Some("copy".into())).await.expect_err("no room");
    assert_eq!(error.code(), "disk-full");
    assert_eq!(engine.list_sessions(&SessionQuery::newest(9)).await.expect("it can be read").entries.len(), 1);
    engine.import_session(lines.into_iter(), Some("copy".into())).await.expect("there is room again");
}

#[tokio::test(start_paused = true)]
async fn a_fork_in_the_middle_of_a_turn_begins_after_it_and_the_turn_goes_on() {
    let (engine, mut calls, session) = two_turns(&MemoryDisk::new()).await;
    let running = ask(&engine, &session, "three");
    let call = calls.next().await;
    let fork = engine.fork_session(&session, None, Some("fork".into())).await.expect("it forks");
    assert_eq!(outcomes(&engine, &fork).await.last(), Some(&TurnResult::Cancelled));
    assert!(state(&engine, &fork).await.session.is_idle());
    call.answer("to three");
    assert_eq!(running.await.expect("it lives").expect("it is answered").replies, ["to three"]);
    let asked = ask(&engine, &fork, "four");
    let call = calls.next().await;
    let shown: Vec<String> = call.prompt.messages.iter().skip(1).map(segue_core::prompt::PromptMessage::text).collect();
    assert_eq!(shown, ["one", "to one", "two", "to two", "four"], "what came of the turn is not known to the fork");
    call.answer("to four");
    asked.await.expect("it lives").expect("it is answered");
}

/// A turn sets the worker going and ends.
fn sets_going() -> Arc<dyn DynFlow> {
    let spec = ClosureFlow::spec_with_role(ClosureFlow::test_role("worker", Scope::per_session()));
    Arc::new(ClosureFlow::new(spec, |_, event| match &event.event {
        Event::TurnStarted { .. } => {
            let wish = CallRequest::new("worker", "note").with_metadata(serde_json::json!("dig"));
            vec![FlowStep::EndTurn(TurnResult::Done), FlowStep::Call(wish)]
        }
        _ => Vec::new(),
    }))
}

#[tokio::test(start_paused = true)]
async fn a_fork_made_by_hand_makes_what_goes_on_beside_the_turns_when_it_is_taken_up() {
    let disk = MemoryDisk::new();
    let (one, mut calls) = engine_of(&disk, sets_going()).await;
    let session = open(&one).await;
    one.send_message(&session, "go".into()).await.expect("accepted");
    let there = calls.next().await;
    let (setup, _nobody) = setup(MemoryStore::open(&disk), sets_going());
    let by_hand = Engine::start(EngineConfig { recovery: RecoveryPolicy::Never, ..setup }).await.expect("it starts");
    let fork = by_hand.fork_session(&session, None, Some("fork".into())).await.expect("it forks");
    by_hand.shutdown().await;
    let here = calls.next().await;
    assert_eq!((here.facts.session.as_str(), here.facts.call, here.facts.attempt), ("fork", CallId(1), 1));
    here.answer("dug here");
    there.answer("dug there");
    pass(10).await;
    for branch in [&session, &fork] {
        let total = state(&one, branch).await.session.ledger.total;
        assert_eq!(
            (total.answered_calls, total.unknown_attempts, total.late_answers),
            (1, 0, 0),
            "{branch} pays for its own"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_fork_made_by_hand_before_a_turn_begins_is_answered_when_it_is_taken_up() {
    let disk = MemoryDisk::new();
    let (one, mut calls, session) = two_turns(&disk).await;
    let said = events(&one, &session).await.iter().rposition(|event| matches!(event, Event::UserMessageReceived(_)));
    let at = Seq(said.expect("it was said") as u64 + 1);
    let (setup, _nobody) = setup(MemoryStore::open(&disk), crate::lab::chat());
    let by_hand = Engine::start(EngineConfig { recovery: RecoveryPolicy::Never, ..setup }).await.expect("it starts");
    let fork = by_hand.fork_session(&session, Some(at), Some("fork".into())).await.expect("it forks");
    assert!(state(&by_hand, &fork).await.session.open_calls.is_empty());
    by_hand.shutdown().await;
    let call = calls.next().await;
    assert_eq!((call.facts.session.as_str(), call.facts.attempt, call.last().as_str()), ("fork", 1, "two"));
    call.answer("to two, otherwise");
    pass(10).await;
    let total = state(&one, &fork).await.session.ledger.total;
    assert_eq!((total.answered_calls, total.unknown_attempts), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn a_fork_can_begin_anywhere_and_nowhere_else() {
    let (engine, mut calls, session) = two_turns(&MemoryDisk::new()).await;
    let first_end = events(&engine, &session).await.iter().position(|event| matches!(event, Event::TurnEnded { .. }));
    let at = Seq(first_end.expect("it ended") as u64 + 1);
    let fork = engine.fork_session(&session, Some(at), None).await.expect("it forks");
    assert_eq!(turn(&engine, &mut calls, &fork, "another two", "yes").await.turn.0, 2);
    for nowhere in [Seq(0), Seq(1_000)] {
        engine.fork_session(&session, Some(nowhere), Some("nowhere".into())).await.expect_err("there is nothing");
    }
    assert_eq!(state_of(&engine, "nowhere").await, "no-such-session");
}

#[tokio::test(start_paused = true)]
async fn a_fork_of_a_closed_session_goes_on() {
    let (engine, mut calls, session) = two_turns(&MemoryDisk::new()).await;
    engine.apply_command(&session, OperatorCommand::Close).await.expect("it closes");
    assert_eq!(engine.send_message(&session, "hello?".into()).await.expect_err("closed").code(), "closed");
    let fork = engine.fork_session(&session, None, None).await.expect("it forks");
    assert_eq!(turn(&engine, &mut calls, &fork, "hello?", "yes").await.replies, ["yes"]);
}

#[tokio::test(start_paused = true)]
async fn a_fork_that_nobody_took_up_is_recorded_at_the_next_start() {
    let disk = MemoryDisk::new();
    let (engine_one, _calls, session) = two_turns(&disk).await;
    disk.inject_fault(AppendFault::DiskFull);
    pass(2_000).await;
    // The store forks, and then has no room for the fork's first own event.
    let asked = tokio::time::timeout(
        std::time::Duration::from_millis(10),
        engine_one.fork_session(&session, None, Some("fork".into())),
    );
    let _ = asked.await;
    engine_one.shutdown().await;
    let (engine_two, _calls) = engine(&disk).await;
    pass(10).await;
    assert_eq!(state(&engine_two, &"fork".into()).await.session.id, Some("fork".into()));
}

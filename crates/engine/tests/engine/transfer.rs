//! Export, import and forks.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use segue_core::decide::OperatorCommand;
use segue_core::event::{CallRequest, Event, TurnOutcome};
use segue_core::flow::{DynFlow, FlowStep};
use segue_core::ids::{CallId, Seq, SessionId};
use segue_core::scope::Scope;
use segue_engine::{Engine, EngineConfig, Error, SessionExportStream, SessionResumePolicy};
use segue_store::SessionQuery;
use segue_store::memory::{InMemoryStore, InMemoryStoreDisk, InjectedAppendFault};
use segue_testkit::ClosureFlow;

use crate::harness::{
    FaultyStore, ReceivedCalls, advance_ms, chat_engine, chat_flow, engine_config, engine_with_flow, load_state,
    open_session, read_events, run_turn, send_in_background, turn_outcomes,
};

type Corruption = Box<dyn Fn(&mut Vec<String>)>;

pub(crate) async fn export_lines(engine: &Engine, session: &SessionId) -> Vec<String> {
    let mut text = String::new();
    let export = engine.export_session(session, |line| -> Result<(), Error> {
        text.push_str(line);
        Ok(())
    });
    export.await.expect("it can be exported");
    text.lines().map(str::to_owned).collect()
}

async fn session_with_two_turns(disk: &InMemoryStoreDisk) -> (Engine, ReceivedCalls, SessionId) {
    let (engine, mut calls) = chat_engine(disk).await;
    let session = open_session(&engine).await;
    run_turn(&engine, &mut calls, &session, "one", "to one").await;
    run_turn(&engine, &mut calls, &session, "two", "to two").await;
    (engine, calls, session)
}

#[tokio::test(start_paused = true)]
async fn an_import_restores_the_exported_session() {
    let (one, _calls, session) = session_with_two_turns(&InMemoryStoreDisk::new()).await;
    let lines = export_lines(&one, &session).await;
    let (other, mut calls) = chat_engine(&InMemoryStoreDisk::new()).await;
    let imported = other.import_session(lines.clone().into_iter(), None).await.expect("it can be imported");
    assert_eq!(imported, session);
    assert_eq!(load_state(&other, &session).await.session, load_state(&one, &session).await.session);
    assert_eq!(export_lines(&other, &session).await, lines);
    let pending_turn = send_in_background(&other, &session, "three");
    let call = calls.next().await;
    assert_eq!(call.prompt.messages.len(), 6, "it remembers");
    call.answer("to three");
    assert_eq!(pending_turn.await.expect("the task does not panic").expect("it is answered").turn.0, 3);
}

#[tokio::test(start_paused = true)]
async fn an_export_reads_only_what_was_asked_for() {
    let (store, faults) = FaultyStore::open(&InMemoryStoreDisk::new());
    let (config, mut calls) = engine_config(store, chat_flow());
    let engine = Engine::start(config).await.expect("it starts");
    let session = open_session(&engine).await;
    run_turn(&engine, &mut calls, &session, "one", "to one").await;
    let text_reads = || faults.text_reads.load(Ordering::Relaxed);
    let before = text_reads();
    let mut export = SessionExportStream::new(&engine, &session);
    let header = export.next_lines().await.expect("it can be read").expect("a header");
    assert!(header.contains("\"segue\""), "{header}");
    let opened = export.next_lines().await.expect("it can be read").expect("an event");
    assert!(opened.contains("session_opened"), "{opened}");
    let after_first = text_reads();
    assert!(after_first <= before + 1, "the texts of later events are not read");
    while export.next_lines().await.expect("it can be read").is_some() {}
    assert!(text_reads() > after_first);
}

#[tokio::test(start_paused = true)]
async fn an_import_under_another_name_is_a_fork() {
    let (engine, _calls, session) = session_with_two_turns(&InMemoryStoreDisk::new()).await;
    let lines = export_lines(&engine, &session).await;
    let error = engine.import_session(lines.clone().into_iter(), None).await.expect_err("the name is taken");
    assert_eq!(error.code(), "session-exists");
    let copy = engine.import_session(lines.into_iter(), Some("copy".into())).await.expect("it can be imported");
    let forked = Event::SessionForked {
        session: copy.clone(),
        from: session.clone(),
        at_seq: Seq(load_state(&engine, &session).await.session.last_seq.0),
    };
    assert_eq!(read_events(&engine, &copy).await.last(), Some(&forked));
    assert_eq!(load_state(&engine, &copy).await.session.id, Some(copy));
}

#[tokio::test(start_paused = true)]
async fn a_changed_file_is_refused_and_nothing_is_stored() {
    let (engine, _calls, session) = session_with_two_turns(&InMemoryStoreDisk::new()).await;
    let lines = export_lines(&engine, &session).await;
    let word = lines.iter().position(|line| line.contains("\"to one\"")).expect("it was recorded");
    let corruptions: [(&str, Corruption); 6] = [
        ("another word", Box::new(move |lines| lines[word] = lines[word].replace("to one", "to won"))),
        ("a missing line", Box::new(move |lines| drop(lines.remove(word)))),
        ("no header", Box::new(|lines| drop(lines.remove(0)))),
        ("two headers", Box::new(|lines| lines.insert(1, lines[0].clone()))),
        ("no events", Box::new(|lines| lines.truncate(1))),
        ("no JSON", Box::new(|lines| lines.push("and so on".to_owned()))),
    ];
    for (what, corrupt) in corruptions {
        let mut lines = lines.clone();
        corrupt(&mut lines);
        let error = engine.import_session(lines.into_iter(), Some("copy".into())).await.expect_err(what);
        assert!(matches!(error, Error::BadImport { .. }), "{what}: {error}");
        assert_eq!(session_error_code(&engine, "copy").await, "no-such-session", "{what}");
    }
}

async fn session_error_code(engine: &Engine, session: &str) -> &'static str {
    engine.load_session(&session.into()).await.map_or_else(|error| error.code(), |_| "exists")
}

#[tokio::test(start_paused = true)]
async fn an_import_that_could_not_be_written_leaves_the_name_free() {
    let disk = InMemoryStoreDisk::new();
    let (engine, _calls, session) = session_with_two_turns(&disk).await;
    let lines = export_lines(&engine, &session).await;
    disk.inject_fault(InjectedAppendFault::DiskFull);
    let error =
        engine.import_session(lines.clone().into_iter(), Some("copy".into())).await.expect_err("the disk is full");
    assert_eq!(error.code(), "disk-full");
    assert_eq!(engine.list_sessions(&SessionQuery::newest(9)).await.expect("it can be read").entries.len(), 1);
    engine.import_session(lines.into_iter(), Some("copy".into())).await.expect("there is space again");
}

#[tokio::test(start_paused = true)]
async fn a_fork_during_a_turn_cancels_the_turn_in_the_fork_only() {
    let (engine, mut calls, session) = session_with_two_turns(&InMemoryStoreDisk::new()).await;
    let running = send_in_background(&engine, &session, "three");
    let call = calls.next().await;
    let fork = engine.fork_session(&session, None, Some("fork".into())).await.expect("it forks");
    assert_eq!(turn_outcomes(&engine, &fork).await.last(), Some(&TurnOutcome::Cancelled));
    assert!(load_state(&engine, &fork).await.session.is_idle());
    call.answer("to three");
    assert_eq!(running.await.expect("the task does not panic").expect("it is answered").replies, ["to three"]);
    let pending_turn = send_in_background(&engine, &fork, "four");
    let call = calls.next().await;
    let shown: Vec<String> = call.prompt.messages.iter().skip(1).map(segue_core::prompt::PromptMessage::text).collect();
    assert_eq!(shown, ["one", "to one", "two", "to two", "four"], "the fork does not know the turn's answer");
    call.answer("to four");
    pending_turn.await.expect("the task does not panic").expect("it is answered");
}

/// A flow whose turns start a call of a worker and end at once.
fn background_worker_flow() -> Arc<dyn DynFlow> {
    let spec = ClosureFlow::spec_with_role(ClosureFlow::test_role("worker", Scope::per_session()));
    Arc::new(ClosureFlow::new(spec, |_, event| match &event.event {
        Event::TurnStarted { .. } => {
            let request = CallRequest { metadata: serde_json::json!("dig"), ..CallRequest::new("worker", "note") };
            vec![FlowStep::EndTurn(TurnOutcome::Done), FlowStep::Call(request)]
        }
        _ => Vec::new(),
    }))
}

#[tokio::test(start_paused = true)]
async fn a_fork_by_an_engine_without_recovery_makes_its_background_calls_when_resumed() {
    let disk = InMemoryStoreDisk::new();
    let (one, mut calls) = engine_with_flow(&disk, background_worker_flow()).await;
    let session = open_session(&one).await;
    one.send_message(&session, "go".into()).await.expect("accepted");
    let there = calls.next().await;
    let (config, _calls_unused) = engine_config(InMemoryStore::open(&disk), background_worker_flow());
    let recording_engine =
        Engine::start(EngineConfig { recovery: SessionResumePolicy::Never, ..config }).await.expect("it starts");
    let fork = recording_engine.fork_session(&session, None, Some("fork".into())).await.expect("it forks");
    recording_engine.shutdown().await;
    let here = calls.next().await;
    assert_eq!((here.metadata.session.as_str(), here.metadata.call, here.metadata.attempt), ("fork", CallId(1), 1));
    here.answer("dug here");
    there.answer("dug there");
    advance_ms(10).await;
    for branch in [&session, &fork] {
        let total = load_state(&one, branch).await.session.ledger.total;
        assert_eq!(
            (total.answered_calls, total.unknown_attempts, total.late_answers),
            (1, 0, 0),
            "{branch} pays for its own call"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_fork_by_an_engine_without_recovery_is_answered_when_resumed() {
    let disk = InMemoryStoreDisk::new();
    let (one, mut calls, session) = session_with_two_turns(&disk).await;
    let position =
        read_events(&one, &session).await.iter().rposition(|event| matches!(event, Event::UserMessageReceived(_)));
    let at = Seq(position.expect("it was recorded") as u64 + 1);
    let (config, _calls_unused) = engine_config(InMemoryStore::open(&disk), crate::harness::chat_flow());
    let recording_engine =
        Engine::start(EngineConfig { recovery: SessionResumePolicy::Never, ..config }).await.expect("it starts");
    let fork = recording_engine.fork_session(&session, Some(at), Some("fork".into())).await.expect("it forks");
    assert!(load_state(&recording_engine, &fork).await.session.open_calls.is_empty());
    recording_engine.shutdown().await;
    let call = calls.next().await;
    assert_eq!(
        (call.metadata.session.as_str(), call.metadata.attempt, call.last_message().as_str()),
        ("fork", 1, "two")
    );
    call.answer("to two, otherwise");
    advance_ms(10).await;
    let total = load_state(&one, &fork).await.session.ledger.total;
    assert_eq!((total.answered_calls, total.unknown_attempts), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn a_fork_can_begin_at_any_event_of_the_journal() {
    let (engine, mut calls, session) = session_with_two_turns(&InMemoryStoreDisk::new()).await;
    let first_end =
        read_events(&engine, &session).await.iter().position(|event| matches!(event, Event::TurnEnded { .. }));
    let at = Seq(first_end.expect("it ended") as u64 + 1);
    let fork = engine.fork_session(&session, Some(at), None).await.expect("it forks");
    assert_eq!(run_turn(&engine, &mut calls, &fork, "another two", "yes").await.turn.0, 2);
    for out_of_range in [Seq(0), Seq(1_000)] {
        engine
            .fork_session(&session, Some(out_of_range), Some("out_of_range".into()))
            .await
            .expect_err("there is no such event");
    }
    assert_eq!(session_error_code(&engine, "out_of_range").await, "no-such-session");
}

#[tokio::test(start_paused = true)]
async fn a_fork_of_a_closed_session_is_open() {
    let (engine, mut calls, session) = session_with_two_turns(&InMemoryStoreDisk::new()).await;
    engine.apply_command(&session, OperatorCommand::Close).await.expect("it closes");
    assert_eq!(engine.send_message(&session, "hello?".into()).await.expect_err("closed").code(), "closed");
    let fork = engine.fork_session(&session, None, None).await.expect("it forks");
    assert_eq!(run_turn(&engine, &mut calls, &fork, "hello?", "yes").await.replies, ["yes"]);
}

#[tokio::test(start_paused = true)]
async fn a_fork_that_calls_unused_took_up_is_recorded_at_the_next_start() {
    let disk = InMemoryStoreDisk::new();
    let (engine_one, _calls, session) = session_with_two_turns(&disk).await;
    disk.inject_fault(InjectedAppendFault::DiskFull);
    advance_ms(2_000).await;
    // The store forks, but the disk is full for the fork's first own event.
    let fork = tokio::time::timeout(
        std::time::Duration::from_millis(10),
        engine_one.fork_session(&session, None, Some("fork".into())),
    );
    let _ = fork.await;
    engine_one.shutdown().await;
    let (engine_two, _calls) = chat_engine(&disk).await;
    advance_ms(10).await;
    assert_eq!(load_state(&engine_two, &"fork".into()).await.session.id, Some("fork".into()));
}

//! A conversation in the terminal.

use segue_core::ids::{FlowName, SessionId};

use crate::cli::{Chat, Global};
use crate::setup::{Start, Tape, start_with};
use crate::terminal::{Answers, Arguments, Screen, now, talk};

pub async fn run(global: &Global, arguments: Chat) -> anyhow::Result<()> {
    let started = now();
    // Others' unfinished turns are not for this conversation, let alone for its script, to go on with.
    let Chat { entry } = arguments;
    let start = Start::to_speak(&entry);
    let tape = start.tape;
    let running = start_with(global, start).await?;
    let answers = match tape {
        Tape::Script(file) | Tape::Replay(file) => Answers::Script(file.display().to_string()),
        Tape::None | Tape::Record(_) if running.rehearsal => Answers::Rehearsal,
        Tape::None | Tape::Record(_) => Answers::Models,
    };
    let arguments = Arguments {
        flow: entry.flow.map(FlowName::from),
        otherwise: running.flow.clone(),
        busy: running.busy,
        session: entry.session.map(SessionId::from),
        started,
        set: entry.set,
        answers,
    };
    let talked = talk(&running.engine, arguments, Screen::standard()).await;
    running.engine.shutdown().await;
    talked
}

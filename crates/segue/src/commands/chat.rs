//! A conversation in the terminal.

use segue_core::ids::{FlowName, SessionId};
use segue_engine::Recovery;

use crate::cli::{Chat, Global, Play};
use crate::setup::{Start, Tape, start_with};
use crate::terminal::{Answers, Arguments, Screen, now, talk};

pub async fn run(global: &Global, arguments: Chat) -> anyhow::Result<()> {
    let started = now();
    // Others' unfinished turns are not for this conversation, let alone for its script, to go on with.
    let Play { model, record, replay } = &arguments.play;
    let tape = Tape::of(arguments.script.as_deref(), record.as_deref(), replay.as_deref());
    let start = Start { tape, model: model.as_deref(), recovery: Recovery::OnUse };
    let running = start_with(global, start).await?;
    let answers = match tape {
        Tape::Script(file) | Tape::Replay(file) => Answers::Script(file.display().to_string()),
        Tape::None | Tape::Record(_) if running.rehearsal => Answers::Rehearsal,
        Tape::None | Tape::Record(_) => Answers::Models,
    };
    let arguments = Arguments {
        flow: arguments.flow.map(FlowName::from),
        otherwise: running.flow.clone(),
        busy: running.busy,
        session: arguments.session.map(SessionId::from),
        started,
        set: arguments.set,
        answers,
    };
    let talked = talk(&running.engine, arguments, Screen::standard()).await;
    running.engine.shutdown().await;
    talked
}

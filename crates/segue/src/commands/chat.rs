//! A conversation in the terminal.

use segue_core::ids::{FlowName, SessionId};
use segue_engine::Recovery;

use crate::cli::{Chat, Global};
use crate::setup::{Start, start_with};
use crate::terminal::{Answers, Arguments, Screen, now, talk};

pub async fn run(global: &Global, arguments: Chat) -> anyhow::Result<()> {
    let started = now();
    // Others' unfinished turns are not for this conversation, let alone for its script, to go on with.
    let start = Start { script: arguments.script.as_deref(), recovery: Recovery::OnUse };
    let running = start_with(global, start).await?;
    let answers = match &arguments.script {
        Some(script) => Answers::Script(script.display().to_string()),
        None if running.rehearsal => Answers::Rehearsal,
        None => Answers::Models,
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

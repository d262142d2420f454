//! A conversation in the terminal.

use segue_core::ids::{FlowName, SessionId};

use crate::cli::{Chat, Entry, Global};
use crate::remote::Remote;
use crate::setup::{self, Start, Tape, start_with};
use crate::terminal::{Answers, Arguments, Partner, Screen, talk};

pub async fn run(global: &Global, arguments: Chat) -> anyhow::Result<()> {
    if let Some(url) = &arguments.server {
        return with_server(global, url, &arguments.entry).await;
    }
    // Others' unfinished turns are not for this conversation, let alone for its script, to go on with.
    let Chat { entry, .. } = arguments;
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
        set: entry.set,
        answers,
    };
    let talked = talk(Partner::Here(&running.engine), arguments, Screen::standard()).await;
    running.engine.shutdown().await;
    talked
}

/// The same with an engine behind a server.
async fn with_server(global: &Global, url: &str, entry: &Entry) -> anyhow::Result<()> {
    let remote = Remote::at(url, setup::flows(global)).await?;
    let text = |name: &str| remote.about[name].as_str().unwrap_or_default().to_owned();
    let busy = serde_json::from_value(remote.about["busy"].clone()).unwrap_or_default();
    if remote.about["rehearsal"] == true {
        crate::print::note(&crate::print::error_paint().warn(super::REHEARSAL_NOTE));
    }
    let arguments = Arguments {
        flow: entry.flow.clone().map(FlowName::from),
        otherwise: text("flow").into(),
        busy,
        session: entry.session.clone().map(SessionId::from),
        set: entry.set.clone(),
        answers: Answers::Server(url.to_owned()),
    };
    let talked = talk(Partner::There(&remote), arguments, Screen::standard()).await;
    remote.engine.shutdown().await;
    talked
}

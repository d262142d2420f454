//! `segue chat`: a conversation in the terminal, with a local engine or a server.

use segue_core::ids::{FlowName, SessionId};

use crate::cli::{ChatArgs, GlobalArgs, SessionAndReplySourceArgs};
use crate::remote::RemoteServerConnection;
use crate::setup::{self, EngineStartOptions, ModelRecordOrReplayMode, start_engine};
use crate::terminal::{ChatReplySource, LocalOrRemoteEngine, Screen, TerminalChatOptions, run_chat_loop};

pub(crate) async fn run_chat(global: &GlobalArgs, arguments: ChatArgs) -> anyhow::Result<()> {
    if let Some(url) = &arguments.server {
        return chat_with_server(global, url, &arguments.session_args).await;
    }
    let ChatArgs { session_args, .. } = arguments;
    // These options resume only the session of this conversation, not unfinished turns of other sessions.
    let start = EngineStartOptions::for_session_args(&session_args);
    let playback = start.playback;
    let running = start_engine(global, start).await?;
    let answer_source = match (playback, running.rehearsal_warning) {
        (ModelRecordOrReplayMode::Script(file) | ModelRecordOrReplayMode::Replay(file), _) => {
            ChatReplySource::Script(file.display().to_string())
        }
        (ModelRecordOrReplayMode::Live | ModelRecordOrReplayMode::Record(_), Some(warning)) => {
            ChatReplySource::Rehearsal { warning }
        }
        (ModelRecordOrReplayMode::Live | ModelRecordOrReplayMode::Record(_), None) => ChatReplySource::Models,
    };
    let options = TerminalChatOptions {
        flow: session_args.flow.map(FlowName::from),
        default_flow: running.default_flow.clone(),
        mid_turn_policy: running.mid_turn_policy,
        session: session_args.session.map(SessionId::from),
        settings: session_args.set,
        answer_source,
    };
    let result = run_chat_loop(LocalOrRemoteEngine::Local(&running.engine), options, Screen::for_stdio()).await;
    running.engine.shutdown().await;
    result
}

/// Runs the conversation with the engine of a server.
async fn chat_with_server(
    global: &GlobalArgs,
    url: &str,
    session_args: &SessionAndReplySourceArgs,
) -> anyhow::Result<()> {
    let remote = RemoteServerConnection::connect(url, setup::available_flows(global)?).await?;
    let text = |name: &str| remote.server_info[name].as_str().unwrap_or_default().to_owned();
    let mid_turn_policy =
        serde_json::from_value(remote.server_info["default_mid_turn_policy"].clone()).unwrap_or_default();
    if remote.server_info["uses_rehearsal_model"] == true {
        crate::print::write_stderr_line(&crate::print::stderr_paint().warning(super::REHEARSAL_WARNING));
    }
    let options = TerminalChatOptions {
        flow: session_args.flow.clone().map(FlowName::from),
        default_flow: text("default_flow").into(),
        mid_turn_policy,
        session: session_args.session.clone().map(SessionId::from),
        settings: session_args.set.clone(),
        answer_source: ChatReplySource::Server(url.to_owned()),
    };
    let result = run_chat_loop(LocalOrRemoteEngine::Remote(&remote), options, Screen::for_stdio()).await;
    remote.engine.shutdown().await;
    result
}

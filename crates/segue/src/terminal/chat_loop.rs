//! The loop of a conversation: reads a message, sends it, shows the updates until the session is idle, and repeats.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use segue_core::decide::OperatorCommand;
use segue_core::event::{Event, RecordedEvent};
use segue_core::flow::{DynFlow, FactDisplay, RoleAnswerVisibility};
use segue_core::ids::{MessageId, Seq, SessionId, UnixMillis};
use segue_core::prompt::PromptImage;
use segue_core::session::SessionState;
use segue_engine::{Engine, Error, SessionUpdate, UserMessage};
use tokio::time::{Instant, interval_at};

use super::backend::{LocalOrRemoteEngine, SessionUpdateStream, is_nothing_running_error, is_stale_turn_error};
use super::input_history;
use super::input_reader::{InputReader, InputReaderResponse, InterruptedLineEmptiness};
use super::message_draft::{LineOrBlockInput, MessageDraft, TypedUserMessage};
use super::process_signals::{InterruptSignalListener, ShutdownSignalReceiver};
use super::recap::RecapLine;
use super::screen::{Screen, TerminalOrPipedOutput};
use super::session_entry::{OpenedChatSession, TerminalChatOptions, open_or_resume_session};
use super::slash_command::{self, MessageOrSlashCommand};
use super::terminal_mode::TerminalModeGuard;
use super::turn_display::{ChatTurnRenderer, SpeakerNameVisibility, TurnEndStatus, unknown_outcome_hint};
use crate::SilentExit;
use crate::follow::write_failure_message;
use crate::limits::EVENTS_BATCH_MAX;
use crate::print::number_format::format_plural;
use crate::progress_text::{self, ProgressCallGroups, call_label};

const PROMPT: &str = "> ";
const PROMPT_CONTINUED: &str = "… ";
const SPINNER_INTERVAL: Duration = Duration::from_millis(100);

/// A running conversation.
pub(crate) struct ChatLoop<'e> {
    pub(super) backend: LocalOrRemoteEngine<'e>,
    /// The local engine that reads the session.
    pub(super) engine: &'e Engine,
    pub(super) screen: Screen,
    pub(super) session: SessionId,
    pub(super) flow: Arc<dyn DynFlow>,
    /// The session after the last event that was shown.
    pub(super) state: SessionState,
    updates: SessionUpdateStream,
    display: ChatTurnRenderer,
    reader: InputReader,
    terminal_mode: TerminalModeGuard,
    shutdown_signal: ShutdownSignalReceiver,
    call_groups: ProgressCallGroups,
    /// Messages sent from this terminal whose event has not arrived yet.
    sent_messages: BTreeSet<MessageId>,
    /// Images that are attached to the next message.
    pub(super) pending_images: Vec<PromptImage>,
    /// Determines the exit code.
    result: ChatExitStatus,
    frame: usize,
    /// Whether the warning about failing writes was printed.
    has_warned: bool,
}

/// What must have arrived before following may end.
#[derive(Debug, Clone, Copy)]
pub(crate) enum FollowUntilMessageOrEvent {
    Message(MessageId),
    Event(Seq),
}

/// Whether every message and command so far succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChatExitStatus {
    Succeeded,
    Failed,
}

/// Whether the conversation continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LoopControl {
    Continue,
    Exit,
}

/// Opens or resumes a session, and runs the conversation until the user leaves.
///
/// # Errors
/// Returns an error if the session cannot be opened, or if a message or command failed and input is not a terminal.
pub(crate) async fn run_chat_loop(
    backend: LocalOrRemoteEngine<'_>,
    options: TerminalChatOptions,
    screen: Screen,
) -> anyhow::Result<()> {
    let session = open_or_resume_session(backend, &options).await?;
    let terminal_mode = TerminalModeGuard::capture(screen.output_mode());
    let reader = match screen.output_mode() {
        TerminalOrPipedOutput::Interactive => {
            InputReader::from_keyboard(screen.paint(), input_history::history_path())?
        }
        TerminalOrPipedOutput::Piped => InputReader::from_lines(io::BufReader::new(io::stdin())),
    };
    chat_in_session(backend, &options, session, screen, (reader, terminal_mode)).await
}

/// Runs the conversation in an open session.
///
/// # Errors
/// Returns an error if a message or command failed and input is not a terminal.
pub(super) async fn chat_in_session(
    backend: LocalOrRemoteEngine<'_>,
    options: &TerminalChatOptions,
    session: OpenedChatSession,
    mut screen: Screen,
    keyboard: (InputReader, TerminalModeGuard),
) -> anyhow::Result<()> {
    session.print_introduction(&mut screen, options, backend.engine())?;
    let is_resumed = !session.state.session.is_at_rest();
    let recap = session.recap.clone();
    let mut chat = ChatLoop::new(backend, screen, session, keyboard).await?;
    match chat.run(&recap, is_resumed).await {
        // A reader that goes away, as in `segue chat | head`, is not an error.
        Err(error) if is_broken_pipe(&error) => Ok(()),
        other => other,
    }
}

impl<'e> ChatLoop<'e> {
    async fn new(
        backend: LocalOrRemoteEngine<'e>,
        screen: Screen,
        session: OpenedChatSession,
        (reader, terminal_mode): (InputReader, TerminalModeGuard),
    ) -> anyhow::Result<Self> {
        let OpenedChatSession { session, flow, state, .. } = session;
        let updates = backend.subscribe(&session, state.session.last_seq).await?;
        let mut display = ChatTurnRenderer::new(speaker_name_visibility(&*flow));
        state.session.open_calls.values().for_each(|open| display.record_call_speaker(&open.opened));
        Ok(Self {
            backend,
            engine: backend.engine(),
            screen,
            session,
            flow,
            state,
            updates,
            display,
            reader,
            terminal_mode,
            shutdown_signal: ShutdownSignalReceiver::listen()?,
            call_groups: ProgressCallGroups::default(),
            sent_messages: BTreeSet::new(),
            pending_images: Vec::new(),
            result: ChatExitStatus::Succeeded,
            frame: 0,
            has_warned: false,
        })
    }

    async fn run(&mut self, recap: &[RecapLine], is_resumed: bool) -> anyhow::Result<()> {
        self.print_recap(recap)?;
        if is_resumed {
            self.screen.print_note("— resuming the unfinished turn —")?;
        }
        self.print_calls_awaiting_operator()?;
        let mut control = self.follow_to_head().await?;
        while control == LoopControl::Continue {
            control = self.ask_about_held_runs().await?;
            if control == LoopControl::Exit {
                break;
            }
            control = match self.read_message().await? {
                Some(written) => self.handle_message(written).await?,
                None => LoopControl::Exit,
            };
        }
        self.screen.end_line()?;
        match (self.screen.output_mode(), self.result) {
            (TerminalOrPipedOutput::Interactive, _) | (TerminalOrPipedOutput::Piped, ChatExitStatus::Succeeded) => {
                Ok(())
            }
            (TerminalOrPipedOutput::Piped, ChatExitStatus::Failed) => Err(SilentExit(1).into()),
        }
    }

    fn print_recap(&mut self, recap: &[RecapLine]) -> io::Result<()> {
        if recap.is_empty() || self.screen.output_mode() == TerminalOrPipedOutput::Piped {
            return Ok(());
        }
        let turns = format_plural(u64::from(self.state.session.last_ids.turn.0), "turn");
        self.screen.print_note(&format!("— {turns} so far; the last messages: —"))?;
        for line in recap {
            match line {
                RecapLine::User(text) => self.screen.print_note(&format!("{PROMPT}{text}"))?,
                RecapLine::Reply(text) => self.screen.print_note(text)?,
                RecapLine::RunningReply(text) => self.screen.print_text(text)?,
            }
        }
        self.screen.print_blank_line()
    }

    /// Prints a warning for each call that an operator must decide about.
    fn print_calls_awaiting_operator(&mut self) -> io::Result<()> {
        for (call, open) in self.state.session.calls_awaiting_operator() {
            let label = call_label(&open.opened);
            self.screen.print_warning(&format!(
                "{label} was interrupted and may have been billed; {}",
                unknown_outcome_hint(*call)
            ))?;
        }
        Ok(())
    }

    /// Reads a complete message; `None` if the user leaves.
    async fn read_message(&mut self) -> anyhow::Result<Option<TypedUserMessage>> {
        let mut draft = MessageDraft::default();
        let mut interrupted = false;
        loop {
            let prompt = if draft.is_unfinished() { PROMPT_CONTINUED } else { PROMPT };
            match self.next_input_event(prompt).await? {
                InputReaderResponse::Text(text) => {
                    interrupted = false;
                    if let Some(written) = draft.push_input(&text) {
                        self.save_to_history(&written);
                        return Ok(Some(written));
                    }
                }
                InputReaderResponse::Interrupted(InterruptedLineEmptiness::Empty) if interrupted => return Ok(None),
                InputReaderResponse::Interrupted(_) => {
                    draft.discard();
                    interrupted = true;
                    self.screen.print_note("(press Ctrl-C again or Ctrl-D to leave)")?;
                }
                InputReaderResponse::Unreadable(reason) => self.report_error(&reason)?,
                InputReaderResponse::ReadFailed(reason) => {
                    self.report_error(&reason)?;
                    return Ok(None);
                }
                InputReaderResponse::EndOfInput => {
                    return Ok(draft.finish().filter(|_| self.screen.output_mode() == TerminalOrPipedOutput::Piped));
                }
            }
        }
    }

    pub(super) async fn next_input_event(&mut self, prompt: &str) -> io::Result<InputReaderResponse> {
        let mut interrupts = InterruptSignalListener::listen()?;
        self.reader.request_line(prompt);
        Ok(tokio::select! {
            event = self.reader.next_event() => event,
            () = interrupts.recv() => InputReaderResponse::EndOfInput,
            () = self.shutdown_signal.recv() => InputReaderResponse::EndOfInput,
        })
    }

    fn save_to_history(&self, written: &TypedUserMessage) {
        // A message from a quoted block must not become a command when it is recalled.
        let escape =
            if written.form == LineOrBlockInput::Block && !written.text.contains('\n') && written.text.starts_with('/')
            {
                "/"
            } else {
                ""
            };
        if input_history::is_safe_to_store(&written.text) {
            self.reader.save_to_history(&format!("{escape}{}", written.text));
        }
    }

    async fn handle_message(&mut self, written: TypedUserMessage) -> anyhow::Result<LoopControl> {
        let result = match slash_command::parse_input(written, &self.flow.spec().commands) {
            Ok(MessageOrSlashCommand::Empty) => return Ok(LoopControl::Continue),
            Ok(MessageOrSlashCommand::Message(text)) => self.send_message(text).await,
            Ok(MessageOrSlashCommand::Command(command)) => self.run_slash_command(command).await,
            Err(message) => Err(anyhow::anyhow!(message)),
        };
        match result {
            Ok(control) => Ok(control),
            Err(error) if is_broken_pipe(&error) => Err(error),
            Err(error) => {
                self.report_error(&format!("{error:#}"))?;
                Ok(LoopControl::Continue)
            }
        }
    }

    async fn send_message(&mut self, text: String) -> anyhow::Result<LoopControl> {
        let message = UserMessage { images: self.pending_images.clone(), ..UserMessage::from(text) };
        let message = self.backend.send_message(&self.session, message).await?;
        self.pending_images.clear();
        self.sent_messages.insert(message);
        let control = self.follow_until(FollowUntilMessageOrEvent::Message(message)).await?;
        if self.state.session.queued_messages.iter().any(|queued| queued.message == message) {
            self.screen.print_note("(queued until the running turn has ended)")?;
        }
        Ok(control)
    }

    /// Prints an error. The conversation continues, but its exit code will be an error.
    pub(super) fn report_error(&mut self, message: &str) -> io::Result<()> {
        self.result = ChatExitStatus::Failed;
        self.screen.print_error(message)
    }

    /// Continues the conversation in another session.
    pub(super) async fn switch_session(&mut self, session: SessionId) -> anyhow::Result<()> {
        let (flow, state) = self.engine.load_session(&session).await?;
        self.updates = self.backend.subscribe(&session, state.session.last_seq).await?;
        self.display = ChatTurnRenderer::new(speaker_name_visibility(&*flow));
        (self.session, self.flow, self.state) = (session, flow, state);
        self.sent_messages.clear();
        Ok(())
    }

    /// Shows all events recorded so far and what follows from them, until the session is idle.
    pub(super) async fn follow_to_head(&mut self) -> anyhow::Result<LoopControl> {
        let mut head = self.updates.last_seq();
        while let Some(last) = self.engine.read_events(&self.session, head, EVENTS_BATCH_MAX).await?.last() {
            head = last.seq;
        }
        self.follow_until(FollowUntilMessageOrEvent::Event(head)).await
    }

    /// Shows the updates until the session is idle or waits for an operator.
    async fn follow_until(&mut self, until: FollowUntilMessageOrEvent) -> anyhow::Result<LoopControl> {
        self.terminal_mode.disable_echo();
        let control = self.follow_without_echo(until).await;
        self.terminal_mode.restore();
        self.screen.end_line()?;
        control
    }

    async fn follow_without_echo(&mut self, until: FollowUntilMessageOrEvent) -> anyhow::Result<LoopControl> {
        let mut interrupts = InterruptSignalListener::listen()?;
        let mut spinner_tick = interval_at(Instant::now() + SPINNER_INTERVAL, SPINNER_INTERVAL);
        let (from, mut is_cancelling) = (now_millis(), false);
        while !(self.has_reached(until) && self.state.session.is_at_rest() && self.is_caught_up().await?) {
            tokio::select! {
                biased;
                () = self.shutdown_signal.recv() => return Ok(LoopControl::Exit),
                () = interrupts.recv() => {
                    if is_cancelling {
                        self.screen.print_note("— leaving; the turn resumes at the next start —")?;
                        return Ok(LoopControl::Exit);
                    }
                    is_cancelling = true;
                    let turn = self.state.session.current_turn.as_ref().map(|turn| turn.id);
                    match self.backend.send_command(&self.session, OperatorCommand::Cancel { turn }).await {
                        Ok(()) => {}
                        // The turn on the screen has ended, and the next one was not meant.
                        Err(error) if is_stale_turn_error(&error) => is_cancelling = false,
                        Err(error) if is_nothing_running_error(&error) => return Ok(LoopControl::Continue),
                        Err(error) => return Err(error),
                    }
                }
                update = self.updates.next() => self.show_update(update?).await?,
                _ = spinner_tick.tick() => self.update_spinner(from)?,
            }
        }
        Ok(LoopControl::Continue)
    }

    /// Waits for work outside the conversation; `None` if the user interrupts.
    pub(super) async fn wait_with_spinner<T>(
        &mut self,
        label: &str,
        work: impl Future<Output = T>,
    ) -> io::Result<Option<T>> {
        let mut interrupts = InterruptSignalListener::listen()?;
        let mut spinner_tick = interval_at(Instant::now() + SPINNER_INTERVAL, SPINNER_INTERVAL);
        let from = now_millis();
        tokio::pin!(work);
        self.terminal_mode.disable_echo();
        let result = loop {
            tokio::select! {
                biased;
                result = &mut work => break Some(result),
                () = interrupts.recv() => break None,
                () = self.shutdown_signal.recv() => break None,
                _ = spinner_tick.tick() => {
                    self.frame = self.frame.wrapping_add(1);
                    self.screen.show_spinner(&progress_text::render_wait_progress(label, from, now_millis(), self.frame));
                }
            }
        };
        self.terminal_mode.restore();
        self.screen.end_line()?;
        Ok(result)
    }

    fn update_spinner(&mut self, from: UnixMillis) -> io::Result<()> {
        self.display.retract_unrecorded_reply(&mut self.screen)?;
        match self.engine.pending_write_error(&self.session) {
            Some(error) if !self.has_warned => {
                self.has_warned = true;
                self.screen.print_note(&write_failure_message(&error))?;
            }
            _ => {}
        }
        if !self.display.is_streaming() {
            self.frame = self.frame.wrapping_add(1);
            self.screen.show_spinner(&progress_text::render_progress(
                &self.state.session,
                &self.call_groups,
                from,
                now_millis(),
                self.frame,
            ));
        }
        Ok(())
    }

    fn has_reached(&self, until: FollowUntilMessageOrEvent) -> bool {
        match until {
            FollowUntilMessageOrEvent::Message(message) => self.state.session.last_ids.message >= message,
            FollowUntilMessageOrEvent::Event(seq) => self.state.session.last_seq >= seq,
        }
    }

    /// Whether every recorded event was shown. A session may look idle in the middle of a commit.
    async fn is_caught_up(&self) -> anyhow::Result<bool> {
        Ok(self.engine.read_events(&self.session, self.state.session.last_seq, 1).await?.is_empty())
    }

    async fn show_update(&mut self, update: SessionUpdate) -> anyhow::Result<()> {
        match update {
            SessionUpdate::TextDelta { call, attempt, text, .. } => {
                // A delta can arrive after its call has ended, or during the next attempt.
                let calls = &self.state.session.open_calls;
                if calls.get(&call).is_some_and(|open| open.attempt == attempt) {
                    self.display.show_chunk(&mut self.screen, call, attempt, &text)?;
                }
            }
            SessionUpdate::ToolProgress { run, text } => self.call_groups.apply_tool_progress(run, &text),
            SessionUpdate::Event(recorded) => {
                self.call_groups.apply_event(&recorded.event);
                self.show_event(&recorded).await?;
                self.state.apply(&*self.flow, &recorded);
                self.show_fact(&recorded.event)?;
            }
        }
        Ok(())
    }

    async fn show_event(&mut self, recorded: &RecordedEvent) -> anyhow::Result<()> {
        self.display.show_event(&mut self.screen, &self.state.session, recorded)?;
        match &recorded.event {
            Event::ReplySent(reply) => {
                let text = self.load_text(reply.text.body).await?;
                let role = reply.role.as_ref().map(|role| role.as_str());
                self.display.show_reply(&mut self.screen, reply.call, role, &text)?;
            }
            Event::UserMessageReceived(received) if !self.sent_messages.remove(&received.message) => {
                let text = self.load_text(received.text.body).await?;
                self.screen.print_note(&format!("(sent by another client) {text}"))?;
            }
            Event::TurnEnded { outcome, .. } => {
                if self.display.end_turn(&mut self.screen, outcome)? == TurnEndStatus::Failed {
                    self.result = ChatExitStatus::Failed;
                }
                self.screen.print_blank_line()?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Shows a fact of the flow, if the flow describes it as a notice.
    fn show_fact(&mut self, event: &Event) -> io::Result<()> {
        let Event::FlowFactRecorded { kind, value } = event else { return Ok(()) };
        match self.flow.describe_fact(&self.state.flow, kind, value) {
            FactDisplay::Notice(text) if text.contains('\n') => self.display.show_note(&mut self.screen, text),
            FactDisplay::Notice(text) => self.display.show_note(&mut self.screen, format!("— {text} —")),
            FactDisplay::Raw | FactDisplay::Hidden | FactDisplay::Detail(_) => Ok(()),
        }
    }

    async fn load_text(&self, body: segue_core::body::BodyId) -> Result<Arc<str>, Error> {
        let texts = self.engine.read_texts(&self.session, &[body]).await?;
        Ok(texts.into_iter().next().unwrap_or_else(|| "".into()))
    }
}

/// Returns the current time.
#[must_use]
pub(crate) fn now_millis() -> UnixMillis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMillis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// Speaker names are shown if more than one role is visible to the user.
fn speaker_name_visibility(flow: &dyn DynFlow) -> SpeakerNameVisibility {
    let visible =
        flow.spec().roles.values().filter(|role| matches!(role.visibility, RoleAnswerVisibility::User { .. })).count();
    if visible > 1 { SpeakerNameVisibility::Shown } else { SpeakerNameVisibility::Hidden }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

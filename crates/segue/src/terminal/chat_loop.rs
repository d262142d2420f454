//! The conversation itself: reads, sends, follows what happens until it rests, and reads again.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use segue_core::decide::OperatorCommand;
use segue_core::event::{Event, RecordedEvent};
use segue_core::flow::{DynFlow, FactDisplay, Visibility};
use segue_core::ids::{MessageId, Seq, SessionId, UnixMillis};
use segue_core::prompt::PromptImage;
use segue_core::session::{CallStatus, SessionState};
use segue_engine::{Engine, Error, SessionUpdate, UserMessage};
use tokio::time::{Instant, interval_at};

use super::backend::{Backend, UpdateStream, is_nothing_running_error};
use super::input_history;
use super::input_reader::{InputEvent, InputReader, LineContent};
use super::message_draft::{InputForm, MessageDraft, WrittenMessage};
use super::process_signals::{InterruptSignal, ShutdownSignal};
use super::recap::RecapLine;
use super::screen::{OutputMode, Screen};
use super::session_entry::{ChatOptions, ChatSession, open_or_resume_session};
use super::slash_command::{self, UserInput};
use super::terminal_mode::TerminalMode;
use super::turn_display::{SpeakerNames, TurnDisplay, TurnEndStatus, decision_hint};
use crate::SilentExit;
use crate::follow::write_failure_message;
use crate::limits::EVENTS_BATCH_MAX;
use crate::progress_text::{self, CallGroups, call_label};

const PROMPT: &str = "> ";
const PROMPT_CONTINUED: &str = "… ";
const SPINNER_INTERVAL: Duration = Duration::from_millis(100);

/// A conversation.
pub struct ChatLoop<'e> {
    pub(super) backend: Backend<'e>,
    /// What sessions are looked at with.
    pub(super) engine: &'e Engine,
    pub(super) screen: Screen,
    pub(super) session: SessionId,
    pub(super) flow: Arc<dyn DynFlow>,
    /// The session as it stood after the last event seen.
    pub(super) state: SessionState,
    updates: UpdateStream,
    display: TurnDisplay,
    reader: InputReader,
    terminal_mode: TerminalMode,
    shutdown_signal: ShutdownSignal,
    call_groups: CallGroups,
    /// Messages sent from here and not seen coming back yet.
    sent_messages: BTreeSet<MessageId>,
    /// What is shown with the next message.
    pub(super) pending_images: Vec<PromptImage>,
    /// For whoever looks at the exit code.
    result: ChatResult,
    frame: usize,
    /// Whether it was said that nothing can be written.
    has_warned: bool,
}

/// How far to follow.
#[derive(Debug, Clone, Copy)]
pub enum FollowUntil {
    /// This message was taken in.
    Message(MessageId),
    /// This event was seen.
    Event(Seq),
}

/// Whether all that was wanted was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChatResult {
    Succeeded,
    Failed,
}

/// Whether the conversation goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoopControl {
    Continue,
    Exit,
}

/// Talks until the user leaves.
///
/// # Errors
/// The session cannot be used, or something went wrong that a script should know of.
pub async fn run_chat_loop(backend: Backend<'_>, arguments: ChatOptions, screen: Screen) -> anyhow::Result<()> {
    let entered = open_or_resume_session(backend, &arguments).await?;
    let modes = TerminalMode::capture(screen.output_mode());
    let reader = match screen.output_mode() {
        OutputMode::Interactive => InputReader::from_keyboard(screen.paint(), input_history::history_path())?,
        OutputMode::Piped => InputReader::from_lines(io::BufReader::new(io::stdin())),
    };
    chat_in_session(backend, &arguments, entered, screen, (reader, modes)).await
}

/// Talks in a session that was entered.
///
/// # Errors
/// Something went wrong that a script should know of.
pub(super) async fn chat_in_session(
    backend: Backend<'_>,
    arguments: &ChatOptions,
    session: ChatSession,
    mut screen: Screen,
    keyboard: (InputReader, TerminalMode),
) -> anyhow::Result<()> {
    session.print_introduction(&mut screen, arguments, backend.engine())?;
    let picked_up = !session.state.session.is_idle();
    let recalled = session.recap.clone();
    let mut talk = ChatLoop::new(backend, screen, session, keyboard).await?;
    match talk.run(&recalled, picked_up).await {
        // Nobody reads any more, which is their good right.
        Err(error) if is_broken_pipe(&error) => Ok(()),
        other => other,
    }
}

impl<'e> ChatLoop<'e> {
    async fn new(
        backend: Backend<'e>,
        screen: Screen,
        entered: ChatSession,
        (reader, modes): (InputReader, TerminalMode),
    ) -> anyhow::Result<Self> {
        let ChatSession { session, flow: rules, state, .. } = entered;
        let updates = backend.subscribe(&session, state.session.last_seq).await?;
        let mut display = TurnDisplay::new(speaker_names_for(&*rules));
        state.session.open_calls.values().for_each(|open| display.call_opened(&open.opened));
        Ok(Self {
            backend,
            engine: backend.engine(),
            screen,
            session,
            flow: rules,
            state,
            updates,
            display,
            reader,
            terminal_mode: modes,
            shutdown_signal: ShutdownSignal::listen()?,
            call_groups: CallGroups::default(),
            sent_messages: BTreeSet::new(),
            pending_images: Vec::new(),
            result: ChatResult::Succeeded,
            frame: 0,
            has_warned: false,
        })
    }

    async fn run(&mut self, recalled: &[RecapLine], picked_up: bool) -> anyhow::Result<()> {
        self.print_recap(recalled)?;
        if picked_up {
            self.screen.print_note("— picking up where we left off —")?;
        }
        self.print_calls_awaiting_operator()?;
        let mut after = self.follow_to_head().await?;
        while after == LoopControl::Continue {
            after = match self.read_message().await? {
                Some(written) => self.handle_message(written).await?,
                None => LoopControl::Exit,
            };
        }
        self.screen.end_line()?;
        match (self.screen.output_mode(), self.result) {
            (OutputMode::Interactive, _) | (OutputMode::Piped, ChatResult::Succeeded) => Ok(()),
            (OutputMode::Piped, ChatResult::Failed) => Err(SilentExit(1).into()),
        }
    }

    fn print_recap(&mut self, recalled: &[RecapLine]) -> io::Result<()> {
        if recalled.is_empty() || self.screen.output_mode() == OutputMode::Piped {
            return Ok(());
        }
        let turns = self.state.session.last_ids.turn.0;
        self.screen
            .print_note(&format!("— {turns} {} so far; the last: —", if turns == 1 { "turn" } else { "turns" }))?;
        for line in recalled {
            match line {
                RecapLine::User(text) => self.screen.print_note(&format!("{PROMPT}{text}"))?,
                RecapLine::Reply(text) => self.screen.print_note(text)?,
                RecapLine::RunningReply(text) => self.screen.print_text(text)?,
            }
        }
        self.screen.print_blank_line()
    }

    /// Says which calls wait for a decision.
    fn print_calls_awaiting_operator(&mut self) -> io::Result<()> {
        for (call, open) in self.state.session.calls_awaiting_operator() {
            let label = call_label(&open.opened);
            self.screen
                .print_warning(&format!("{label} was cut off and may have been billed; {}", decision_hint(*call)))?;
        }
        Ok(())
    }

    /// Reads until a message is complete; nothing if the user leaves.
    async fn read_message(&mut self) -> anyhow::Result<Option<WrittenMessage>> {
        let mut draft = MessageDraft::default();
        let mut interrupted = false;
        loop {
            let prompt = if draft.is_unfinished() { PROMPT_CONTINUED } else { PROMPT };
            match self.next_input_event(prompt).await? {
                InputEvent::Text(text) => {
                    interrupted = false;
                    if let Some(written) = draft.push_input(&text) {
                        self.save_to_history(&written);
                        return Ok(Some(written));
                    }
                }
                InputEvent::Interrupted(LineContent::Empty) if interrupted => return Ok(None),
                InputEvent::Interrupted(_) => {
                    draft.discard();
                    interrupted = true;
                    self.screen.print_note("(Ctrl-C again, or Ctrl-D, leaves)")?;
                }
                InputEvent::Unreadable(why) => self.report_error(&why)?,
                InputEvent::ReadFailed(why) => {
                    self.report_error(&why)?;
                    return Ok(None);
                }
                InputEvent::EndOfInput => {
                    return Ok(draft.finish().filter(|_| self.screen.output_mode() == OutputMode::Piped));
                }
            }
        }
    }

    async fn next_input_event(&mut self, prompt: &str) -> io::Result<InputEvent> {
        let mut interrupts = InterruptSignal::listen()?;
        self.reader.request_line(prompt);
        Ok(tokio::select! {
            piece = self.reader.next_event() => piece,
            () = interrupts.recv() => InputEvent::EndOfInput,
            () = self.shutdown_signal.recv() => InputEvent::EndOfInput,
        })
    }

    fn save_to_history(&self, written: &WrittenMessage) {
        // What was said in a block must not become a command when it is brought back.
        let escape =
            if written.form == InputForm::Block && !written.text.contains('\n') && written.text.starts_with('/') {
                "/"
            } else {
                ""
            };
        if input_history::is_safe_to_store(&written.text) {
            self.reader.save_to_history(&format!("{escape}{}", written.text));
        }
    }

    async fn handle_message(&mut self, written: WrittenMessage) -> anyhow::Result<LoopControl> {
        let done = match slash_command::parse_input(written) {
            Ok(UserInput::Empty) => return Ok(LoopControl::Continue),
            Ok(UserInput::Message(text)) => self.send_message(text).await,
            Ok(UserInput::Command(slash)) => self.run_slash_command(slash).await,
            Err(why) => Err(anyhow::anyhow!(why)),
        };
        match done {
            Ok(after) => Ok(after),
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
        let after = self.follow_until(FollowUntil::Message(message)).await?;
        if self.state.session.queued_messages.iter().any(|waiting| waiting.message == message) {
            self.screen.print_note("(it is answered once the turn before it has ended)")?;
        }
        Ok(after)
    }

    /// Tells what went wrong, and goes on.
    pub(super) fn report_error(&mut self, why: &str) -> io::Result<()> {
        self.result = ChatResult::Failed;
        self.screen.print_error(why)
    }

    /// Goes on in another session.
    pub(super) async fn switch_session(&mut self, session: SessionId) -> anyhow::Result<()> {
        let (rules, state) = self.engine.load_session(&session).await?;
        self.updates = self.backend.subscribe(&session, state.session.last_seq).await?;
        self.display = TurnDisplay::new(speaker_names_for(&*rules));
        (self.session, self.flow, self.state) = (session, rules, state);
        self.sent_messages.clear();
        Ok(())
    }

    /// Follows what was recorded until now, and what comes of it.
    pub(super) async fn follow_to_head(&mut self) -> anyhow::Result<LoopControl> {
        let mut head = self.updates.last_seq();
        while let Some(last) = self.engine.read_events(&self.session, head, EVENTS_BATCH_MAX).await?.last() {
            head = last.seq;
        }
        self.follow_until(FollowUntil::Event(head)).await
    }

    /// Shows what happens until nothing does any more, or until a person must decide.
    async fn follow_until(&mut self, until: FollowUntil) -> anyhow::Result<LoopControl> {
        self.terminal_mode.disable_echo();
        let after = self.follow_without_echo(until).await;
        self.terminal_mode.restore();
        self.screen.end_line()?;
        after
    }

    async fn follow_without_echo(&mut self, until: FollowUntil) -> anyhow::Result<LoopControl> {
        let mut interrupts = InterruptSignal::listen()?;
        let mut pulse = interval_at(Instant::now() + SPINNER_INTERVAL, SPINNER_INTERVAL);
        let (from, mut stopping) = (now_millis(), false);
        while !(self.has_reached(until) && self.is_idle() && self.is_caught_up().await?) {
            tokio::select! {
                biased;
                () = self.shutdown_signal.recv() => return Ok(LoopControl::Exit),
                () = interrupts.recv() => {
                    if stopping {
                        self.screen.print_note("— leaving; what is under way goes on at the next start —")?;
                        return Ok(LoopControl::Exit);
                    }
                    stopping = true;
                    match self.backend.send_command(&self.session, OperatorCommand::Cancel).await {
                        Ok(()) => {}
                        Err(error) if is_nothing_running_error(&error) => return Ok(LoopControl::Continue),
                        Err(error) => return Err(error),
                    }
                }
                update = self.updates.next() => self.show_update(update?).await?,
                _ = pulse.tick() => self.update_spinner(from)?,
            }
        }
        Ok(LoopControl::Continue)
    }

    /// Waits for something beside the conversation; nothing if the user does not want to wait.
    pub(super) async fn wait_with_spinner<T>(
        &mut self,
        what: &str,
        work: impl Future<Output = T>,
    ) -> io::Result<Option<T>> {
        let mut interrupts = InterruptSignal::listen()?;
        let mut pulse = interval_at(Instant::now() + SPINNER_INTERVAL, SPINNER_INTERVAL);
        let from = now_millis();
        tokio::pin!(work);
        self.terminal_mode.disable_echo();
        let done = loop {
            tokio::select! {
                biased;
                done = &mut work => break Some(done),
                () = interrupts.recv() => break None,
                () = self.shutdown_signal.recv() => break None,
                _ = pulse.tick() => {
                    self.frame = self.frame.wrapping_add(1);
                    self.screen.show_spinner(&progress_text::render_wait_progress(what, from, now_millis(), self.frame));
                }
            }
        };
        self.terminal_mode.restore();
        self.screen.end_line()?;
        Ok(done)
    }

    fn update_spinner(&mut self, from: UnixMillis) -> io::Result<()> {
        self.display.retract_if_unsent(&mut self.screen)?;
        match self.engine.pending_write_error(&self.session) {
            Some(trouble) if !self.has_warned => {
                self.has_warned = true;
                self.screen.print_note(&write_failure_message(&trouble))?;
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

    fn has_reached(&self, until: FollowUntil) -> bool {
        match until {
            FollowUntil::Message(message) => self.state.session.last_ids.message >= message,
            FollowUntil::Event(seq) => self.state.session.last_seq >= seq,
        }
    }

    /// Whether nothing happens unless somebody does something.
    fn is_idle(&self) -> bool {
        let session = &self.state.session;
        let held = session.open_calls.values().all(|open| open.status == CallStatus::AwaitingOperator);
        session.is_idle() || (!session.open_calls.is_empty() && held && session.open_tool_runs.is_empty())
    }

    /// Whether nothing is recorded that was not seen: what goes on beside turns may end in the middle of a commit.
    async fn is_caught_up(&self) -> anyhow::Result<bool> {
        Ok(self.engine.read_events(&self.session, self.state.session.last_seq, 1).await?.is_empty())
    }

    async fn show_update(&mut self, update: SessionUpdate) -> anyhow::Result<()> {
        match update {
            SessionUpdate::TextDelta { call, attempt, text, .. } => {
                // Words can come late: after the end of their call, or in the middle of its next try.
                let calls = &self.state.session.open_calls;
                if calls.get(&call).is_some_and(|open| open.attempt == attempt) {
                    self.display.show_chunk(&mut self.screen, call, attempt, &text)?;
                }
            }
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
            Event::ReplySent(said) => {
                let text = self.load_text(said.text.body).await?;
                self.display.show_reply(
                    &mut self.screen,
                    said.call,
                    said.role.as_ref().map(|by| by.as_str()),
                    &text,
                )?;
            }
            Event::UserMessageReceived(received) if !self.sent_messages.remove(&received.message) => {
                let text = self.load_text(received.text.body).await?;
                self.screen.print_note(&format!("(from elsewhere) {text}"))?;
            }
            Event::TurnEnded { outcome, .. } => {
                if self.display.end_turn(&mut self.screen, outcome)? == TurnEndStatus::Failed {
                    self.result = ChatResult::Failed;
                }
                self.screen.print_blank_line()?;
            }
            _ => {}
        }
        Ok(())
    }

    /// A fact of the flow's own, if it is worth a line; the state is the one after it.
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

/// The time, as the journal writes it.
#[must_use]
pub fn now_millis() -> UnixMillis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMillis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// Whether it must be said who speaks: where more than one role is heard.
fn speaker_names_for(flow: &dyn DynFlow) -> SpeakerNames {
    let heard = flow.spec().roles.values().filter(|role| matches!(role.visibility, Visibility::User { .. })).count();
    if heard > 1 { SpeakerNames::Shown } else { SpeakerNames::Hidden }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

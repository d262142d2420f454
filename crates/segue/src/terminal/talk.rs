//! The conversation itself: reads, sends, follows what happens until it rests, and reads again.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use segue_core::decide::Command;
use segue_core::event::{Event, Recorded};
use segue_core::flow::{Audience, Rules, Telling};
use segue_core::ids::{MessageId, Millis, Seq, SessionId};
use segue_core::prompt::Image;
use segue_core::session::{CallStatus, State};
use segue_engine::{Engine, Error, Message, Update};
use tokio::time::{Instant, interval_at};

use super::display::{Display, Ending, Names, choices};
use super::draft::{Draft, Form, Written};
use super::enter::{Arguments, Entered, enter};
use super::history;
use super::modes::Modes;
use super::partner::{Partner, Updates, nothing_ran};
use super::reader::{Held, Piece, Reader};
use super::recap::Recalled;
use super::screen::{Screen, Seen};
use super::signals::{Farewells, Interrupts};
use super::slash::{self, Wish};
use crate::Quiet;
use crate::follow::cannot_write;
use crate::limits::EVENTS_AT_ONCE;
use crate::progress::{self, Rounds, call_label};

const PROMPT: &str = "> ";
const PROMPT_CONTINUED: &str = "… ";
const SPIN_EVERY: Duration = Duration::from_millis(100);

/// A conversation.
pub struct Talk<'e> {
    pub(super) partner: Partner<'e>,
    /// What sessions are looked at with.
    pub(super) engine: &'e Engine,
    pub(super) screen: Screen,
    pub(super) session: SessionId,
    pub(super) rules: Arc<dyn Rules>,
    /// The session as it stood after the last event seen.
    pub(super) state: State,
    updates: Updates,
    display: Display,
    reader: Reader,
    modes: Modes,
    farewells: Farewells,
    rounds: Rounds,
    /// Messages sent from here and not seen coming back yet.
    sent: BTreeSet<MessageId>,
    /// What is shown with the next message.
    pub(super) images: Vec<Image>,
    /// For whoever looks at the exit code.
    went: Went,
    frame: usize,
    /// Whether it was said that nothing can be written.
    has_complained: bool,
}

/// How far to follow.
#[derive(Debug, Clone, Copy)]
pub enum Until {
    /// This message was taken in.
    Message(MessageId),
    /// This event was seen.
    Event(Seq),
}

/// Whether all that was wanted was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Went {
    Well,
    Wrong,
}

/// Whether the conversation goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After {
    GoOn,
    Leave,
}

/// Talks until the user leaves.
///
/// # Errors
/// The session cannot be used, or something went wrong that a script should know of.
pub async fn talk(partner: Partner<'_>, arguments: Arguments, screen: Screen) -> anyhow::Result<()> {
    let entered = enter(partner, &arguments).await?;
    let modes = Modes::remember(screen.seen());
    let reader = match screen.seen() {
        Seen::Live => Reader::of_keys(screen.paint(), history::path())?,
        Seen::Piped => Reader::of_lines(io::BufReader::new(io::stdin())),
    };
    converse(partner, &arguments, entered, screen, (reader, modes)).await
}

/// Talks in a session that was entered.
///
/// # Errors
/// Something went wrong that a script should know of.
pub(super) async fn converse(
    partner: Partner<'_>,
    arguments: &Arguments,
    entered: Entered,
    mut screen: Screen,
    keyboard: (Reader, Modes),
) -> anyhow::Result<()> {
    entered.introduce(&mut screen, arguments, partner.engine())?;
    let picked_up = !entered.state.session.is_idle();
    let recalled = entered.recalled.clone();
    let mut talk = Talk::new(partner, screen, entered, keyboard).await?;
    match talk.run(&recalled, picked_up).await {
        // Nobody reads any more, which is their good right.
        Err(error) if is_broken_pipe(&error) => Ok(()),
        other => other,
    }
}

impl<'e> Talk<'e> {
    async fn new(
        partner: Partner<'e>,
        screen: Screen,
        entered: Entered,
        (reader, modes): (Reader, Modes),
    ) -> anyhow::Result<Self> {
        let Entered { session, rules, state, .. } = entered;
        let updates = partner.subscribe(&session, state.session.seq).await?;
        let mut display = Display::new(names(&*rules));
        state.session.calls.values().for_each(|open| display.opened(&open.opened));
        Ok(Self {
            partner,
            engine: partner.engine(),
            screen,
            session,
            rules,
            state,
            updates,
            display,
            reader,
            modes,
            farewells: Farewells::listen()?,
            rounds: Rounds::default(),
            sent: BTreeSet::new(),
            images: Vec::new(),
            went: Went::Well,
            frame: 0,
            has_complained: false,
        })
    }

    async fn run(&mut self, recalled: &[Recalled], picked_up: bool) -> anyhow::Result<()> {
        self.recall(recalled)?;
        if picked_up {
            self.screen.note("— picking up where we left off —")?;
        }
        self.tell_held()?;
        let mut after = self.catch_up().await?;
        while after == After::GoOn {
            after = match self.read().await? {
                Some(written) => self.take(written).await?,
                None => After::Leave,
            };
        }
        self.screen.end_line()?;
        match (self.screen.seen(), self.went) {
            (Seen::Live, _) | (Seen::Piped, Went::Well) => Ok(()),
            (Seen::Piped, Went::Wrong) => Err(Quiet(1).into()),
        }
    }

    fn recall(&mut self, recalled: &[Recalled]) -> io::Result<()> {
        if recalled.is_empty() || self.screen.seen() == Seen::Piped {
            return Ok(());
        }
        let turns = self.state.session.last.turn.0;
        self.screen.note(&format!("— {turns} {} so far; the last: —", if turns == 1 { "turn" } else { "turns" }))?;
        for line in recalled {
            match line {
                Recalled::User(text) => self.screen.note(&format!("{PROMPT}{text}"))?,
                Recalled::Reply(text) => self.screen.note(text)?,
                Recalled::Running(text) => self.screen.print(text)?,
            }
        }
        self.screen.blank()
    }

    /// Says which calls wait for a decision.
    fn tell_held(&mut self) -> io::Result<()> {
        for (call, open) in self.state.session.held() {
            let label = call_label(&open.opened);
            self.screen.warning(&format!("{label} was cut off and may have been billed; {}", choices(*call)))?;
        }
        Ok(())
    }

    /// Reads until a message is complete; nothing if the user leaves.
    async fn read(&mut self) -> anyhow::Result<Option<Written>> {
        let mut draft = Draft::default();
        let mut interrupted = false;
        loop {
            let prompt = if draft.is_open() { PROMPT_CONTINUED } else { PROMPT };
            match self.next_piece(prompt).await? {
                Piece::Text(text) => {
                    interrupted = false;
                    if let Some(written) = draft.push(&text) {
                        self.keep(&written);
                        return Ok(Some(written));
                    }
                }
                Piece::Interrupted(Held::Nothing) if interrupted => return Ok(None),
                Piece::Interrupted(_) => {
                    draft.discard();
                    interrupted = true;
                    self.screen.note("(Ctrl-C again, or Ctrl-D, leaves)")?;
                }
                Piece::Unreadable(why) => self.complain(&why)?,
                Piece::Broken(why) => {
                    self.complain(&why)?;
                    return Ok(None);
                }
                Piece::End => return Ok(draft.finish().filter(|_| self.screen.seen() == Seen::Piped)),
            }
        }
    }

    async fn next_piece(&mut self, prompt: &str) -> io::Result<Piece> {
        let mut interrupts = Interrupts::listen()?;
        self.reader.ask(prompt);
        Ok(tokio::select! {
            piece = self.reader.next() => piece,
            () = interrupts.next() => Piece::End,
            () = self.farewells.next() => Piece::End,
        })
    }

    fn keep(&self, written: &Written) {
        // What was said in a block must not become a command when it is brought back.
        let escape = if written.form == Form::Block && !written.text.contains('\n') && written.text.starts_with('/') {
            "/"
        } else {
            ""
        };
        if history::may_keep(&written.text) {
            self.reader.keep(&format!("{escape}{}", written.text));
        }
    }

    async fn take(&mut self, written: Written) -> anyhow::Result<After> {
        let done = match slash::read(written) {
            Ok(Wish::Nothing) => return Ok(After::GoOn),
            Ok(Wish::Say(text)) => self.say(text).await,
            Ok(Wish::Do(slash)) => self.obey(slash).await,
            Err(why) => Err(anyhow::anyhow!(why)),
        };
        match done {
            Ok(after) => Ok(after),
            Err(error) if is_broken_pipe(&error) => Err(error),
            Err(error) => {
                self.complain(&format!("{error:#}"))?;
                Ok(After::GoOn)
            }
        }
    }

    async fn say(&mut self, text: String) -> anyhow::Result<After> {
        let message = Message { images: self.images.clone(), ..Message::from(text) };
        let message = self.partner.send(&self.session, message).await?;
        self.images.clear();
        self.sent.insert(message);
        let after = self.follow(Until::Message(message)).await?;
        if self.state.session.queue.iter().any(|waiting| waiting.message == message) {
            self.screen.note("(it is answered once the turn before it has ended)")?;
        }
        Ok(after)
    }

    /// Tells what went wrong, and goes on.
    pub(super) fn complain(&mut self, why: &str) -> io::Result<()> {
        self.went = Went::Wrong;
        self.screen.error(why)
    }

    /// Goes on in another session.
    pub(super) async fn move_to(&mut self, session: SessionId) -> anyhow::Result<()> {
        let (rules, state) = self.engine.state(&session).await?;
        self.updates = self.partner.subscribe(&session, state.session.seq).await?;
        self.display = Display::new(names(&*rules));
        (self.session, self.rules, self.state) = (session, rules, state);
        self.sent.clear();
        Ok(())
    }

    /// Follows what was recorded until now, and what comes of it.
    pub(super) async fn catch_up(&mut self) -> anyhow::Result<After> {
        let mut head = self.updates.seen();
        while let Some(last) = self.engine.events(&self.session, head, EVENTS_AT_ONCE).await?.last() {
            head = last.seq;
        }
        self.follow(Until::Event(head)).await
    }

    /// Shows what happens until nothing does any more, or until a person must decide.
    async fn follow(&mut self, until: Until) -> anyhow::Result<After> {
        self.modes.hush();
        let after = self.follow_quietly(until).await;
        self.modes.restore();
        self.screen.end_line()?;
        after
    }

    async fn follow_quietly(&mut self, until: Until) -> anyhow::Result<After> {
        let mut interrupts = Interrupts::listen()?;
        let mut pulse = interval_at(Instant::now() + SPIN_EVERY, SPIN_EVERY);
        let (from, mut stopping) = (now(), false);
        while !(self.has_come_to(until) && self.rests() && self.has_seen_all().await?) {
            tokio::select! {
                biased;
                () = self.farewells.next() => return Ok(After::Leave),
                () = interrupts.next() => {
                    if stopping {
                        self.screen.note("— leaving; what is under way goes on at the next start —")?;
                        return Ok(After::Leave);
                    }
                    stopping = true;
                    match self.partner.command(&self.session, Command::Cancel).await {
                        Ok(()) => {}
                        Err(error) if nothing_ran(&error) => return Ok(After::GoOn),
                        Err(error) => return Err(error),
                    }
                }
                update = self.updates.next() => self.see(update?).await?,
                _ = pulse.tick() => self.spin(from)?,
            }
        }
        Ok(After::GoOn)
    }

    /// Waits for something beside the conversation; nothing if the user does not want to wait.
    pub(super) async fn wait_for<T>(&mut self, what: &str, work: impl Future<Output = T>) -> io::Result<Option<T>> {
        let mut interrupts = Interrupts::listen()?;
        let mut pulse = interval_at(Instant::now() + SPIN_EVERY, SPIN_EVERY);
        let from = now();
        tokio::pin!(work);
        self.modes.hush();
        let done = loop {
            tokio::select! {
                biased;
                done = &mut work => break Some(done),
                () = interrupts.next() => break None,
                () = self.farewells.next() => break None,
                _ = pulse.tick() => {
                    self.frame = self.frame.wrapping_add(1);
                    self.screen.spin(&progress::waiting(what, from, now(), self.frame));
                }
            }
        };
        self.modes.restore();
        self.screen.end_line()?;
        Ok(done)
    }

    fn spin(&mut self, from: Millis) -> io::Result<()> {
        self.display.settle(&mut self.screen)?;
        match self.engine.trouble(&self.session) {
            Some(trouble) if !self.has_complained => {
                self.has_complained = true;
                self.screen.note(&cannot_write(&trouble))?;
            }
            _ => {}
        }
        if !self.display.is_speaking() {
            self.frame = self.frame.wrapping_add(1);
            self.screen.spin(&progress::line(&self.state.session, &self.rounds, from, now(), self.frame));
        }
        Ok(())
    }

    fn has_come_to(&self, until: Until) -> bool {
        match until {
            Until::Message(message) => self.state.session.last.message >= message,
            Until::Event(seq) => self.state.session.seq >= seq,
        }
    }

    /// Whether nothing happens unless somebody does something.
    fn rests(&self) -> bool {
        let session = &self.state.session;
        let held = session.calls.values().all(|open| open.status == CallStatus::Held);
        session.is_idle() || (!session.calls.is_empty() && held && session.tools.is_empty())
    }

    /// Whether nothing is recorded that was not seen: what goes on beside turns may end in the middle of a commit.
    async fn has_seen_all(&self) -> anyhow::Result<bool> {
        Ok(self.engine.events(&self.session, self.state.session.seq, 1).await?.is_empty())
    }

    async fn see(&mut self, update: Update) -> anyhow::Result<()> {
        match update {
            Update::Words { call, attempt, text, .. } => {
                // Words can come late: after the end of their call, or in the middle of its next try.
                let calls = &self.state.session.calls;
                if calls.get(&call).is_some_and(|open| open.attempt == attempt) {
                    self.display.words(&mut self.screen, call, attempt, &text)?;
                }
            }
            Update::Event(recorded) => {
                self.rounds.note(&recorded.event);
                self.see_event(&recorded).await?;
                self.state.apply(&*self.rules, &recorded);
                self.see_fact(&recorded.event)?;
            }
        }
        Ok(())
    }

    async fn see_event(&mut self, recorded: &Recorded) -> anyhow::Result<()> {
        self.display.event(&mut self.screen, &self.state.session, recorded)?;
        match &recorded.event {
            Event::Said(said) => {
                let text = self.text(said.text.body).await?;
                self.display.said(&mut self.screen, said.call, said.by.as_ref().map(|by| by.as_str()), &text)?;
            }
            Event::MessageReceived(received) if !self.sent.remove(&received.message) => {
                let text = self.text(received.text.body).await?;
                self.screen.note(&format!("(from elsewhere) {text}"))?;
            }
            Event::TurnEnded { outcome, .. } => {
                if self.display.turn_ended(&mut self.screen, outcome)? == Ending::Failed {
                    self.went = Went::Wrong;
                }
                self.screen.blank()?;
            }
            _ => {}
        }
        Ok(())
    }

    /// A fact of the flow's own, if it is worth a line; the state is the one after it.
    fn see_fact(&mut self, event: &Event) -> io::Result<()> {
        let Event::Fact { kind, value } = event else { return Ok(()) };
        match self.rules.tell(&self.state.flow, kind, value) {
            Telling::News(text) if text.contains('\n') => self.display.note(&mut self.screen, text),
            Telling::News(text) => self.display.note(&mut self.screen, format!("— {text} —")),
            Telling::AsItStands | Telling::Nothing | Telling::Detail(_) => Ok(()),
        }
    }

    async fn text(&self, body: segue_core::body::BodyId) -> Result<Arc<str>, Error> {
        let texts = self.engine.texts(&self.session, &[body]).await?;
        Ok(texts.into_iter().next().unwrap_or_else(|| "".into()))
    }
}

/// The time, as the journal writes it.
#[must_use]
pub fn now() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// Whether it must be said who speaks: where more than one role is heard.
fn names(rules: &dyn Rules) -> Names {
    let heard = rules.spec().roles.values().filter(|role| matches!(role.audience, Audience::User { .. })).count();
    if heard > 1 { Names::Shown } else { Names::Understood }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

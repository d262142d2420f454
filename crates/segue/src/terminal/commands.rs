//! What each command does. None of them decides anything: they ask the engine, and what comes of it is seen like everything
//! else.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, bail};
use segue_core::decide::{Command, Resolution};
use segue_core::ids::{CallId, PhaseName};
use segue_store::Query;

use super::journal;
use super::slash::{Place, Slash, help};
use super::spent::{cost, prefixes};
use super::talk::{After, Talk};
use crate::commands::explain::find::find;
use crate::commands::explain::receipt;
use crate::commands::operate::flow_command;
use crate::commands::phase::graphs::meant;
use crate::commands::phase::{pages, standings};
use crate::commands::recompute::page;
use crate::commands::sessions::listing;
use crate::limits::SESSIONS_LISTED_MAX;
use crate::print::table::Table;

impl Talk<'_> {
    /// Does what a command says.
    ///
    /// # Errors
    /// It could not be done, and why.
    pub(super) async fn obey(&mut self, slash: Slash) -> anyhow::Result<After> {
        match slash {
            Slash::Help => self.screen.print(&help(self.screen.page().width))?,
            Slash::Phase => {
                let standings = standings(self.engine, &self.session, &*self.rules, &self.state).await?;
                let text = pages(self.rules.spec(), &standings, self.screen.paint());
                self.screen.print_styled(&text)?;
            }
            Slash::Propose(Place { to, of }) => {
                let phase = self.phase_meant(Some(&to), of.as_deref())?;
                return self.command(Command::Propose { phase, to, reason: None }).await;
            }
            Slash::Grant(Place { to, of }) => {
                let phase = self.phase_meant(Some(&to), of.as_deref())?;
                return self.command(Command::Grant { phase, to }).await;
            }
            Slash::RollBack { visit, of } => {
                let phase = self.phase_meant(None, of.as_deref())?;
                return self.command(Command::RollBack { phase, visit }).await;
            }
            Slash::Why(call) => self.why(call).await?,
            Slash::Recompute { call, model, set } => return self.recompute(call, model.as_deref(), &set).await,
            Slash::Fork(name) => {
                let from = self.session.clone();
                let fork = self.partner.fork(&from, name).await?;
                self.move_to(fork).await?;
                self.screen.note(&format!("— now in {}, a copy of {from} —", self.session))?;
            }
            Slash::Cancel => return self.command(Command::Cancel).await,
            Slash::Retry(None) if self.state.session.held().next().is_none() => {
                return self.command(Command::Retry).await;
            }
            Slash::Retry(call) => return self.resolve(call, Resolution::Retry).await,
            Slash::Fail(call) => return self.resolve(call, Resolution::Fail).await,
            Slash::Forget(role) => return self.command(Command::Forget { role, agent: None, peer: None }).await,
            Slash::Show => {
                let on_show = self.engine.exhibits(&self.session, &*self.rules, &self.state).await?;
                if on_show.is_empty() {
                    self.screen.note("(nothing is on show)")?;
                }
                let text = crate::print::exhibit::exhibits(&on_show, self.screen.page());
                self.screen.print_styled(text.trim_start_matches('\n'))?;
            }
            Slash::Do { command, arguments } => {
                return self.command(flow_command(&command, &arguments)?).await;
            }
            Slash::Title(title) => {
                let after = self.command(Command::Rename { title }).await?;
                self.screen.note(&format!("— titled “{}” —", self.state.session.title))?;
                return Ok(after);
            }
            Slash::Cost => {
                self.print_table(&cost(&self.state.session.ledger))?;
                self.screen.note(&prefixes(&self.state.session.ledger))?;
            }
            Slash::Sessions => {
                let page = self.engine.list(&Query::newest(SESSIONS_LISTED_MAX)).await?;
                self.print_table(&listing(&page.rows))?;
            }
            Slash::Export(path) => self.export(&path).await?,
            Slash::Quit => return Ok(After::Leave),
        }
        Ok(After::GoOn)
    }

    async fn command(&mut self, command: Command) -> anyhow::Result<After> {
        self.partner.command(&self.session, command).await?;
        self.catch_up().await
    }

    fn phase_meant(&self, to: Option<&PhaseName>, of: Option<&str>) -> anyhow::Result<segue_core::event::PhaseKey> {
        let names: Vec<&str> = of.into_iter().collect();
        meant(self.rules.spec(), &self.state.session, to, &names, "at the end").map_err(anyhow::Error::msg)
    }

    async fn resolve(&mut self, call: Option<CallId>, how: Resolution) -> anyhow::Result<After> {
        let held: Vec<CallId> = self.state.session.held().map(|(call, _)| *call).collect();
        let call = match (call, held.as_slice()) {
            (Some(call), _) => call,
            (None, [only]) => *only,
            (None, []) => bail!("no call waits for a decision"),
            (None, several) => {
                let names: Vec<String> = several.iter().map(ToString::to_string).collect();
                bail!("several calls wait for a decision; name one of {}", names.join(", "))
            }
        };
        self.command(Command::Resolve { call, how }).await
    }

    /// The call that was named, or the last one that was heard.
    async fn call_meant(&self, call: Option<CallId>) -> anyhow::Result<CallId> {
        match call {
            Some(call) => Ok(call),
            None => {
                let heard = journal::last_heard(self.engine, &self.session, self.state.session.seq).await?;
                heard.context("nothing was answered yet")
            }
        }
    }

    async fn recompute(&mut self, call: Option<CallId>, model: Option<&str>, set: &[String]) -> anyhow::Result<After> {
        let call = self.call_meant(call).await?;
        let (partner, session) = (self.partner, self.session.clone());
        let again = partner.once_more(&session, call, model, set);
        let Some(both) = self.wait_for(&format!("asking {call} once more"), again).await? else {
            self.screen.note("— not waited for; its answer will stand in the history —")?;
            return Ok(After::GoOn);
        };
        let page = page(&both?, self.screen.page());
        let after = self.catch_up().await?;
        self.screen.print_styled(&page)?;
        Ok(after)
    }

    async fn why(&mut self, call: Option<CallId>) -> anyhow::Result<()> {
        let call = self.call_meant(call).await?;
        let found = find(self.engine, &self.session, call).await?;
        let role = self.rules.spec().roles.get(&found.opened.1.role);
        let text = receipt::render(&self.session, &found, role, self.screen.page());
        self.screen.print_styled(&text)?;
        Ok(())
    }

    fn print_table(&mut self, table: &Table) -> std::io::Result<()> {
        let page = self.screen.page();
        self.screen.print_styled(&table.render(page.width, page.paint))
    }

    async fn export(&mut self, path: &Path) -> anyhow::Result<()> {
        let failed = || format!("cannot write {}", path.display());
        let file = std::fs::File::create_new(path).with_context(failed)?;
        let mut file = std::io::BufWriter::new(file);
        self.engine
            .export(&self.session, |line| file.write_all(line.as_bytes()).map_err(anyhow::Error::from))
            .await
            .with_context(failed)?;
        file.flush().with_context(failed)?;
        self.screen.print(&format!("written to {}", path.display()))?;
        Ok(())
    }
}

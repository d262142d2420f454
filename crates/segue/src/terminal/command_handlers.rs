//! What each command does. None of them decides anything: they ask the engine, and what comes of it is seen like everything
//! else.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, bail};
use segue_core::decide::{OperatorCommand, UnknownCallResolution};
use segue_core::ids::{CallId, PhaseName};
use segue_store::SessionQuery;

use super::chat_loop::{ChatLoop, LoopControl};
use super::cost_table::{cost_table, describe_prefix_reuse};
use super::reply_lookup;
use super::slash_command::{PhaseTarget, SlashCommand, help_text};
use crate::commands::explain::call_history::load_call_history;
use crate::commands::explain::receipt;
use crate::commands::phase::graph_lookup::resolve_phase_key;
use crate::commands::phase::{load_phase_reports, render_phase_reports};
use crate::commands::recompute::render_recompute_result;
use crate::commands::session_actions::parse_flow_command;
use crate::commands::sessions::session_table;
use crate::limits::SESSIONS_LISTED_MAX;
use crate::print::text_table::TextTable;

impl ChatLoop<'_> {
    /// Does what a command says.
    ///
    /// # Errors
    /// It could not be done, and why.
    pub(super) async fn run_slash_command(&mut self, command: SlashCommand) -> anyhow::Result<LoopControl> {
        match command {
            SlashCommand::Help => self.screen.print_text(&help_text(self.screen.render_options().width))?,
            SlashCommand::Phase => {
                let standings = load_phase_reports(self.engine, &self.session, &*self.flow, &self.state).await?;
                let text = render_phase_reports(self.flow.spec(), &standings, self.screen.paint());
                self.screen.print_styled(&text)?;
            }
            SlashCommand::Propose(PhaseTarget { to, owner: of }) => {
                let phase = self.resolve_phase(Some(&to), of.as_deref())?;
                return self.send_command(OperatorCommand::Propose { phase, to, reason: None }).await;
            }
            SlashCommand::Grant(PhaseTarget { to, owner: of }) => {
                let phase = self.resolve_phase(Some(&to), of.as_deref())?;
                return self.send_command(OperatorCommand::Grant { phase, to }).await;
            }
            SlashCommand::RollBack { visit, owner: of } => {
                let phase = self.resolve_phase(None, of.as_deref())?;
                return self.send_command(OperatorCommand::RollBack { phase, visit }).await;
            }
            SlashCommand::ExplainCall(call) => self.print_receipt(call).await?,
            SlashCommand::Recompute { call, model, set } => {
                return self.recompute_and_compare(call, model.as_deref(), &set).await;
            }
            SlashCommand::Fork(name) => {
                let from = self.session.clone();
                let fork = self.backend.fork_session(&from, name).await?;
                self.switch_session(fork).await?;
                self.screen.print_note(&format!("— now in {}, a copy of {from} —", self.session))?;
            }
            SlashCommand::Cancel => return self.send_command(OperatorCommand::Cancel).await,
            SlashCommand::Retry(None) if self.state.session.calls_awaiting_operator().next().is_none() => {
                return self.send_command(OperatorCommand::Retry).await;
            }
            SlashCommand::Retry(call) => return self.resolve_waiting_call(call, UnknownCallResolution::Retry).await,
            SlashCommand::Fail(call) => return self.resolve_waiting_call(call, UnknownCallResolution::Fail).await,
            SlashCommand::ForgetRole(role) => {
                return self.send_command(OperatorCommand::Forget { role, agent: None, peer: None }).await;
            }
            SlashCommand::ShowArtifacts => {
                let on_show = self.engine.artifacts(&self.session, &*self.flow, &self.state).await?;
                if on_show.is_empty() {
                    self.screen.print_note("(nothing is on show)")?;
                }
                let text = crate::print::artifact::render_artifacts(&on_show, self.screen.render_options());
                self.screen.print_styled(text.trim_start_matches('\n'))?;
            }
            SlashCommand::RunFlowCommand { command, arguments } => {
                return self.send_command(parse_flow_command(&command, &arguments)?).await;
            }
            SlashCommand::Title(title) => {
                let after = self.send_command(OperatorCommand::Rename { title }).await?;
                self.screen.print_note(&format!("— titled “{}” —", self.state.session.title))?;
                return Ok(after);
            }
            SlashCommand::Cost => {
                self.print_table(&cost_table(&self.state.session.ledger))?;
                self.screen.print_note(&describe_prefix_reuse(&self.state.session.ledger))?;
            }
            SlashCommand::Sessions => {
                let page = self.engine.list_sessions(&SessionQuery::newest(SESSIONS_LISTED_MAX)).await?;
                self.print_table(&session_table(&page.entries))?;
            }
            SlashCommand::Export(path) => self.export_session(&path).await?,
            SlashCommand::AttachImage(path) => {
                self.pending_images.push(crate::image::load_image(&path)?);
                self.screen.print_note(&format!("({} is shown with your next message)", path.display()))?;
            }
            SlashCommand::Quit => return Ok(LoopControl::Exit),
        }
        Ok(LoopControl::Continue)
    }

    async fn send_command(&mut self, command: OperatorCommand) -> anyhow::Result<LoopControl> {
        self.backend.send_command(&self.session, command).await?;
        self.follow_to_head().await
    }

    fn resolve_phase(
        &self,
        to: Option<&PhaseName>,
        of: Option<&str>,
    ) -> anyhow::Result<segue_core::event::PhaseGraphKey> {
        let names: Vec<&str> = of.into_iter().collect();
        resolve_phase_key(self.flow.spec(), &self.state.session, to, &names, "at the end").map_err(anyhow::Error::msg)
    }

    async fn resolve_waiting_call(
        &mut self,
        call: Option<CallId>,
        how: UnknownCallResolution,
    ) -> anyhow::Result<LoopControl> {
        let held: Vec<CallId> = self.state.session.calls_awaiting_operator().map(|(call, _)| *call).collect();
        let call = match (call, held.as_slice()) {
            (Some(call), _) => call,
            (None, [only]) => *only,
            (None, []) => bail!("no call waits for a decision"),
            (None, several) => {
                let names: Vec<String> = several.iter().map(ToString::to_string).collect();
                bail!("several calls wait for a decision; name one of {}", names.join(", "))
            }
        };
        self.send_command(OperatorCommand::Resolve { call, resolution: how }).await
    }

    /// The call that was named, or the last one that was heard.
    async fn call_or_last_replied(&self, call: Option<CallId>) -> anyhow::Result<CallId> {
        match call {
            Some(call) => Ok(call),
            None => {
                let heard =
                    reply_lookup::find_last_replied_call(self.engine, &self.session, self.state.session.last_seq)
                        .await?;
                heard.context("nothing was answered yet")
            }
        }
    }

    async fn recompute_and_compare(
        &mut self,
        call: Option<CallId>,
        model: Option<&str>,
        set: &[String],
    ) -> anyhow::Result<LoopControl> {
        let call = self.call_or_last_replied(call).await?;
        let (partner, session) = (self.backend, self.session.clone());
        let again = partner.recompute_call(&session, call, model, set);
        let Some(both) = self.wait_with_spinner(&format!("asking {call} once more"), again).await? else {
            self.screen.print_note("— not waited for; its answer will stand in the history —")?;
            return Ok(LoopControl::Continue);
        };
        let page = render_recompute_result(&both?, self.screen.render_options());
        let after = self.follow_to_head().await?;
        self.screen.print_styled(&page)?;
        Ok(after)
    }

    async fn print_receipt(&mut self, call: Option<CallId>) -> anyhow::Result<()> {
        let call = self.call_or_last_replied(call).await?;
        let found = load_call_history(self.engine, &self.session, call).await?;
        let role = self.flow.spec().roles.get(&found.opened.1.role);
        let text = receipt::render_receipt(&self.session, &found, role, self.screen.render_options());
        self.screen.print_styled(&text)?;
        Ok(())
    }

    fn print_table(&mut self, table: &TextTable) -> std::io::Result<()> {
        let page = self.screen.render_options();
        self.screen.print_styled(&table.render(page.width, page.paint))
    }

    async fn export_session(&mut self, path: &Path) -> anyhow::Result<()> {
        let failed = || format!("cannot write {}", path.display());
        let file = std::fs::File::create_new(path).with_context(failed)?;
        let mut file = std::io::BufWriter::new(file);
        self.engine
            .export_session(&self.session, |line| file.write_all(line.as_bytes()).map_err(anyhow::Error::from))
            .await
            .with_context(failed)?;
        file.flush().with_context(failed)?;
        self.screen.print_text(&format!("written to {}", path.display()))?;
        Ok(())
    }
}

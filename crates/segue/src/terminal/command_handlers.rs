//! Runs the slash commands. Commands that change the session are sent to the engine, and their effects are shown as
//! events.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, bail};
use segue_core::decide::{OperatorCommand, UnknownCallOutcomeResolution};
use segue_core::ids::{CallId, PhaseName};
use segue_store::SessionQuery;

use super::chat_loop::{ChatLoop, LoopControl};
use super::cost_table::{cost_table, describe_prefix_reuse};
use super::reply_lookup;
use super::slash_command::{PhaseAndGraphOwner, SlashCommand, help_text};
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
    /// Runs a slash command.
    ///
    /// # Errors
    /// Returns an error if the command is refused or fails.
    pub(super) async fn run_slash_command(&mut self, command: SlashCommand) -> anyhow::Result<LoopControl> {
        match command {
            SlashCommand::Help => self.screen.print_text(&help_text(self.screen.render_options().width))?,
            SlashCommand::Phase => {
                let reports = load_phase_reports(self.engine, &self.session, &*self.flow, &self.state).await?;
                let text = render_phase_reports(self.flow.spec(), &reports, self.screen.paint());
                self.screen.print_styled(&text)?;
            }
            SlashCommand::Propose(PhaseAndGraphOwner { to, owner }) => {
                let phase = self.resolve_phase(Some(&to), owner.as_deref())?;
                return self.send_command(OperatorCommand::Propose { phase, to, reason: None }).await;
            }
            SlashCommand::Grant(PhaseAndGraphOwner { to, owner }) => {
                let phase = self.resolve_phase(Some(&to), owner.as_deref())?;
                return self.send_command(OperatorCommand::Grant { phase, to }).await;
            }
            SlashCommand::RollBack { visit, owner } => {
                let phase = self.resolve_phase(None, owner.as_deref())?;
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
            SlashCommand::Cancel => {
                let turn = self.state.session.current_turn.as_ref().map(|turn| turn.id);
                return self.send_command(OperatorCommand::Cancel { turn }).await;
            }
            SlashCommand::Retry(None) if self.state.session.calls_awaiting_operator().next().is_none() => {
                let turn = self.state.session.failed_turn.as_ref().map(|turn| turn.id);
                return self.send_command(OperatorCommand::Retry { turn }).await;
            }
            SlashCommand::Retry(call) => {
                return self.resolve_waiting_call(call, UnknownCallOutcomeResolution::Retry).await;
            }
            SlashCommand::Fail(call) => {
                return self.resolve_waiting_call(call, UnknownCallOutcomeResolution::Fail).await;
            }
            SlashCommand::ResetRole(role) => {
                return self.send_command(OperatorCommand::Forget { role, agent: None, peer: None }).await;
            }
            SlashCommand::ShowArtifacts => {
                let artifacts = self.engine.artifacts(&self.session, &*self.flow, &self.state).await?;
                if artifacts.is_empty() {
                    self.screen.print_note("(no artifacts)")?;
                }
                let text = crate::print::artifact::render_artifacts(&artifacts, self.screen.render_options());
                self.screen.print_styled(text.trim_start_matches('\n'))?;
            }
            SlashCommand::RunFlowCommand { command, arguments } => {
                return self.send_command(parse_flow_command(self.flow.spec(), &command, &arguments)?).await;
            }
            SlashCommand::Rename(title) => {
                let control = self.send_command(OperatorCommand::Rename { title }).await?;
                self.screen.print_note(&format!("— renamed to “{}” —", self.state.session.title))?;
                return Ok(control);
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
                self.screen.print_note(&format!("({} is attached to your next message)", path.display()))?;
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
        owner: Option<&str>,
    ) -> anyhow::Result<segue_core::event::PhaseGraphKey> {
        let names: Vec<&str> = owner.into_iter().collect();
        resolve_phase_key(self.flow.spec(), &self.state.session, to, &names, "as the last argument")
            .map_err(anyhow::Error::msg)
    }

    async fn resolve_waiting_call(
        &mut self,
        call: Option<CallId>,
        resolution: UnknownCallOutcomeResolution,
    ) -> anyhow::Result<LoopControl> {
        let waiting: Vec<CallId> = self.state.session.calls_awaiting_operator().map(|(call, _)| *call).collect();
        let call = match (call, waiting.as_slice()) {
            (Some(call), _) => call,
            (None, [only]) => *only,
            (None, []) => bail!("no call waits for a decision"),
            (None, several) => {
                let names: Vec<String> = several.iter().map(ToString::to_string).collect();
                bail!("several calls wait for a decision; name one of {}", names.join(", "))
            }
        };
        self.send_command(OperatorCommand::Resolve { call, resolution }).await
    }

    /// Returns `call`, or else the call of the last reply.
    async fn call_or_last_replied(&self, call: Option<CallId>) -> anyhow::Result<CallId> {
        match call {
            Some(call) => Ok(call),
            None => {
                let last = self.state.session.last_seq;
                let call = reply_lookup::find_last_replied_call(self.engine, &self.session, last).await?;
                call.context("there is no reply yet")
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
        let (backend, session) = (self.backend, self.session.clone());
        let recomputation = backend.recompute_call(&session, call, model, set);
        let Some(result) = self.wait_with_spinner(&format!("recomputing {call}"), recomputation).await? else {
            self.screen.print_note("— stopped waiting; the answer will be in the journal —")?;
            return Ok(LoopControl::Continue);
        };
        let page = render_recompute_result(&result?, self.screen.render_options());
        let control = self.follow_to_head().await?;
        self.screen.print_styled(&page)?;
        Ok(control)
    }

    async fn print_receipt(&mut self, call: Option<CallId>) -> anyhow::Result<()> {
        let call = self.call_or_last_replied(call).await?;
        let history = load_call_history(self.engine, &self.session, call).await?;
        let role = self.flow.spec().roles.get(&history.opened.1.role);
        let text = receipt::render_receipt(&self.session, &history, role, self.screen.render_options());
        self.screen.print_styled(&text)?;
        Ok(())
    }

    fn print_table(&mut self, table: &TextTable) -> std::io::Result<()> {
        let options = self.screen.render_options();
        self.screen.print_styled(&table.render(options.width, options.paint))
    }

    async fn export_session(&mut self, path: &Path) -> anyhow::Result<()> {
        let write_error = || format!("cannot write {}", path.display());
        let file = std::fs::File::create_new(path).with_context(write_error)?;
        let mut file = std::io::BufWriter::new(file);
        self.engine
            .export_session(&self.session, |line| file.write_all(line.as_bytes()).map_err(anyhow::Error::from))
            .await
            .with_context(write_error)?;
        file.flush().with_context(write_error)?;
        self.screen.print_text(&format!("exported to {}", path.display()))?;
        Ok(())
    }
}

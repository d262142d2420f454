//! Tools that a client runs itself. A run is passed to the client and waits there, like one that waits for approval; the
//! client sends the result as a command that names the run.

use std::collections::BTreeSet;

use super::InputRefusal;
use super::draft::DecisionDraft;
use crate::body::BodyVisibility;
use crate::event::{
    CallOpened, ClientToolResult, ClientTurnOptions, Event, RecordedClientTurnOptions, ToolRunHoldReason,
    ToolRunOutcome,
};
use crate::flow::RoleSpec;
use crate::ids::{ToolName, ToolRunId};
use crate::prompt::ModelToolSpec;
use crate::signal::json::canonical_json;

impl DecisionDraft<'_> {
    /// Refuses options that break a limit, or that no role of the flow accepts.
    pub(super) fn check_turn_options(&self, options: &ClientTurnOptions) -> Result<(), InputRefusal> {
        let is_accepted = options.is_empty() || self.spec().roles.values().any(|role| role.accepts_turn_options);
        if !is_accepted {
            let why = format!("the flow `{}` uses its own tools and formats", self.spec().name);
            return Err(InputRefusal::InvalidTurnOptions { why });
        }
        options.validate().map_err(|why| InputRefusal::InvalidTurnOptions { why })
    }

    /// Stores the tools and the schema. Returns `None` for options that change nothing.
    pub(super) fn store_turn_options(&mut self, options: &ClientTurnOptions) -> Option<RecordedClientTurnOptions> {
        if options.is_empty() {
            return None;
        }
        let tools = options.tools_json().map(|json| self.store_uncounted_text(json.into(), BodyVisibility::Internal));
        let schema = options.output_schema.as_ref().map(canonical_json);
        let output_schema = schema.map(|json| self.store_uncounted_text(json.into(), BodyVisibility::Internal));
        Some(RecordedClientTurnOptions { tools, tool_use: options.tool_use.clone(), output_schema })
    }

    /// Returns the options that apply to a call of the role now.
    pub(super) fn options_for_role(&self, role: &RoleSpec) -> RecordedClientTurnOptions {
        let turn = self.session().current_turn.as_ref().filter(|turn| self.active_cause_turn() == Some(turn.id));
        let options = turn.filter(|_| role.accepts_turn_options).and_then(|turn| turn.options.clone());
        options.unwrap_or_default()
    }

    /// Returns true if the tool belongs to the client: its role accepts such tools, and the call was offered this one.
    pub(super) fn is_client_tool(&self, opened: &CallOpened, tool: &ToolName) -> bool {
        let accepts = self.spec().roles.get(&opened.role).is_some_and(|role| role.accepts_turn_options);
        let Some(tools) = opened.tools_body.filter(|_| accepts) else { return false };
        let offered: Vec<ModelToolSpec> =
            serde_json::from_str(&self.texts.resolve_or_mark_missing(tools)).unwrap_or_default();
        offered.iter().any(|offered| offered.name == *tool)
    }

    /// Ends runs that wait for the client with the client's results. All runs of the turn that wait for it must be
    /// among them, because the model is only called again when all are known.
    pub(super) fn receive_client_results(
        &mut self,
        results: Vec<ClientToolResult>,
        options: &ClientTurnOptions,
    ) -> Result<(), InputRefusal> {
        self.check_turn_options(options)?;
        for result in &results {
            self.check_held(result.run, ToolRunHoldReason::ClientResult)?;
        }
        let given: BTreeSet<ToolRunId> = results.iter().map(|result| result.run).collect();
        let missing = self.session().runs_waiting_for_client().find(|run| !given.contains(run));
        if let Some(missing) = missing {
            return Err(InputRefusal::InvalidTurnOptions { why: format!("{missing} also waits for its result") });
        }
        if given.len() != results.len() || results.is_empty() {
            return Err(InputRefusal::InvalidTurnOptions { why: "each tool run needs exactly one result".to_owned() });
        }
        let current = self.session().current_turn.as_ref().map(|turn| (turn.id, turn.options.clone()));
        let options = self.store_turn_options(options);
        if let Some((turn, before)) = current
            && before != options
        {
            self.record_event(Event::TurnOptionsChanged { turn, options: options.unwrap_or_default() });
        }
        for ClientToolResult { run, text } in results {
            self.close_tool_run(run, ToolRunOutcome::Done, text);
        }
        Ok(())
    }
}

//! The native HTTP API: its routes, request bodies and response bodies. Handlers call the engine and convert what it returns;
//! they decide nothing about a conversation.

pub(crate) mod calls;
pub(crate) mod combined_stream;
pub(crate) mod commands;
pub(crate) mod common_types;
pub(crate) mod events;
pub(crate) mod facts;
pub(crate) mod flows;
pub(crate) mod handovers;
pub(crate) mod ledger;
pub(crate) mod messages;
pub(crate) mod phases;
pub(crate) mod prompts;
pub(crate) mod receipts;
pub(crate) mod recompute;
pub(crate) mod server_info;
pub(crate) mod session_changes;
pub(crate) mod session_view;
pub(crate) mod sessions;
pub(crate) mod submissions;
pub(crate) mod threads;
pub(crate) mod tool_runs;
pub(crate) mod transfer;
pub(crate) mod turns;
pub(crate) mod usage;
pub(crate) mod webhooks;

use segue_core::ids::Seq;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::AppState;
use crate::problem::HttpProblem;

/// Returns all routes of the native API.
pub(crate) fn native_routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(server_info::get_health))
        .routes(routes!(server_info::get_readiness))
        .routes(routes!(server_info::get_metrics))
        .routes(routes!(server_info::get_server_info))
        .routes(routes!(server_info::list_model_cards))
        .routes(routes!(usage::get_usage))
        .routes(routes!(flows::list_flows))
        .routes(routes!(flows::get_flow))
        .routes(routes!(sessions::create_session, sessions::list_sessions))
        .routes(routes!(sessions::get_session, sessions::update_session, sessions::delete_session))
        .routes(routes!(sessions::close_session))
        .routes(routes!(sessions::forget_role_memory))
        .routes(routes!(sessions::cancel_turn))
        .routes(routes!(sessions::retry_turn))
        .routes(routes!(transfer::fork_session))
        .routes(routes!(transfer::export_session))
        .routes(routes!(transfer::import_session))
        .routes(routes!(messages::send_message))
        .routes(routes!(submissions::get_submission))
        .routes(routes!(events::get_events))
        .routes(routes!(session_changes::stream_session_changes))
        .routes(routes!(combined_stream::stream_combined))
        .routes(routes!(turns::list_turns))
        .routes(routes!(turns::get_turn))
        .routes(routes!(tool_runs::approve_tool_run))
        .routes(routes!(tool_runs::deny_tool_run))
        .routes(routes!(tool_runs::resolve_tool_run))
        .routes(routes!(calls::list_calls))
        .routes(routes!(receipts::get_call_receipt))
        .routes(routes!(prompts::get_prompt))
        .routes(routes!(prompts::get_prompt_diff))
        .routes(routes!(recompute::recompute_call))
        .routes(routes!(recompute::resolve_call))
        .routes(routes!(threads::list_threads))
        .routes(routes!(phases::list_phase_graphs))
        .routes(routes!(phases::propose_phase))
        .routes(routes!(phases::grant_phase_entry))
        .routes(routes!(phases::roll_back_phase))
        .routes(routes!(handovers::list_handovers))
        .routes(routes!(facts::list_facts))
        .routes(routes!(commands::run_flow_command))
        .routes(routes!(facts::list_artifacts))
        .routes(routes!(facts::get_artifact))
        .routes(routes!(ledger::get_ledger))
        .routes(routes!(ledger::get_session_state))
        .routes(routes!(ledger::get_text))
        .routes(routes!(ledger::get_texts))
        .routes(routes!(webhooks::create_webhook, webhooks::list_webhooks))
        .routes(routes!(webhooks::delete_webhook))
        .routes(routes!(webhooks::list_deliveries))
        .routes(routes!(webhooks::ping_webhook))
}

/// The path parameter `session`.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct SessionPathParamDocs {
    #[expect(dead_code, reason = "only describes the parameter; `SessionRef` reads it")]
    pub session: String,
}

/// The path parameter `call`.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct CallPathParamDocs {
    /// The call, such as `c3`.
    #[expect(dead_code, reason = "only describes the parameter; the handlers read it with `Path`")]
    pub call: String,
}

/// The query parameter `at`, for views of the past.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct AtEventParams {
    /// Shows the session as it was right after this event.
    #[param(minimum = 1)]
    pub at: Option<u64>,
}

impl AtEventParams {
    /// Returns the sequence number, if one was given.
    ///
    /// # Errors
    /// The number is 0; the first event has the number 1.
    pub(crate) fn to_seq(&self) -> Result<Option<Seq>, HttpProblem> {
        match self.at {
            Some(0) => Err(HttpProblem::bad_request("`at` must be the sequence number of an event; the first is 1")
                .with_extension("field", "at")),
            at => Ok(at.map(Seq)),
        }
    }
}

/// Checks a `limit` parameter against its maximum.
fn page_limit(limit: Option<usize>, default: usize, max: usize) -> Result<usize, HttpProblem> {
    match limit {
        None => Ok(default),
        Some(limit) if (1..=max).contains(&limit) => Ok(limit),
        Some(_) => {
            Err(HttpProblem::bad_request(format!("`limit` must be from 1 to {max}")).with_extension("field", "limit"))
        }
    }
}

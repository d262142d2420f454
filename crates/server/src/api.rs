//! The HTTP vocabulary: every route of the API, what it takes and what it answers. Nothing here decides about conversations; it asks
//! the engine and tells what it says.

pub mod calls;
pub mod changes;
pub mod commands;
pub mod events;
pub mod facts;
pub mod flows;
pub mod handovers;
pub mod ledger;
pub mod messages;
pub mod phases;
pub mod prompts;
pub mod receipts;
pub mod recompute;
pub mod server;
pub mod session_view;
pub mod sessions;
pub mod shapes;
pub mod threads;
pub mod transfer;
pub mod turns;
pub mod webhooks;

use segue_core::ids::Seq;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::problem::Problem;

/// Every route of the API.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(server::health))
        .routes(routes!(server::ready))
        .routes(routes!(server::metrics))
        .routes(routes!(server::about))
        .routes(routes!(server::cards))
        .routes(routes!(flows::flows))
        .routes(routes!(flows::flow))
        .routes(routes!(sessions::create, sessions::list))
        .routes(routes!(sessions::get, sessions::patch, sessions::delete))
        .routes(routes!(sessions::close))
        .routes(routes!(sessions::forget))
        .routes(routes!(sessions::cancel))
        .routes(routes!(sessions::retry))
        .routes(routes!(transfer::fork))
        .routes(routes!(transfer::export))
        .routes(routes!(transfer::import))
        .routes(routes!(messages::send))
        .routes(routes!(events::events))
        .routes(routes!(changes::changes))
        .routes(routes!(turns::list))
        .routes(routes!(turns::get))
        .routes(routes!(calls::list))
        .routes(routes!(receipts::get))
        .routes(routes!(prompts::prompt))
        .routes(routes!(prompts::diff))
        .routes(routes!(recompute::recompute))
        .routes(routes!(recompute::resolve))
        .routes(routes!(threads::list))
        .routes(routes!(phases::list))
        .routes(routes!(phases::propose))
        .routes(routes!(phases::grant))
        .routes(routes!(phases::rollback))
        .routes(routes!(handovers::list))
        .routes(routes!(facts::list))
        .routes(routes!(commands::run))
        .routes(routes!(facts::exhibits))
        .routes(routes!(facts::exhibit))
        .routes(routes!(ledger::ledger))
        .routes(routes!(ledger::get_state))
        .routes(routes!(ledger::text))
        .routes(routes!(ledger::texts))
        .routes(routes!(webhooks::create, webhooks::list))
        .routes(routes!(webhooks::delete))
        .routes(routes!(webhooks::deliveries))
        .routes(routes!(webhooks::ping))
}

/// A session in a path.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub struct Named {
    /// The session's name.
    pub session: String,
}

/// A call in a path.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub struct CallNamed {
    /// The call, such as `c3`.
    pub call: String,
}

/// A moment in a session's life.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct At {
    /// As it was right after this event.
    #[param(minimum = 1)]
    pub at: Option<u64>,
}

impl At {
    /// The place it means.
    ///
    /// # Errors
    /// No event is there.
    pub fn seq(&self) -> Result<Option<Seq>, Problem> {
        match self.at {
            Some(0) => Err(Problem::bad_request("`at` is the place of an event; the first is 1").with("field", "at")),
            at => Ok(at.map(Seq)),
        }
    }
}

/// How much a page holds.
fn page(limit: Option<usize>, otherwise: usize, most: usize) -> Result<usize, Problem> {
    match limit {
        None => Ok(otherwise),
        Some(limit) if (1..=most).contains(&limit) => Ok(limit),
        Some(_) => Err(Problem::bad_request(format!("`limit` must be from 1 to {most}")).with("field", "limit")),
    }
}

//! Tests of the engine by topic, with a memory store, paused time, and a model that each test controls call by call.

mod approval;
mod calls;
mod children;
mod disk_errors;
mod flow_errors;
mod harness;
mod idempotency;
mod inbox;
mod late_answers;
mod leases;
mod logs;
mod mid_turn_messages;
mod parking;
mod placement;
mod project_sessions;
mod rate_limits;
mod shutdown;
mod subscriptions;
mod supervision;
mod timers;
mod tools;
mod transfer;
mod unknown_outcomes;
mod vendors;
mod workspaces;

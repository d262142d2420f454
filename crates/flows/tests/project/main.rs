//! Tests of the project flow, without an engine. A fake workspace answers the tools.

mod actions;
mod checklist_evidence;
mod checklist_phases;
mod checklist_routing;
mod commands;
mod crashes;
mod definitions;
mod injection;
mod loops;
mod mcp_servers;
mod parallel_writers;
mod properties;
mod support;
mod support_desk;
mod workspace;

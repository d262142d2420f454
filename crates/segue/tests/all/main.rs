//! Tests of the program through its binary. Each test has its own home folder with a store and scenarios.

mod asking;
mod assistant;
mod backup;
mod concierge;
mod crash;
mod doc;
mod errors;
mod eval;
mod eval_workspaces;
mod file_modes;
mod flow_files;
mod kill_rounds;
mod logging;
mod mcp_servers;
mod models;
mod plain_http;
mod project;
mod prompts;
mod reading;
mod settings;
mod support;
mod team;
mod transfer;
mod trust;
mod vendor;
mod workspaces;

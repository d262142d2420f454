//! Four small flows, one in the form of each real one. Core carries them without knowing them.

mod all;
mod client_tools;
mod commanded;
mod concierge;
mod exchange;
mod golden;
mod held_tools;
mod nodes;
mod project;
mod rounds;
mod team;

//! The team flow with an engine and a real git repository. The rehearsal model plays the agents; some tests let it do
//! something else.

mod hanging_tests;
mod rehearsal;
mod scenarios;
mod set_up;
mod support;

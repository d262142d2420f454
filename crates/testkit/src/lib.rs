//! Test support: a harness that drives a flow step by step, without an engine, a clock or a model.

mod closure_flow;
mod fakes;
mod fuzz;
mod harness;
mod injection;
mod invariants;
pub mod sample_flows;
#[cfg(unix)]
mod temporary_postgres;
mod transcript;

pub use closure_flow::ClosureFlow;
pub use fakes::{InMemoryTexts, WordCounter};
pub use fuzz::run_fuzz_target;
pub use harness::{SessionHarness, TEST_MODEL};
pub use injection::{INJECTION_MARK, injection_corpus, unconfined_injection_lines};
pub use invariants::assert_invariants;
#[cfg(unix)]
pub use temporary_postgres::TemporaryPostgres;
pub use transcript::parse_transcript;

/// The pages of the documentation whose examples run as tests.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../docs/memory.md")]
    struct Memory;
    #[doc = include_str!("../../../docs/phases.md")]
    struct Phases;
}

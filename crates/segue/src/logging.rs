//! The log of the program: which lines are written to standard error, and in which format. What is logged is up to the
//! crates; none of them logs the text of a conversation or a secret.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::panic::PanicHookInfo;

use anyhow::Context;
use tracing::Metadata;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::{FilterExt, filter_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry};

use crate::cli::{CliCommand, LogFormat};
use crate::print;

/// The environment variable with the filter.
const LOG_FILTER_ENV: &str = "SEGUE_LOG";
/// The beginning of the names of our crates, which are the targets of their log lines.
const OWN_TARGET_PREFIX: &str = "segue";

/// Starts the log. Without a filter in the environment, only a server writes one: other commands print what their user
/// has to know.
///
/// # Errors
/// The filter in the environment is invalid.
pub(crate) fn start_logging(format: LogFormat, command: Option<&CliCommand>) -> anyhow::Result<()> {
    let default_level = match command {
        Some(CliCommand::Serve(_)) | None => LevelFilter::INFO,
        Some(_) => LevelFilter::OFF,
    };
    let Some(filter) = read_filter(default_level)? else { return Ok(()) };
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let lines: Box<dyn Layer<Registry> + Send + Sync> = match format {
        LogFormat::Text => lines.with_ansi(print::is_stderr_colored()).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).with_current_span(false).boxed(),
    };
    // Lines of other crates may contain requests, and so the text of a conversation or a secret.
    let own_lines = filter_fn(is_own_line).with_max_level_hint(LevelFilter::TRACE);
    tracing_subscriber::registry().with(lines.with_filter(own_lines.and(filter))).init();
    log_panics();
    Ok(())
}

fn is_own_line(line: &Metadata<'_>) -> bool {
    line.target().starts_with(OWN_TARGET_PREFIX)
}

/// Returns the filter of the environment, or else one for `default_level`; none if nothing is logged.
fn read_filter(default_level: LevelFilter) -> anyhow::Result<Option<EnvFilter>> {
    let given = std::env::var(LOG_FILTER_ENV).unwrap_or_default();
    if given.trim().is_empty() {
        return Ok(
            (default_level != LevelFilter::OFF).then(|| EnvFilter::default().add_directive(default_level.into()))
        );
    }
    let filter = EnvFilter::builder().parse(&given);
    filter.map(Some).with_context(|| {
        format!("`{given}` in {LOG_FILTER_ENV} is not a log filter; try `debug` or `info,segue_store=trace`")
    })
}

/// Makes panics lines of the log. The message of a panic is left out unless it is a constant, because it may contain the
/// text of a conversation.
fn log_panics() {
    let print_panic = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic: &PanicHookInfo<'_>| {
        if !tracing::enabled!(tracing::Level::ERROR) {
            return print_panic(panic);
        }
        let location = panic.location().map(ToString::to_string).unwrap_or_default();
        let message = panic.payload().downcast_ref::<&'static str>().copied().unwrap_or("(not logged)");
        let backtrace = Backtrace::capture();
        let backtrace = (backtrace.status() == BacktraceStatus::Captured).then(|| tracing::field::display(backtrace));
        tracing::error!(location, reason = message, backtrace, "panicked; this is a bug");
    }));
}

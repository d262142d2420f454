//! A conversation in the terminal.

use crate::cli::{Chat, Global};

pub async fn run(global: &Global, arguments: Chat) -> anyhow::Result<()> {
    let running = crate::setup::start(global).await?;
    let _ = (&running.engine, running.rehearsal, arguments);
    running.engine.shutdown().await;
    Ok(())
}

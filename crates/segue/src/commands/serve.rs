//! The engine behind HTTP, for whoever is at this machine; with keys, for others too.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use segue_engine::Recovery;
use segue_server::options::{PORT, Secret};
use segue_server::{Options, Server};
use serde_json::json;

use crate::cli::{Global, Serve};
use crate::commands::REHEARSAL_NOTE;
use crate::print::{self, error_paint};
use crate::setup::{Loaded, Start, Tape, load, start_with};

/// What webhooks are signed with comes from here, and from nowhere else.
const WEBHOOK_SECRET: &str = "SEGUE_WEBHOOK_SECRET";

pub async fn run(global: &Global, arguments: Serve) -> anyhow::Result<()> {
    let tape = Tape::of(arguments.script.as_deref(), None, None);
    let start = Start { tape, recovery: Recovery::Now, ..Start::default() };
    let running = start_with(global, start).await?;
    let Loaded { config, store } = load(global)?;
    let ip = arguments.address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let options = Options {
        address: SocketAddr::new(ip, arguments.port.unwrap_or(PORT)),
        flow: running.flow.clone(),
        busy: running.busy,
        rehearsal: running.rehearsal,
        require_key: arguments.require_key,
        hosts: arguments.host,
        origins: arguments.origin,
        bounds: config.server.bounds(),
        webhook_secret: std::env::var(WEBHOOK_SECRET).ok().filter(|secret| !secret.is_empty()).map(Secret),
        ..Options::new(folder_of(&store.value))
    };
    let engine = running.engine.clone();
    let server = match Server::bind(running.engine, options).await {
        Ok(server) => server,
        Err(error) => {
            engine.shutdown().await;
            return Err(error.into());
        }
    };
    announce(global, server.address(), running.rehearsal)?;
    server.run(stopped()).await;
    Ok(())
}

/// The folder that the store is in: what belongs to it lies beside it.
pub fn folder(global: &Global) -> anyhow::Result<PathBuf> {
    Ok(folder_of(&load(global)?.store.value))
}

fn folder_of(store: &Path) -> PathBuf {
    store.parent().map_or_else(PathBuf::new, Path::to_path_buf)
}

fn announce(global: &Global, address: SocketAddr, rehearsal: bool) -> anyhow::Result<()> {
    let url = format!("http://{address}");
    if rehearsal {
        print::note(&error_paint().warn(REHEARSAL_NOTE));
    }
    if global.json {
        print::json(&json!({ "url": url }))?;
    } else {
        print::out(&format!("Segue is at {url} — Ctrl-C ends it\n"))?;
    }
    // Whoever started us may wait for this line.
    Ok(std::io::stdout().flush()?)
}

/// Returns when the program is told to end.
async fn stopped() {
    let interrupted = tokio::signal::ctrl_c();
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut terminated) = signal(SignalKind::terminate()) {
            tokio::select! {
                _ = interrupted => {}
                _ = terminated.recv() => {}
            }
            return;
        }
    }
    // If signals cannot be heard, only a harder one ends us.
    if interrupted.await.is_err() {
        std::future::pending::<()>().await;
    }
}

//! `segue serve`: runs the engine behind the HTTP server until it is interrupted.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use segue_engine::SessionResumePolicy;
use segue_server::{BoundHttpServer, ClusterSecret, DEFAULT_PORT, ServerOptions, WebhookMasterSecret};
use serde_json::json;

use crate::cli::{GlobalArgs, ServeArgs};
use crate::open_files::raise_open_files_limit;
use crate::print::{self, stderr_paint};
use crate::setup::{ConfigWithStorePath, EngineStartOptions, ModelRecordOrReplayMode, load_config, start_engine};
use crate::store_location::ClusterNodeOptions;

/// The environment variable with the secret that signs webhooks. There is no configuration key for it.
const WEBHOOK_SECRET_ENV: &str = "SEGUE_WEBHOOK_SECRET";

/// The environment variable with the secret that the nodes of a cluster share.
const CLUSTER_SECRET_ENV: &str = "SEGUE_CLUSTER_SECRET";

pub(crate) async fn run_serve(global: &GlobalArgs, arguments: ServeArgs) -> anyhow::Result<()> {
    let playback = ModelRecordOrReplayMode::from_args(arguments.script.as_deref(), None, None);
    let cluster_secret = std::env::var(CLUSTER_SECRET_ENV).ok().filter(|secret| !secret.is_empty()).map(ClusterSecret);
    let node = ClusterNodeOptions {
        address: arguments.advertise.clone(),
        lease_ms: arguments.lease_ms,
        placements: arguments.placement,
        secret: cluster_secret.clone(),
    };
    let start = EngineStartOptions {
        playback,
        recovery: SessionResumePolicy::Immediate,
        node,
        ..EngineStartOptions::default()
    };
    let running = start_engine(global, start).await?;
    let ConfigWithStorePath { config, .. } = load_config(global)?;
    let ip = arguments.address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let options = ServerOptions {
        address: SocketAddr::new(ip, arguments.port.unwrap_or(DEFAULT_PORT)),
        default_flow: running.default_flow.clone(),
        default_mid_turn_policy: running.mid_turn_policy,
        uses_rehearsal_model: running.uses_rehearsal_model(),
        require_key: arguments.require_key,
        allowed_hosts: arguments.host,
        allowed_origins: arguments.origin,
        limits: config.server_limits.effective_limits(),
        webhook_secret: std::env::var(WEBHOOK_SECRET_ENV)
            .ok()
            .filter(|secret| !secret.is_empty())
            .map(WebhookMasterSecret),
        cluster_secret,
        ..ServerOptions::new(running.shared)
    };
    raise_open_files_limit(options.limits.connections_max);
    let engine = running.engine.clone();
    let server = match BoundHttpServer::bind(running.engine, options).await {
        Ok(server) => server,
        Err(error) => {
            engine.shutdown().await;
            return Err(error.into());
        }
    };
    print_listen_address(global, server.local_address(), running.rehearsal_warning)?;
    server.run(wait_for_shutdown_signal()).await;
    Ok(())
}

fn print_listen_address(global: &GlobalArgs, address: SocketAddr, warning: Option<&str>) -> anyhow::Result<()> {
    let url = format!("http://{address}");
    if let Some(warning) = warning {
        print::write_stderr_line(&stderr_paint().warning(warning));
    }
    if global.json {
        print::print_json(&json!({ "url": url }))?;
    } else {
        print::write_stdout(&format!("Segue listens on {url} (stop it with Ctrl-C)\n"))?;
    }
    // A parent process may wait for this line.
    Ok(std::io::stdout().flush()?)
}

/// Returns when the process receives SIGINT or SIGTERM.
async fn wait_for_shutdown_signal() {
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
    // Without a signal handler, only SIGKILL ends the process.
    if interrupted.await.is_err() {
        std::future::pending::<()>().await;
    }
}

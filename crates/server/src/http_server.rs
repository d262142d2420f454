//! Accepts connections, and shuts down gracefully. Clients that send nothing, or send or read too slowly, are disconnected;
//! sessions are not affected.

mod client_stream;
mod silent_connections;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::service::Service;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use self::client_stream::TimeoutTcpStream;
use self::silent_connections::{AwaitingFirstRequestGuard, ConnectionsAwaitingFirstRequest};
use crate::app::AppState;
use crate::limits::SHUTDOWN_MS_MAX;
use crate::options::ServerOptions;

/// Why a server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address is reachable from other machines, and no key exists.
    #[error(
        "{0} is reachable from other machines and there is no key; create one with `segue keys add NAME`, or listen \
         on 127.0.0.1"
    )]
    KeyRequired(SocketAddr),
    /// The address cannot be bound.
    #[error("cannot listen on {address}; is another server running there? `--port` chooses another port")]
    AddressUnavailable { address: SocketAddr, source: io::Error },
}

/// A server that has bound its address and does not accept connections yet.
#[derive(Debug)]
pub struct BoundHttpServer {
    app: AppState,
    listener: TcpListener,
}

impl BoundHttpServer {
    /// Binds the configured address.
    ///
    /// # Errors
    /// The address is reachable from other machines and no key exists, or it cannot be bound.
    pub async fn bind(engine: segue_engine::Engine, options: ServerOptions) -> Result<Self, Error> {
        let address = options.address;
        let app = AppState::new(engine, options);
        if app.options.is_key_required() && app.keys.is_empty().await {
            return Err(Error::KeyRequired(address));
        }
        let listener =
            TcpListener::bind(address).await.map_err(|source| Error::AddressUnavailable { address, source })?;
        Ok(Self { app, listener })
    }

    /// Returns the bound address.
    #[must_use]
    pub fn local_address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap_or(self.app.options.address)
    }

    /// Serves requests until `stop` completes. Then it accepts no new connection, asks streaming clients to reconnect, and
    /// gives running turns a short time. Unfinished turns continue at the next start.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let Self { app, listener } = self;
        let router = crate::router::build_router(app.clone());
        let webhooks = tokio::spawn(crate::webhooks::run_webhook_delivery(app.clone()));
        tokio::spawn(crate::usage::run_turn_refresh(app.clone()));
        let connections = GracefulShutdown::new();
        let connection_slots = Arc::new(Semaphore::new(app.options.limits.connections_max));
        let silent_connections = ConnectionsAwaitingFirstRequest::default();
        tracing::info!(address = %listener.local_addr().unwrap_or(app.options.address), "listening");
        tokio::pin!(stop);
        loop {
            let accepted = tokio::select! {
                () = &mut stop => break,
                accepted = listener.accept() => accepted,
            };
            let (stream, _) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Most likely too many files are open, which passes.
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            if connection_slots.available_permits() == 0 {
                tracing::warn!(connections = app.options.limits.connections_max, "all connections are in use");
                // This may be a health check, which must not wait for clients that send nothing.
                silent_connections.close_oldest();
            }
            let permit = tokio::select! {
                () = &mut stop => break,
                permit = connection_slots.clone().acquire_owned() => permit,
            };
            let connection =
                serve_connection(&app, stream, router.clone(), &connections, silent_connections.register());
            tokio::spawn(async move {
                connection.await;
                drop(permit);
            });
        }
        drop(listener);
        tracing::info!("shutting down");
        app.begin_shutdown();
        app.engine.shutdown().await;
        // The task saves what was delivered before it ends.
        if webhooks.await.is_err() {
            tracing::error!("the delivery of webhooks had panicked; events were not delivered since then");
        }
        let closed = tokio::time::timeout(Duration::from_millis(SHUTDOWN_MS_MAX), connections.shutdown()).await;
        if closed.is_err() {
            tracing::warn!("connections were still open at the end of the shutdown");
        }
        tracing::info!("stopped");
    }
}

fn serve_connection(
    app: &AppState,
    stream: TcpStream,
    router: Router,
    connections: &GracefulShutdown,
    silent_connection: AwaitingFirstRequestGuard,
) -> impl Future<Output = ()> + Send + use<> {
    let limits = app.options.limits;
    // Responses are small and frequent. Without this option they are only slower.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot disable the delay of small packets");
    }
    let stream = TimeoutTcpStream::new(
        stream,
        Duration::from_millis(limits.headers_ms_max),
        Duration::from_millis(limits.write_stall_ms_max),
    );
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(Duration::from_millis(limits.headers_ms_max));
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(Some(Duration::from_millis(limits.write_stall_ms_max)));
    let router = TowerToHyperService::new(router);
    let silent_connection = Arc::new(silent_connection);
    let requests = silent_connection.clone();
    let service = hyper::service::service_fn(move |request| {
        requests.unregister();
        router.call(request)
    });
    let connection = builder.serve_connection(TokioIo::new(stream), service).into_owned();
    let connection = connections.watch(connection);
    async move {
        tokio::select! {
            ended = connection => if let Err(error) = ended {
                // The client closed the connection, or was too slow.
                tracing::debug!(error, "a connection ended early");
            },
            () = silent_connection.wait_for_close() => {
                tracing::debug!("a connection without a request was closed for another one");
            }
        }
    }
}

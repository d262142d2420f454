//! Accepts connections, and shuts down gracefully. Clients that send or read too slowly are disconnected; sessions are not
//! affected.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::Sleep;

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
pub struct HttpServer {
    app: AppState,
    listener: TcpListener,
}

impl HttpServer {
    /// Binds the configured address.
    ///
    /// # Errors
    /// The address is reachable from other machines and no key exists, or it cannot be bound.
    pub async fn bind(engine: segue_engine::Engine, options: ServerOptions) -> Result<Self, Error> {
        let address = options.address;
        let app = AppState::new(engine, options);
        if app.options.is_key_required() && app.keys.is_empty() {
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
        let connections = GracefulShutdown::new();
        let connection_slots = Arc::new(Semaphore::new(app.options.limits.connections_max));
        tokio::pin!(stop);
        loop {
            let permit = tokio::select! {
                () = &mut stop => break,
                permit = connection_slots.clone().acquire_owned() => permit,
            };
            let stream = tokio::select! {
                () = &mut stop => break,
                accepted = listener.accept() => accepted,
            };
            match stream {
                Ok((stream, _)) => {
                    let connection = serve_connection(&app, stream, router.clone(), &connections);
                    tokio::spawn(async move {
                        connection.await;
                        drop(permit);
                    });
                }
                // Most likely too many files are open, which passes.
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
        drop(listener);
        app.begin_shutdown();
        app.engine.shutdown().await;
        // The task saves its cursors after every round.
        let _ = webhooks.await;
        let _ = tokio::time::timeout(Duration::from_millis(SHUTDOWN_MS_MAX), connections.shutdown()).await;
    }
}

fn serve_connection(
    app: &AppState,
    stream: TcpStream,
    router: Router,
    connections: &GracefulShutdown,
) -> impl Future<Output = ()> + Send + use<> {
    let limits = app.options.limits;
    // Responses are small and frequent.
    let _ = stream.set_nodelay(true);
    let stream = StallTimeoutStream::new(stream, Duration::from_millis(limits.write_stall_ms_max));
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(Duration::from_millis(limits.headers_ms_max));
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(Some(Duration::from_millis(limits.write_stall_ms_max)));
    let connection = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router)).into_owned();
    let connection = connections.watch(connection);
    async move {
        // The client closed the connection.
        let _ = connection.await;
    }
}

/// A connection that fails if the client does not read for too long.
#[derive(Debug)]
struct StallTimeoutStream {
    stream: TcpStream,
    stall_timeout: Duration,
    stall_timer: Option<Pin<Box<Sleep>>>,
}

impl StallTimeoutStream {
    fn new(stream: TcpStream, stall_timeout: Duration) -> Self {
        Self { stream, stall_timeout, stall_timer: None }
    }

    fn poll_with_stall_timeout<T>(
        &mut self,
        context: &mut Context<'_>,
        poll: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if poll.is_ready() {
            self.stall_timer = None;
            return poll;
        }
        let stall_timeout = self.stall_timeout;
        let stall_timer = self.stall_timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(stall_timeout)));
        match stall_timer.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for StallTimeoutStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for StallTimeoutStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.poll_with_stall_timeout(context, poll)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let poll = Pin::new(&mut self.stream).poll_flush(context);
        self.poll_with_stall_timeout(context, poll)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let poll = Pin::new(&mut self.stream).poll_shutdown(context);
        self.poll_with_stall_timeout(context, poll)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.poll_with_stall_timeout(context, poll)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

//! The server's own loop: connections in, and out again in good order. Whoever is slow to ask or slow to listen is cut off without
//! harm to any session.

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

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It would be open to everybody.
    #[error(
        "{0} can be reached from other machines, and there is no key; make one with `segue keys add NAME`, or listen on \
         127.0.0.1"
    )]
    KeyRequired(SocketAddr),
    /// The address cannot be used.
    #[error("cannot listen on {address}; is another server running there? `--port` chooses another port")]
    AddressUnavailable {
        /// Which.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
}

/// A server that listens and does not answer yet.
#[derive(Debug)]
pub struct HttpServer {
    app: AppState,
    listener: TcpListener,
}

impl HttpServer {
    /// Listens where its options say.
    ///
    /// # Errors
    /// It would be open to everybody, or the address cannot be used.
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

    /// Where it listens.
    #[must_use]
    pub fn local_address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap_or(self.app.options.address)
    }

    /// What every request shares.
    #[must_use]
    pub fn app_state(&self) -> &AppState {
        &self.app
    }

    /// Answers until `stop` is done. Then no new connection is taken, streams are told to come back, running turns get a little
    /// time, and what is not finished then goes on at the next start.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let Self { app, listener } = self;
        let router = crate::build_router(app.clone());
        let webhooks = tokio::spawn(crate::webhooks::run_webhook_delivery(app.clone()));
        let connections = GracefulShutdown::new();
        let room = Arc::new(Semaphore::new(app.options.limits.connections_max));
        tokio::pin!(stop);
        loop {
            let permit = tokio::select! {
                () = &mut stop => break,
                permit = room.clone().acquire_owned() => permit,
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
                // Too many open files, most likely: they pass.
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
        drop(listener);
        app.begin_shutdown();
        app.engine.shutdown().await;
        // Its last delivery is written down as it goes.
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
    let bounds = app.options.limits;
    // Answers are small and many.
    let _ = stream.set_nodelay(true);
    let stream = StallTimeoutStream::new(stream, Duration::from_millis(bounds.write_stall_ms_max));
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(Duration::from_millis(bounds.headers_ms_max));
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(Some(Duration::from_millis(bounds.write_stall_ms_max)));
    let connection = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router)).into_owned();
    let connection = connections.watch(connection);
    async move {
        // A connection that breaks is the client's affair.
        let _ = connection.await;
    }
}

/// A connection that ends when nothing of what is ready is taken for too long.
#[derive(Debug)]
struct StallTimeoutStream {
    stream: TcpStream,
    stall_timeout: Duration,
    stall_timer: Option<Pin<Box<Sleep>>>,
}

impl StallTimeoutStream {
    fn new(stream: TcpStream, patience: Duration) -> Self {
        Self { stream, stall_timeout: patience, stall_timer: None }
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
        let patience = self.stall_timeout;
        let stalled = self.stall_timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        match stalled.as_mut().poll(context) {
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

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

use crate::app::App;
use crate::limits::SHUTDOWN_MS_MAX;
use crate::options::Options;

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It would be open to everybody.
    #[error(
        "{0} can be reached from other machines, and there is no key; make one with `segue keys add NAME`, or listen on \
         127.0.0.1"
    )]
    NoKey(SocketAddr),
    /// The address cannot be used.
    #[error("cannot listen on {address}; is another server running there? `--port` chooses another port")]
    Address {
        /// Which.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
}

/// A server that listens and does not answer yet.
#[derive(Debug)]
pub struct Server {
    app: App,
    listener: TcpListener,
}

impl Server {
    /// Listens where its options say.
    ///
    /// # Errors
    /// It would be open to everybody, or the address cannot be used.
    pub async fn bind(engine: segue_engine::Engine, options: Options) -> Result<Self, Error> {
        let address = options.address;
        let app = App::new(engine, options);
        if app.options.needs_key() && app.keys.is_empty() {
            return Err(Error::NoKey(address));
        }
        let listener = TcpListener::bind(address).await.map_err(|source| Error::Address { address, source })?;
        Ok(Self { app, listener })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap_or(self.app.options.address)
    }

    /// What every request shares.
    #[must_use]
    pub fn app(&self) -> &App {
        &self.app
    }

    /// Answers until `stop` is done. Then no new connection is taken, streams are told to come back, running turns get a little
    /// time, and what is not finished then goes on at the next start.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let Self { app, listener } = self;
        let router = crate::router(app.clone());
        let webhooks = tokio::spawn(crate::webhooks::deliver(app.clone()));
        let connections = GracefulShutdown::new();
        let room = Arc::new(Semaphore::new(app.options.bounds.connections_max));
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
                    let connection = connect(&app, stream, router.clone(), &connections);
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
        app.close();
        app.engine.shutdown().await;
        // Its last delivery is written down as it goes.
        let _ = webhooks.await;
        let _ = tokio::time::timeout(Duration::from_millis(SHUTDOWN_MS_MAX), connections.shutdown()).await;
    }
}

fn connect(
    app: &App,
    stream: TcpStream,
    router: Router,
    connections: &GracefulShutdown,
) -> impl Future<Output = ()> + Send + use<> {
    let bounds = app.options.bounds;
    // Answers are small and many.
    let _ = stream.set_nodelay(true);
    let stream = Watched::new(stream, Duration::from_millis(bounds.stalled_ms_max));
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(Duration::from_millis(bounds.headers_ms_max));
    builder.http2().timer(TokioTimer::new()).keep_alive_interval(Some(Duration::from_millis(bounds.stalled_ms_max)));
    let connection = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router)).into_owned();
    let connection = connections.watch(connection);
    async move {
        // A connection that breaks is the client's affair.
        let _ = connection.await;
    }
}

/// A connection that ends when nothing of what is ready is taken for too long.
#[derive(Debug)]
struct Watched {
    stream: TcpStream,
    patience: Duration,
    stalled: Option<Pin<Box<Sleep>>>,
}

impl Watched {
    fn new(stream: TcpStream, patience: Duration) -> Self {
        Self { stream, patience, stalled: None }
    }

    fn watch<T>(&mut self, context: &mut Context<'_>, poll: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if poll.is_ready() {
            self.stalled = None;
            return poll;
        }
        let patience = self.patience;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        match stalled.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.watch(context, poll)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let poll = Pin::new(&mut self.stream).poll_flush(context);
        self.watch(context, poll)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let poll = Pin::new(&mut self.stream).poll_shutdown(context);
        self.watch(context, poll)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.watch(context, poll)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

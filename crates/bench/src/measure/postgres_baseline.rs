//! The limit of the database: plain PostgreSQL that writes as many rows of as many bytes into one table, with the one
//! index that finds a session's rows in order. Waiting rows are written together, like the commits of a node.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_postgres::NoTls;

use crate::bench_engine::BenchPostgresDatabase;

const INSERT_ROWS_SQL: &str =
    "INSERT INTO raw_rows (session, seq, body) SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bytea[])";
/// Connections that write groups at the same time: as many as a node has for it.
const WRITER_CONNECTIONS: usize = 2;
const BODY_POOL_BYTES: u32 = 1 << 18;

#[derive(Debug)]
pub(crate) struct PostgresBaseline {
    url: String,
    bytes: Arc<[u8]>,
}

/// A row that a writer waits for.
struct PendingPostgresBaselineRow {
    session: i64,
    seq: i64,
    offset: usize,
    durable: oneshot::Sender<()>,
}

type SharedBaselineRowReceiver = Arc<Mutex<mpsc::UnboundedReceiver<PendingPostgresBaselineRow>>>;

impl PostgresBaseline {
    /// Creates the table in the database.
    pub(crate) async fn create(postgres: &BenchPostgresDatabase) -> Result<Self> {
        let url = postgres.url();
        let client = connect(&url).await?;
        let table = "CREATE TABLE raw_rows (
                         id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, session BIGINT NOT NULL, seq BIGINT NOT NULL,
                         body BYTEA NOT NULL
                     );
                     ALTER TABLE raw_rows ALTER body SET STORAGE EXTERNAL;
                     CREATE INDEX raw_rows_by_session ON raw_rows (session, seq)";
        client.batch_execute(table).await?;
        // Bytes that do not repeat.
        let bytes = (0..BODY_POOL_BYTES).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        Ok(Self { url, bytes })
    }

    /// Measures rows per second of group commit: each writer waits until its row is durable before it sends the next.
    pub(crate) async fn group_commits_per_s(&self, writers: usize, row_bytes: usize, time: Duration) -> Result<f64> {
        let length = row_bytes.min(self.bytes.len() / 2);
        let (queue, pending) = mpsc::unbounded_channel();
        let pending = Arc::new(Mutex::new(pending));
        let mut connections = JoinSet::new();
        for _ in 0..WRITER_CONNECTIONS {
            let client = connect(&self.url).await?;
            connections.spawn(write_pending_row_groups(client, pending.clone(), self.bytes.clone(), length));
        }
        let (start, offsets) = (Instant::now(), self.bytes.len() - length);
        let mut tasks = JoinSet::new();
        for task in 0..writers {
            let queue = queue.clone();
            tasks.spawn(async move {
                let mut rows = 0usize;
                while start.elapsed() < time {
                    let (durable, durable_receiver) = oneshot::channel();
                    let offset = (rows * 1_013 + task) % offsets;
                    let row = PendingPostgresBaselineRow { session: task as i64, seq: rows as i64, offset, durable };
                    queue.send(row).map_err(|_| anyhow!("the writers have stopped"))?;
                    durable_receiver.await?;
                    rows += 1;
                }
                anyhow::Ok(rows)
            });
        }
        drop(queue);
        let mut rows = 0;
        while let Some(written) = tasks.join_next().await {
            rows += written?.context("the writers have stopped")?;
        }
        let seconds = start.elapsed().as_secs_f64();
        while let Some(connection) = connections.join_next().await {
            connection??;
        }
        Ok(rows as f64 / seconds)
    }
}

async fn connect(url: &str) -> Result<tokio_postgres::Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.context("no connection to PostgreSQL")?;
    // It ends with the client.
    tokio::spawn(connection);
    Ok(client)
}

/// Writes all pending rows in one transaction, repeatedly.
async fn write_pending_row_groups(
    client: tokio_postgres::Client,
    pending: SharedBaselineRowReceiver,
    bytes: Arc<[u8]>,
    length: usize,
) -> Result<()> {
    let insert = client.prepare(INSERT_ROWS_SQL).await?;
    loop {
        let mut group = Vec::new();
        {
            let mut pending = pending.lock().await;
            let Some(first) = pending.recv().await else { return Ok(()) };
            group.push(first);
            while let Ok(row) = pending.try_recv() {
                group.push(row);
            }
        }
        let sessions: Vec<i64> = group.iter().map(|row| row.session).collect();
        let seqs: Vec<i64> = group.iter().map(|row| row.seq).collect();
        let bodies: Vec<&[u8]> = group.iter().map(|row| &bytes[row.offset..row.offset + length]).collect();
        client.execute(&insert, &[&sessions, &seqs, &bodies]).await?;
        for row in group {
            // A writer that has stopped does not wait.
            let _ = row.durable.send(());
        }
    }
}

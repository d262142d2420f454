//! Reads of a long session by an engine that is warm.

use std::time::Instant;

use anyhow::Result;
use segue_core::ids::SessionId;
use serde_json::{Value, json};

use super::growth::LONG_SESSION;
use super::{Measurement, MetricRow, elapsed_ms};
use crate::bench_engine::{BenchEngine, DatabaseFolder};
use crate::stats::summarize_samples;

pub async fn measure_reads(job: &Measurement) -> Result<Vec<MetricRow>> {
    let ground = DatabaseFolder::open_existing(&job.dir, &job.long_session_name());
    let bed = BenchEngine::start(job.store_kind, job.shape, &ground.database_file()).await?;
    let session = SessionId::from(LONG_SESSION);
    let mut rows = Vec::new();
    for (metric, newest) in [("read_all", None), ("read_last20", Some(20))] {
        let mut times = Vec::new();
        let mut items = 0;
        for _ in 0..job.repetitions {
            let start = Instant::now();
            items = bed.read_messages(&session, newest).await?;
            times.push(elapsed_ms(start));
        }
        let mut fields = summarize_samples(&times);
        fields.insert("items".to_owned(), json!(items));
        rows.push(job.metric_row(metric, Value::Object(fields)));
    }
    bed.stop().await;
    Ok(rows)
}

//! Reads of a long session by a warmed-up engine.

use std::time::Instant;

use anyhow::Result;
use segue_core::ids::SessionId;
use serde_json::{Value, json};

use super::growth::LONG_SESSION;
use super::{BenchMeasurementFigures, BenchMeasurementSpec, elapsed_ms};
use crate::bench_engine::{BenchDatabaseFolder, BenchEngine};
use crate::stats::summarize_samples;

pub(crate) async fn measure_message_reads(measurement: &BenchMeasurementSpec) -> Result<Vec<BenchMeasurementFigures>> {
    let database_folder = BenchDatabaseFolder::open_existing(&measurement.dir, &measurement.long_session_name());
    let bench_engine =
        BenchEngine::start(measurement.store_kind, measurement.shape, &database_folder.database_file()).await?;
    let session = SessionId::from(LONG_SESSION);
    let mut rows = Vec::new();
    for (metric, newest) in [("read_all", None), ("read_last20", Some(20))] {
        let mut times = Vec::new();
        let mut items = 0;
        for _ in 0..measurement.repetitions {
            let start = Instant::now();
            items = bench_engine.read_messages(&session, newest).await?;
            times.push(elapsed_ms(start));
        }
        let mut fields = summarize_samples(&times);
        fields.insert("items".to_owned(), json!(items));
        rows.push(measurement.metric_row(metric, Value::Object(fields)));
    }
    bench_engine.stop().await;
    Ok(rows)
}

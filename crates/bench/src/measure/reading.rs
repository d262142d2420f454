//! Reads of a long session by an engine that is warm.

use std::time::Instant;

use anyhow::Result;
use segue_core::ids::SessionId;
use serde_json::{Value, json};

use super::growth::LONG;
use super::{Job, Row, ms_since};
use crate::bed::{Bed, Ground};
use crate::stats::summary;

pub async fn measure(job: &Job) -> Result<Vec<Row>> {
    let ground = Ground::kept(&job.dir, &job.long_name());
    let bed = Bed::start(job.keeper, job.shape, &ground.file()).await?;
    let session = SessionId::from(LONG);
    let mut rows = Vec::new();
    for (metric, newest) in [("read_all", None), ("read_last20", Some(20))] {
        let mut times = Vec::new();
        let mut items = 0;
        for _ in 0..job.reps {
            let start = Instant::now();
            items = bed.read(&session, newest).await?;
            times.push(ms_since(start));
        }
        let mut fields = summary(&times);
        fields.insert("items".to_owned(), json!(items));
        rows.push(job.row(metric, Value::Object(fields)));
    }
    bed.stop().await;
    Ok(rows)
}

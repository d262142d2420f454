//! What servers share besides sessions, in the database. Each operation is one statement, or two.

use std::sync::Arc;

use async_trait::async_trait;
use deadpool_postgres::GenericClient;

use super::postgres_error::PostgresError;
use super::schema::{execute, from_bigint, now_ms, query_opt, to_bigint};
use super::{PostgresStore, PostgresStoreInner, run_operation};
use crate::limits::{BUCKET_FILL_MS, SHARED_ROWS_PRUNED_MAX};
use crate::{
    ConcurrencySlotLease, ConcurrencySlotRequest, Error, RateLimitTokenGrant, RateLimitTokenRequest, SharedMeters,
    SharedRecordReadOutcome, SharedRecordVersion, SharedRecordWrite, SharedRecordWriteCondition,
    SharedRecordWriteOutcome, SharedRecords, UsageAccountUpdate, UsageAmounts,
};

const READING: &str = "reading what the nodes share";
const WRITING: &str = "writing what the nodes share";

#[async_trait]
impl SharedRecords for PostgresStore {
    async fn read_record(
        &self,
        name: &str,
        known: Option<SharedRecordVersion>,
    ) -> Result<SharedRecordReadOutcome, Error> {
        let name = name.to_owned();
        run_operation!(self, READING.to_owned(), (name, known), |db| read_record(db, &name, known)).await
    }

    async fn write_record(&self, write: SharedRecordWrite) -> Result<SharedRecordWriteOutcome, Error> {
        let write = Arc::new(write);
        run_operation!(self, WRITING.to_owned(), (write), |db| write_record(db, &write)).await
    }

    async fn delete_record(&self, name: &str) -> Result<(), Error> {
        let name = name.to_owned();
        run_operation!(self, WRITING.to_owned(), (name), |db| delete_record(db, &name)).await
    }

    async fn hold_slot(&self, request: ConcurrencySlotRequest) -> Result<Option<ConcurrencySlotLease>, Error> {
        run_operation!(self, WRITING.to_owned(), (request), |db| hold_slot(db, &request)).await
    }

    async fn release_slot(&self, group: &str, holder: &str, lease: ConcurrencySlotLease) -> Result<(), Error> {
        let (group, holder) = (group.to_owned(), holder.to_owned());
        run_operation!(self, WRITING.to_owned(), (group, holder, lease), |db| release_slot(db, &group, &holder, lease))
            .await
    }
}

#[async_trait]
impl SharedMeters for PostgresStore {
    async fn take_tokens(&self, request: RateLimitTokenRequest) -> Result<RateLimitTokenGrant, Error> {
        run_operation!(self, WRITING.to_owned(), (request), |db| take_tokens(db, &request)).await
    }

    async fn report_usage(&self, report: UsageAccountUpdate) -> Result<(), Error> {
        run_operation!(self, WRITING.to_owned(), (report), |db| report_usage(db, &report)).await
    }

    async fn read_usage(&self, account: &str) -> Result<UsageAmounts, Error> {
        let account = account.to_owned();
        run_operation!(self, READING.to_owned(), (account), |db| read_usage(db, &account)).await
    }
}

async fn read_record(
    db: &PostgresStoreInner,
    name: &str,
    known: Option<SharedRecordVersion>,
) -> Result<SharedRecordReadOutcome, PostgresError> {
    let known = known.map(|version| to_bigint(version.0));
    let sql = format!(
        "SELECT version, CASE WHEN version IS DISTINCT FROM $2 THEN data END FROM segue_records
         WHERE name = $1 AND (expires_at IS NULL OR expires_at > {})",
        now_ms("$3")
    );
    let row = query_opt(&db.client().await?, &sql, &[&name, &known, &db.clock_offset_ms()]).await?;
    Ok(match row {
        None => SharedRecordReadOutcome::Missing,
        Some(row) => match row.get::<_, Option<Vec<u8>>>(1) {
            None => SharedRecordReadOutcome::Unchanged,
            Some(bytes) => {
                SharedRecordReadOutcome::Found { version: SharedRecordVersion(from_bigint(row.get(0))), bytes }
            }
        },
    })
}

async fn write_record(
    db: &PostgresStoreInner,
    write: &SharedRecordWrite,
) -> Result<SharedRecordWriteOutcome, PostgresError> {
    let client = db.client().await?;
    let (now, offset) = (now_ms("$4"), db.clock_offset_ms());
    let expires_in_ms = write.expires_in_ms.map(to_bigint);
    let insert = format!(
        "INSERT INTO segue_records (name, version, data, expires_at)
         VALUES ($1, nextval('segue_epochs'), $2, {now} + $3::bigint)
         ON CONFLICT (name) DO UPDATE SET version = excluded.version, data = excluded.data,
         expires_at = excluded.expires_at"
    );
    let row = match write.condition {
        SharedRecordWriteCondition::Always => {
            let sql = format!("{insert} RETURNING version");
            query_opt(&client, &sql, &[&write.name, &write.bytes, &expires_in_ms, &offset]).await?
        }
        SharedRecordWriteCondition::Missing => {
            let sql = format!("{insert} WHERE segue_records.expires_at <= {now} RETURNING version");
            query_opt(&client, &sql, &[&write.name, &write.bytes, &expires_in_ms, &offset]).await?
        }
        SharedRecordWriteCondition::Version(expected) => {
            let sql = format!(
                "UPDATE segue_records SET version = nextval('segue_epochs'), data = $2, expires_at = {now} + $3::bigint
                 WHERE name = $1 AND version = $5 AND (expires_at IS NULL OR expires_at > {now}) RETURNING version"
            );
            let expected = to_bigint(expected.0);
            query_opt(&client, &sql, &[&write.name, &write.bytes, &expires_in_ms, &offset, &expected]).await?
        }
    };
    Ok(row.map_or(SharedRecordWriteOutcome::Conflict, |row| {
        SharedRecordWriteOutcome::Written(SharedRecordVersion(from_bigint(row.get(0))))
    }))
}

async fn delete_record(db: &PostgresStoreInner, name: &str) -> Result<(), PostgresError> {
    execute(&db.client().await?, "DELETE FROM segue_records WHERE name = $1", &[&name]).await?;
    Ok(())
}

/// Extends the holder's slot, or takes the first free one. If another holder takes that at the same time, it looks
/// again. A holder that asks twice at the same time collides with itself, and the operation is repeated.
async fn hold_slot(
    db: &PostgresStoreInner,
    request: &ConcurrencySlotRequest,
) -> Result<Option<ConcurrencySlotLease>, PostgresError> {
    let client = db.client().await?;
    let (slots_max, hold_ms) = (i64::from(request.slots_max), to_bigint(request.hold_ms));
    let offset = db.clock_offset_ms();
    let extend = format!(
        "UPDATE segue_slots SET expires_at = {} + $3 WHERE slot_group = $1 AND holder = $2 RETURNING expires_at",
        now_ms("$4")
    );
    let own = query_opt(&client, &extend, &[&request.group, &request.holder, &hold_ms, &offset]).await?;
    if let Some(row) = own {
        return Ok(Some(ConcurrencySlotLease { expires_at: from_bigint(row.get(0)) }));
    }
    let now = now_ms("$5");
    // One of the first numbers is free, as many as there are rows. Holders beyond a limit that was lowered count, too.
    let find = format!(
        "WITH held AS (SELECT slot FROM segue_slots WHERE slot_group = $1 AND expires_at > {})
         SELECT n FROM generate_series(0, least($2::bigint - 1, (SELECT count(*) FROM held))) AS n
         WHERE (SELECT count(*) FROM held) < $2 AND n NOT IN (SELECT slot FROM held) ORDER BY n LIMIT 1",
        now_ms("$3")
    );
    let take = format!(
        "INSERT INTO segue_slots (slot_group, slot, holder, expires_at) VALUES ($1, $3, $2, {now} + $4)
         ON CONFLICT (slot_group, slot) DO UPDATE SET holder = excluded.holder, expires_at = excluded.expires_at
         WHERE segue_slots.expires_at <= {now} RETURNING expires_at"
    );
    while let Some(free) = query_opt(&client, &find, &[&request.group, &slots_max, &offset]).await? {
        let slot: i64 = free.get(0);
        let taken = query_opt(&client, &take, &[&request.group, &request.holder, &slot, &hold_ms, &offset]).await?;
        if let Some(row) = taken {
            return Ok(Some(ConcurrencySlotLease { expires_at: from_bigint(row.get(0)) }));
        }
    }
    Ok(None)
}

async fn release_slot(
    db: &PostgresStoreInner,
    group: &str,
    holder: &str,
    lease: ConcurrencySlotLease,
) -> Result<(), PostgresError> {
    let sql = "DELETE FROM segue_slots WHERE slot_group = $1 AND holder = $2 AND expires_at = $3";
    execute(&db.client().await?, sql, &[&group, &holder, &to_bigint(lease.expires_at)]).await?;
    Ok(())
}

async fn take_tokens(
    db: &PostgresStoreInner,
    request: &RateLimitTokenRequest,
) -> Result<RateLimitTokenGrant, PostgresError> {
    let (capacity, wanted) = (f64::from(request.tokens_per_minute), f64::from(request.wanted));
    let per_ms = capacity / BUCKET_FILL_MS;
    let available =
        "least($2::float8, bucket.tokens + greatest(0, excluded.filled_at - bucket.filled_at)::float8 * $4::float8)";
    let sql = format!(
        "INSERT INTO segue_token_buckets AS bucket (name, tokens, granted, filled_at)
         VALUES ($1, $2::float8 - least($3::float8, $2::float8), least($3::float8, $2::float8), {now})
         ON CONFLICT (name) DO UPDATE SET granted = least($3::float8, floor({available})),
         tokens = {available} - least($3::float8, floor({available})), filled_at = excluded.filled_at
         RETURNING granted, tokens",
        now = now_ms("$5")
    );
    let values: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
        [&request.bucket, &capacity, &wanted, &per_ms, &db.clock_offset_ms()];
    let row = query_opt(&db.client().await?, &sql, &values).await?;
    let (granted, tokens) = row.map_or((0.0, 0.0), |row| (row.get(0), row.get(1)));
    Ok(RateLimitTokenGrant::new(granted, tokens, per_ms))
}

/// Adds what is new to the account, and remembers the total of the source. The row of the source is locked first, so
/// two reports of one source do not both add the same part.
async fn report_usage(db: &PostgresStoreInner, report: &UsageAccountUpdate) -> Result<(), PostgresError> {
    let sql = format!(
        "WITH known AS (
             SELECT cost_microusd, input_tokens, output_tokens, unpriced_answers FROM segue_usage_sources
             WHERE source = $1 FOR UPDATE
         ), added AS (
             SELECT greatest(0, $7 - coalesce((SELECT cost_microusd FROM known), $3)) AS cost_microusd,
             greatest(0, $8 - coalesce((SELECT input_tokens FROM known), $4)) AS input_tokens,
             greatest(0, $9 - coalesce((SELECT output_tokens FROM known), $5)) AS output_tokens,
             greatest(0, $10 - coalesce((SELECT unpriced_answers FROM known), $6)) AS unpriced_answers
         ), remembered AS (
             INSERT INTO segue_usage_sources
             SELECT $1::text, $7::bigint, $8::bigint, $9::bigint, $10::bigint, {now} + $11::bigint FROM added
             ON CONFLICT (source) DO UPDATE SET cost_microusd = excluded.cost_microusd,
             input_tokens = excluded.input_tokens, output_tokens = excluded.output_tokens,
             unpriced_answers = excluded.unpriced_answers, expires_at = excluded.expires_at
         )
         INSERT INTO segue_usage AS sum
         SELECT $2::text, cost_microusd, input_tokens, output_tokens, unpriced_answers, {now} + $11::bigint FROM added
         ON CONFLICT (account) DO UPDATE SET cost_microusd = sum.cost_microusd + excluded.cost_microusd,
         input_tokens = sum.input_tokens + excluded.input_tokens,
         output_tokens = sum.output_tokens + excluded.output_tokens,
         unpriced_answers = sum.unpriced_answers + excluded.unpriced_answers, expires_at = excluded.expires_at",
        now = now_ms("$12")
    );
    let [before, total] = [report.before, report.total].map(|amounts| {
        [amounts.cost_microusd, amounts.input_tokens, amounts.output_tokens, amounts.unpriced_answers].map(to_bigint)
    });
    execute(
        &db.client().await?,
        &sql,
        &[
            &report.source,
            &report.account,
            &before[0],
            &before[1],
            &before[2],
            &before[3],
            &total[0],
            &total[1],
            &total[2],
            &total[3],
            &to_bigint(report.expires_in_ms),
            &db.clock_offset_ms(),
        ],
    )
    .await?;
    Ok(())
}

async fn read_usage(db: &PostgresStoreInner, account: &str) -> Result<UsageAmounts, PostgresError> {
    let sql = "SELECT cost_microusd, input_tokens, output_tokens, unpriced_answers FROM segue_usage WHERE account = $1";
    let row = query_opt(&db.client().await?, sql, &[&account]).await?;
    Ok(row.map_or_else(UsageAmounts::default, |row| UsageAmounts {
        cost_microusd: from_bigint(row.get(0)),
        input_tokens: from_bigint(row.get(1)),
        output_tokens: from_bigint(row.get(2)),
        unpriced_answers: from_bigint(row.get(3)),
    }))
}

/// Deletes some rows that have expired, and buckets that are full again.
pub(super) async fn prune_shared_rows(
    db: &PostgresStoreInner,
    client: &impl GenericClient,
) -> Result<(), PostgresError> {
    let tables = [
        ("segue_records", "name", "expires_at", 0),
        ("segue_usage", "account", "expires_at", 0),
        ("segue_usage_sources", "source", "expires_at", 0),
        ("segue_token_buckets", "name", "filled_at", BUCKET_FILL_MS as i64),
    ];
    for (table, key, time, age_ms) in tables {
        let sql = format!(
            "DELETE FROM {table} WHERE {key} IN (SELECT {key} FROM {table} WHERE {time} < {} - $2 LIMIT $3)
             AND {time} < {} - $2",
            now_ms("$1"),
            now_ms("$1")
        );
        execute(client, &sql, &[&db.clock_offset_ms(), &age_ms, &SHARED_ROWS_PRUNED_MAX]).await?;
    }
    let slots = format!("DELETE FROM segue_slots WHERE expires_at < {}", now_ms("$1"));
    execute(client, &slots, &[&db.clock_offset_ms()]).await?;
    Ok(())
}

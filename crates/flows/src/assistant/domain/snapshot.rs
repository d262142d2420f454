//! What a domain shows of its records from the first turn on: the records of standing types, and the results of named queries,
//! such as what expires soon.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    DomainSchema, RecordFieldCondition, RecordFieldKind, RecordQuery, RecordSort, RecordType, check_about_length,
    parse_days_from_today,
};
use crate::limits::{SNAPSHOT_QUERIES_MAX, SNAPSHOT_ROWS_MAX, STANDING_ROWS_MAX};

/// A query whose results are part of the snapshot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DomainSnapshotQuery {
    /// The heading of its records in prompts.
    pub title: String,
    #[serde(rename = "type")]
    pub kind: String,
    /// The conditions. A date may be relative to today, such as `today+3`.
    #[serde(default, rename = "where")]
    pub conditions: Vec<Value>,
    /// The field by which the records are sorted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sort: Option<String>,
}

/// The parameters of the operation `snapshot`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DomainSnapshotParameters {
    pub queries: Vec<TitledSnapshotQuery>,
    /// The types whose versions are requested.
    pub versions_of: Vec<String>,
}

/// A checked query of a snapshot, with the heading of its records.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TitledSnapshotQuery {
    pub title: String,
    pub query: RecordQuery,
}

impl DomainSchema {
    /// Returns whether the domain declares a snapshot.
    #[must_use]
    pub fn has_snapshot(&self) -> bool {
        self.server.is_none() && (!self.snapshot.is_empty() || self.types.iter().any(|kind| kind.standing))
    }

    /// Returns the queries of the snapshot, the standing types first. `date_after_days` resolves dates
    /// such as `today+3`.
    pub fn snapshot_queries(&self, date_after_days: impl Fn(i64) -> String) -> Vec<TitledSnapshotQuery> {
        let standing = self.types.iter().filter(|kind| kind.standing).map(|kind| {
            let title =
                if kind.about.is_empty() { kind.name.clone() } else { format!("{}: {}", kind.name, kind.about) };
            let (filters, sort, limit) = (Vec::new(), None, STANDING_ROWS_MAX);
            TitledSnapshotQuery {
                title,
                query: RecordQuery { kind: kind.name.clone(), filters, sort, limit, full: true },
            }
        });
        let declared = self.snapshot.iter().filter_map(|query| {
            let resolved = query.resolve(self.find_type(&query.kind)?, &date_after_days).ok()?;
            Some(TitledSnapshotQuery { title: query.title.clone(), query: resolved })
        });
        standing.chain(declared).collect()
    }

    pub(super) fn snapshot_errors(&self) -> Vec<String> {
        let mut errors = Vec::new();
        let is_declared = !self.snapshot.is_empty() || self.types.iter().any(|kind| kind.standing);
        if is_declared && self.server.is_some() {
            errors.push("`standing` and `snapshot` need tables; a domain with a server cannot have them".to_owned());
        }
        if self.snapshot.len() > SNAPSHOT_QUERIES_MAX {
            let count = self.snapshot.len();
            errors.push(format!("the snapshot has {count} queries; at most {SNAPSHOT_QUERIES_MAX} are allowed"));
        }
        for query in &self.snapshot {
            let what = format!("snapshot `{}`", query.title);
            errors.extend(check_about_length(&what, &query.title));
            let checked =
                self.expect_type(&query.kind).and_then(|kind| query.resolve(kind, &|_| "2000-01-01".to_owned()));
            errors.extend(checked.err().map(|why| format!("{what}: {why}")));
        }
        errors
    }
}

impl DomainSnapshotQuery {
    /// Checks the query and resolves its dates.
    fn resolve(&self, kind: &RecordType, date_after_days: &dyn Fn(i64) -> String) -> Result<RecordQuery, String> {
        let no_links = |field: &super::RecordField, _: &str| Err(format!("`{}`: links cannot be compared", field.name));
        let filters = self.conditions.iter().map(|condition| {
            let mut condition = condition.clone();
            let field = condition.get("field").and_then(Value::as_str).and_then(|name| kind.field(name));
            let is_date = field.is_some_and(|field| field.kind == RecordFieldKind::Date);
            let days = condition.get("value").and_then(Value::as_str).and_then(parse_days_from_today);
            if let Some(days) = days.filter(|_| is_date) {
                condition["value"] = Value::String(date_after_days(days));
            }
            RecordFieldCondition::parse(kind, &condition, &no_links)
        });
        let filters = filters.collect::<Result<Vec<_>, _>>()?;
        let sort = match &self.sort {
            Some(name) => Some(RecordSort { field: kind.expect_field(name)?.name.clone(), descending: false }),
            None => None,
        };
        Ok(RecordQuery { kind: kind.name.clone(), filters, sort, limit: SNAPSHOT_ROWS_MAX, full: true })
    }
}

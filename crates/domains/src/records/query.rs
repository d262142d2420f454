//! Reading: a query becomes SQL with bound values. Names come from the declaration, and nothing else becomes part of the
//! statement.

use rusqlite::types::ValueRef;
use rusqlite::{Connection, params_from_iter};
use segue_flows::assistant::domain::{Domain, Field, Filter, ID, Kind, Op, Query, RecordType};
use segue_flows::assistant::tools::{Item, Reported, Told};
use serde_json::Value;

use super::schema::{link_table, quoted, table};
use super::stored::{self, Stored};
use super::{Refusal, label};
use crate::limits::{GET_ROWS_MAX, READ_BYTES_MAX};

/// Finds records.
pub(super) fn read(connection: &Connection, domain: &Domain, told: &Told) -> Result<Reported, Refusal> {
    let asked: Value = Value::Object(told.rest.clone());
    // The flow has checked it, and whoever wrote the journal may have been another flow.
    let query: Query = serde_json::from_value(asked).map_err(|why| Refusal::because(format!("no query: {why}")))?;
    let kind = domain.expect_type(&query.kind).map_err(Refusal::because)?;
    let mut conditions = Vec::new();
    let mut bound: Vec<Value> = Vec::new();
    for filter in &query.filters {
        conditions.push(condition(domain, kind, filter, &mut bound)?);
    }
    let name = quoted(&table(domain, kind));
    let filtered = if conditions.is_empty() { String::new() } else { format!(" WHERE {}", conditions.join(" AND ")) };
    let total: u64 = {
        let sql = format!("SELECT COUNT(*) FROM {name} AS t{filtered}");
        connection
            .query_row(&sql, params_from_iter(bound.iter().map(Stored)), |row| row.get::<_, i64>(0))?
            .cast_unsigned()
    };
    let sql = format!("SELECT t.id FROM {name} AS t{filtered} ORDER BY {} LIMIT {}", order(kind, &query)?, query.limit);
    let mut statement = connection.prepare(&sql)?;
    let ids: Vec<String> =
        statement.query_map(params_from_iter(bound.iter().map(Stored)), |row| row.get(0))?.collect::<Result<_, _>>()?;
    let fields: Vec<&Field> = match (query.full, kind.summary.is_empty()) {
        (false, false) => kind.summary_fields(),
        _ => kind.fields.iter().collect(),
    };
    let mut rows = Vec::new();
    let mut bytes = 0;
    for id in ids {
        let Some(values) = stored::get(connection, domain, kind, &id)? else { continue };
        let row = label::row(connection, domain, kind, &id, &values, &fields)?;
        bytes += serde_json::to_string(&row).map_or(0, |written| written.len());
        if bytes > READ_BYTES_MAX && !rows.is_empty() {
            break;
        }
        rows.push(row);
    }
    Ok(Reported { rows, total: Some(total), ..Reported::default() })
}

/// Fetches records by their ids.
pub(super) fn get(connection: &Connection, domain: &Domain, told: &Told) -> Result<Reported, Refusal> {
    let items: Vec<Item> = told
        .rest
        .get("items")
        .and_then(|items| serde_json::from_value(items.clone()).ok())
        .ok_or_else(|| Refusal::because("no records are named"))?;
    let mut reported = Reported::default();
    for item in items.into_iter().take(GET_ROWS_MAX) {
        let kind = domain.expect_type(&item.kind).map_err(Refusal::because)?;
        match stored::get(connection, domain, kind, &item.id)? {
            Some(values) => {
                let fields: Vec<&Field> = kind.fields.iter().collect();
                reported.rows.push(label::row(connection, domain, kind, &item.id, &values, &fields)?);
            }
            None => reported.gone.push(item),
        }
    }
    Ok(reported)
}

fn order(kind: &RecordType, query: &Query) -> Result<String, Refusal> {
    let Some(sort) = &query.sort else { return Ok("t.rowid".to_owned()) };
    let field = kind.expect_field(&sort.field).map_err(Refusal::because)?;
    let column = format!("t.{}", quoted(&field.name));
    let column = if field.kind == Kind::Text { format!("segue_fold({column})") } else { column };
    let direction = if sort.descending { "DESC" } else { "ASC" };
    Ok(format!("{column} {direction} NULLS LAST, t.rowid"))
}

/// One condition as SQL. What is missing in a record is not what one looks for, and is not what one leaves out.
fn condition(domain: &Domain, kind: &RecordType, filter: &Filter, bound: &mut Vec<Value>) -> Result<String, Refusal> {
    let values: Vec<Value> = match &filter.value {
        Value::Array(values) => values.clone(),
        one => vec![one.clone()],
    };
    if filter.field == ID {
        return Ok(compare("t.id", filter.op, Plain, &values, bound));
    }
    let field = kind.expect_field(&filter.field).map_err(Refusal::because)?;
    let column = format!("t.{}", quoted(&field.name));
    Ok(match field.kind {
        Kind::Text => compare(&column, filter.op, Folded, &values, bound),
        Kind::List => {
            let items = format!("json_each(segue_list({column}))");
            among(&items, "value", filter.op, Folded, &values, bound)
        }
        Kind::Links => {
            let table = quoted(&link_table(domain, kind, field));
            let items = format!("(SELECT to_id FROM {table} WHERE from_id = t.id)");
            among(&items, "to_id", filter.op, Plain, &values, bound)
        }
        Kind::Integer | Kind::Number | Kind::YesNo | Kind::Date | Kind::Link => {
            compare(&column, filter.op, Plain, &values, bound)
        }
    })
}

/// How texts are compared.
#[derive(Clone, Copy)]
enum Case {
    /// As they are.
    Plain,
    /// Whatever the case of their letters.
    Folded,
}
use Case::{Folded, Plain};

impl Case {
    fn of(self, sql: &str) -> String {
        match self {
            Plain => sql.to_owned(),
            Folded => format!("segue_fold({sql})"),
        }
    }
}

fn compare(column: &str, op: Op, case: Case, values: &[Value], bound: &mut Vec<Value>) -> String {
    let is_null = values.first().is_none_or(Value::is_null);
    let left = case.of(column);
    let one = |sign: &str, bound: &mut Vec<Value>| {
        bound.extend(values.first().cloned());
        format!("{left} {sign} {}", case.of("?"))
    };
    match op {
        Op::Is if is_null => format!("{column} IS NULL"),
        Op::IsNot if is_null => format!("{column} IS NOT NULL"),
        Op::Is => one("=", bound),
        Op::IsNot => format!("({column} IS NULL OR {})", one("<>", bound)),
        Op::Less => one("<", bound),
        Op::AtMost => one("<=", bound),
        Op::More => one(">", bound),
        Op::AtLeast => one(">=", bound),
        Op::In => format!("{left} IN ({})", several(case, values, bound)),
        Op::NotIn if values.is_empty() => "1".to_owned(),
        Op::NotIn => format!("({column} IS NULL OR {left} NOT IN ({}))", several(case, values, bound)),
        Op::Contains => {
            bound.extend(values.first().cloned());
            format!("instr({left}, {}) > 0", case.of("?"))
        }
    }
}

/// A condition on the items of a list: that one of them fits, or none.
fn among(items: &str, item: &str, op: Op, case: Case, values: &[Value], bound: &mut Vec<Value>) -> String {
    let (exists, op) = match op {
        Op::NotIn => ("NOT EXISTS", Op::In),
        Op::IsNot => ("NOT EXISTS", Op::Is),
        // A part of an item's text will do; a record is itself or another.
        Op::Contains if matches!(case, Plain) => ("EXISTS", Op::Is),
        op => ("EXISTS", op),
    };
    format!("{exists} (SELECT 1 FROM {items} WHERE {})", compare(item, op, case, values, bound))
}

fn several(case: Case, values: &[Value], bound: &mut Vec<Value>) -> String {
    bound.extend(values.iter().cloned());
    vec![case.of("?"); values.len()].join(", ")
}

/// A text whatever the case of its letters; everything else as it is.
pub(super) fn fold(value: ValueRef<'_>) -> rusqlite::Result<Option<String>> {
    Ok(match value {
        ValueRef::Null => None,
        ValueRef::Text(text) => Some(String::from_utf8_lossy(text).to_lowercase()),
        ValueRef::Integer(number) => Some(number.to_string()),
        ValueRef::Real(number) => Some(number.to_string()),
        ValueRef::Blob(_) => None,
    })
}

/// The list that a column holds, as JSON.
pub(super) fn list(value: ValueRef<'_>) -> rusqlite::Result<String> {
    Ok(match value {
        ValueRef::Text(text) => stored::as_list(&String::from_utf8_lossy(text)).to_string(),
        _ => "[]".to_owned(),
    })
}

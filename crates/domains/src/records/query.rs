//! Executes queries as SQL with bound values. Only names from the domain's declaration become part of the statement.

use rusqlite::types::ValueRef;
use rusqlite::{Connection, params_from_iter};
use segue_flows::assistant::domain::{
    DomainSchema, ID_FIELD, RecordField, RecordFieldCondition, RecordFieldKind, RecordFilterOperator, RecordQuery,
    RecordType,
};
use segue_flows::assistant::tools::{DomainToolRequest, DomainToolResult, RecordKey};
use serde_json::Value;

use super::record_store::{self, JsonSqlParameter};
use super::schema::{link_table_name, quote_identifier, table_name};
use super::{RecordsError, labels, snapshot};
use crate::limits::{GET_ROWS_MAX, READ_BYTES_MAX};

/// Executes a `read`: finds records by a query.
pub(super) fn find_records_by_query(
    connection: &Connection,
    domain: &DomainSchema,
    request: &DomainToolRequest,
) -> Result<DomainToolResult, RecordsError> {
    let parameters: Value = Value::Object(request.parameters.clone());
    // The flow checked the query before, but the journal may come from another program.
    let query: RecordQuery =
        serde_json::from_value(parameters).map_err(|why| RecordsError::refused(format!("invalid query: {why}")))?;
    let mut result = execute_query(connection, domain, &query)?;
    if query.filters.is_empty() && result.total == u64::try_from(result.rows.len()).ok() {
        let kind = domain.expect_type(&query.kind).map_err(RecordsError::refused)?;
        result.type_versions = snapshot::digest_type_records(connection, domain, kind)?.into_iter().collect();
    }
    Ok(result)
}

/// Executes a checked query.
pub(super) fn execute_query(
    connection: &Connection,
    domain: &DomainSchema,
    query: &RecordQuery,
) -> Result<DomainToolResult, RecordsError> {
    let kind = domain.expect_type(&query.kind).map_err(RecordsError::refused)?;
    let mut conditions = Vec::new();
    let mut bound: Vec<Value> = Vec::new();
    for filter in &query.filters {
        conditions.push(filter_condition(domain, kind, filter, &mut bound)?);
    }
    let name = quote_identifier(&table_name(domain, kind));
    let filtered = if conditions.is_empty() { String::new() } else { format!(" WHERE {}", conditions.join(" AND ")) };
    let total: u64 = {
        let sql = format!("SELECT COUNT(*) FROM {name} AS t{filtered}");
        connection
            .query_row(&sql, params_from_iter(bound.iter().map(JsonSqlParameter)), |row| row.get::<_, i64>(0))?
            .cast_unsigned()
    };
    let sql = format!(
        "SELECT t.id FROM {name} AS t{filtered} ORDER BY {} LIMIT {}",
        order_by_clause(kind, query)?,
        query.limit
    );
    let mut statement = connection.prepare(&sql)?;
    let ids: Vec<String> = statement
        .query_map(params_from_iter(bound.iter().map(JsonSqlParameter)), |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    let fields: Vec<&RecordField> = match (query.full, kind.summary.is_empty()) {
        (false, false) => kind.summary_fields(),
        _ => kind.fields.iter().collect(),
    };
    let mut rows = Vec::new();
    let mut bytes = 0;
    for id in ids {
        let Some(values) = record_store::load_record(connection, domain, kind, &id)? else { continue };
        let row = labels::build_record_row(connection, domain, kind, &id, &values, &fields)?;
        bytes += serde_json::to_string(&row).map_or(0, |written| written.len());
        if bytes > READ_BYTES_MAX && !rows.is_empty() {
            break;
        }
        rows.push(row);
    }
    Ok(DomainToolResult { rows, total: Some(total), ..DomainToolResult::default() })
}

/// Executes a `get`: fetches records by id.
pub(super) fn fetch_records_by_id(
    connection: &Connection,
    domain: &DomainSchema,
    request: &DomainToolRequest,
) -> Result<DomainToolResult, RecordsError> {
    let items: Vec<RecordKey> = request
        .parameters
        .get("items")
        .and_then(|items| serde_json::from_value(items.clone()).ok())
        .ok_or_else(|| RecordsError::refused("the request has no `items`"))?;
    let mut result = DomainToolResult::default();
    for item in items.into_iter().take(GET_ROWS_MAX) {
        let kind = domain.expect_type(&item.kind).map_err(RecordsError::refused)?;
        match record_store::load_record(connection, domain, kind, &item.id)? {
            Some(values) => {
                let fields: Vec<&RecordField> = kind.fields.iter().collect();
                result.rows.push(labels::build_record_row(connection, domain, kind, &item.id, &values, &fields)?);
            }
            None => result.not_found.push(item),
        }
    }
    Ok(result)
}

fn order_by_clause(kind: &RecordType, query: &RecordQuery) -> Result<String, RecordsError> {
    let Some(sort) = &query.sort else { return Ok("t.rowid".to_owned()) };
    let field = kind.expect_field(&sort.field).map_err(RecordsError::refused)?;
    let column = format!("t.{}", quote_identifier(&field.name));
    let column = if field.kind == RecordFieldKind::Text { format!("segue_fold({column})") } else { column };
    let direction = if sort.descending { "DESC" } else { "ASC" };
    Ok(format!("{column} {direction} NULLS LAST, t.rowid"))
}

/// Returns a filter as an SQL condition. A missing value matches no positive filter and passes every negative one.
fn filter_condition(
    domain: &DomainSchema,
    kind: &RecordType,
    filter: &RecordFieldCondition,
    bound: &mut Vec<Value>,
) -> Result<String, RecordsError> {
    let values: Vec<Value> = match &filter.value {
        Value::Array(values) => values.clone(),
        one => vec![one.clone()],
    };
    if filter.field == ID_FIELD {
        return Ok(comparison_condition("t.id", filter.op, Sensitive, &values, bound));
    }
    let field = kind.expect_field(&filter.field).map_err(RecordsError::refused)?;
    let column = format!("t.{}", quote_identifier(&field.name));
    Ok(match field.kind {
        RecordFieldKind::Text => comparison_condition(&column, filter.op, Insensitive, &values, bound),
        RecordFieldKind::List => {
            let items = format!("json_each(segue_list({column}))");
            list_condition(&items, "value", filter.op, Insensitive, &values, bound)
        }
        RecordFieldKind::Links => {
            let table = quote_identifier(&link_table_name(domain, kind, field));
            let items = format!("(SELECT to_id FROM {table} WHERE from_id = t.id)");
            list_condition(&items, "to_id", filter.op, Sensitive, &values, bound)
        }
        RecordFieldKind::Integer
        | RecordFieldKind::Number
        | RecordFieldKind::YesNo
        | RecordFieldKind::Date
        | RecordFieldKind::Link => comparison_condition(&column, filter.op, Sensitive, &values, bound),
    })
}

/// Whether the case of letters matters in a comparison.
#[derive(Clone, Copy)]
enum CaseSensitivity {
    Sensitive,
    Insensitive,
}
use CaseSensitivity::{Insensitive, Sensitive};

impl CaseSensitivity {
    fn fold_expression(self, sql: &str) -> String {
        match self {
            Sensitive => sql.to_owned(),
            Insensitive => format!("segue_fold({sql})"),
        }
    }
}

fn comparison_condition(
    column: &str,
    op: RecordFilterOperator,
    case: CaseSensitivity,
    values: &[Value],
    bound: &mut Vec<Value>,
) -> String {
    let is_null = values.first().is_none_or(Value::is_null);
    let left = case.fold_expression(column);
    let one = |sign: &str, bound: &mut Vec<Value>| {
        bound.extend(values.first().cloned());
        format!("{left} {sign} {}", case.fold_expression("?"))
    };
    match op {
        RecordFilterOperator::Equal if is_null => format!("{column} IS NULL"),
        RecordFilterOperator::NotEqual if is_null => format!("{column} IS NOT NULL"),
        RecordFilterOperator::Equal => one("=", bound),
        RecordFilterOperator::NotEqual => format!("({column} IS NULL OR {})", one("<>", bound)),
        RecordFilterOperator::LessThan => one("<", bound),
        RecordFilterOperator::LessOrEqual => one("<=", bound),
        RecordFilterOperator::GreaterThan => one(">", bound),
        RecordFilterOperator::GreaterOrEqual => one(">=", bound),
        RecordFilterOperator::In => format!("{left} IN ({})", bind_placeholders(case, values, bound)),
        RecordFilterOperator::NotIn if values.is_empty() => "1".to_owned(),
        RecordFilterOperator::NotIn => {
            format!("({column} IS NULL OR {left} NOT IN ({}))", bind_placeholders(case, values, bound))
        }
        RecordFilterOperator::Contains => {
            bound.extend(values.first().cloned());
            format!("instr({left}, {}) > 0", case.fold_expression("?"))
        }
    }
}

/// Returns a condition that one item of a list matches, or that none does.
fn list_condition(
    items: &str,
    item: &str,
    op: RecordFilterOperator,
    case: CaseSensitivity,
    values: &[Value],
    bound: &mut Vec<Value>,
) -> String {
    let (exists, op) = match op {
        RecordFilterOperator::NotIn => ("NOT EXISTS", RecordFilterOperator::In),
        RecordFilterOperator::NotEqual => ("NOT EXISTS", RecordFilterOperator::Equal),
        // `contains` matches a part of a text, but only a whole link.
        RecordFilterOperator::Contains if matches!(case, Sensitive) => ("EXISTS", RecordFilterOperator::Equal),
        op => ("EXISTS", op),
    };
    format!("{exists} (SELECT 1 FROM {items} WHERE {})", comparison_condition(item, op, case, values, bound))
}

fn bind_placeholders(case: CaseSensitivity, values: &[Value], bound: &mut Vec<Value>) -> String {
    bound.extend(values.iter().cloned());
    vec![case.fold_expression("?"); values.len()].join(", ")
}

/// The SQL function `segue_fold`: returns a text in lowercase.
pub(super) fn sql_fold_case(value: ValueRef<'_>) -> rusqlite::Result<Option<String>> {
    Ok(match value {
        ValueRef::Null => None,
        ValueRef::Text(text) => Some(String::from_utf8_lossy(text).to_lowercase()),
        ValueRef::Integer(number) => Some(number.to_string()),
        ValueRef::Real(number) => Some(number.to_string()),
        ValueRef::Blob(_) => None,
    })
}

/// The SQL function `segue_list`: returns the list in a column as JSON.
pub(super) fn sql_list_json(value: ValueRef<'_>) -> rusqlite::Result<String> {
    Ok(match value {
        ValueRef::Text(text) => record_store::parse_text_list(&String::from_utf8_lossy(text)).to_string(),
        _ => "[]".to_owned(),
    })
}

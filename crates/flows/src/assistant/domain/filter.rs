//! Queries and their filters, checked against a domain's declaration. The list of operators is closed; an unknown one is refused
//! together with the list. How a filter is executed is up to the records tool.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::record::RecordLinkResolver;
use super::{ID_FIELD, RecordField, RecordFieldKind, RecordType, check_value, format_name_list};
use crate::limits::{FILTER_VALUES_MAX, READ_FILTERS_MAX, READ_ROWS_DEFAULT, READ_ROWS_MAX};

/// A checked query for records of one type.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecordQuery {
    #[serde(rename = "type")]
    pub kind: String,
    /// The filters, all of which must match.
    #[serde(default, rename = "where", skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<RecordFieldCondition>,
    /// The order; the order of creation if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sort: Option<RecordSort>,
    /// The maximum number of records.
    pub limit: usize,
    /// Whether to return all fields instead of a summary.
    #[serde(default)]
    pub full: bool,
}

/// The order of the results.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordSort {
    pub field: String,
    #[serde(default)]
    pub descending: bool,
}

/// A condition on one field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordFieldCondition {
    /// The name of the field; `id` is the record itself.
    pub field: String,
    pub op: RecordFilterOperator,
    pub value: Value,
}

/// How a field is compared with a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum RecordFilterOperator {
    #[serde(rename = "=")]
    Equal,
    #[serde(rename = "!=")]
    NotEqual,
    #[serde(rename = "<")]
    LessThan,
    #[serde(rename = "<=")]
    LessOrEqual,
    #[serde(rename = ">")]
    GreaterThan,
    #[serde(rename = ">=")]
    GreaterOrEqual,
    #[serde(rename = "in")]
    In,
    #[serde(rename = "not_in")]
    NotIn,
    #[serde(rename = "contains")]
    Contains,
}

impl RecordFilterOperator {
    /// Every operator, with its name in queries.
    pub const ALL: [(&'static str, Self); 9] = [
        ("=", Self::Equal),
        ("!=", Self::NotEqual),
        ("<", Self::LessThan),
        ("<=", Self::LessOrEqual),
        (">", Self::GreaterThan),
        (">=", Self::GreaterOrEqual),
        ("in", Self::In),
        ("not_in", Self::NotIn),
        ("contains", Self::Contains),
    ];

    /// Returns the name used in queries.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        Self::ALL.iter().find(|(_, op)| *op == self).map_or("=", |(word, _)| word)
    }

    fn supports_kind(self, kind: RecordFieldKind) -> bool {
        match self {
            Self::In | Self::NotIn => true,
            Self::Equal | Self::NotEqual => !matches!(kind, RecordFieldKind::List | RecordFieldKind::Links),
            Self::LessThan | Self::LessOrEqual | Self::GreaterThan | Self::GreaterOrEqual => {
                matches!(kind, RecordFieldKind::Integer | RecordFieldKind::Number | RecordFieldKind::Date)
            }
            Self::Contains => matches!(kind, RecordFieldKind::Text | RecordFieldKind::List | RecordFieldKind::Links),
        }
    }
}

impl RecordQuery {
    /// Parses the arguments of a `read` call. `link` turns references into ids.
    ///
    /// # Errors
    /// The query is invalid; the list says what is wrong.
    pub fn parse(
        kind: &RecordType,
        arguments: &Map<String, Value>,
        link: &RecordLinkResolver<'_>,
    ) -> Result<Self, Vec<String>> {
        let mut errors = Vec::new();
        for name in arguments.keys().filter(|name| !["type", "where", "sort", "limit", "full"].contains(&name.as_str()))
        {
            errors.push(format!(
                "`read` has no argument `{name}`; it takes `type`, `where`, `sort`, `limit`, `full`, `refresh`"
            ));
        }
        let filters = match arguments.get("where") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(filters)) => filters.clone(),
            Some(one @ Value::Object(_)) => vec![one.clone()],
            Some(other) => {
                errors.push(format!("`where` must be a list of conditions, not {other}"));
                Vec::new()
            }
        };
        if filters.len() > READ_FILTERS_MAX {
            errors.push(format!("`where` has {} conditions; at most {READ_FILTERS_MAX} are allowed", filters.len()));
        }
        let mut parsed = Vec::new();
        for filter in &filters {
            match RecordFieldCondition::parse(kind, filter, link) {
                Ok(filter) => parsed.push(filter),
                Err(why) => errors.push(why),
            }
        }
        let sort =
            arguments.get("sort").filter(|sort| !sort.is_null()).map(|sort| RecordSort::parse(kind, sort)).transpose();
        let sort = sort.unwrap_or_else(|why| {
            errors.push(why);
            None
        });
        let limit = match arguments.get("limit") {
            None | Some(Value::Null) => READ_ROWS_DEFAULT,
            Some(limit) => usize::try_from(limit.as_u64().unwrap_or(0)).unwrap_or(0).min(READ_ROWS_MAX),
        };
        if limit == 0 {
            errors.push("`limit` must be a whole number of at least 1".to_owned());
        }
        let full = arguments.get("full").and_then(Value::as_bool).unwrap_or(false);
        if errors.is_empty() {
            Ok(Self { kind: kind.name.clone(), filters: parsed, sort, limit, full })
        } else {
            Err(errors)
        }
    }
}

impl RecordSort {
    /// Parses an order: the name of a field, or an object that also has the direction.
    ///
    /// # Errors
    /// The order is invalid; the text says why.
    pub fn parse(kind: &RecordType, value: &Value) -> Result<Self, String> {
        let (name, descending) = match value {
            Value::String(name) => (name.as_str(), false),
            Value::Object(sort) => (
                sort.get("field").and_then(Value::as_str).unwrap_or_default(),
                sort.get("descending").and_then(Value::as_bool).unwrap_or(false),
            ),
            _ => return Err("`sort` must be {\"field\": …, \"descending\": …}".to_owned()),
        };
        let field = kind.expect_field(name)?;
        if matches!(field.kind, RecordFieldKind::List | RecordFieldKind::Link | RecordFieldKind::Links) {
            return Err(format!("records cannot be sorted by `{name}`, a {} field", field.kind.as_str()));
        }
        Ok(Self { field: name.to_owned(), descending })
    }
}

impl RecordFieldCondition {
    /// Parses one filter.
    ///
    /// # Errors
    /// The filter is invalid; the text says why.
    pub fn parse(kind: &RecordType, value: &Value, link: &RecordLinkResolver<'_>) -> Result<Self, String> {
        let part = |name: &str| value.get(name);
        let (Some(name), Some(op)) = (part("field").and_then(Value::as_str), part("op").and_then(Value::as_str)) else {
            return Err(format!(
                "a condition must be {{\"field\": …, \"op\": …, \"value\": …}}, not {}",
                value_excerpt(value)
            ));
        };
        let Some((_, op)) = RecordFilterOperator::ALL.iter().find(|(word, _)| *word == op).copied() else {
            return Err(format!(
                "there is no operator `{op}`; the operators are {}",
                format_name_list(RecordFilterOperator::ALL.iter().map(|(word, _)| *word))
            ));
        };
        let own;
        let field = if name == ID_FIELD {
            own = RecordField::record_id_field(kind);
            &own
        } else {
            kind.expect_field(name)?
        };
        if !op.supports_kind(field.kind) {
            let fitting =
                RecordFilterOperator::ALL.iter().filter(|(_, op)| op.supports_kind(field.kind)).map(|(word, _)| *word);
            return Err(format!(
                "`{}` cannot be used with `{name}` (a {} field); use {}",
                op.as_str(),
                field.kind.as_str(),
                format_name_list(fitting)
            ));
        }
        let value = part("value").cloned().unwrap_or(Value::Null);
        let value = match op {
            RecordFilterOperator::In | RecordFilterOperator::NotIn => {
                Value::Array(check_filter_values(field, &value, link)?)
            }
            _ => check_filter_value(field, &value, link)?,
        };
        Ok(Self { field: name.to_owned(), op, value })
    }
}

impl RecordField {
    /// Returns a field for a record's own id: a link to its own type.
    fn record_id_field(kind: &RecordType) -> Self {
        Self {
            name: ID_FIELD.to_owned(),
            kind: RecordFieldKind::Link,
            about: String::new(),
            required: true,
            one_of: Vec::new(),
            min: None,
            max: None,
            to: Some(kind.name.clone()),
            on_delete: super::LinkDeletePolicy::default(),
        }
    }

    /// Returns the field with the constraints of a single item and without limits on its value.
    fn single_value_filter_field(&self) -> Self {
        let kind = match self.kind {
            RecordFieldKind::List => RecordFieldKind::Text,
            RecordFieldKind::Links => RecordFieldKind::Link,
            kind => kind,
        };
        // A search for a value that is not allowed is valid; it finds nothing.
        Self { kind, one_of: Vec::new(), min: None, max: None, ..self.clone() }
    }
}

fn check_filter_value(field: &RecordField, value: &Value, link: &RecordLinkResolver<'_>) -> Result<Value, String> {
    check_value(&field.single_value_filter_field(), value, link)
}

fn check_filter_values(
    field: &RecordField,
    value: &Value,
    link: &RecordLinkResolver<'_>,
) -> Result<Vec<Value>, String> {
    let values = match value {
        Value::Array(values) => values.clone(),
        Value::Null => return Err(format!("`{}` needs a list of values", field.name)),
        one => vec![one.clone()],
    };
    if values.len() > FILTER_VALUES_MAX {
        return Err(format!(
            "`{}` is compared with {} values; at most {FILTER_VALUES_MAX} are allowed",
            field.name,
            values.len()
        ));
    }
    values.iter().map(|value| check_filter_value(field, value, link)).collect()
}

fn value_excerpt(value: &Value) -> String {
    value.to_string().chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn recipe() -> RecordType {
        serde_json::from_value(json!({"name": "recipe", "label": "name", "fields": [
            {"name": "name", "kind": "text"}, {"name": "minutes", "kind": "integer"},
            {"name": "tags", "kind": "list"}, {"name": "base", "kind": "link", "to": "recipe"}]}))
        .expect("a type")
    }

    fn refs(_: &RecordField, name: &str) -> Result<String, String> {
        name.strip_prefix("recipe_").map(|n| format!("id-{n}")).ok_or_else(|| format!("`{name}` is no reference"))
    }

    fn filter(value: Value) -> Result<RecordFieldCondition, String> {
        RecordFieldCondition::parse(&recipe(), &value, &refs)
    }

    #[test]
    fn a20_unknown_operator_is_refused_with_the_list_of_operators() {
        let why = filter(json!({"field": "name", "op": "not_ilike", "value": "%cod%"})).expect_err("refused");
        assert!(why.starts_with("there is no operator `not_ilike`"), "{why}");
        for (word, _) in RecordFilterOperator::ALL {
            assert!(why.contains(&format!("`{word}`")), "{why}");
        }
    }

    #[test]
    fn condition_is_checked_against_its_field() {
        for (condition, complaint) in [
            (json!({"field": "mood", "op": "=", "value": 1}), "`recipe` has no field `mood`"),
            (json!({"field": "name", "op": "<", "value": "m"}), "`<` cannot be used with `name` (a text field)"),
            (json!({"field": "minutes", "op": "=", "value": "soon"}), "`minutes` must be a whole number"),
            (json!({"field": "tags", "op": "=", "value": "quick"}), "`=` cannot be used with `tags`"),
            (json!({"field": "tags", "op": "not_in"}), "`tags` needs a list of values"),
            (json!({"field": "id", "op": "=", "value": "0b6f"}), "`0b6f` is no reference"),
            (json!({"op": "="}), "a condition must be"),
            (json!("cod"), "a condition must be"),
        ] {
            let why = filter(condition).expect_err("refused");
            assert!(why.contains(complaint), "{why}");
        }
    }

    #[test]
    fn references_become_ids_and_a_single_value_is_a_list_of_one() {
        let own = filter(json!({"field": "id", "op": "in", "value": ["recipe_1", "recipe_2"]})).expect("a valid query");
        assert_eq!(own.value, json!(["id-1", "id-2"]));
        let one = filter(json!({"field": "tags", "op": "not_in", "value": "fish"})).expect("a valid query");
        assert_eq!((one.op, one.value), (RecordFilterOperator::NotIn, json!(["fish"])));
    }

    #[test]
    fn all_errors_of_a_query_are_reported() {
        let arguments = json!({"type": "recipe", "where": [{"field": "x", "op": "="}, {"field": "name", "op": "like"}],
            "sort": "tags", "limit": 0, "joins": []});
        let wrong =
            RecordQuery::parse(&recipe(), arguments.as_object().expect("an object"), &refs).expect_err("refused");
        assert_eq!(wrong.len(), 5, "{wrong:?}");
        let arguments =
            json!({"type": "recipe", "where": {"field": "minutes", "op": "<=", "value": 30}, "limit": 5000});
        let query =
            RecordQuery::parse(&recipe(), arguments.as_object().expect("an object"), &refs).expect("a valid query");
        assert_eq!((query.filters.len(), query.limit, query.full), (1, READ_ROWS_MAX, false));
        let written = serde_json::to_value(&query).expect("it is data");
        assert_eq!(serde_json::from_value::<RecordQuery>(written).expect("it is read"), query);
    }
}

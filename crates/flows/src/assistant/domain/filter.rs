//! Filters: which records a read is for. A closed list of operators, checked against the declaration; an operator that is
//! not on it is refused with the list. What a filter means in a database is the host's business.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::record::LinkResolver;
use super::{FieldKind, ID_FIELD, RecordField, RecordType, check_value, format_name_list};
use crate::limits::{FILTER_VALUES_MAX, READ_FILTERS_MAX, READ_ROWS_DEFAULT, READ_ROWS_MAX};

/// What a read is for, as the host is told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecordQuery {
    /// Records of this type.
    #[serde(rename = "type")]
    pub kind: String,
    /// All of these must hold.
    #[serde(default, rename = "where", skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<RecordFilter>,
    /// In this order; that of the records' making if nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sort: Option<RecordSort>,
    /// At most so many.
    pub limit: usize,
    /// All fields, or those of a summary.
    #[serde(default)]
    pub full: bool,
}

/// An order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecordSort {
    /// By this field.
    pub field: String,
    /// The greatest first.
    #[serde(default)]
    pub descending: bool,
}

/// One condition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecordFilter {
    /// On which field; `id` is the record itself.
    pub field: String,
    /// How it is compared.
    pub op: FilterOperator,
    /// With what.
    pub value: Value,
}

/// How a field is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum FilterOperator {
    /// It is this.
    #[serde(rename = "=")]
    Equal,
    /// It is not this.
    #[serde(rename = "!=")]
    NotEqual,
    /// It is less.
    #[serde(rename = "<")]
    LessThan,
    /// It is less or this.
    #[serde(rename = "<=")]
    LessOrEqual,
    /// It is more.
    #[serde(rename = ">")]
    GreaterThan,
    /// It is more or this.
    #[serde(rename = ">=")]
    GreaterOrEqual,
    /// It is one of these.
    #[serde(rename = "in")]
    In,
    /// It is none of these.
    #[serde(rename = "not_in")]
    NotIn,
    /// It contains this.
    #[serde(rename = "contains")]
    Contains,
}

impl FilterOperator {
    /// All of them, with the words for them.
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

    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        Self::ALL.iter().find(|(_, op)| *op == self).map_or("=", |(word, _)| word)
    }

    fn supports_kind(self, kind: FieldKind) -> bool {
        match self {
            Self::In | Self::NotIn => true,
            Self::Equal | Self::NotEqual => !matches!(kind, FieldKind::List | FieldKind::Links),
            Self::LessThan | Self::LessOrEqual | Self::GreaterThan | Self::GreaterOrEqual => {
                matches!(kind, FieldKind::Integer | FieldKind::Number | FieldKind::Date)
            }
            Self::Contains => matches!(kind, FieldKind::Text | FieldKind::List | FieldKind::Links),
        }
    }
}

impl RecordQuery {
    /// Reads what a model asks for. `link` turns its references into ids; the record's own goes by the field `id`.
    ///
    /// # Errors
    /// What is not understood, one by one.
    pub fn parse(kind: &RecordType, asked: &Map<String, Value>, link: &LinkResolver<'_>) -> Result<Self, Vec<String>> {
        let mut wrong = Vec::new();
        for name in asked.keys().filter(|name| !["type", "where", "sort", "limit", "full"].contains(&name.as_str())) {
            wrong.push(format!("a read has no `{name}`; it has `type`, `where`, `sort`, `limit`, `full`"));
        }
        let filters = match asked.get("where") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(filters)) => filters.clone(),
            Some(one @ Value::Object(_)) => vec![one.clone()],
            Some(other) => {
                wrong.push(format!("`where` must be a list of conditions, not {other}"));
                Vec::new()
            }
        };
        if filters.len() > READ_FILTERS_MAX {
            wrong.push(format!("`where` has {} conditions; at most {READ_FILTERS_MAX} are taken", filters.len()));
        }
        let mut read = Vec::new();
        for filter in &filters {
            match RecordFilter::parse(kind, filter, link) {
                Ok(filter) => read.push(filter),
                Err(why) => wrong.push(why),
            }
        }
        let sort =
            asked.get("sort").filter(|sort| !sort.is_null()).map(|sort| RecordSort::parse(kind, sort)).transpose();
        let sort = sort.unwrap_or_else(|why| {
            wrong.push(why);
            None
        });
        let limit = match asked.get("limit") {
            None | Some(Value::Null) => READ_ROWS_DEFAULT,
            Some(limit) => usize::try_from(limit.as_u64().unwrap_or(0)).unwrap_or(0).min(READ_ROWS_MAX),
        };
        if limit == 0 {
            wrong.push("`limit` must be a whole number of at least 1".to_owned());
        }
        let full = asked.get("full").and_then(Value::as_bool).unwrap_or(false);
        if wrong.is_empty() {
            Ok(Self { kind: kind.name.clone(), filters: read, sort, limit, full })
        } else {
            Err(wrong)
        }
    }
}

impl RecordSort {
    fn parse(kind: &RecordType, value: &Value) -> Result<Self, String> {
        let (name, descending) = match value {
            Value::String(name) => (name.as_str(), false),
            Value::Object(sort) => (
                sort.get("field").and_then(Value::as_str).unwrap_or_default(),
                sort.get("descending").and_then(Value::as_bool).unwrap_or(false),
            ),
            _ => return Err("`sort` must be {\"field\": …, \"descending\": …}".to_owned()),
        };
        let field = kind.expect_field(name)?;
        if matches!(field.kind, FieldKind::List | FieldKind::Link | FieldKind::Links) {
            return Err(format!("records cannot be sorted by `{name}`, which is a {}", field.kind.as_str()));
        }
        Ok(Self { field: name.to_owned(), descending })
    }
}

impl RecordFilter {
    /// Reads one condition.
    ///
    /// # Errors
    /// It is not understood, and why.
    pub fn parse(kind: &RecordType, value: &Value, link: &LinkResolver<'_>) -> Result<Self, String> {
        let part = |name: &str| value.get(name);
        let (Some(name), Some(op)) = (part("field").and_then(Value::as_str), part("op").and_then(Value::as_str)) else {
            return Err(format!(
                "a condition is {{\"field\": …, \"op\": …, \"value\": …}}, not {}",
                value_excerpt(value)
            ));
        };
        let Some((_, op)) = FilterOperator::ALL.iter().find(|(word, _)| *word == op).copied() else {
            return Err(format!(
                "there is no operator `{op}`; there are {}",
                format_name_list(FilterOperator::ALL.iter().map(|(word, _)| *word))
            ));
        };
        let own;
        let field = if name == ID_FIELD {
            own = RecordField::for_record_id(kind);
            &own
        } else {
            kind.expect_field(name)?
        };
        if !op.supports_kind(field.kind) {
            let fitting =
                FilterOperator::ALL.iter().filter(|(_, op)| op.supports_kind(field.kind)).map(|(word, _)| *word);
            return Err(format!(
                "`{}` does not fit `{name}`, which is a {}; there {} fit",
                op.as_str(),
                field.kind.as_str(),
                format_name_list(fitting)
            ));
        }
        let value = part("value").cloned().unwrap_or(Value::Null);
        let value = match op {
            FilterOperator::In | FilterOperator::NotIn => Value::Array(check_filter_values(field, &value, link)?),
            _ => check_filter_value(field, &value, link)?,
        };
        Ok(Self { field: name.to_owned(), op, value })
    }
}

impl RecordField {
    /// A record's own id, as a field that links to its own type.
    fn for_record_id(kind: &RecordType) -> Self {
        Self {
            name: ID_FIELD.to_owned(),
            kind: FieldKind::Link,
            about: String::new(),
            required: true,
            one_of: Vec::new(),
            min: None,
            max: None,
            to: Some(kind.name.clone()),
            on_delete: super::OnDelete::default(),
        }
    }

    /// The same field for one of its values.
    fn for_single_value(&self) -> Self {
        let kind = match self.kind {
            FieldKind::List => FieldKind::Text,
            FieldKind::Links => FieldKind::Link,
            kind => kind,
        };
        // What is looked for need not be allowed: then nothing is found.
        Self { kind, one_of: Vec::new(), min: None, max: None, ..self.clone() }
    }
}

fn check_filter_value(field: &RecordField, value: &Value, link: &LinkResolver<'_>) -> Result<Value, String> {
    check_value(&field.for_single_value(), value, link)
}

fn check_filter_values(field: &RecordField, value: &Value, link: &LinkResolver<'_>) -> Result<Vec<Value>, String> {
    let values = match value {
        Value::Array(values) => values.clone(),
        Value::Null => return Err(format!("a list of values is missing for `{}`", field.name)),
        one => vec![one.clone()],
    };
    if values.len() > FILTER_VALUES_MAX {
        return Err(format!(
            "`{}` is compared with {} values; at most {FILTER_VALUES_MAX} are taken",
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

    fn filter(value: Value) -> Result<RecordFilter, String> {
        RecordFilter::parse(&recipe(), &value, &refs)
    }

    #[test]
    fn a20_an_unknown_operator_is_refused_with_the_list_of_those_there_are() {
        let why = filter(json!({"field": "name", "op": "not_ilike", "value": "%cod%"})).expect_err("refused");
        assert!(why.starts_with("there is no operator `not_ilike`"), "{why}");
        for (word, _) in FilterOperator::ALL {
            assert!(why.contains(&format!("`{word}`")), "{why}");
        }
    }

    #[test]
    fn a_condition_is_checked_against_its_field() {
        for (condition, complaint) in [
            (json!({"field": "mood", "op": "=", "value": 1}), "`recipe` has no field `mood`"),
            (json!({"field": "name", "op": "<", "value": "m"}), "`<` does not fit `name`, which is a text"),
            (json!({"field": "minutes", "op": "=", "value": "soon"}), "`minutes` must be a whole number"),
            (json!({"field": "tags", "op": "=", "value": "quick"}), "`=` does not fit `tags`"),
            (json!({"field": "tags", "op": "not_in"}), "a list of values is missing"),
            (json!({"field": "id", "op": "=", "value": "0b6f"}), "`0b6f` is no reference"),
            (json!({"op": "="}), "a condition is"),
            (json!("cod"), "a condition is"),
        ] {
            let why = filter(condition).expect_err("refused");
            assert!(why.contains(complaint), "{why}");
        }
    }

    #[test]
    fn references_become_ids_and_one_value_may_stand_for_a_list() {
        let own = filter(json!({"field": "id", "op": "in", "value": ["recipe_1", "recipe_2"]})).expect("sound");
        assert_eq!(own.value, json!(["id-1", "id-2"]));
        let one = filter(json!({"field": "tags", "op": "not_in", "value": "fish"})).expect("sound");
        assert_eq!((one.op, one.value), (FilterOperator::NotIn, json!(["fish"])));
    }

    #[test]
    fn a_query_names_everything_that_is_wrong_with_it() {
        let asked = json!({"type": "recipe", "where": [{"field": "x", "op": "="}, {"field": "name", "op": "like"}],
            "sort": "tags", "limit": 0, "joins": []});
        let wrong = RecordQuery::parse(&recipe(), asked.as_object().expect("an object"), &refs).expect_err("refused");
        assert_eq!(wrong.len(), 5, "{wrong:?}");
        let asked = json!({"type": "recipe", "where": {"field": "minutes", "op": "<=", "value": 30}, "limit": 5000});
        let query = RecordQuery::parse(&recipe(), asked.as_object().expect("an object"), &refs).expect("sound");
        assert_eq!((query.filters.len(), query.limit, query.full), (1, READ_ROWS_MAX, false));
        let written = serde_json::to_value(&query).expect("it is data");
        assert_eq!(serde_json::from_value::<RecordQuery>(written).expect("it is read"), query);
    }
}

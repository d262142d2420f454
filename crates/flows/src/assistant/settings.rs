//! The settings of a session, and the catalog of domains they choose from. Nothing is silently ignored: an unknown key or an
//! invalid value is reported, and the default is used.

use std::sync::Arc;

use segue_core::flow::{FlowSettingSpec, FlowSettingType, InvalidFlowSetting, resolve_settings};
use serde_json::Value;

use super::domain::{DomainSchema, format_name_list};
use crate::limits::{DOMAIN_BYTES_MAX, UTC_OFFSET_MINUTES_MAX};
use crate::prompt_overrides::prompts_setting_spec;

/// The domain of a session that names none.
pub const DEFAULT_DOMAIN: &str = "kitchen";

/// The settings of a session.
#[derive(Debug, Clone, PartialEq)]
pub struct AssistantSettings {
    /// The domain; `None` if the settings name no valid one.
    pub domain: Option<Arc<DomainSchema>>,
    /// Whether the reasoning layer is kept.
    pub turn_narratives: bool,
    /// The user's time zone as minutes ahead of UTC.
    pub utc_offset_minutes: i64,
}

/// The configured domains, by name.
#[derive(Debug, Clone, Default)]
pub struct ConfiguredDomains(Vec<Arc<DomainSchema>>);

impl ConfiguredDomains {
    /// Creates a catalog. If two domains have the same name, the later one is used.
    #[must_use]
    pub fn new(domains: impl IntoIterator<Item = DomainSchema>) -> Self {
        let mut all: Vec<Arc<DomainSchema>> = Vec::new();
        for domain in domains {
            all.retain(|known| known.name != domain.name);
            all.push(Arc::new(domain));
        }
        Self(all)
    }

    /// Returns the domain with this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Arc<DomainSchema>> {
        self.0.iter().find(|domain| domain.name == name)
    }

    /// Iterates over all domains.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<DomainSchema>> {
        self.0.iter()
    }

    /// Returns the domain that a session's settings name or declare.
    ///
    /// # Errors
    /// There is no domain with that name, or the declaration is invalid.
    pub fn resolve_session_domain(&self, settings: &Value) -> Result<Arc<DomainSchema>, String> {
        let named = |name: &str| {
            let names = format_name_list(self.0.iter().map(|domain| domain.name.as_str()));
            self.find(name).cloned().ok_or_else(|| format!("there is no domain `{name}`; known domains are {names}"))
        };
        match settings.get("domain") {
            None | Some(Value::Null) => named(DEFAULT_DOMAIN),
            Some(Value::String(name)) => named(name),
            Some(declared @ Value::Object(_)) => {
                let domain = DomainSchema::from_value(declared).map_err(|why| format!("`domain`: {why}"))?;
                // Anyone may be able to open a session. Only the operator may configure which programs are started.
                if domain.server.is_some() {
                    return Err(
                        "a domain with a server must be configured by the operator; a session cannot declare one"
                            .to_owned(),
                    );
                }
                match self.find(&domain.name) {
                    Some(known) if **known != domain => {
                        Err(format!("another domain is named `{}`; choose a different name", domain.name))
                    }
                    Some(known) => Ok(known.clone()),
                    None => Ok(Arc::new(domain)),
                }
            }
            Some(other) => Err(format!("`domain` must be the name of a domain or a declaration, not {other}")),
        }
    }
}

/// Returns the declarations of all settings.
#[must_use]
pub fn assistant_setting_specs(domains: &ConfiguredDomains) -> Vec<FlowSettingSpec> {
    let names = domains.iter().map(|domain| domain.name.clone()).collect();
    let domain =
        FlowSettingType::OneOf(vec![FlowSettingType::Choice(names), FlowSettingType::AnyTable(DOMAIN_BYTES_MAX)]);
    let default = domains.find(DEFAULT_DOMAIN).or_else(|| domains.iter().next()).map(|domain| domain.name.clone());
    vec![
        FlowSettingSpec::new("domain", domain, "the domain of the records: its name, or a declaration")
            .with_default(default.map_or(Value::Null, Value::String)),
        FlowSettingSpec::new(
            "turn_narratives",
            FlowSettingType::Bool,
            "whether decisions and their reasons are kept for later turns",
        )
        .with_default(true),
        FlowSettingSpec::new(
            "utc_offset",
            FlowSettingType::Text,
            "the user's time zone as an offset from UTC, such as +02:00",
        )
        .with_default("+00:00"),
        prompts_setting_spec(),
    ]
}

impl AssistantSettings {
    /// Parses settings; the second value lists what is invalid. If the domain is invalid, the session has none: the flow reports
    /// that instead of using another domain.
    #[must_use]
    pub fn parse(value: &Value, domains: &ConfiguredDomains) -> (Self, Vec<String>) {
        let (resolved, invalid) = resolve_settings(&assistant_setting_specs(domains), value);
        let invalid = invalid
            .iter()
            .filter(|setting| !matches!(setting, InvalidFlowSetting::InvalidValue { path, .. } if path == "domain"));
        let mut complaints: Vec<String> = invalid.map(ToString::to_string).collect();
        let domain = domains.resolve_session_domain(value).map_err(|why| complaints.insert(0, why)).ok();
        let offset = resolved["utc_offset"].as_str().unwrap_or_default();
        let utc_offset_minutes = parse_utc_offset_minutes(offset).unwrap_or_else(|| {
            complaints.push(format!("`utc_offset` must look like `+02:00`, not `{offset}`"));
            0
        });
        let turn_narratives = resolved["turn_narratives"].as_bool().unwrap_or(true);
        (Self { domain, turn_narratives, utc_offset_minutes }, complaints)
    }
}

/// Parses an offset such as `+02:00`.
fn parse_utc_offset_minutes(offset: &str) -> Option<i64> {
    let sign = match offset.chars().next()? {
        '+' => 1,
        '-' => -1,
        _ => return None,
    };
    let (hours, minutes) = offset.get(1..)?.split_once(':')?;
    let number = |text: &str| (text.len() == 2).then(|| text.parse::<u8>().ok()).flatten().map(i64::from);
    let total = number(hours)? * 60 + number(minutes).filter(|minutes| *minutes < 60)?;
    (total <= UTC_OFFSET_MINUTES_MAX).then_some(sign * total)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(value: Value) -> (AssistantSettings, Vec<String>) {
        AssistantSettings::parse(&value, &ConfiguredDomains::new(DomainSchema::built_in()))
    }

    #[test]
    fn defaults_are_the_kitchen_with_narratives() {
        let (settings, complaints) = read(Value::Null);
        assert_eq!(complaints, [""; 0]);
        assert_eq!(settings.domain.map(|domain| domain.name.clone()).as_deref(), Some("kitchen"));
        assert!(settings.turn_narratives);
    }

    #[test]
    fn invalid_settings_are_reported_and_no_other_domain_is_used() {
        let (settings, complaints) =
            read(json!({"domain": "garage", "turn_narratives": "no", "utc_offset": "noon", "moods": 1}));
        assert_eq!(complaints.len(), 4, "{complaints:?}");
        assert!(complaints[0].contains("there is no domain `garage`; known domains are `kitchen`, `reading`"));
        assert_eq!((settings.domain, settings.turn_narratives, settings.utc_offset_minutes), (None, true, 0));
        assert!(!read(json!([])).1.is_empty());
    }

    #[test]
    fn utc_offsets_may_be_positive_or_negative() {
        for (offset, expected) in [
            ("+02:00", Some(120)),
            ("-09:30", Some(-570)),
            ("+14:00", Some(840)),
            ("+15:00", None),
            ("2:00", None),
            ("+2:00", None),
            ("+02:60", None),
            ("", None),
        ] {
            assert_eq!(parse_utc_offset_minutes(offset), expected, "{offset}");
        }
    }

    #[test]
    fn session_may_declare_a_domain_but_no_server() {
        let mut bees = json!({"name": "bees", "type": [{"name": "hive", "label": "name",
            "fields": [{"name": "name", "kind": "text", "required": true}]}]});
        assert_eq!(read(json!({"domain": bees})).1, [""; 0]);
        bees["server"] = json!({"command": ["sh"], "tools": [{"name": "x"}]});
        let (settings, complaints) = read(json!({"domain": bees}));
        assert!(settings.domain.is_none() && complaints[0].contains("must be configured"), "{complaints:?}");
        let kitchen = json!({"name": "kitchen", "type": bees["type"]});
        assert!(read(json!({"domain": kitchen})).1[0].contains("another domain is named `kitchen`"));
    }
}

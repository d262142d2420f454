//! How one session of the flow is set, read so that nothing is silently ignored: a key that is not known and a value that
//! does not fit are complaints, and the default stands.

use std::sync::Arc;

use segue_core::flow::settings::{SettingSpec, SettingType, resolve_settings};
use serde_json::Value;

use super::domain::{DomainSchema, format_name_list};
use crate::limits::{DOMAIN_BYTES_MAX, UTC_OFFSET_MINUTES_MAX};

/// The domain where nothing is set.
pub const DEFAULT_DOMAIN: &str = "kitchen";

/// How a session is set.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// What records are kept of.
    pub domain: Option<Arc<DomainSchema>>,
    /// Whether turns are summarised for later ones: what was decided, and why.
    pub turn_narratives: bool,
    /// How far the user's clock is from the journal's, which is in universal time.
    pub utc_offset_minutes: i64,
}

/// Every domain at hand, by name.
#[derive(Debug, Clone, Default)]
pub struct DomainCatalog(Vec<Arc<DomainSchema>>);

impl DomainCatalog {
    /// These; of two with the same name, the later one.
    #[must_use]
    pub fn new(domains: impl IntoIterator<Item = DomainSchema>) -> Self {
        let mut all: Vec<Arc<DomainSchema>> = Vec::new();
        for domain in domains {
            all.retain(|known| known.name != domain.name);
            all.push(Arc::new(domain));
        }
        Self(all)
    }

    /// The one of this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Arc<DomainSchema>> {
        self.0.iter().find(|domain| domain.name == name)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<DomainSchema>> {
        self.0.iter()
    }

    /// The domain that a session's settings name, or bring with them.
    ///
    /// # Errors
    /// There is none of that name, or the one they bring is not sound.
    pub fn resolve_session_domain(&self, settings: &Value) -> Result<Arc<DomainSchema>, String> {
        let named = |name: &str| {
            let names = format_name_list(self.0.iter().map(|domain| domain.name.as_str()));
            self.find(name).cloned().ok_or_else(|| format!("there is no domain `{name}`; there are {names}"))
        };
        match settings.get("domain") {
            None | Some(Value::Null) => named(DEFAULT_DOMAIN),
            Some(Value::String(name)) => named(name),
            Some(declared @ Value::Object(_)) => {
                let domain = DomainSchema::from_value(declared).map_err(|why| format!("`domain`: {why}"))?;
                // Whoever opens a session could be anybody; what starts programs is configured by the one who runs them.
                if domain.server.is_some() {
                    return Err("a domain with a server must be configured; a session cannot bring one".to_owned());
                }
                match self.find(&domain.name) {
                    Some(known) if **known != domain => {
                        Err(format!("there is another domain `{}`; give this one another name", domain.name))
                    }
                    Some(known) => Ok(known.clone()),
                    None => Ok(Arc::new(domain)),
                }
            }
            Some(other) => Err(format!("`domain` must be a name or a declaration, not {other}")),
        }
    }
}

/// Everything that can be set, where these domains are at hand.
#[must_use]
pub fn assistant_setting_specs(domains: &DomainCatalog) -> Vec<SettingSpec> {
    let names = domains.iter().map(|domain| domain.name.clone()).collect();
    let domain = SettingType::OneOf(vec![SettingType::Choice(names), SettingType::AnyTable(DOMAIN_BYTES_MAX)]);
    let usual = domains.find(DEFAULT_DOMAIN).or_else(|| domains.iter().next()).map(|domain| domain.name.clone());
    vec![
        SettingSpec::new("domain", domain, "what records are kept of: the name of a domain, or its declaration")
            .with_default(usual.map_or(Value::Null, Value::String)),
        SettingSpec::new(
            "turn_narratives",
            SettingType::Bool,
            "whether what was decided, and why, is kept for later turns",
        )
        .with_default(true),
        SettingSpec::new(
            "utc_offset",
            SettingType::Text,
            "how far the user's clock is from universal time, such as +02:00",
        )
        .with_default("+00:00"),
    ]
}

impl Settings {
    /// Reads settings; the second part names what was not understood. Without a domain the flow can do nothing, and says so:
    /// it does not turn to another one.
    #[must_use]
    pub fn parse(value: &Value, domains: &DomainCatalog) -> (Self, Vec<String>) {
        let (holds, misfits) = resolve_settings(&assistant_setting_specs(domains), value);
        let misfits = misfits.iter().filter(|misfit| misfit.setting_name() != "domain");
        let mut complaints: Vec<String> = misfits.map(ToString::to_string).collect();
        let domain = domains.resolve_session_domain(value).map_err(|why| complaints.insert(0, why)).ok();
        let offset = holds["utc_offset"].as_str().unwrap_or_default();
        let utc_offset_minutes = parse_utc_offset_minutes(offset).unwrap_or_else(|| {
            complaints.push(format!("`utc_offset` must be such as `+02:00`, not `{offset}`"));
            0
        });
        let turn_narratives = holds["turn_narratives"].as_bool().unwrap_or(true);
        (Self { domain, turn_narratives, utc_offset_minutes }, complaints)
    }
}

/// The minutes of an offset such as `+02:00`.
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

    fn read(value: Value) -> (Settings, Vec<String>) {
        Settings::parse(&value, &DomainCatalog::new(DomainSchema::built_in()))
    }

    #[test]
    fn nothing_set_means_the_kitchen_with_narratives() {
        let (settings, complaints) = read(Value::Null);
        assert_eq!(complaints, [""; 0]);
        assert_eq!(settings.domain.map(|domain| domain.name.clone()).as_deref(), Some("kitchen"));
        assert!(settings.turn_narratives);
    }

    #[test]
    fn what_is_not_understood_is_complained_of_and_no_other_domain_is_taken() {
        let (settings, complaints) =
            read(json!({"domain": "garage", "turn_narratives": "no", "utc_offset": "noon", "moods": 1}));
        assert_eq!(complaints.len(), 4, "{complaints:?}");
        assert!(complaints[0].contains("there is no domain `garage`; there are `kitchen`, `reading`"));
        assert_eq!((settings.domain, settings.turn_narratives, settings.utc_offset_minutes), (None, true, 0));
        assert!(!read(json!([])).1.is_empty());
    }

    #[test]
    fn a_clock_may_be_ahead_or_behind() {
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
    fn a_session_may_bring_a_domain_but_no_program_to_run() {
        let mut bees = json!({"name": "bees", "type": [{"name": "hive", "label": "name",
            "fields": [{"name": "name", "kind": "text", "required": true}]}]});
        assert_eq!(read(json!({"domain": bees})).1, [""; 0]);
        bees["server"] = json!({"command": ["sh"], "tools": [{"name": "x"}]});
        let (settings, complaints) = read(json!({"domain": bees}));
        assert!(settings.domain.is_none() && complaints[0].contains("must be configured"), "{complaints:?}");
        let kitchen = json!({"name": "kitchen", "type": bees["type"]});
        assert!(read(json!({"domain": kitchen})).1[0].contains("there is another domain `kitchen`"));
    }
}

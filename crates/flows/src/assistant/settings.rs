//! How one session of the flow is set, read so that nothing is silently ignored: a key that is not known and a value that
//! does not fit are complaints, and the default stands.

use std::sync::Arc;

use serde_json::Value;

use super::domain::{Domain, listed};

/// The domain where nothing is set.
pub const DOMAIN: &str = "kitchen";

/// Minutes by which a clock can differ from that of the journal.
const OFFSET_MINUTES: std::ops::RangeInclusive<i64> = -14 * 60..=14 * 60;

/// How a session is set.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// What records are kept of.
    pub domain: Option<Arc<Domain>>,
    /// Whether turns are summarised for later ones: what was decided, and why.
    pub turn_narratives: bool,
    /// How far the user's clock is from the journal's, which is in universal time.
    pub utc_offset_minutes: i64,
}

/// Every domain at hand, by name.
#[derive(Debug, Clone, Default)]
pub struct Domains(Vec<Arc<Domain>>);

impl Domains {
    /// These; of two with the same name, the later one.
    #[must_use]
    pub fn new(domains: impl IntoIterator<Item = Domain>) -> Self {
        let mut all: Vec<Arc<Domain>> = Vec::new();
        for domain in domains {
            all.retain(|known| known.name != domain.name);
            all.push(Arc::new(domain));
        }
        Self(all)
    }

    /// The one of this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Arc<Domain>> {
        self.0.iter().find(|domain| domain.name == name)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Domain>> {
        self.0.iter()
    }

    /// The domain that a session's settings name, or bring with them.
    ///
    /// # Errors
    /// There is none of that name, or the one they bring is not sound.
    pub fn of(&self, settings: &Value) -> Result<Arc<Domain>, String> {
        let named = |name: &str| {
            let names = listed(self.0.iter().map(|domain| domain.name.as_str()));
            self.find(name).cloned().ok_or_else(|| format!("there is no domain `{name}`; there are {names}"))
        };
        match settings.get("domain") {
            None | Some(Value::Null) => named(DOMAIN),
            Some(Value::String(name)) => named(name),
            Some(declared @ Value::Object(_)) => {
                let domain = Domain::from_value(declared)?;
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

impl Settings {
    /// Reads settings; the second part names what was not understood. Without a domain the flow can do nothing, and says so.
    #[must_use]
    pub fn read(value: &Value, domains: &Domains) -> (Self, Vec<String>) {
        let mut complaints = Vec::new();
        let mut settings = Self { domain: None, turn_narratives: true, utc_offset_minutes: 0 };
        match domains.of(value) {
            Ok(domain) => settings.domain = Some(domain),
            Err(why) => complaints.push(why),
        }
        let entries = match value {
            Value::Null => return (settings, complaints),
            Value::Object(entries) => entries,
            _ => {
                complaints.push("the settings are not an object; the defaults stand".to_owned());
                return (settings, complaints);
            }
        };
        for (key, value) in entries {
            let fits = match key.as_str() {
                "domain" => true,
                "turn_narratives" => value.as_bool().map(|on| settings.turn_narratives = on).is_some(),
                "utc_offset_minutes" => {
                    let minutes = value.as_i64().filter(|minutes| OFFSET_MINUTES.contains(minutes));
                    minutes.map(|minutes| settings.utc_offset_minutes = minutes).is_some()
                }
                _ => {
                    complaints.push(format!("`{key}` is no setting of this flow"));
                    continue;
                }
            };
            if !fits {
                complaints.push(format!("`{key}` does not fit ({value}); the default stands"));
            }
        }
        (settings, complaints)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(value: Value) -> (Settings, Vec<String>) {
        Settings::read(&value, &Domains::new(Domain::shipped()))
    }

    #[test]
    fn nothing_set_means_the_kitchen_with_narratives() {
        let (settings, complaints) = read(Value::Null);
        assert_eq!(complaints, [""; 0]);
        assert_eq!(settings.domain.map(|domain| domain.name.clone()).as_deref(), Some("kitchen"));
        assert!(settings.turn_narratives);
    }

    #[test]
    fn what_is_not_understood_is_complained_of_and_the_default_stands() {
        let (settings, complaints) =
            read(json!({"domain": "garage", "turn_narratives": "no", "utc_offset_minutes": 5000, "moods": 1}));
        assert_eq!(complaints.len(), 4, "{complaints:?}");
        assert!(complaints[0].contains("there is no domain `garage`; there are `kitchen`, `reading`"));
        assert_eq!((settings.domain, settings.turn_narratives, settings.utc_offset_minutes), (None, true, 0));
        assert_eq!(read(json!([])).1.len(), 1);
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

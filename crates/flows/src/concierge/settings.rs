//! How one session of the flow is set: what its settings say, read so that nothing in them is silently ignored. A key
//! that is not known and a value that does not fit are complaints, and the default stands.

use segue_core::ids::ModelName;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::stance::Stance;
use crate::limits::MEMBERS_MAX;

/// Answers wanted where nothing is set.
const SAMPLES: u16 = 3;
/// The turn by which the starter hands over where nothing is set.
const HANDOVER_BY_TURN: u32 = 3;

/// How a session is set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Who answers.
    pub members: Vec<Member>,
    /// When everyone is asked.
    pub batch: BatchWhen,
    /// Whether the user is asked before a model's wish to ask everyone is followed.
    pub confirm_batches: bool,
    /// When a plan is presented.
    pub synthesis: Synthesis,
    /// The starter's turn from which on a missing handover is asked for, and built if it does not come.
    pub handover_by_turn: u32,
    /// Answers that suffice to go on; nothing: all are waited for.
    pub quorum: Option<usize>,
    /// How long an answer is waited for; nothing: as long as the engine waits for any call.
    pub answer_timeout_ms: Option<u64>,
    /// The stance, whatever the message says.
    pub stance: Option<Stance>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            members: vec![Member { model: None, samples: SAMPLES, timeout_ms: None }],
            batch: BatchWhen::OnSignal,
            confirm_batches: false,
            synthesis: Synthesis::SameTurn,
            handover_by_turn: HANDOVER_BY_TURN,
            quorum: None,
            answer_timeout_ms: None,
            stance: None,
        }
    }
}

/// What can be set, for people and forms.
#[must_use]
pub fn schema() -> Value {
    let count = |about: &str, default: Value| json!({"type": "integer", "minimum": 1, "description": about, "default": default});
    json!({
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "members": {
                "type": "array",
                "description": "who answers",
                "default": [{"samples": SAMPLES}],
                "items": {
                    "type": "object",
                    "additionalProperties": false,
                    "properties": {
                        "model": {"type": "string", "description": "its model; the one of the role expert if not given"},
                        "samples": {"type": "integer", "minimum": 1, "maximum": MEMBERS_MAX, "description": "how many answers it gives", "default": 1},
                        "timeout_ms": {"type": "integer", "minimum": 1, "description": "how long its answer is waited for"},
                    },
                },
            },
            "batch": {"enum": ["on_signal", "every_turn"], "description": "when everyone is asked", "default": "on_signal"},
            "confirm_batches": {"type": "boolean", "description": "whether you are asked before a model's wish to ask everyone is followed", "default": false},
            "synthesis": {"enum": ["same_turn", "next_turn"], "description": "when a plan is presented", "default": "same_turn"},
            "handover_by_turn": count("the turn by which the first phase hands over", json!(HANDOVER_BY_TURN)),
            "quorum": count("answers that suffice to go on; all are waited for if not given", Value::Null),
            "answer_timeout_ms": count("how long an answer is waited for", Value::Null),
            "stance": {"enum": ["default", "decide", "explore", "challenge", null], "description": "the stance, whatever the message says", "default": null},
        },
    })
}

/// One who answers.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// Its model; nothing: the one configured for the role `expert`.
    #[serde(default)]
    pub model: Option<ModelName>,
    /// How many answers it gives, each with a memory of its own.
    #[serde(default = "one")]
    pub samples: u16,
    /// How long its answers are waited for.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
}

fn one() -> u16 {
    1
}

/// When everyone is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BatchWhen {
    /// On the first turn, and when a signal asks for it.
    OnSignal,
    /// On every turn.
    EveryTurn,
}

/// When a plan is presented.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Synthesis {
    /// In the turn that asked for it.
    SameTurn,
    /// With the next message.
    NextTurn,
}

/// A seat in the round: whom to ask, and for how long to wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seat {
    /// Its model; nothing: the one configured for the role.
    pub model: Option<ModelName>,
    /// Which sample of that model.
    pub sample: u16,
    /// How long its answer is waited for.
    pub timeout_ms: Option<u64>,
}

impl Settings {
    /// Reads settings; the second part names what was not understood.
    #[must_use]
    pub fn read(value: &Value) -> (Self, Vec<String>) {
        let mut settings = Self::default();
        let mut complaints = Vec::new();
        let entries = match value {
            Value::Null => return (settings, complaints),
            Value::Object(entries) => entries,
            _ => return (settings, vec!["the settings are not an object; the defaults stand".to_owned()]),
        };
        for (key, value) in entries {
            let told = match key.as_str() {
                "members" => take(value, &mut settings.members),
                "batch" => take(value, &mut settings.batch),
                "confirm_batches" => take(value, &mut settings.confirm_batches),
                "synthesis" => take(value, &mut settings.synthesis),
                "handover_by_turn" => take(value, &mut settings.handover_by_turn),
                "quorum" => take(value, &mut settings.quorum),
                "answer_timeout_ms" => take(value, &mut settings.answer_timeout_ms),
                "stance" => take(value, &mut settings.stance),
                _ => Err("is no setting of this flow".to_owned()),
            };
            complaints.extend(told.err().map(|why| format!("`{key}` {why}")));
        }
        settings.fit(&mut complaints);
        (settings, complaints)
    }

    /// Every seat in the round, in a fixed order: that of the members, then of their samples.
    #[must_use]
    pub fn seats(&self) -> Vec<Seat> {
        let mut seats: Vec<Seat> = Vec::new();
        for member in &self.members {
            for _ in 0..member.samples {
                let before = seats.iter().filter(|seat| seat.model == member.model).count();
                seats.push(Seat {
                    model: member.model.clone(),
                    sample: u16::try_from(before).unwrap_or(u16::MAX),
                    timeout_ms: member.timeout_ms.or(self.answer_timeout_ms),
                });
            }
        }
        seats.truncate(MEMBERS_MAX);
        seats
    }

    fn fit(&mut self, complaints: &mut Vec<String>) {
        if self.members.iter().all(|member| member.samples == 0) {
            complaints.push("`members` names nobody; the default stands".to_owned());
            self.members = Self::default().members;
        }
        let wanted: usize = self.members.iter().map(|member| usize::from(member.samples)).sum();
        if wanted > MEMBERS_MAX {
            complaints.push(format!("`members` asks for {wanted} answers; the first {MEMBERS_MAX} are asked for"));
        }
        if self.quorum == Some(0) {
            complaints.push("`quorum` is 0; all answers are waited for".to_owned());
            self.quorum = None;
        }
        if self.handover_by_turn == 0 {
            complaints.push("`handover_by_turn` is 0; the first turn is 1".to_owned());
            self.handover_by_turn = 1;
        }
    }
}

fn take<T: DeserializeOwned>(value: &Value, into: &mut T) -> Result<(), String> {
    *into = serde_json::from_value(value.clone()).map_err(|why| format!("does not fit ({why}); the default stands"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_schema_calls_a_default_is_the_default() {
        let schema = schema();
        let properties = schema["properties"].as_object().expect("an object");
        let defaults = properties.iter().filter(|(_, about)| !about["default"].is_null());
        let defaults: serde_json::Map<_, _> =
            defaults.map(|(name, about)| (name.clone(), about["default"].clone())).collect();
        let (settings, complaints) = Settings::read(&Value::Object(defaults));
        assert_eq!((settings, complaints), (Settings::default(), Vec::new()));
        for (name, about) in properties {
            for choice in about["enum"].as_array().into_iter().flatten() {
                assert_eq!(Settings::read(&json!({ name: choice })).1, [""; 0], "{name} = {choice}");
            }
        }
        assert_eq!(Settings::read(&json!({"quorum": 2, "answer_timeout_ms": 9})).1, [""; 0]);
    }

    #[test]
    fn nothing_set_means_three_samples_of_the_configured_model() {
        let (settings, complaints) = Settings::read(&Value::Null);
        assert!(complaints.is_empty());
        let samples: Vec<u16> = settings.seats().iter().map(|seat| seat.sample).collect();
        assert_eq!(samples, [0, 1, 2]);
    }

    #[test]
    fn what_is_not_understood_is_complained_of_and_the_default_stands() {
        let (settings, complaints) = Settings::read(&json!({
            "quorum": "two", "sythesis": "next_turn", "synthesis": "next_turn", "members": [], "handover_by_turn": 0,
        }));
        assert_eq!(settings.synthesis, Synthesis::NextTurn);
        assert_eq!((settings.quorum, settings.handover_by_turn), (None, 1));
        assert_eq!(settings.members, Settings::default().members);
        assert_eq!(complaints.len(), 4, "{complaints:?}");
        assert_eq!(Settings::read(&json!([])).1.len(), 1);
    }

    #[test]
    fn each_sample_of_a_model_has_a_seat_of_its_own() {
        let members = json!({"members": [{"model": "ant", "samples": 2}, {"model": "bee", "timeout_ms": 5}, {"model": "ant"}],
            "answer_timeout_ms": 9});
        let (settings, complaints) = Settings::read(&members);
        assert!(complaints.is_empty(), "{complaints:?}");
        let seats: Vec<_> = settings
            .seats()
            .into_iter()
            .map(|seat| (seat.model.expect("named").to_string(), seat.sample, seat.timeout_ms))
            .collect();
        let seat = |model: &str, sample, timeout_ms| (model.to_owned(), sample, Some(timeout_ms));
        assert_eq!(seats, [seat("ant", 0, 9), seat("ant", 1, 9), seat("bee", 0, 5), seat("ant", 2, 9)]);
    }

    #[test]
    fn no_more_are_asked_than_the_limit_allows() {
        let (settings, complaints) = Settings::read(&json!({"members": [{"samples": 1000}]}));
        assert_eq!(settings.seats().len(), MEMBERS_MAX);
        assert_eq!(complaints.len(), 1);
    }
}

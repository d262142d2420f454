//! How one session of the flow is set: what can be set, and what its settings come to. What does not fit is a complaint,
//! and the default stands.

use segue_core::flow::settings::{SettingSpec, SettingType, resolve_settings};
use segue_core::ids::ModelName;
use serde::Deserialize;
use serde_json::{Value, json};

use super::stance::ReplyStance;
use crate::limits::{ANSWER_TIMEOUT_MS_MAX, EXPERT_ANSWERS_MAX, HANDOVER_BY_TURN_MAX, PLAN_BY_REQUEST_MAX};

/// Answers wanted of the one expert there is, where nothing is set.
const SAMPLES_DEFAULT: u16 = 3;
/// The turn by which the starter hands over where nothing is set.
const HANDOVER_BY_TURN_DEFAULT: u32 = 3;
/// The request by which a plan is made where nothing is set: the first is the explorer's to judge.
const PLAN_BY_REQUEST_DEFAULT: u32 = 2;

/// How a session is set.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Settings {
    /// Who answers; nobody named: the model configured for the role.
    pub experts: Vec<ExpertSettings>,
    /// How many answers each gives who has no number of its own.
    pub samples: Option<u16>,
    /// Who maps; nothing: the model configured for the role.
    pub mapper: Option<ModelName>,
    /// Who speaks; nothing: the model configured for the role.
    pub concierge: Option<ModelName>,
    /// When everyone is asked.
    pub batch: BatchTrigger,
    /// Whether the user is asked before a model's wish to ask everyone is followed.
    pub confirm_batches: bool,
    /// When a plan is presented.
    pub synthesis: PlanTiming,
    /// The starter's turn from which on a missing handover is asked for, and built if it does not come.
    pub handover_by_turn: u32,
    /// The user's plain request for a plan, in one visit of the explorer, from which on a plan is asked for even if the explorer does not.
    pub plan_by_request: u32,
    /// Answers that suffice to go on; nothing: all are waited for.
    pub quorum: Option<usize>,
    /// How long an answer is waited for; nothing: as long as the engine waits for any call.
    pub answer_timeout_ms: Option<u64>,
    /// The stance, whatever the message says.
    pub stance: Option<ReplyStance>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            experts: Vec::new(),
            samples: None,
            mapper: None,
            concierge: None,
            batch: BatchTrigger::OnSignal,
            confirm_batches: false,
            synthesis: PlanTiming::SameTurn,
            handover_by_turn: HANDOVER_BY_TURN_DEFAULT,
            plan_by_request: PLAN_BY_REQUEST_DEFAULT,
            quorum: None,
            answer_timeout_ms: None,
            stance: None,
        }
    }
}

/// One who answers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(from = "ExpertSettingsRepr")]
pub struct ExpertSettings {
    /// Its model; nothing: the one configured for the role.
    pub model: Option<ModelName>,
    /// How many answers it gives, each with a memory of its own.
    pub samples: Option<u16>,
    /// How long its answers are waited for.
    pub timeout_ms: Option<u64>,
}

/// An expert as it can be written.
#[derive(Deserialize)]
#[serde(untagged)]
enum ExpertSettingsRepr {
    Model(ModelName),
    Table { model: Option<ModelName>, samples: Option<u16>, timeout_ms: Option<u64> },
}

impl From<ExpertSettingsRepr> for ExpertSettings {
    fn from(named: ExpertSettingsRepr) -> Self {
        match named {
            ExpertSettingsRepr::Model(model) => Self { model: Some(model), samples: None, timeout_ms: None },
            ExpertSettingsRepr::Table { model, samples, timeout_ms } => Self { model, samples, timeout_ms },
        }
    }
}

/// When everyone is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BatchTrigger {
    /// On the first turn, and when a signal asks for it.
    OnSignal,
    /// On every turn.
    EveryTurn,
}

/// When a plan is presented.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanTiming {
    /// In the turn that asked for it.
    SameTurn,
    /// With the next message.
    NextTurn,
}

/// A seat in the round: whom to ask, and for how long to wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpertSlot {
    /// Its model; nothing: the one configured for the role.
    pub model: Option<ModelName>,
    /// Which sample of that model.
    pub sample: u16,
    /// How long its answer is waited for.
    pub timeout_ms: Option<u64>,
}

/// Everything that can be set.
#[must_use]
pub fn concierge_setting_specs() -> Vec<SettingSpec> {
    let samples = || SettingType::integer(1, EXPERT_ANSWERS_MAX as u64);
    let timeout = || SettingType::integer(1, ANSWER_TIMEOUT_MS_MAX);
    let expert = SettingType::Table(vec![
        SettingSpec::new(
            "model",
            SettingType::Model,
            "its model; the one configured for the role `expert` if not given",
        ),
        SettingSpec::new("samples", samples(), "how many answers it gives, each with a memory of its own"),
        SettingSpec::new("timeout_ms", timeout(), "how long its answers are waited for"),
    ]);
    let experts = SettingType::list(SettingType::OneOf(vec![SettingType::Model, expert]), EXPERT_ANSWERS_MAX);
    let words = |default: &str, other: &str| SettingType::Choice(vec![default.to_owned(), other.to_owned()]);
    vec![
        SettingSpec::new("experts", experts, "who answers: models; if none is named, the one of the role `expert`")
            .with_default(json!([])),
        SettingSpec::new("samples", samples(), "answers of each expert; 3 if no expert is named, else 1"),
        SettingSpec::new(
            "mapper",
            SettingType::Model,
            "who maps the answers; the model of the role `mapper` if not given",
        ),
        SettingSpec::new("concierge", SettingType::Model, "who speaks; the model of the role `concierge` if not given"),
        SettingSpec::new("batch", words("on_signal", "every_turn"), "when everyone is asked").with_default("on_signal"),
        SettingSpec::new(
            "confirm_batches",
            SettingType::Bool,
            "ask the user before a model's wish to ask everyone is followed",
        )
        .with_default(false),
        SettingSpec::new("synthesis", words("same_turn", "next_turn"), "when a plan is presented")
            .with_default("same_turn"),
        SettingSpec::new(
            "handover_by_turn",
            SettingType::integer(1, HANDOVER_BY_TURN_MAX),
            "the starter's turn from which on a missing handover is asked for",
        )
        .with_default(HANDOVER_BY_TURN_DEFAULT),
        SettingSpec::new(
            "plan_by_request",
            SettingType::integer(1, PLAN_BY_REQUEST_MAX),
            "the user's plain request for a plan from which on one is made, even if the explorer asks for none",
        )
        .with_default(PLAN_BY_REQUEST_DEFAULT),
        SettingSpec::new("quorum", samples(), "answers that are enough to go on; all are waited for if not given"),
        SettingSpec::new("answer_timeout_ms", timeout(), "how long an answer is waited for"),
        SettingSpec::new(
            "stance",
            SettingType::Choice(ReplyStance::ALL.map(|it| it.name().to_owned()).into()),
            "how to speak, whatever the message says",
        ),
    ]
}

impl Settings {
    /// Reads settings by what can be set; the second part names what was not understood.
    #[must_use]
    pub fn parse(specs: &[SettingSpec], given: &Value) -> (Self, Vec<String>) {
        let (holds, misfits) = resolve_settings(specs, given);
        let mut complaints: Vec<String> =
            misfits.iter().map(|misfit| format!("{misfit}; the default stands")).collect();
        let settings: Self = serde_json::from_value(holds).unwrap_or_default();
        settings.push_conflicts(&mut complaints);
        (settings, complaints)
    }

    /// Every seat in the round, in a fixed order: that of the experts, then of their samples.
    #[must_use]
    pub fn expert_slots(&self) -> Vec<ExpertSlot> {
        let only = [ExpertSettings { samples: self.samples.or(Some(SAMPLES_DEFAULT)), ..ExpertSettings::default() }];
        let experts = if self.experts.is_empty() { only.as_slice() } else { &self.experts };
        let mut seats: Vec<ExpertSlot> = Vec::new();
        for expert in experts {
            for _ in 0..expert.samples.or(self.samples).unwrap_or(1) {
                let before = seats.iter().filter(|seat| seat.model == expert.model).count();
                seats.push(ExpertSlot {
                    model: expert.model.clone(),
                    sample: u16::try_from(before).unwrap_or(u16::MAX),
                    timeout_ms: expert.timeout_ms.or(self.answer_timeout_ms),
                });
            }
        }
        seats.truncate(EXPERT_ANSWERS_MAX);
        seats
    }

    /// What fits by itself and not together.
    fn push_conflicts(&self, complaints: &mut Vec<String>) {
        let each = |expert: &ExpertSettings| usize::from(expert.samples.or(self.samples).unwrap_or(1));
        let wanted: usize = self.experts.iter().map(each).sum();
        if wanted > EXPERT_ANSWERS_MAX {
            complaints
                .push(format!("`experts` come to {wanted} answers; the first {EXPERT_ANSWERS_MAX} are asked for"));
        }
        let seats = self.expert_slots().len();
        if let Some(quorum) = self.quorum.filter(|quorum| *quorum > seats) {
            complaints.push(format!("`quorum` is {quorum}, and {seats} are asked; all of them are waited for"));
        }
        if self.quorum == Some(1) && seats > 1 {
            let why = "the first answer is gone on with alone and no map is made; 2 is the least that makes one";
            complaints.push(format!("`quorum` is 1, and {seats} are asked: {why}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(given: Value) -> (Settings, Vec<String>) {
        Settings::parse(&concierge_setting_specs(), &given)
    }

    #[test]
    fn nothing_set_means_three_samples_of_the_configured_model() {
        let (settings, complaints) = read(Value::Null);
        assert_eq!((settings.clone(), complaints), (Settings::default(), Vec::new()));
        let samples: Vec<u16> = settings.expert_slots().iter().map(|seat| seat.sample).collect();
        assert_eq!(samples, [0, 1, 2]);
        assert_eq!(read(json!({"samples": 5})).0.expert_slots().len(), 5);
    }

    #[test]
    fn what_is_not_understood_is_complained_of_and_the_default_stands() {
        let (settings, complaints) = read(json!({
            "quorum": "two", "sythesis": "next_turn", "synthesis": "next_turn", "handover_by_turn": 0,
        }));
        assert_eq!(settings, Settings { synthesis: PlanTiming::NextTurn, ..Settings::default() });
        assert_eq!(complaints.len(), 3, "{complaints:?}");
        assert_eq!(
            complaints[0],
            "`handover_by_turn`: expected a whole number from 1 to 100, found the number 0; the default stands"
        );
        assert_eq!(read(json!([])).1.len(), 1);
    }

    #[test]
    fn each_sample_of_a_model_has_a_seat_of_its_own() {
        let (settings, complaints) = read(json!({
            "experts": [{"model": "ant", "samples": 2}, {"model": "bee", "timeout_ms": 5}, "ant"], "answer_timeout_ms": 9,
        }));
        assert!(complaints.is_empty(), "{complaints:?}");
        let seats: Vec<_> = settings
            .expert_slots()
            .into_iter()
            .map(|seat| (seat.model.expect("named").to_string(), seat.sample, seat.timeout_ms))
            .collect();
        let seat = |model: &str, sample, timeout_ms| (model.to_owned(), sample, Some(timeout_ms));
        assert_eq!(seats, [seat("ant", 0, 9), seat("ant", 1, 9), seat("bee", 0, 5), seat("ant", 2, 9)]);
        let (settings, _) = read(json!({"experts": ["ant", {"model": "bee", "samples": 1}], "samples": 2}));
        let seats: Vec<_> =
            settings.expert_slots().into_iter().map(|seat| seat.model.expect("named").to_string()).collect();
        assert_eq!(seats, ["ant", "ant", "bee"]);
    }

    #[test]
    fn no_more_are_asked_than_the_limit_allows() {
        let (settings, complaints) = read(json!({"experts": ["ant", "bee"], "samples": 20, "quorum": 32}));
        assert_eq!(settings.expert_slots().len(), EXPERT_ANSWERS_MAX);
        assert_eq!(complaints, ["`experts` come to 40 answers; the first 32 are asked for"]);
        assert_eq!(read(json!({"quorum": 4})).1, ["`quorum` is 4, and 3 are asked; all of them are waited for"]);
        assert!(read(json!({"quorum": 1})).1[0].starts_with("`quorum` is 1, and 3 are asked: the first answer"));
        assert_eq!(read(json!({"quorum": 1, "samples": 1})).1, [""; 0]);
    }
}

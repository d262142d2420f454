//! The settings of a session: their declaration and their parsed values. An invalid value becomes a complaint, and the
//! default is used.

use segue_core::flow::{FlowSettingSpec, FlowSettingType, resolve_settings};
use segue_core::ids::ModelName;
use segue_core::signal::SignalForm;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::prompt_overrides::prompts_setting_spec;

use super::stance::ReplyStance;
use crate::limits::{ANSWER_TIMEOUT_MS_MAX, EXPERT_ANSWERS_MAX, HANDOVER_BY_TURN_MAX, PLAN_BY_REQUEST_MAX};

/// Samples of the role's model if no expert is named.
const SAMPLES_DEFAULT: u16 = 3;
const HANDOVER_BY_TURN_DEFAULT: u32 = 3;
/// By default the explorer may decline the first request for a plan.
const PLAN_BY_REQUEST_DEFAULT: u32 = 2;

/// The parsed settings of a session.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ConciergeSettings {
    /// The experts; if empty, the model of the role `expert`.
    pub experts: Vec<ExpertSettings>,
    /// Answers of each expert without a number of its own.
    pub samples: Option<u16>,
    /// The mapper's model; by default that of the role `mapper`.
    pub mapper: Option<ModelName>,
    /// The concierge's model; by default that of the role `concierge`.
    pub concierge: Option<ModelName>,
    /// When the experts are asked.
    pub batch: ExpertBatchTrigger,
    /// Whether the user must confirm a batch that a model requests.
    pub confirm_batches: bool,
    /// How the concierge is asked for signals.
    pub signals: SignalFormSetting,
    /// When a plan is presented.
    pub synthesis: PlanPresentationTiming,
    /// The turn from which a missing handover of the starter is requested, and built if necessary.
    pub handover_by_turn: u32,
    /// The number of explicit requests for a plan in one explorer visit after which the flow makes one itself.
    pub plan_by_request: u32,
    /// The number of answers that is enough to continue; by default all.
    pub quorum: Option<usize>,
    /// How long to wait for an answer; by default as long as the engine waits for any call.
    pub answer_timeout_ms: Option<u64>,
    /// A fixed stance.
    pub stance: Option<ReplyStance>,
}

impl Default for ConciergeSettings {
    fn default() -> Self {
        Self {
            experts: Vec::new(),
            samples: None,
            mapper: None,
            concierge: None,
            batch: ExpertBatchTrigger::OnSignal,
            confirm_batches: false,
            signals: SignalFormSetting::Auto,
            synthesis: PlanPresentationTiming::SameTurn,
            handover_by_turn: HANDOVER_BY_TURN_DEFAULT,
            plan_by_request: PLAN_BY_REQUEST_DEFAULT,
            quorum: None,
            answer_timeout_ms: None,
            stance: None,
        }
    }
}

/// The settings of one expert.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(from = "ExpertSettingsRepr")]
pub struct ExpertSettings {
    /// The model; by default that of the role `expert`.
    pub model: Option<ModelName>,
    /// The number of answers, each with its own thread.
    pub samples: Option<u16>,
    /// How long to wait for its answers.
    pub timeout_ms: Option<u64>,
}

/// The forms in which an expert can be configured.
#[derive(Deserialize)]
#[serde(untagged)]
enum ExpertSettingsRepr {
    Model(ModelName),
    Table { model: Option<ModelName>, samples: Option<u16>, timeout_ms: Option<u64> },
}

impl From<ExpertSettingsRepr> for ExpertSettings {
    fn from(repr: ExpertSettingsRepr) -> Self {
        match repr {
            ExpertSettingsRepr::Model(model) => Self { model: Some(model), samples: None, timeout_ms: None },
            ExpertSettingsRepr::Table { model, samples, timeout_ms } => Self { model, samples, timeout_ms },
        }
    }
}

/// When the experts are asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExpertBatchTrigger {
    /// On the first turn, and when a signal requests it.
    OnSignal,
    /// On every turn.
    EveryTurn,
}

/// How the concierge is asked for signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SignalFormSetting {
    /// As blocks in its replies.
    Inline,
    /// With private questions, whose answers are JSON.
    Structured,
    /// By what is known about its model.
    Auto,
}

/// When a plan is presented.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanPresentationTiming {
    /// In the turn that requested it.
    SameTurn,
    /// In the turn of the user's next message.
    NextTurn,
}

/// One expert call of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpertCallSpec {
    /// The model; by default that of the role `expert`.
    pub model: Option<ModelName>,
    /// The index among the slots with the same model.
    pub sample: u16,
    /// How long to wait for the answer.
    pub timeout_ms: Option<u64>,
}

/// Returns the declarations of all settings.
#[must_use]
pub fn concierge_setting_specs() -> Vec<FlowSettingSpec> {
    let samples = || FlowSettingType::Integer { min: 1, max: EXPERT_ANSWERS_MAX as u64 };
    let timeout = || FlowSettingType::Integer { min: 1, max: ANSWER_TIMEOUT_MS_MAX };
    let expert = FlowSettingType::Table(vec![
        FlowSettingSpec::new("model", FlowSettingType::Model, "the model; by default that of the role `expert`"),
        FlowSettingSpec::new("samples", samples(), "number of answers, each with its own thread"),
        FlowSettingSpec::new("timeout_ms", timeout(), "how long to wait for its answers"),
    ]);
    let item = Box::new(FlowSettingType::OneOf(vec![FlowSettingType::Model, expert]));
    let experts = FlowSettingType::List { item, items_max: EXPERT_ANSWERS_MAX };
    let choice = |default: &str, other: &str| FlowSettingType::Choice(vec![default.to_owned(), other.to_owned()]);
    vec![
        FlowSettingSpec::new("experts", experts, "models that answer; by default that of the role `expert`")
            .with_default(json!([])),
        FlowSettingSpec::new("samples", samples(), "answers of each expert; 3 if no expert is named, else 1"),
        FlowSettingSpec::new(
            "mapper",
            FlowSettingType::Model,
            "model that maps the answers; by default that of the role `mapper`",
        ),
        FlowSettingSpec::new(
            "concierge",
            FlowSettingType::Model,
            "model that talks to the user; by default that of the role `concierge`",
        ),
        FlowSettingSpec::new("batch", choice("on_signal", "every_turn"), "when the experts are asked")
            .with_default("on_signal"),
        FlowSettingSpec::new(
            "confirm_batches",
            FlowSettingType::Bool,
            "ask the user before the experts are asked on a model's request",
        )
        .with_default(false),
        FlowSettingSpec::new(
            "signals",
            FlowSettingType::Choice(["inline", "structured", "auto"].map(str::to_owned).into()),
            "how the concierge is asked for signals: in its replies, with separate questions, or by its model",
        )
        .with_default("auto"),
        FlowSettingSpec::new("synthesis", choice("same_turn", "next_turn"), "when a plan is presented")
            .with_default("same_turn"),
        FlowSettingSpec::new(
            "handover_by_turn",
            FlowSettingType::Integer { min: 1, max: HANDOVER_BY_TURN_MAX },
            "the turn from which a missing handover of the starter is requested",
        )
        .with_default(HANDOVER_BY_TURN_DEFAULT),
        FlowSettingSpec::new(
            "plan_by_request",
            FlowSettingType::Integer { min: 1, max: PLAN_BY_REQUEST_MAX },
            "after this many explicit requests a plan is made, even if the explorer requests none",
        )
        .with_default(PLAN_BY_REQUEST_DEFAULT),
        FlowSettingSpec::new("quorum", samples(), "answers that are enough to continue; by default all"),
        FlowSettingSpec::new("answer_timeout_ms", timeout(), "how long to wait for an answer"),
        FlowSettingSpec::new(
            "stance",
            FlowSettingType::Choice(ReplyStance::ALL.map(|it| it.name().to_owned()).into()),
            "a fixed stance, whatever the message says",
        ),
        prompts_setting_spec(),
    ]
}

impl ConciergeSettings {
    /// Parses settings. Returns the settings and a complaint for each invalid value.
    #[must_use]
    pub fn parse(specs: &[FlowSettingSpec], given: &Value) -> (Self, Vec<String>) {
        let (values, invalid) = resolve_settings(specs, given);
        let mut complaints: Vec<String> =
            invalid.iter().map(|invalid| format!("{invalid}; the default is used")).collect();
        let settings: Self = serde_json::from_value(values).unwrap_or_default();
        settings.push_conflict_complaints(&mut complaints);
        (settings, complaints)
    }

    /// Returns how signals are requested from a model whose catalog entry says `by_model`.
    #[must_use]
    pub fn signal_form(&self, by_model: SignalForm) -> SignalForm {
        match self.signals {
            SignalFormSetting::Inline => SignalForm::Inline,
            SignalFormSetting::Structured => SignalForm::Structured,
            SignalFormSetting::Auto => by_model,
        }
    }

    /// Returns the expert slots of a batch, ordered by expert and then by sample.
    #[must_use]
    pub fn expert_slots(&self) -> Vec<ExpertCallSpec> {
        let default_expert =
            [ExpertSettings { samples: self.samples.or(Some(SAMPLES_DEFAULT)), ..ExpertSettings::default() }];
        let experts = if self.experts.is_empty() { default_expert.as_slice() } else { &self.experts };
        let mut slots: Vec<ExpertCallSpec> = Vec::new();
        for expert in experts {
            for _ in 0..expert.samples.or(self.samples).unwrap_or(1) {
                let before = slots.iter().filter(|slot| slot.model == expert.model).count();
                slots.push(ExpertCallSpec {
                    model: expert.model.clone(),
                    sample: u16::try_from(before).unwrap_or(u16::MAX),
                    timeout_ms: expert.timeout_ms.or(self.answer_timeout_ms),
                });
            }
        }
        slots.truncate(EXPERT_ANSWERS_MAX);
        slots
    }

    /// Adds complaints about settings that are valid but do not fit together.
    fn push_conflict_complaints(&self, complaints: &mut Vec<String>) {
        let answers = |expert: &ExpertSettings| usize::from(expert.samples.or(self.samples).unwrap_or(1));
        let total: usize = self.experts.iter().map(answers).sum();
        if total > EXPERT_ANSWERS_MAX {
            complaints
                .push(format!("`experts` asks for {total} answers; only the first {EXPERT_ANSWERS_MAX} are used"));
        }
        let slots = self.expert_slots().len();
        if let Some(quorum) = self.quorum.filter(|quorum| *quorum > slots) {
            complaints
                .push(format!("`quorum` is {quorum}, but only {slots} answers are requested; all of them are awaited"));
        }
        if self.quorum == Some(1) && slots > 1 {
            let why = "only the first answer is used, without a map; a map needs at least 2";
            complaints.push(format!("`quorum` is 1, but {slots} answers are requested: {why}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(given: Value) -> (ConciergeSettings, Vec<String>) {
        ConciergeSettings::parse(&concierge_setting_specs(), &given)
    }

    #[test]
    fn default_is_three_samples_of_the_configured_model() {
        let (settings, complaints) = parse(Value::Null);
        assert_eq!((settings.clone(), complaints), (ConciergeSettings::default(), Vec::new()));
        let samples: Vec<u16> = settings.expert_slots().iter().map(|slot| slot.sample).collect();
        assert_eq!(samples, [0, 1, 2]);
        assert_eq!(parse(json!({"samples": 5})).0.expert_slots().len(), 5);
    }

    #[test]
    fn invalid_value_is_reported_and_the_default_is_used() {
        let (settings, complaints) = parse(json!({
            "quorum": "two", "sythesis": "next_turn", "synthesis": "next_turn", "handover_by_turn": 0,
        }));
        assert_eq!(
            settings,
            ConciergeSettings { synthesis: PlanPresentationTiming::NextTurn, ..ConciergeSettings::default() }
        );
        assert_eq!(complaints.len(), 3, "{complaints:?}");
        assert_eq!(
            complaints[0],
            "`handover_by_turn`: expected a whole number from 1 to 100, found the number 0; the default is used"
        );
        assert_eq!(parse(json!([])).1.len(), 1);
    }

    #[test]
    fn each_sample_of_a_model_has_its_own_slot() {
        let (settings, complaints) = parse(json!({
            "experts": [{"model": "ant", "samples": 2}, {"model": "bee", "timeout_ms": 5}, "ant"], "answer_timeout_ms": 9,
        }));
        assert!(complaints.is_empty(), "{complaints:?}");
        let slots: Vec<_> = settings
            .expert_slots()
            .into_iter()
            .map(|slot| (slot.model.expect("named").to_string(), slot.sample, slot.timeout_ms))
            .collect();
        let slot = |model: &str, sample, timeout_ms| (model.to_owned(), sample, Some(timeout_ms));
        assert_eq!(slots, [slot("ant", 0, 9), slot("ant", 1, 9), slot("bee", 0, 5), slot("ant", 2, 9)]);
        let (settings, _) = parse(json!({"experts": ["ant", {"model": "bee", "samples": 1}], "samples": 2}));
        let models: Vec<_> =
            settings.expert_slots().into_iter().map(|slot| slot.model.expect("named").to_string()).collect();
        assert_eq!(models, ["ant", "ant", "bee"]);
    }

    #[test]
    fn answers_are_limited() {
        let (settings, complaints) = parse(json!({"experts": ["ant", "bee"], "samples": 20, "quorum": 32}));
        assert_eq!(settings.expert_slots().len(), EXPERT_ANSWERS_MAX);
        assert_eq!(complaints, ["`experts` asks for 40 answers; only the first 32 are used"]);
        assert_eq!(
            parse(json!({"quorum": 4})).1,
            ["`quorum` is 4, but only 3 answers are requested; all of them are awaited"]
        );
        assert!(
            parse(json!({"quorum": 1})).1[0]
                .starts_with("`quorum` is 1, but 3 answers are requested: only the first answer")
        );
        assert_eq!(parse(json!({"quorum": 1, "samples": 1})).1, [""; 0]);
    }
}

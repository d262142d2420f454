//! The fields of a BATCH block, and whether its batch needs the user's consent.

use segue_core::handover::HandoverDocument;
use segue_core::signal::SignalBlock;

use crate::concierge::facts::ExpertBatchPurpose;
use crate::concierge::spec::{BATCH_BLOCK, EXECUTION_FIELDS};
use crate::concierge::{handovers, sample_echo};

/// Whether the user is asked before a batch starts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ExpertBatchConfirmationPolicy {
    BySetting,
    Always,
}

/// The fields of a BATCH block.
#[derive(Debug, Clone)]
pub(super) struct ExpertBatchBlock {
    pub(super) kind: String,
    pub(super) purpose: Option<ExpertBatchPurpose>,
    pub(super) handover: HandoverDocument,
    pub(super) step: Option<String>,
    pub(super) blocker: Option<String>,
    pub(super) context: Option<String>,
    pub(super) prompt: Option<String>,
}

impl ExpertBatchBlock {
    pub(super) fn from_block(block: &SignalBlock) -> Self {
        let is_own = |name: &str, text: &str| !text.is_empty() && !sample_echo::is_sample_echo(BATCH_BLOCK, name, text);
        let text =
            |name: &str| block.fields.text(name).map(str::trim).filter(|text| is_own(name, text)).map(str::to_owned);
        let kind = text("type").unwrap_or_default();
        let purpose = match kind.to_ascii_uppercase().replace([' ', '-'], "_").as_str() {
            "WORKFLOW" => Some(ExpertBatchPurpose::Plan),
            "STEP_HELP" => Some(ExpertBatchPurpose::StepHelp),
            _ => None,
        };
        let handover = block.fields.section("handover");
        let handover = handover
            .map(|fields| handovers::parse_document(BATCH_BLOCK, fields, &EXECUTION_FIELDS))
            .unwrap_or_default();
        let (step, blocker, context, prompt) = (text("step"), text("blocker"), text("context"), text("prompt"));
        Self { kind, purpose, handover, step, blocker, context, prompt }
    }

    pub(super) fn is_plan_request(&self) -> bool {
        self.purpose == Some(ExpertBatchPurpose::Plan)
    }
}

//! Binds a write to its planned step: to the step's operation, its type and its records. What a model reads while it carries out
//! the step, such as text in a record, cannot widen this. Only a new plan can, and a plan follows from what the user said.

use std::collections::BTreeSet;

use crate::assistant::domain::format_name_list;
use crate::assistant::facts::{AssistantPlanStep, AssistantPlanStepKind};
use crate::assistant::registry::KnownEntities;

/// The operations on tables that a write step can be planned for.
pub const TABLE_WRITE_OPERATIONS: [&str; 5] = ["create", "update", "delete", "link", "unlink"];

/// Checks that a planned write on tables says what it may change.
///
/// # Errors
/// The operation is missing or unknown, or the records to change are not named. A step that deletes must name them. Another one
/// may also change records that an earlier step of the plan reads.
pub(in crate::assistant) fn check_planned_write(
    step: &AssistantPlanStep,
    plan: &[AssistantPlanStep],
    entities: &KnownEntities,
) -> Result<(), String> {
    let operation = step.operation.as_deref().unwrap_or_default();
    if !TABLE_WRITE_OPERATIONS.contains(&operation) {
        let known = format_name_list(TABLE_WRITE_OPERATIONS.iter().copied());
        return Err(format!("`operation` must be {known}, not `{operation}`"));
    }
    let is_target = |reference: &String| entities.get(reference).is_some_and(|entity| entity.kind == step.subdomain);
    if operation == "create" || step.refs.iter().any(is_target) {
        return Ok(());
    }
    let is_earlier_read = |other: &AssistantPlanStep| {
        other.kind == AssistantPlanStepKind::Read && other.subdomain == step.subdomain && other.group < step.group
    };
    match operation {
        "delete" => Err(format!(
            "`delete` needs `refs`: the records of type `{}` to delete; if they are not known yet, plan only a read step",
            step.subdomain
        )),
        _ if plan.iter().any(is_earlier_read) => Ok(()),
        _ => Err(format!(
            "`{operation}` needs `refs`: the records of type `{0}` to change, or an earlier step that reads `{0}`",
            step.subdomain
        )),
    }
}

/// What a step may write.
pub(super) struct StepRecordWritePermissions<'w> {
    pub(super) step: &'w AssistantPlanStep,
    pub(super) entities: &'w KnownEntities,
    /// The records that the read steps of this turn returned.
    pub(super) read_references: BTreeSet<&'w str>,
}

impl StepRecordWritePermissions<'_> {
    /// Checks that the step was planned for an operation.
    pub(super) fn check_planned_operation(&self, operation: &str) -> Result<(), String> {
        match self.step.operation.as_deref() {
            Some(planned) if planned == operation => Ok(()),
            Some(planned) => Err(format!(
                "`{operation}` is not planned; this step may only `{planned}`; if the user wants something else, use `ask_user`"
            )),
            None => Err(format!("`{operation}` is not planned; the plan names no operation for this step")),
        }
    }

    /// Checks that the step may create records of a type.
    pub(super) fn check_created_type(&self, kind: &str) -> Result<(), String> {
        if kind == self.step.subdomain {
            return Ok(());
        }
        Err(format!("this step may only create records of type `{}`, not `{kind}`", self.step.subdomain))
    }

    /// Checks that the step may change a record.
    pub(super) fn check_may_change_record(&self, reference: &str) -> Result<(), String> {
        let entity = self.entities.expect_entity(reference, None)?;
        if entity.kind != self.step.subdomain {
            return Err(format!(
                "`{reference}` is of type `{}`, but this step may only change records of type `{}`",
                entity.kind, self.step.subdomain
            ));
        }
        self.check_reference_is_planned(reference, &entity.kind)
    }

    /// Checks that a reference of a type is one that the plan names. If the plan names none of this type, it may be any that the
    /// read steps returned.
    pub(super) fn check_reference_is_planned(&self, reference: &str, kind: &str) -> Result<(), String> {
        let named = self.planned_references_of_type(kind);
        let is_allowed =
            if named.is_empty() { self.read_references.contains(reference) } else { named.contains(&reference) };
        if is_allowed { Ok(()) } else { Err(self.not_planned_error(reference, &named)) }
    }

    /// Checks that a record may be linked to, or a draft saved. That changes no existing record, so it is only restricted if the
    /// plan names records of this type.
    pub(super) fn check_may_link_or_save(&self, reference: &str, kind: &str) -> Result<(), String> {
        let named = self.planned_references_of_type(kind);
        let is_allowed = named.is_empty() || named.contains(&reference);
        if is_allowed { Ok(()) } else { Err(self.not_planned_error(reference, &named)) }
    }

    fn planned_references_of_type(&self, kind: &str) -> Vec<&str> {
        let is_of_type = |reference: &&String| self.entities.get(reference).is_some_and(|entity| entity.kind == kind);
        self.step.refs.iter().filter(is_of_type).map(String::as_str).collect()
    }

    fn not_planned_error(&self, reference: &str, named: &[&str]) -> String {
        let planned = match named {
            [] => "it may only use records that the plan's read steps returned".to_owned(),
            named => format!("it is planned for {}", format_name_list(named.iter().copied())),
        };
        format!("`{reference}` is not part of this step; {planned}; if the user wants more, use `ask_user`")
    }
}

//! The records tool of the simulated assistant: one table that outlives processes, and a log of the runs that changed it.
//!
//! Like the tool over SQLite it executes a run once, returns the stored result if the run is repeated, says what became of
//! a run, and makes sure that one which was not executed never will be. A run that nobody waits for any more is executed
//! nevertheless, unless its process has crashed. Some runs fail, panic or never return, before or after they took effect.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use segue_core::body::BodyId;
use segue_core::ids::{SessionId, ToolRunId, UnixMillis};
use segue_core::signal::canonical_json;
use segue_core::tool::ToolResult;
use segue_engine::tools::{Tool, ToolInvocation, ToolRunContext};
use segue_flows::assistant::domain::{DomainSnapshotParameters, ID_FIELD, RecordFilterOperator, RecordQuery};
use segue_flows::assistant::facts::AssistantPlanStepKind;
use segue_flows::assistant::tools::{
    DomainOperation, DomainRecordsOverview, DomainSnapshotSection, DomainToolRequest, DomainToolResult,
    DomainToolRunPurpose, RecordChange, RecordKey, ReturnedDomainRecord,
};
use serde_json::{Map, Value, json};

use crate::actions::read_head;
use crate::assistant::ITEM_TYPE;
use crate::seeded_random::SeededRandom;
use crate::world::{SimWorld, StartedToolRun};

/// What survives a process: the table, the log of runs, and what the checks need to know.
#[derive(Debug, Default)]
pub(crate) struct SimRecords {
    items: BTreeMap<String, RecordFields>,
    /// The results of the runs that were executed, or that were declared to be never executed.
    results: BTreeMap<RecordsRunKey, String>,
    /// The writes that changed something, in order.
    pub executed: Vec<ExecutedWrite>,
}

type RecordFields = Map<String, Value>;

/// Identifies a run, also if a session's name is used again.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct RecordsRunKey {
    session: SessionId,
    session_opened_at: UnixMillis,
    run: ToolRunId,
    arguments: String,
}

/// A write that changed the table.
#[derive(Debug, Clone)]
pub(crate) struct ExecutedWrite {
    pub session: SessionId,
    pub session_opened_at: UnixMillis,
    pub run: ToolRunId,
    pub request: DomainToolRequest,
}

impl SimRecords {
    /// Carries out a request completely or not at all. Returns the text of the result, or why the request failed.
    fn execute(&mut self, invocation: &ToolInvocation) -> Result<String, String> {
        let arguments = &invocation.opened.arguments;
        let request = DomainToolRequest::parse(arguments).ok_or("the request is not one of the assistant")?;
        let key = RecordsRunKey {
            session: invocation.session.clone(),
            session_opened_at: invocation.session_opened_at,
            run: invocation.opened.run,
            arguments: canonical_json(arguments),
        };
        let result = match request.operation {
            DomainOperation::Read => self.read(&request),
            DomainOperation::Get => self.get(&request),
            DomainOperation::Snapshot => self.take_snapshot(&request),
            DomainOperation::ResolveRun => return self.resolve_run(&key, &request),
            operation if operation.is_table_write() => match self.results.get(&key) {
                Some(result) => return Ok(result.clone()),
                None => self.write(&key, &request),
            },
            operation => Err(format!("tables do not support `{}`", operation.as_str())),
        };
        let refused = |why| DomainToolResult { refusal: Some(why), ..DomainToolResult::default() };
        Ok(to_text(&result.unwrap_or_else(refused)))
    }

    fn read(&self, request: &DomainToolRequest) -> Result<DomainToolResult, String> {
        let query: RecordQuery = serde_json::from_value(Value::Object(request.parameters.clone()))
            .map_err(|error| format!("invalid query: {error}"))?;
        let mut result = self.find(&query)?;
        if query.filters.is_empty() && result.total == Some(result.rows.len() as u64) {
            result.type_versions = BTreeMap::from([(ITEM_TYPE.to_owned(), self.version())]);
        }
        Ok(result)
    }

    fn find(&self, query: &RecordQuery) -> Result<DomainToolResult, String> {
        let mut rows: Vec<ReturnedDomainRecord> = self.items.iter().map(|(id, fields)| to_row(id, fields)).collect();
        for filter in &query.filters {
            let values = match (&filter.op, &filter.value) {
                _ if filter.field != ID_FIELD => return Err(format!("`{}` cannot be searched", filter.field)),
                (RecordFilterOperator::Equal, value) => vec![value.clone()],
                (RecordFilterOperator::In, Value::Array(values)) => values.clone(),
                (operator, _) => return Err(format!("an id cannot be compared with {operator:?}")),
            };
            rows.retain(|row| values.iter().any(|id| *id == row.id));
        }
        let total = rows.len() as u64;
        rows.truncate(query.limit);
        Ok(DomainToolResult { rows, total: Some(total), ..DomainToolResult::default() })
    }

    fn get(&self, request: &DomainToolRequest) -> Result<DomainToolResult, String> {
        let mut result = DomainToolResult::default();
        for key in parameter::<Vec<RecordKey>>(request, "items")? {
            match self.items.get(&key.id) {
                Some(fields) => result.rows.push(to_row(&key.id, fields)),
                None => result.not_found.push(key),
            }
        }
        Ok(result)
    }

    fn take_snapshot(&self, request: &DomainToolRequest) -> Result<DomainToolResult, String> {
        let parameters: DomainSnapshotParameters = serde_json::from_value(Value::Object(request.parameters.clone()))
            .map_err(|error| format!("invalid snapshot: {error}"))?;
        let mut overview = DomainRecordsOverview {
            counts: vec![(ITEM_TYPE.to_owned(), self.items.len() as u64)],
            ..Default::default()
        };
        for titled in parameters.queries {
            let DomainToolResult { rows, total, .. } = self.find(&titled.query)?;
            let total = total.unwrap_or_default();
            overview.sections.push(DomainSnapshotSection { title: titled.title, total, rows });
        }
        let type_versions = parameters.versions_of.into_iter().map(|kind| (kind, self.version())).collect();
        Ok(DomainToolResult { snapshot: Some(overview), type_versions, ..DomainToolResult::default() })
    }

    /// Returns a digest that changes with any record.
    fn version(&self) -> String {
        BodyId::hash_text(&canonical_json(&json!(self.items))).to_string()
    }

    fn write(&mut self, key: &RecordsRunKey, request: &DomainToolRequest) -> Result<DomainToolResult, String> {
        let is_planned =
            request.purpose == DomainToolRunPurpose::Undo || request.step_kind == Some(AssistantPlanStepKind::Write);
        if !is_planned {
            return Err("records may only be changed in a step that was planned as a write".to_owned());
        }
        let changes = match request.operation {
            DomainOperation::Create => Self::plan_creation(key, request)?,
            DomainOperation::Update => self.plan_update(request)?,
            DomainOperation::Delete => self.plan_deletion(request)?,
            DomainOperation::Undo => self.plan_undo(request)?,
            operation => return Err(format!("items have no links, so there is no `{}`", operation.as_str())),
        };
        for change in &changes {
            match &change.after {
                Some(fields) => self.items.insert(change.id.clone(), fields.clone()),
                None => self.items.remove(&change.id),
            };
        }
        let after = |change: &RecordChange| change.after.as_ref().map(|fields| to_row(&change.id, fields));
        let result =
            DomainToolResult { rows: changes.iter().filter_map(after).collect(), changes, ..Default::default() };
        self.results.insert(key.clone(), to_text(&result));
        if !result.changes.is_empty() {
            self.executed.push(ExecutedWrite {
                session: key.session.clone(),
                session_opened_at: key.session_opened_at,
                run: key.run,
                request: request.clone(),
            });
        }
        Ok(result)
    }

    fn plan_creation(key: &RecordsRunKey, request: &DomainToolRequest) -> Result<Vec<RecordChange>, String> {
        let records: Vec<RecordFields> = parameter(request, "records")?;
        let change = |(index, fields)| {
            let id = format!("{}|{}|{}|{index}", key.session, key.session_opened_at.0, key.run);
            to_change(&id, None, Some(fields))
        };
        Ok(records.into_iter().enumerate().map(change).collect())
    }

    fn plan_update(&self, request: &DomainToolRequest) -> Result<Vec<RecordChange>, String> {
        let updates: Vec<Value> = parameter(request, "updates")?;
        let change = |update: &Value| {
            let id = update["id"].as_str().unwrap_or_default();
            let before = self.existing(id)?;
            let mut after = before.clone();
            after.extend(update["set"].as_object().cloned().unwrap_or_default());
            Ok(to_change(id, Some(before), Some(after)))
        };
        updates.iter().map(change).collect()
    }

    fn plan_deletion(&self, request: &DomainToolRequest) -> Result<Vec<RecordChange>, String> {
        let keys: Vec<RecordKey> = parameter(request, "items")?;
        keys.iter().map(|key| Ok(to_change(&key.id, Some(self.existing(&key.id)?), None))).collect()
    }

    fn plan_undo(&self, request: &DomainToolRequest) -> Result<Vec<RecordChange>, String> {
        let changes: Vec<RecordChange> = parameter(request, "changes")?;
        let reverse = |change: RecordChange| match self.items.get(&change.id) == change.after.as_ref() {
            true => Ok(to_change(&change.id, change.after, change.before)),
            false => Err(format!("“{}” was changed since the write", change.label)),
        };
        changes.into_iter().rev().map(reverse).collect()
    }

    fn existing(&self, id: &str) -> Result<RecordFields, String> {
        self.items.get(id).cloned().ok_or_else(|| "a requested item does not exist any more".to_owned())
    }

    /// Returns the result of another run. If it was not executed, it never will be.
    fn resolve_run(&mut self, asking: &RecordsRunKey, request: &DomainToolRequest) -> Result<String, String> {
        let (run, original) = request.run_to_resolve().ok_or("the request does not name a run")?;
        let arguments = canonical_json(&original.to_arguments());
        let key = RecordsRunKey { run, arguments, ..asking.clone() };
        let never_executed = || to_text(&DomainToolResult { never_executed: true, ..DomainToolResult::default() });
        Ok(self.results.entry(key).or_insert_with(never_executed).clone())
    }
}

fn parameter<T: serde::de::DeserializeOwned>(request: &DomainToolRequest, name: &str) -> Result<T, String> {
    let value = request.parameters.get(name).cloned().unwrap_or_default();
    serde_json::from_value(value).map_err(|error| format!("`{name}` is invalid: {error}"))
}

fn to_text(result: &DomainToolResult) -> String {
    serde_json::to_string(result).expect("results have string keys")
}

fn label(fields: &RecordFields) -> String {
    fields.get("name").and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn to_row(id: &str, fields: &RecordFields) -> ReturnedDomainRecord {
    ReturnedDomainRecord { kind: ITEM_TYPE.to_owned(), id: id.to_owned(), label: label(fields), fields: fields.clone() }
}

fn to_change(id: &str, before: Option<RecordFields>, after: Option<RecordFields>) -> RecordChange {
    let label = after.as_ref().or(before.as_ref()).map(label).unwrap_or_default();
    RecordChange { kind: ITEM_TYPE.to_owned(), id: id.to_owned(), label, before, after }
}

/// What goes wrong with a run.
#[derive(Debug, Clone, Copy)]
enum ToolMishap {
    Fails,
    Panics,
    NeverReturns,
}

/// The tool in one process.
pub(crate) struct SimRecordsTool {
    world: Arc<SimWorld>,
    random: Mutex<SeededRandom>,
}

impl SimRecordsTool {
    pub(crate) fn new(world: &Arc<SimWorld>, random: SeededRandom) -> Self {
        Self { world: world.clone(), random: Mutex::new(random) }
    }
}

#[async_trait]
impl Tool for SimRecordsTool {
    async fn run(&self, request: ToolInvocation, _: ToolRunContext) -> ToolResult {
        let (session, run) = (request.session.clone(), request.opened.run);
        let head = read_head(&self.world.disk, &session);
        self.world.observations().runs.push(StartedToolRun { session, run, head });
        let (before_ms, after_ms, mishap, takes_effect) = {
            let mut random = self.random.lock().expect("not poisoned");
            let kinds = [ToolMishap::Fails, ToolMishap::Fails, ToolMishap::Panics, ToolMishap::NeverReturns];
            let mishap = random.chance_percent(15).then(|| *random.pick(&kinds));
            (random.below(200), random.below(200), mishap, random.chance_percent(60))
        };
        let world = self.world.clone();
        let execution = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(before_ms)).await;
            (mishap.is_none() || takes_effect).then(|| world.records().execute(&request))
        });
        let result = execution.await.expect("requests are executed without a panic");
        tokio::time::sleep(Duration::from_millis(after_ms)).await;
        match mishap {
            None => result.expect("it was executed").into(),
            Some(ToolMishap::Fails) => ToolResult::failed("the records database failed"),
            Some(ToolMishap::Panics) => std::panic::resume_unwind(Box::new("the tool breaks down")),
            Some(ToolMishap::NeverReturns) => std::future::pending().await,
        }
    }
}

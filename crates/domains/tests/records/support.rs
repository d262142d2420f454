//! Runs requests against the records tool.

use segue_core::event::ToolRunOpened;
use segue_core::ids::{ToolRunId, UnixMillis};
use segue_domains::SqliteRecordsTool;
use segue_engine::tools::{Tool, ToolInvocation, ToolRunContext};
use segue_flows::assistant::domain::DomainSchema;
use segue_flows::assistant::settings::ConfiguredDomains;
use segue_flows::assistant::tools::DomainToolResult;
use serde_json::{Value, json};

pub(crate) struct RecordsHarness {
    pub host: SqliteRecordsTool,
    pub session: &'static str,
    pub since: u64,
    pub settings: Value,
    pub runs: u32,
}

/// A domain with every kind of field.
pub(crate) const THINGS: &str = r#"
name = "things"

[[type]]
name = "box"
label = "name"
fields = [
  { name = "name", kind = "text", required = true },
  { name = "size", kind = "integer", min = 0 },
  { name = "weight", kind = "number" },
  { name = "open", kind = "yes_no" },
  { name = "made", kind = "date" },
  { name = "tags", kind = "list" },
  { name = "inside", kind = "link", to = "box", on_delete = "clear" },
  { name = "near", kind = "links", to = "box", on_delete = "clear" },
]

[[type]]
name = "key"
label = "opens"
summary = ["note"]
fields = [
  { name = "opens", kind = "link", to = "box", required = true },
  { name = "note", kind = "text" },
  { name = "long", kind = "text" },
]
"#;

pub(crate) fn domains() -> ConfiguredDomains {
    let things = DomainSchema::parse(THINGS).expect("sound");
    ConfiguredDomains::new(DomainSchema::built_in().into_iter().chain([things]))
}

impl RecordsHarness {
    pub(crate) fn with_tool(host: SqliteRecordsTool) -> Self {
        Self { host, session: "s", since: 1, settings: json!({"domain": "things"}), runs: 0 }
    }

    pub(crate) fn new() -> Self {
        Self::with_tool(SqliteRecordsTool::in_memory(domains()))
    }

    /// Runs a request again under the number of an earlier run.
    pub(crate) fn repeat(&self, run: u32, arguments: &Value) -> Result<DomainToolResult, String> {
        let opened = ToolRunOpened {
            run: ToolRunId(run),
            turn: None,
            tool: "records".into(),
            arguments: arguments.clone(),
            requested_by: None,
            agent: None,
            phase: None,
        };
        let request = ToolInvocation {
            session: self.session.into(),
            session_opened_at: UnixMillis(self.since),
            settings: self.settings.clone(),
            opened,
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let result = runtime.block_on(self.host.run(request, ToolRunContext::for_tests()));
        let text = result.text;
        if result.failed {
            return Err(text);
        }
        Ok(DomainToolResult::parse(&text).unwrap_or_else(|| panic!("a result: {text}")))
    }

    pub(crate) fn run(&mut self, arguments: &Value) -> Result<DomainToolResult, String> {
        self.runs += 1;
        self.repeat(self.runs, arguments)
    }

    pub(crate) fn last_run(&self) -> u32 {
        self.runs
    }

    pub(crate) fn ok(&mut self, op: &str, rest: Value) -> DomainToolResult {
        let reported = self.run(&tool_request(op, rest.clone())).expect("it is served");
        assert_eq!(reported.refusal, None, "{op} {rest}");
        reported
    }

    pub(crate) fn refused(&mut self, op: &str, rest: Value) -> String {
        let reported = self.run(&tool_request(op, rest.clone())).expect("it is served");
        reported.refusal.unwrap_or_else(|| panic!("{op} {rest} was not refused"))
    }

    /// Creates a box and returns its id.
    pub(crate) fn make(&mut self, values: Value) -> String {
        self.ok("create", json!({"type": "box", "records": [values]})).rows.remove(0).id
    }

    /// Returns the names of the boxes that match.
    pub(crate) fn names(&mut self, filters: Value) -> Vec<String> {
        let read = self.ok("read", json!({"type": "box", "where": filters, "limit": 100, "full": true}));
        assert_eq!(read.total, Some(read.rows.len() as u64));
        read.rows.into_iter().map(|row| row.label).collect()
    }
}

/// The arguments of a request in a write step.
pub(crate) fn tool_request(op: &str, rest: Value) -> Value {
    let mut tool_request = json!({"domain": "things", "operation": op, "for": "step_tool_call", "turn": 1, "step": 1, "step_kind": "write"});
    for (name, value) in rest.as_object().expect("an object") {
        tool_request[name] = value.clone();
    }
    tool_request
}

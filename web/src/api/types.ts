// The types of the HTTP API, as described in docs/http.md. A field that older servers may omit is optional.

export type Millis = number;
/** The sequence number of an event in its session's journal. The first is 1. */
export type Seq = number;

export interface ServerInfo {
  version: string;
  default_flow: string;
  default_mid_turn_policy: MidTurnPolicy;
  uses_rehearsal_model: boolean;
  key_required: boolean;
  caller: { key_id: string | null; owner: string | null; flows: string[] | null; operator: boolean };
  limits: { body_bytes_max: number; message_bytes_max: number; [name: string]: number };
}

export type MidTurnPolicy = 'queue' | 'coalesce' | 'reject' | 'interrupt';

export const LAYERS = ['instruction', 'knowledge', 'handover', 'entities', 'conversation', 'reasoning', 'task', 'user_words'] as const;
export type Layer = (typeof LAYERS)[number];

export interface FragmentSpec {
  name: string;
  layer: Layer;
  stability: 'stable' | 'changing';
  tokens_max: number | null;
  overflow: string;
  pinned: boolean;
}

export interface FlowRole {
  role: string;
  memory: string;
  graph: string | null;
  visible_to_user: boolean;
  tools: string[];
  opening: FragmentSpec[];
  asks: { ask: string; private: boolean; fragments: FragmentSpec[] }[];
  reply_tokens_max: number;
  models: { phase: string | null; model: string }[];
}

export interface Flow {
  flow: string;
  about: string;
  roles: FlowRole[];
  graphs: PhaseGraph[];
  handovers: { kind: string; repairs_max: number; fields: { field: string; form: string; need: string }[] }[];
  tools: { tool: string; description?: string }[];
  commands: FlowCommand[];
  settings: JsonSchema | null;
}

/** A command that a flow defines. */
export interface FlowCommand {
  command: string;
  about: string;
  arguments: Record<string, string>;
}

/** A flow command with its arguments, offered as a button. */
export interface SuggestedCommand {
  label: string;
  command: string;
  arguments: unknown;
}

/** The part of JSON Schema that the settings form supports. */
export interface JsonSchema {
  type?: string | string[];
  title?: string;
  description?: string;
  default?: unknown;
  enum?: unknown[];
  properties?: Record<string, JsonSchema>;
  items?: JsonSchema;
  /** `model` marks the name of a model. */
  format?: string;
  minimum?: number;
  maximum?: number;
  anyOf?: JsonSchema[];
  oneOf?: JsonSchema[];
  $ref?: string;
  $defs?: Record<string, JsonSchema>;
}

export interface ModelCard {
  model: string;
  kind: 'vendor' | 'scripted' | 'rehearsal';
  about: string;
  window_tokens: number;
  price: { input: number; output: number; cached: number | null } | null;
}

export interface CallTotals {
  answered: number;
  failed_attempts: number;
  unknown_attempts: number;
  answered_late: number;
  input: number;
  output: number;
  cached: number;
  cost_microusd: number;
  unpriced: number;
}

export type SessionSection = 'turns' | 'calls' | 'threads' | 'phases' | 'handovers' | 'tools' | 'facts' | 'artifacts' | 'recomputations' | 'inboxes';

export interface Session {
  session: string;
  /** The session that started this one. */
  parent: string | null;
  flow: string;
  title: string;
  mid_turn_policy: MidTurnPolicy;
  settings: unknown;
  created: Millis;
  updated: Millis;
  closed_reason: string | null;
  seq: Seq;
  phase: string;
  turns: number;
  calls: number;
  running_turn: { turn: string; started: Millis; messages: string[] } | null;
  queued_messages: { message: string; text: string; mid_turn_policy: MidTurnPolicy }[];
  open_calls: OpenCall[];
  held_tool_runs: HeldToolRun[];
  forked_from: { session: string; at: Seq } | null;
  available_sections: SessionSection[];
  spent: CallTotals;
  /** Child sessions that have not ended. */
  children: { session: string; flow: string; key: string; deadline: Millis; is_closing: boolean }[];
  /** The usage of child sessions that have ended. */
  descendants: { sessions: number; calls: number; input_tokens: number; output_tokens: number; cost_microusd: number; unpriced_answers: number };
}

export interface OpenCall {
  call: string;
  role: string;
  model: string;
  attempt: number;
  status: { type: 'in_progress' } | { type: 'waiting'; until: Millis } | { type: 'awaiting_operator' };
  since: Millis;
}

/** A tool run that waits for a person. */
export interface HeldToolRun {
  run: string;
  reason: ToolRunHoldReason;
  tool: string;
  arguments: unknown;
  role: string | null;
  agent: string | null;
  phase: string | null;
  turn: string | null;
  call: string | null;
  since: Millis;
}

export type ToolRunHoldReason = 'approval' | 'unknown_outcome';

/** The newest progress of a running tool. It is not recorded. */
export interface ToolProgress {
  run: string;
  text: string;
}

export interface SessionListItem {
  session: string;
  /** The session that started this one. */
  parent: string | null;
  flow: string;
  title: string;
  phase: string;
  turns: number;
  calls: number;
  cost_microusd: number | null;
  created: Millis;
  updated: Millis;
  is_active: boolean;
  seq: Seq;
  excerpt?: string;
}

export type TurnResult = { type: 'done' } | { type: 'failed'; reason: string } | { type: 'cancelled' } | { type: 'interrupted' };

/** An image of a session. `body` is the id of the text that holds its bytes in base64. */
export interface ImageRef {
  body: string;
  media_type: string;
}

/** An image to send; `data` is base64. */
export interface InlineImage {
  data: string;
  media_type: string;
}

export interface Message {
  message: string;
  seq: Seq;
  at: Millis;
  text: string;
  images: ImageRef[];
  key: string | null;
  mid_turn_policy: MidTurnPolicy;
}

export interface TurnReply {
  seq: Seq;
  at: Millis;
  text: string;
  role: string | null;
  call: string | null;
}

export interface ToolRun {
  run: string;
  seq: Seq;
  at: Millis;
  tool: string;
  arguments: unknown;
  /** The arguments that were requested, if a person changed them. */
  requested_arguments: unknown;
  /** Why the run waits for a person, if it does. */
  held: ToolRunHoldReason | null;
  call: string | null;
  agent: string | null;
  phase: string | null;
  ended: Millis | null;
  outcome: 'done' | 'failed' | 'refused' | 'unknown' | 'cancelled' | null;
  text: string | null;
  value: unknown;
  artifacts: ToolArtifact[];
}

/** A file or a diff that a tool run produced. */
export interface ToolArtifact {
  kind: 'file' | 'diff';
  name: string;
  media_type: string;
  text: string;
}

export interface Turn {
  turn: string;
  first_seq: Seq;
  end_seq: Seq | null;
  started: Millis;
  ended: Millis | null;
  outcome: TurnResult | null;
  messages: Message[];
  replies: TurnReply[];
  calls: Call[];
  tool_runs: ToolRun[];
  phase_events: PhaseEvent[];
  handovers: string[];
  facts: { seq: Seq; kind: string }[];
  refused_steps: { seq: Seq; at: Millis; step: string; reason: string }[];
  spent: CallTotals;
}

export interface TurnsPage {
  turns: Turn[];
  next: string | null;
  queued_messages: Message[];
  last_seq: Seq;
}

export type PromptPrefix = { type: 'first' } | { type: 'extends'; previous_call: string } | { type: 'broken'; previous_call: string; kept_tokens: number; cause: string };
export type CallStatus = 'open' | 'waiting' | 'awaiting_operator' | 'answered' | 'failed' | 'cancelled' | 'late';

export interface TokenUsage {
  input: number;
  output: number;
  cached: number;
  reasoning: number;
}

export interface Call {
  call: string;
  seq: Seq;
  at: Millis;
  turn: string | null;
  role: string;
  ask: string;
  agent: string | null;
  peer: string | null;
  model: string;
  sample: number;
  phase: string | null;
  visible_to_user: boolean;
  thread: string | null;
  opened_thread: boolean;
  thread_reason: string;
  prompt_tokens: number;
  tokens_by_layer?: Partial<Record<Layer, number>>;
  window_tokens: number;
  prefix: PromptPrefix;
  follows: string | null;
  compacts: string | null;
  recomputes: string | null;
  attempts: number;
  /** Attempts whose outcome is unknown; they may have been billed. */
  unknown_attempts: number;
  status: CallStatus;
  problem: string | null;
  ended: Millis | null;
  duration_ms: number | null;
  stop_reason: string | null;
  usage: TokenUsage | null;
  counted_by: 'vendor' | 'estimated' | null;
  cost_microusd: number | null;
}

export type FragmentSource =
  | { type: 'template'; name: string }
  | { type: 'message'; message: string }
  | { type: 'handover'; handover: string }
  | { type: 'call'; call: string }
  | { type: 'tool'; tool_run: string }
  | { type: 'thread'; thread: string }
  | { type: 'state' }
  | { type: 'phase' };

export interface ShownFragment {
  name: string;
  part: 'opening' | 'carried' | 'ask';
  layer: Layer;
  source: FragmentSource | null;
  source_summary: string;
  reason: string;
  tokens: number;
  tokens_before_cut: number | null;
  pinned: boolean;
  since_call: string | null;
  body: string | null;
  text?: string | null;
  messages?: number;
  messages_folded?: number;
}

export interface ToolCall {
  id?: string;
  name: string;
  arguments: unknown;
}

export interface CallReceipt {
  call: Call;
  thread_reason: string;
  cache_summary: string;
  cached_tokens: number;
  memory: string;
  fragments: ShownFragment[];
  omitted_fragments: ShownFragment[];
  previous_call: string | null;
  failed_attempts: { seq: Seq; at: Millis; attempt: number | null; summary: string; next: { type: 'retry'; at: Millis } | { type: 'await_operator' } | { type: 'give_up' } | null }[];
  answer: { text: string; body: string; tokens: number; reasoning: string | null; tool_calls: ToolCall[] } | null;
  reply_tokens_max: number;
  tools: unknown[];
  output: unknown;
  changed_fragments: string[];
  digest: string;
}

export interface Prompt {
  call: string;
  model: string;
  messages: { speaker: string; text: string; images: ImageRef[]; tool_calls: ToolCall[]; tool_call_id: string | null }[];
  tools: unknown[];
  output: unknown;
  reply_tokens_max: number;
  digest: string;
}

export interface PromptDiffLine {
  type: 'same' | 'removed' | 'added';
  text: string;
}

export interface PromptDiff {
  from: string;
  to: string;
  lines: PromptDiffLine[];
}

export interface Recomputation {
  call: string;
  recomputes: string;
  model: string;
  previous_answer: string | null;
  new_answer: string | null;
  problem: string | null;
  changed_fragments: string[];
}

export interface ThreadCallPoint {
  seq: Seq;
  at: Millis;
  turn: string | null;
  call: string | null;
}

export interface Thread {
  thread: string;
  role: string;
  agent: string | null;
  peer: string | null;
  model: string | null;
  sample: number | null;
  memory: string;
  opened: ThreadCallPoint;
  opening_reason: { type: 'fresh' | 'first_use' | 'changed' | 'too_old'; summary: string; changed: string[] };
  valid_for: { phase: string | null; visit: number | null; turn: string | null; model: string | null; work_item: string | null };
  ended: ThreadCallPoint | null;
  calls: string[];
  turns: string[];
  messages: number;
  tokens: number;
  compactions: { seq: Seq; at: Millis; messages_folded: number; tokens_before: number; tokens_after: number; summary_call: string | null }[];
  is_active: boolean;
}

export interface Participant {
  type: string;
  name?: string | null;
}

export interface PhaseSpec {
  phase: string;
  purpose: string;
  kind: string;
  entry: string[];
  activities: string[];
  criteria: string[];
  constraints: string[];
  agents: string[];
  tools: string[] | null;
  limit: { turns_max: number | null; rounds_max: number | null; ms_max: number | null; includes_waiting: boolean; exit_phase: string } | null;
}

export interface Gate {
  gate: string;
  opened_by: string;
  satisfied_by: string;
  condition: string | null;
  blocks: string[];
  is_open?: boolean;
}

export interface PhaseGraph {
  graph: string;
  attached_to: string;
  start: string;
  phases: PhaseSpec[];
  edges: { from: string; to: string; guard: string | null }[];
  gates: Gate[];
  mermaid: string;
}

export interface PhaseEvent {
  seq: Seq;
  at: Millis;
  turn: string | null;
  type: 'entered' | 'refused' | 'granted';
  from: string | null;
  to: string;
  proposed_by: Participant;
  cause: string | null;
  summary: string;
  warning: string | null;
  reason: string | null;
  allowed_phases: string[];
  graph?: string;
}

export interface PhaseGraphStatus {
  graph: string;
  participant: Participant;
  attached_to: string;
  start: string;
  current: {
    phase: string;
    visit: number;
    since: Millis;
    turns: number;
    rounds: number;
    previous_phase: string | null;
    open_gates: string[];
    grants: { to: string; by: Participant | string; warning: string }[];
  };
  allowed_phases: string[];
  phases: (PhaseSpec & { visits: number; turns: number; duration_ms: number; spent: CallTotals })[];
  edges: { from: string; to: string; guard: string | null; taken: number; refused: number }[];
  gates: Gate[];
  visits: { visit: number; phase: string; first_seq: Seq; end_seq: Seq | null; started: Millis; ended: Millis | null; turns: number }[];
  events: PhaseEvent[];
  mermaid: string;
}

export interface HandoverField {
  field: string;
  form: string;
  need: string;
  value: string | string[] | null;
  found_in: { type: 'call' | 'message'; id: string }[];
}

export interface Handover {
  handover: string;
  kind: string;
  seq: Seq;
  at: Millis;
  turn: string | null;
  provenance: 'emitted' | 'repaired' | 'built';
  calls: string[];
  complaints: string[];
  fields: HandoverField[];
  shown_to: string[];
}

interface ArtifactBase {
  name: string;
  title: string;
}

export interface Checklist extends ArtifactBase {
  type: 'checklist';
  goal: string;
  items: { title: string; detail: string | null; done_when: string | null; status: 'complete' | 'active' | 'pending' }[];
}

export interface GraphNode {
  id: string;
  label: string;
  text: string;
  kind: string | null;
  role: string | null;
  weight: number | null;
  sources: string[];
}

export interface GraphArtifact extends ArtifactBase {
  type: 'graph';
  nodes: GraphNode[];
  edges: { from: string; to: string; kind: string }[];
  notes: string[];
  metrics: { name: string; value: string | number }[];
}

export interface TableArtifact extends ArtifactBase {
  type: 'table';
  columns: string[];
  rows: { id: string; group: string | null; cells: string[]; why: string | null; commands?: SuggestedCommand[] }[];
}

export interface NotesArtifact extends ArtifactBase {
  type: 'notes';
  items: { title: string; text: string; turn: string | null }[];
}

export type Artifact = Checklist | GraphArtifact | TableArtifact | NotesArtifact;

export interface Ledger {
  total: CallTotals;
  roles: LedgerAccount[];
  models: LedgerAccount[];
  phases: LedgerAccount[];
  turns: LedgerAccount[];
}

export interface LedgerAccount {
  name: string;
  spent: CallTotals;
}

/** A journal event with the server's one-line summary and the texts it refers to. */
export interface EventView {
  seq: Seq;
  at: Millis;
  type: string;
  summary: string;
  turn: string | null;
  call: string | null;
  message: string | null;
  event: JournalEvent;
  texts: Record<string, string>;
}

/** An event as stored in the journal: ids are bare numbers, enum values are `"name"` or `{"name": {…}}`. */
export type JournalEvent = { type: string } & Record<string, unknown>;

/** A piece of a reply that is being streamed. */
export interface TextDelta {
  call: string;
  attempt: number;
  /** The position of `text` in the reply, in bytes. */
  offset: number;
  text: string;
}

export interface ProblemDetails {
  type: string;
  title: string;
  status: number;
  detail: string;
  code: string;
  field?: string;
  allowed_phases?: string[];
}

// What the server sends, as docs/http.md describes it. Nothing here is computed; a field that may be missing in an older answer is optional.

export type Millis = number;
/** The number of an event in its session's journal; the first is 1. */
export type Seq = number;

export interface Server {
  version: string;
  flow: string;
  busy: Busy;
  rehearsal: boolean;
  key_needed: boolean;
  you: { key: string | null; owner: string | null; flows: string[] | null; operator: boolean };
  limits: { body_bytes_max: number; message_bytes_max: number; [name: string]: number };
}

export type Busy = 'queue' | 'coalesce' | 'reject' | 'interrupt';

export const LAYERS = ['instruction', 'knowledge', 'handover', 'entities', 'conversation', 'reasoning', 'task', 'words'] as const;
export type Layer = (typeof LAYERS)[number];

export interface FragmentSpec {
  name: string;
  layer: Layer;
  steadiness: 'stable' | 'changing';
  tokens_max: number | null;
  over: string;
  pinned: boolean;
}

export interface FlowRole {
  role: string;
  memory: string;
  graph: string | null;
  heard_by_user: boolean;
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
  graphs: GraphData[];
  handovers: { kind: string; repairs_max: number; fields: { field: string; form: string; need: string }[] }[];
  tools: { tool: string; about?: string }[];
  commands: FlowCommand[];
  settings: Schema | null;
}

/** What a flow itself offers to be told, beyond what every session is. */
export interface FlowCommand {
  command: string;
  about: string;
  arguments: Record<string, string>;
}

/** One of a flow's commands, ready to be given. */
export interface Offer {
  text: string;
  command: string;
  arguments: unknown;
}

/** As much of JSON schema as a form is made of. */
export interface Schema {
  type?: string | string[];
  title?: string;
  description?: string;
  default?: unknown;
  enum?: unknown[];
  properties?: Record<string, Schema>;
  items?: Schema;
  /** `model`: the name of a model. */
  format?: string;
  minimum?: number;
  maximum?: number;
  anyOf?: Schema[];
  oneOf?: Schema[];
  $ref?: string;
  $defs?: Record<string, Schema>;
}

export interface Card {
  model: string;
  kind: 'vendor' | 'scripted' | 'rehearsal';
  about: string;
  window_tokens: number;
  price: { input: number; output: number; cached: number | null } | null;
}

export interface Tally {
  answered: number;
  failed: number;
  unknown: number;
  late: number;
  input: number;
  output: number;
  cached: number;
  cost_microusd: number;
  unpriced: number;
}

export type Holds = 'turns' | 'calls' | 'threads' | 'phases' | 'handovers' | 'tools' | 'facts' | 'exhibits' | 'recomputations' | 'inboxes';

export interface Session {
  session: string;
  flow: string;
  title: string;
  busy: Busy;
  settings: unknown;
  created: Millis;
  updated: Millis;
  closed: string | null;
  seq: Seq;
  phase: string;
  turns: number;
  calls: number;
  running: { turn: string; started: Millis; messages: string[] } | null;
  queue: { message: string; text: string; busy: Busy }[];
  open_calls: OpenCall[];
  forked_from: { session: string; at: Seq } | null;
  holds: Holds[];
  spent: Tally;
}

export interface OpenCall {
  call: string;
  role: string;
  model: string;
  attempt: number;
  status: { is: 'due' } | { is: 'waiting'; until: Millis } | { is: 'held' };
  since: Millis;
}

export interface SessionRow {
  session: string;
  flow: string;
  title: string;
  phase: string;
  turns: number;
  calls: number;
  cost_microusd: number | null;
  created: Millis;
  updated: Millis;
  at_work: boolean;
  seq: Seq;
  excerpt?: string;
}

export type Outcome = { is: 'done' } | { is: 'failed'; reason: string } | { is: 'cancelled' } | { is: 'interrupted' };

/** An image by the name of the text that holds its bytes, in base64. */
export interface Shown {
  body: string;
  media: string;
}

/** An image itself, in base64. */
export interface Image {
  data: string;
  media: string;
}

export interface Message {
  message: string;
  seq: Seq;
  at: Millis;
  text: string;
  images: Shown[];
  key: string | null;
  busy: Busy;
}

export interface Said {
  seq: Seq;
  at: Millis;
  text: string;
  by: string | null;
  call: string | null;
}

export interface ToolRun {
  run: string;
  seq: Seq;
  at: Millis;
  tool: string;
  arguments: unknown;
  call: string | null;
  agent: string | null;
  phase: string | null;
  ended: Millis | null;
  outcome: 'done' | 'failed' | 'refused' | 'unknown' | 'cancelled' | null;
  text: string | null;
}

export interface Turn {
  turn: string;
  from: Seq;
  to: Seq | null;
  started: Millis;
  ended: Millis | null;
  outcome: Outcome | null;
  messages: Message[];
  said: Said[];
  calls: Call[];
  tools: ToolRun[];
  phases: PhaseStep[];
  handovers: string[];
  facts: { seq: Seq; kind: string }[];
  refusals: { seq: Seq; at: Millis; step: string; why: string }[];
  spent: Tally;
}

export interface Turns {
  turns: Turn[];
  next: string | null;
  waiting: Message[];
  seq: Seq;
}

export type Prefix = { is: 'first' } | { is: 'extends'; from: string } | { is: 'broken'; from: string; kept: number; by: string };
export type CallStatus = 'open' | 'waiting' | 'held' | 'answered' | 'failed' | 'cancelled' | 'late';

export interface Usage {
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
  heard: boolean;
  thread: string | null;
  opened_thread: boolean;
  why: string;
  tokens: number;
  /** Tokens of the prompt by layer. */
  layers?: Partial<Record<Layer, number>>;
  window: number;
  prefix: Prefix;
  follows: string | null;
  compacts: string | null;
  recomputes: string | null;
  attempts: number;
  /** Those of unknown end: maybe billed. */
  unknown: number;
  status: CallStatus;
  problem: string | null;
  ended: Millis | null;
  ms: number | null;
  stop: string | null;
  usage: Usage | null;
  counted_by: 'vendor' | 'us' | null;
  cost_microusd: number | null;
}

export type Source =
  | { is: 'template'; name: string }
  | { is: 'message'; message: string }
  | { is: 'handover'; handover: string }
  | { is: 'call'; call: string }
  | { is: 'tool'; run: string }
  | { is: 'thread'; thread: string }
  | { is: 'state' }
  | { is: 'phase' };

export interface Fragment {
  name: string;
  part: 'opening' | 'carried' | 'ask';
  layer: Layer;
  source: Source | null;
  source_words: string | null;
  why: string;
  tokens: number;
  cut_from: number | null;
  pinned: boolean;
  since: string | null;
  body: string | null;
  text?: string | null;
  messages?: number;
  folded?: number;
}

export interface ToolWish {
  id?: string;
  name: string;
  arguments: unknown;
}

export interface Receipt {
  call: Call;
  why: string;
  cache: string;
  cached_tokens: number;
  memory: string;
  fragments: Fragment[];
  left_out: Fragment[];
  previous: string | null;
  attempts: { seq: Seq; at: Millis; attempt: number; line: string; next: { is: string; at?: Millis } }[];
  answer: { text: string; body: string; tokens: number; reasoning: string | null; tool_calls: ToolWish[] } | null;
  reply_tokens_max: number;
  tools: unknown[];
  output: unknown;
  changed: string[];
  digest: string;
}

export interface Prompt {
  call: string;
  model: string;
  messages: { speaker: string; text: string; images: Shown[]; tool_calls: ToolWish[]; answers: string | null }[];
  tools: unknown[];
  output: unknown;
  reply_tokens_max: number;
  digest: string;
}

export interface DiffLine {
  is: 'same' | 'gone' | 'new';
  text: string;
}

export interface Diff {
  from: string;
  to: string;
  lines: DiffLine[];
}

export interface Recomputed {
  call: string;
  recomputes: string;
  model: string;
  before: string;
  now: string | null;
  problem: string | null;
  changed: string[];
}

export interface Moment {
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
  opened: Moment;
  why: { is: 'fresh' | 'first' | 'changed' | 'aged'; words: string; parts: string[] };
  until: { phase: string | null; visit: number | null; turn: string | null; model: string | null; work: string | null };
  ended: Moment | null;
  calls: string[];
  turns: string[];
  messages: number;
  tokens: number;
  compactions: { seq: Seq; at: Millis; folded: number; tokens_before: number; tokens_after: number; by: string | null }[];
  stands: boolean;
}

export interface Party {
  is: string;
  name?: string | null;
}

export interface PhaseData {
  phase: string;
  purpose: string;
  kind: string;
  entry: string[];
  activities: string[];
  criteria: string[];
  constraints: string[];
  agents: string[];
  tools: string[] | null;
  limit: { turns_max: number | null; ms_max: number | null; exit: string } | null;
}

export interface GateData {
  gate: string;
  opened_by: string;
  satisfied_by: string;
  blocks: string[];
  open?: boolean;
}

export interface GraphData {
  graph: string;
  attached: string;
  start: string;
  phases: PhaseData[];
  edges: { from: string; to: string; guard: string | null }[];
  gates: GateData[];
  mermaid: string;
}

export interface PhaseStep {
  seq: Seq;
  at: Millis;
  turn: string | null;
  is: 'entered' | 'refused' | 'granted';
  from: string | null;
  to: string;
  by: Party;
  how: string | null;
  words: string;
  warning: string | null;
  reason: string | null;
  allowed: string[];
  graph?: string;
}

export interface Graph {
  graph: string;
  owner: Party;
  attached: string;
  start: string;
  now: {
    phase: string;
    visit: number;
    since: Millis;
    turns: number;
    came_from: string | null;
    open_gates: string[];
    grants: { to: string; by: Party | string; warning: string }[];
  };
  may_enter: string[];
  phases: (PhaseData & { visits: number; turns: number; ms: number; spent: Tally })[];
  edges: { from: string; to: string; guard: string | null; taken: number; refused: number }[];
  gates: GateData[];
  visits: { visit: number; phase: string; from: Seq; to: Seq | null; began: Millis; ended: Millis | null; turns: number }[];
  history: PhaseStep[];
  mermaid: string;
}

export interface HandoverField {
  field: string;
  form: string;
  need: string;
  value: string | string[] | null;
  found_in: { is: 'call' | 'message'; name: string }[];
}

export interface Handover {
  handover: string;
  kind: string;
  seq: Seq;
  at: Millis;
  turn: string | null;
  how: 'emitted' | 'repaired' | 'built';
  calls: string[];
  complaints: string[];
  fields: HandoverField[];
  shown_to: string[];
}

interface ExhibitBase {
  name: string;
  title: string;
  seq: Seq | null;
}

export interface Checklist extends ExhibitBase {
  is: 'checklist';
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
  by: string[];
}

export interface GraphExhibit extends ExhibitBase {
  is: 'graph';
  nodes: GraphNode[];
  edges: { from: string; to: string; kind: string }[];
  notes: string[];
  measures: { name: string; value: string | number }[];
}

export interface TableExhibit extends ExhibitBase {
  is: 'table';
  columns: string[];
  rows: { id: string; group: string | null; cells: string[]; why: string | null; offers?: Offer[] }[];
}

export interface NotesExhibit extends ExhibitBase {
  is: 'notes';
  items: { title: string; text: string; turn: string | null }[];
}

export type Exhibit = Checklist | GraphExhibit | TableExhibit | NotesExhibit;

export interface Ledger {
  total: Tally;
  roles: LedgerRow[];
  models: LedgerRow[];
  phases: LedgerRow[];
  turns: LedgerRow[];
}

export interface LedgerRow {
  name: string;
  spent: Tally;
}

/** One event of the journal, with what the server says about it. */
export interface EventLine {
  seq: Seq;
  at: Millis;
  is: string;
  line: string;
  turn: string | null;
  call: string | null;
  message: string | null;
  event: JournalEvent;
  texts: Record<string, string>;
}

/** The journal's own form: bare numbers, alternatives as `"word"` or `{"word": {…}}`. */
export type JournalEvent = { is: string } & Record<string, unknown>;

export interface Words {
  call: string;
  attempt: number;
  at: number;
  text: string;
}

export interface ProblemDetails {
  type: string;
  title: string;
  status: number;
  detail: string;
  code: string;
  field?: string;
  allowed?: string[];
}

// Builds the conversation (turns with their messages, replies, calls and phase events) from journal events. It is a pure function, so a stream that
// is cut off and resumed at any event gives the same result. Once a turn has ended, the server's own view of it replaces the one built here.

import {
  LAYERS,
  type Call,
  type CallTotals,
  type EventView,
  type Layer,
  type Message,
  type Participant,
  type PhaseEvent,
  type PromptPrefix,
  type Seq,
  type ToolRun,
  type Turn,
  type TurnResult,
  type TurnsPage,
} from '../api/types';

export interface ConversationLog {
  /** The sequence number of the last applied event. */
  readonly seq: Seq;
  /** Turn `tN` is at index N - 1. Turns that are not loaded are `undefined`. */
  readonly turns: readonly (Turn | undefined)[];
  /** Messages that no turn answers yet. */
  readonly queuedMessages: readonly Message[];
  readonly title: string | null;
  readonly closedReason: string | null;
}

export const EMPTY_LOG: ConversationLog = { seq: 0, turns: [], queuedMessages: [], title: null, closedReason: null };

/** Says whether the user sees the replies of a role. */
export type IsVisible = (role: string) => boolean;

/** The number in an id such as `t3`. */
export const idNumber = (id: string): number => Number(id.replace(/^\D+/, ''));
const turnIndex = (turn: string): number => idNumber(turn) - 1;

export function runningTurn(log: ConversationLog): Turn | null {
  const last = log.turns.at(-1);
  return last && last.outcome === null ? last : null;
}

/** Adds a page of turns. A running turn that was built from newer events is not overwritten by an older page. */
export function mergePage(log: ConversationLog, page: TurnsPage, count: number): ConversationLog {
  const turns = [...log.turns];
  if (turns.length < count) turns.length = count;
  for (const turn of page.turns) {
    const known = turns[turnIndex(turn.turn)];
    const stale = page.last_seq < log.seq && known !== undefined && known.outcome === null;
    if (!stale) turns[turnIndex(turn.turn)] = turn;
  }
  if (page.last_seq < log.seq) return { ...log, turns };
  return { ...log, seq: page.last_seq, turns, queuedMessages: page.queued_messages };
}

/** Applies one event. Events that were applied before are ignored. */
export function applyEvent(log: ConversationLog, view: EventView, isVisible: IsVisible): ConversationLog {
  if (view.seq <= log.seq) return log;
  const event = view.event;
  const next = { ...log, seq: view.seq };
  switch (event.type) {
    case 'session_renamed':
      return { ...next, title: event['title'] as string };
    case 'session_closed':
      return { ...next, closedReason: event['reason'] as string };
    case 'user_message_received':
      return { ...next, queuedMessages: [...log.queuedMessages, receivedMessage(view)] };
    case 'turn_started':
      return startTurn(next, view);
    default:
      return applyToTurn(next, view, isVisible);
  }
}

function receivedMessage(view: EventView): Message {
  const event = view.event;
  return {
    message: `m${event['message']}`,
    seq: view.seq,
    at: view.at,
    text: textOf(view, event['text']),
    images: (event['images'] as Message['images'] | undefined) ?? [],
    key: (event['idempotency_key'] as string | undefined) ?? null,
    mid_turn_policy: (event['mid_turn_policy'] as Message['mid_turn_policy'] | undefined) ?? 'queue',
  };
}

function startTurn(log: ConversationLog, view: EventView): ConversationLog {
  const id = `t${view.event['turn']}`;
  const wanted = new Set((view.event['messages'] as number[]).map((message) => `m${message}`));
  const retryOf = view.event['retry_of'] as number | undefined;
  // A retry answers the messages of the turn that failed.
  const retried = retryOf === undefined ? [] : (log.turns[retryOf - 1]?.messages ?? []);
  const messages = [...log.queuedMessages, ...retried].filter((message) => wanted.has(message.message));
  const turns = [...log.turns];
  turns[turnIndex(id)] = {
    turn: id,
    first_seq: messages[0]?.seq ?? view.seq,
    end_seq: view.seq,
    started: view.at,
    ended: null,
    outcome: null,
    messages,
    replies: [],
    calls: [],
    tool_runs: [],
    phase_events: [],
    handovers: [],
    facts: [],
    refused_steps: [],
    spent: zeroTotals(),
  };
  return { ...log, turns, queuedMessages: log.queuedMessages.filter((message) => !wanted.has(message.message)) };
}

function zeroTotals(): CallTotals {
  return { answered: 0, failed_attempts: 0, unknown_attempts: 0, answered_late: 0, input: 0, output: 0, cached: 0, cost_microusd: 0, unpriced: 0 };
}

function applyToTurn(log: ConversationLog, view: EventView, isVisible: IsVisible): ConversationLog {
  const index = findTurn(log, view);
  const turn = index === null ? undefined : log.turns[index];
  if (index === null || turn === undefined) return log;
  const changed = changeTurn({ ...turn, end_seq: Math.max(turn.end_seq ?? 0, view.seq) }, view, isVisible);
  const turns = [...log.turns];
  turns[index] = changed;
  return { ...log, turns };
}

/** The index of the turn that an event belongs to: the one it names, the one its call belongs to, or the running one. */
function findTurn(log: ConversationLog, view: EventView): number | null {
  if (view.turn !== null) return turnIndex(view.turn);
  if (view.call !== null) {
    for (let index = log.turns.length - 1; index >= 0; index -= 1) {
      if (log.turns[index]?.calls.some((call) => call.call === view.call)) return index;
    }
  }
  return runningTurn(log) === null ? null : log.turns.length - 1;
}

function changeTurn(turn: Turn, view: EventView, isVisible: IsVisible): Turn {
  const event = view.event;
  switch (event.type) {
    case 'reply_sent': {
      const call = event['call'] as number | undefined;
      const reply = { seq: view.seq, at: view.at, text: textOf(view, event['text']), role: (event['role'] as string | undefined) ?? null, call: call === undefined ? null : `c${call}` };
      return { ...turn, replies: [...turn.replies, reply] };
    }
    case 'turn_ended':
      return { ...turn, ended: view.at, outcome: turnResult(event['outcome']) };
    case 'call_opened':
      return { ...turn, calls: [...turn.calls, openedCall(view, isVisible)] };
    case 'call_answered':
    case 'call_answered_late':
      return answerCall(turn, view);
    case 'call_failed':
    case 'call_outcome_unknown':
    case 'call_resolved':
      return failAttempt(turn, view);
    case 'call_cancelled':
      return cancelCall(turn, view);
    case 'tool_run_opened':
      return { ...turn, tool_runs: [...turn.tool_runs, openedToolRun(view)] };
    case 'tool_run_held':
      return withToolRun(turn, view, (run) => ({ ...run, held: event['reason'] as ToolRun['held'] }));
    case 'tool_run_approved': {
      const edited = event['edited_arguments'];
      return withToolRun(turn, view, (run) => (edited === undefined ? { ...run, held: null } : { ...run, held: null, requested_arguments: run.arguments, arguments: edited }));
    }
    case 'tool_run_resolved':
      return withToolRun(turn, view, (run) => ({ ...run, held: null }));
    case 'tool_run_ended':
      return withToolRun(turn, view, (run) => ({ ...run, held: null, ended: view.at, outcome: event['outcome'] as ToolRun['outcome'] }));
    case 'phase_entered':
    case 'phase_transition_refused':
    case 'skip_granted':
      return { ...turn, phase_events: [...turn.phase_events, phaseEvent(view)] };
    case 'handover_created':
      return { ...turn, handovers: [...turn.handovers, `h${event['id']}`] };
    case 'flow_fact_recorded':
      return { ...turn, facts: [...turn.facts, { seq: view.seq, kind: event['kind'] as string }] };
    case 'step_refused':
      return { ...turn, refused_steps: [...turn.refused_steps, { seq: view.seq, at: view.at, step: event['step'] as string, reason: event['reason'] as string }] };
    default:
      return turn;
  }
}

/** Splits an enum value of the journal into its name and its fields: it is `"name"` or `{"name": {…}}`. */
function enumValue(value: unknown): [string, Record<string, unknown>] {
  if (typeof value === 'string') return [value, {}];
  const [entry] = Object.entries((value ?? {}) as Record<string, unknown>);
  if (!entry) return ['', {}];
  const [name, fields] = entry;
  return [name, typeof fields === 'object' && fields !== null ? (fields as Record<string, unknown>) : { value: fields }];
}

function turnResult(value: unknown): TurnResult {
  const [type, fields] = enumValue(value);
  return { type, ...fields } as TurnResult;
}

function textOf(view: EventView, text: unknown): string {
  const body = (text as { body?: string } | undefined)?.body;
  return body === undefined ? '' : (view.texts?.[body] ?? '');
}

interface FragmentReceipt {
  layer: Layer;
  text?: { tokens: number };
}

interface PromptReceipt {
  thread: unknown;
  opening?: FragmentReceipt[];
  carried?: { entries: number; tokens: number };
  ask: FragmentReceipt[];
  tokens: number;
  window_tokens: number;
  prefix: unknown;
}

function openedCall(view: EventView, isVisible: IsVisible): Call {
  const event = view.event;
  const receipt = event['receipt'] as PromptReceipt;
  const [threadUse, thread] = enumValue(receipt.thread);
  const continues = event['continues'] as number | undefined;
  const compacts = event['compacts_thread'] as number | undefined;
  const recomputation = event['recomputation'] as { call: number } | undefined;
  const role = event['role'] as string;
  return {
    call: `c${event['call']}`,
    seq: view.seq,
    at: view.at,
    turn: view.turn,
    role,
    ask: event['ask'] as string,
    agent: (event['agent'] as string | undefined) ?? null,
    peer: (event['peer'] as string | undefined) ?? null,
    model: event['model'] as string,
    sample: (event['sample'] as number | undefined) ?? 0,
    phase: (event['phase'] as string | undefined) ?? null,
    visible_to_user: isVisible(role),
    thread: recomputation ? null : `th${thread['thread'] ?? thread['value']}`,
    opened_thread: threadUse === 'opened',
    thread_reason: threadUse === 'opened' ? 'a new thread' : 'continues its thread',
    prompt_tokens: receipt.tokens,
    tokens_by_layer: tokensByLayer(receipt),
    window_tokens: receipt.window_tokens,
    prefix: promptPrefix(receipt.prefix),
    follows: continues === undefined ? null : `c${continues}`,
    compacts: compacts === undefined ? null : `th${compacts}`,
    recomputes: recomputation === undefined ? null : `c${recomputation.call}`,
    attempts: 1,
    unknown_attempts: 0,
    status: 'open',
    problem: null,
    ended: null,
    duration_ms: null,
    stop_reason: null,
    usage: null,
    counted_by: null,
    cost_microusd: null,
  };
}

function tokensByLayer(receipt: PromptReceipt): Partial<Record<Layer, number>> {
  const sums: Partial<Record<Layer, number>> = {};
  const add = (layer: Layer, tokens: number) => (sums[layer] = (sums[layer] ?? 0) + tokens);
  for (const fragment of [...(receipt.opening ?? []), ...receipt.ask]) {
    if (fragment.text && LAYERS.includes(fragment.layer)) add(fragment.layer, fragment.text.tokens);
  }
  if (receipt.carried && receipt.carried.tokens > 0) add('conversation', receipt.carried.tokens);
  return sums;
}

function promptPrefix(value: unknown): PromptPrefix {
  const [type, fields] = enumValue(value);
  if (type === 'extends') return { type, previous_call: `c${fields['value']}` };
  if (type === 'broken') return { type, previous_call: `c${fields['from']}`, kept_tokens: fields['kept_tokens'] as number, cause: fields['cause'] as string };
  return { type: 'first' };
}

function withCall(turn: Turn, view: EventView, change: (call: Call) => Call): Turn {
  return { ...turn, calls: turn.calls.map((call) => (call.call === `c${view.event['call']}` ? change(call) : call)) };
}

function withToolRun(turn: Turn, view: EventView, change: (run: ToolRun) => ToolRun): Turn {
  return { ...turn, tool_runs: turn.tool_runs.map((run) => (run.run === `x${view.event['run']}` ? change(run) : run)) };
}

/** A call that was cancelled in flight may have been billed. It counts as unknown until its outcome is recorded. */
function cancelCall(turn: Turn, view: EventView): Turn {
  const event = view.event;
  const unknown = event['in_flight'] === true ? 1 : 0;
  const spent = { ...turn.spent, unknown_attempts: turn.spent.unknown_attempts + unknown };
  const changed = withCall(turn, view, (call) => ({
    ...call,
    status: 'cancelled',
    problem: event['reason'] as string,
    ended: view.at,
    unknown_attempts: call.unknown_attempts + unknown,
  }));
  return { ...changed, spent };
}

/** Takes back the unknown attempt of a call that was cancelled in flight, because its outcome is known now. */
function clearUnknownAttempt(turn: Turn, view: EventView): Turn {
  const known = turn.calls.some((call) => call.call === `c${view.event['call']}` && call.status === 'cancelled' && call.unknown_attempts > 0);
  if (!known) return turn;
  const changed = withCall(turn, view, (call) => ({ ...call, unknown_attempts: call.unknown_attempts - 1 }));
  return { ...changed, spent: { ...turn.spent, unknown_attempts: turn.spent.unknown_attempts - 1 } };
}

interface JournalUsage {
  input_tokens: number;
  output_tokens: number;
  cached_tokens?: number;
  reasoning_tokens?: number;
}

function answerCall(before: Turn, view: EventView): Turn {
  const turn = clearUnknownAttempt(before, view);
  const event = view.event;
  const recorded = event['usage'] as JournalUsage;
  const usage = { input: recorded.input_tokens, output: recorded.output_tokens, cached: recorded.cached_tokens ?? 0, reasoning: recorded.reasoning_tokens ?? 0 };
  const cost = (event['cost_microusd'] as number | undefined) ?? null;
  const late = event.type === 'call_answered_late';
  const spent: CallTotals = {
    ...turn.spent,
    answered: turn.spent.answered + (late ? 0 : 1),
    answered_late: turn.spent.answered_late + (late ? 1 : 0),
    input: turn.spent.input + usage.input,
    output: turn.spent.output + usage.output,
    cached: turn.spent.cached + usage.cached,
    cost_microusd: turn.spent.cost_microusd + (cost ?? 0),
    unpriced: turn.spent.unpriced + (cost === null ? 1 : 0),
  };
  const changed = withCall(turn, view, (call) => ({
    ...call,
    status: late ? 'late' : 'answered',
    problem: late ? call.problem : null,
    ended: view.at,
    duration_ms: (event['duration_ms'] as number | undefined) ?? view.at - call.at,
    stop_reason: (event['stop_reason'] as string | undefined) ?? null,
    attempts: (event['attempt'] as number | undefined) ?? call.attempts,
    usage,
    counted_by: (event['usage_source'] as Call['counted_by']) ?? null,
    cost_microusd: cost,
  }));
  return { ...changed, spent };
}

/** Applies a failed attempt, or an operator's decision about one. A call that was cancelled before stays cancelled. */
function failAttempt(before: Turn, view: EventView): Turn {
  const turn = clearUnknownAttempt(before, view);
  const event = view.event;
  const [next] = enumValue(event['next']);
  const status: Call['status'] = next === 'retry' ? 'waiting' : next === 'await_operator' ? 'awaiting_operator' : 'failed';
  const attempt = event['attempt'] as number | undefined;
  const spent = { ...turn.spent };
  if (event.type === 'call_failed') spent.failed_attempts += 1;
  const unknown = event.type === 'call_outcome_unknown' ? 1 : 0;
  spent.unknown_attempts += unknown;
  const changed = withCall(turn, view, (call) => call.status === 'cancelled' ? call : ({
    ...call,
    status,
    unknown_attempts: call.unknown_attempts + unknown,
    attempts: (attempt ?? call.attempts) + (next === 'retry' && attempt !== undefined ? 1 : 0),
    problem: event.type === 'call_resolved' ? call.problem : reasonInBrackets(view.summary),
    ended: status === 'failed' ? view.at : null,
  }));
  return { ...changed, spent };
}

/** The summary of a failure has the reason in brackets: `… failed (rate limit: slow down); …`. */
function reasonInBrackets(summary: string): string {
  return /\((.*)\)/s.exec(summary)?.[1] ?? summary;
}

function openedToolRun(view: EventView): ToolRun {
  const event = view.event;
  const requestedBy = event['requested_by'] as [number, string] | undefined;
  return {
    run: `x${event['run']}`,
    seq: view.seq,
    at: view.at,
    tool: event['tool'] as string,
    arguments: event['arguments'],
    requested_arguments: null,
    held: null,
    call: requestedBy ? `c${requestedBy[0]}` : null,
    agent: (event['agent'] as string | undefined) ?? null,
    phase: (event['phase'] as string | undefined) ?? null,
    ended: null,
    outcome: null,
    text: null,
    value: null,
    artifacts: [],
  };
}

const PHASE_EVENT_TYPE: Record<string, PhaseEvent['type']> = { phase_entered: 'entered', phase_transition_refused: 'refused', skip_granted: 'granted' };

function phaseEvent(view: EventView): PhaseEvent {
  const event = view.event;
  const details = (event['transition'] ?? event['refusal'] ?? event['grant']) as Record<string, unknown>;
  const note = details['note'] as { reason?: string } | undefined;
  const key = event['graph_key'] as { graph?: string } | undefined;
  const [cause] = enumValue(details['cause']);
  const result: PhaseEvent = {
    seq: view.seq,
    at: view.at,
    turn: view.turn,
    type: PHASE_EVENT_TYPE[event.type] ?? 'entered',
    from: (details['from'] as string | undefined) ?? null,
    to: details['to'] as string,
    proposed_by: participant(details['by']),
    cause: cause === '' ? null : cause,
    summary: view.summary,
    warning: null,
    reason: note?.reason ?? null,
    allowed_phases: (details['allowed'] as string[] | undefined) ?? [],
  };
  return key?.graph === undefined ? result : { ...result, graph: key.graph };
}

function participant(value: unknown): Participant {
  const [type, fields] = enumValue(value);
  return { type, name: (fields['value'] as string | undefined) ?? null };
}

// From journal events to what a conversation looks like: turns with their messages, replies, calls and steps. A pure function, so that a stream that
// is cut off anywhere and taken up again ends in the same place. The server's own view of a turn replaces this one as soon as the turn has ended.

import { LAYERS, type Call, type EventLine, type JournalEvent, type Layer, type Message, type Outcome, type Party, type PhaseStep, type Prefix, type Seq, type Tally, type ToolRun, type Turn, type Turns } from '../api/types';

/** What is known of a conversation. */
export interface Log {
  /** The last event taken in. */
  readonly seq: Seq;
  /** By their number less one; those not loaded yet are missing. */
  readonly turns: readonly (Turn | undefined)[];
  /** Messages without a turn. */
  readonly waiting: readonly Message[];
  readonly title: string | null;
  readonly closed: string | null;
}

export const EMPTY: Log = { seq: 0, turns: [], waiting: [], title: null, closed: null };

export const number = (id: string): number => Number(id.replace(/^\D+/, ''));
const at = (turn: string): number => number(turn) - 1;

/** The turn that runs now. */
export function running(log: Log): Turn | null {
  const last = log.turns.at(-1);
  return last && last.outcome === null ? last : null;
}

/** Puts a page of turns in its place. Newer news that was heard already is not overwritten by an older page. */
export function merge(log: Log, page: Turns, count: number): Log {
  const turns = [...log.turns];
  if (turns.length < count) turns.length = count;
  for (const turn of page.turns) {
    const known = turns[at(turn.turn)];
    const stale = page.seq < log.seq && known !== undefined && known.outcome === null;
    if (!stale) turns[at(turn.turn)] = turn;
  }
  if (page.seq < log.seq) return { ...log, turns };
  return { ...log, seq: page.seq, turns, waiting: page.waiting };
}

/** Takes in one event. `heard` says of a role whether the user hears it. */
export function apply(log: Log, line: EventLine, heard: (role: string) => boolean): Log {
  if (line.seq <= log.seq) return log;
  const event = line.event;
  const next = { ...log, seq: line.seq };
  switch (event.is) {
    case 'session_renamed':
      return { ...next, title: event['title'] as string };
    case 'session_closed':
      return { ...next, closed: event['reason'] as string };
    case 'user_message_received':
      return { ...next, waiting: [...log.waiting, received(line)] };
    case 'turn_started':
      return started(next, line);
    default:
      return inTurn(next, line, heard);
  }
}

function received(line: EventLine): Message {
  const event = line.event;
  return {
    message: `m${event['message']}`,
    seq: line.seq,
    at: line.at,
    text: textOf(line, event['text']),
    images: (event['images'] as Message['images'] | undefined) ?? [],
    key: (event['key'] as string | undefined) ?? null,
    busy: (event['busy'] as Message['busy'] | undefined) ?? 'queue',
  };
}

function started(log: Log, line: EventLine): Log {
  const id = `t${line.event['turn']}`;
  const wanted = new Set((line.event['messages'] as number[]).map((message) => `m${message}`));
  const again = line.event['again'] as number | undefined;
  // A turn that is tried again answers what was said to the one that failed.
  const before = again === undefined ? [] : (log.turns[again - 1]?.messages ?? []);
  const messages = [...log.waiting, ...before].filter((message) => wanted.has(message.message));
  const turns = [...log.turns];
  turns[at(id)] = {
    turn: id,
    from: messages[0]?.seq ?? line.seq,
    to: line.seq,
    started: line.at,
    ended: null,
    outcome: null,
    messages,
    said: [],
    calls: [],
    tools: [],
    phases: [],
    handovers: [],
    facts: [],
    refusals: [],
    spent: nothing(),
  };
  return { ...log, turns, waiting: log.waiting.filter((message) => !wanted.has(message.message)) };
}

export function nothing(): Tally {
  return { answered: 0, failed: 0, unknown: 0, late: 0, input: 0, output: 0, cached: 0, cost_microusd: 0, unpriced: 0 };
}

/** Events that change one turn: the one they name, the one their call or tool run belongs to, or the one that runs. */
function inTurn(log: Log, line: EventLine, heard: (role: string) => boolean): Log {
  const index = place(log, line);
  const turn = index === null ? undefined : log.turns[index];
  if (index === null || turn === undefined) return log;
  const changed = step({ ...turn, to: Math.max(turn.to ?? 0, line.seq) }, line, heard);
  const turns = [...log.turns];
  turns[index] = changed;
  return { ...log, turns };
}

function place(log: Log, line: EventLine): number | null {
  if (line.turn !== null) return at(line.turn);
  if (line.call !== null) {
    for (let index = log.turns.length - 1; index >= 0; index -= 1) {
      if (log.turns[index]?.calls.some((call) => call.call === line.call)) return index;
    }
  }
  return running(log) === null ? null : log.turns.length - 1;
}

function step(turn: Turn, line: EventLine, heard: (role: string) => boolean): Turn {
  const event = line.event;
  switch (event.is) {
    case 'said': {
      const call = event['call'] as number | undefined;
      const said = { seq: line.seq, at: line.at, text: textOf(line, event['text']), by: (event['by'] as string | undefined) ?? null, call: call === undefined ? null : `c${call}` };
      return { ...turn, said: [...turn.said, said] };
    }
    case 'turn_ended':
      return { ...turn, ended: line.at, outcome: outcome(event['outcome']) };
    case 'call_opened':
      return { ...turn, calls: [...turn.calls, opened(line, heard)] };
    case 'call_answered':
    case 'call_answered_late':
      return answered(turn, line);
    case 'call_failed':
    case 'call_outcome_unknown':
    case 'call_resolved':
      return failed(turn, line);
    case 'call_cancelled':
      return cancelled(turn, line);
    case 'tool_run_opened':
      return { ...turn, tools: [...turn.tools, toolOpened(line)] };
    case 'tool_run_ended':
      return { ...turn, tools: turn.tools.map((tool) => (tool.run === `x${event['run']}` ? { ...tool, ended: line.at, outcome: event['outcome'] as ToolRun['outcome'] } : tool)) };
    case 'phase_entered':
    case 'phase_transition_refused':
    case 'skip_granted':
      return { ...turn, phases: [...turn.phases, phaseStep(line)] };
    case 'handover_created':
      return { ...turn, handovers: [...turn.handovers, `h${event['id']}`] };
    case 'fact':
      return { ...turn, facts: [...turn.facts, { seq: line.seq, kind: event['kind'] as string }] };
    case 'step_refused':
      return { ...turn, refusals: [...turn.refusals, { seq: line.seq, at: line.at, step: event['step'] as string, why: event['why'] as string }] };
    default:
      return turn;
  }
}

/** Alternatives in the journal are a word, or an object with that word as its only key. */
function alternative(value: unknown): [string, Record<string, unknown>] {
  if (typeof value === 'string') return [value, {}];
  const [entry] = Object.entries((value ?? {}) as Record<string, unknown>);
  if (!entry) return ['', {}];
  const [word, rest] = entry;
  return [word, typeof rest === 'object' && rest !== null ? (rest as Record<string, unknown>) : { value: rest }];
}

function outcome(value: unknown): Outcome {
  const [is, rest] = alternative(value);
  return { is, ...rest } as Outcome;
}

function textOf(line: EventLine, text: unknown): string {
  const body = (text as { body?: string } | undefined)?.body;
  return body === undefined ? '' : (line.texts?.[body] ?? '');
}

interface Piece {
  layer: Layer;
  text?: { tokens: number };
}

interface JournalReceipt {
  thread: unknown;
  opening?: Piece[];
  carried?: { entries: number; tokens: number };
  ask: Piece[];
  tokens: number;
  window: number;
  prefix: unknown;
}

function opened(line: EventLine, heard: (role: string) => boolean): Call {
  const event = line.event;
  const receipt = event['receipt'] as JournalReceipt;
  const [use, thread] = alternative(receipt.thread);
  const follows = event['follows'] as number | undefined;
  const compacts = event['compacts'] as number | undefined;
  const recomputes = event['recomputes'] as { call: number } | undefined;
  const role = event['role'] as string;
  return {
    call: `c${event['call']}`,
    seq: line.seq,
    at: line.at,
    turn: line.turn,
    role,
    ask: event['ask'] as string,
    agent: (event['agent'] as string | undefined) ?? null,
    peer: (event['peer'] as string | undefined) ?? null,
    model: event['model'] as string,
    sample: (event['sample'] as number | undefined) ?? 0,
    phase: (event['phase'] as string | undefined) ?? null,
    heard: heard(role),
    thread: recomputes ? null : `th${thread['thread'] ?? thread['value']}`,
    opened_thread: use === 'opened',
    why: use === 'opened' ? 'a new thread' : 'its thread goes on',
    tokens: receipt.tokens,
    layers: layers(receipt),
    window: receipt.window,
    prefix: prefix(receipt.prefix),
    follows: follows === undefined ? null : `c${follows}`,
    compacts: compacts === undefined ? null : `th${compacts}`,
    recomputes: recomputes === undefined ? null : `c${recomputes.call}`,
    attempts: 1,
    unknown: 0,
    status: 'open',
    problem: null,
    ended: null,
    ms: null,
    stop: null,
    usage: null,
    counted_by: null,
    cost_microusd: null,
  };
}

function layers(receipt: JournalReceipt): Partial<Record<Layer, number>> {
  const sums: Partial<Record<Layer, number>> = {};
  const add = (layer: Layer, tokens: number) => (sums[layer] = (sums[layer] ?? 0) + tokens);
  for (const piece of [...(receipt.opening ?? []), ...receipt.ask]) {
    if (piece.text && LAYERS.includes(piece.layer)) add(piece.layer, piece.text.tokens);
  }
  if (receipt.carried && receipt.carried.tokens > 0) add('conversation', receipt.carried.tokens);
  return sums;
}

function prefix(value: unknown): Prefix {
  const [is, rest] = alternative(value);
  if (is === 'extends') return { is, from: `c${rest['value']}` };
  if (is === 'broken') return { is, from: `c${rest['from']}`, kept: rest['kept'] as number, by: rest['by'] as string };
  return { is: 'first' };
}

function withCall(turn: Turn, line: EventLine, change: (call: Call) => Call): Turn {
  return { ...turn, calls: turn.calls.map((call) => (call.call === `c${line.event['call']}` ? change(call) : call)) };
}

/** What was under way may have been billed, until it is heard of. */
function cancelled(turn: Turn, line: EventLine): Turn {
  const event = line.event;
  const lost = event['in_flight'] === true ? 1 : 0;
  const spent = { ...turn.spent, unknown: turn.spent.unknown + lost };
  const changed = withCall(turn, line, (call) => ({
    ...call,
    status: 'cancelled',
    problem: event['reason'] as string,
    ended: line.at,
    unknown: call.unknown + lost,
  }));
  return { ...changed, spent };
}

/** A call is heard of: if it was cancelled while it was under way, its end is known now. */
function found(turn: Turn, line: EventLine): Turn {
  const known = turn.calls.some((call) => call.call === `c${line.event['call']}` && call.status === 'cancelled' && call.unknown > 0);
  if (!known) return turn;
  const changed = withCall(turn, line, (call) => ({ ...call, unknown: call.unknown - 1 }));
  return { ...changed, spent: { ...turn.spent, unknown: turn.spent.unknown - 1 } };
}

function answered(before: Turn, line: EventLine): Turn {
  const turn = found(before, line);
  const event = line.event;
  const given = event['usage'] as { input: number; output: number; cached?: number; reasoning?: number };
  const usage = { input: given.input, output: given.output, cached: given.cached ?? 0, reasoning: given.reasoning ?? 0 };
  const cost = (event['cost_microusd'] as number | undefined) ?? null;
  const late = event.is === 'call_answered_late';
  const spent: Tally = {
    ...turn.spent,
    answered: turn.spent.answered + (late ? 0 : 1),
    late: turn.spent.late + (late ? 1 : 0),
    input: turn.spent.input + usage.input,
    output: turn.spent.output + usage.output,
    cached: turn.spent.cached + usage.cached,
    cost_microusd: turn.spent.cost_microusd + (cost ?? 0),
    unpriced: turn.spent.unpriced + (cost === null ? 1 : 0),
  };
  const done = withCall(turn, line, (call) => ({
    ...call,
    status: late ? 'late' : 'answered',
    problem: late ? call.problem : null,
    ended: line.at,
    ms: (event['ms'] as number | undefined) ?? line.at - call.at,
    stop: (event['stop'] as string | undefined) ?? null,
    attempts: (event['attempt'] as number | undefined) ?? call.attempts,
    usage,
    counted_by: (event['counted_by'] as Call['counted_by']) ?? null,
    cost_microusd: cost,
  }));
  return { ...done, spent };
}

/** A try that brought no answer, or a person's word on it: what follows decides. What was cancelled before stays so. */
function failed(before: Turn, line: EventLine): Turn {
  const turn = found(before, line);
  const event = line.event;
  const [next] = alternative(event['next']);
  const status: Call['status'] = next === 'retry' ? 'waiting' : next === 'ask' ? 'held' : 'failed';
  const attempt = event['attempt'] as number | undefined;
  const spent = { ...turn.spent };
  if (event.is === 'call_failed') spent.failed += 1;
  const lost = event.is === 'call_outcome_unknown' ? 1 : 0;
  spent.unknown += lost;
  const changed = withCall(turn, line, (call) => call.status === 'cancelled' ? call : ({
    ...call,
    status,
    unknown: call.unknown + lost,
    attempts: (attempt ?? call.attempts) + (next === 'retry' && attempt !== undefined ? 1 : 0),
    problem: event.is === 'call_resolved' ? call.problem : afterColon(line.line),
    ended: status === 'failed' ? line.at : null,
  }));
  return { ...changed, spent };
}

/** The server's line for a failure is `c2 try 1 failed (rate limit: slow down); again at …`; the part in brackets is the reason. */
function afterColon(line: string): string {
  return /\((.*)\)/s.exec(line)?.[1] ?? line;
}

function toolOpened(line: EventLine): ToolRun {
  const event = line.event;
  const wish = event['wish'] as [number, string] | undefined;
  return {
    run: `x${event['run']}`,
    seq: line.seq,
    at: line.at,
    tool: event['tool'] as string,
    arguments: event['arguments'],
    call: wish ? `c${wish[0]}` : null,
    agent: (event['agent'] as string | undefined) ?? null,
    phase: (event['phase'] as string | undefined) ?? null,
    ended: null,
    outcome: null,
    text: null,
  };
}

const PHASE_KIND: Record<string, PhaseStep['is']> = { phase_entered: 'entered', phase_refused: 'refused', skip_granted: 'granted' };

function phaseStep(line: EventLine): PhaseStep {
  const event = line.event;
  const told = (event['transition'] ?? event['refusal'] ?? event['grant']) as Record<string, unknown>;
  const key = event['phase'] as { graph?: string } | undefined;
  const step: PhaseStep = {
    seq: line.seq,
    at: line.at,
    turn: line.turn,
    is: PHASE_KIND[event.is] ?? 'entered',
    from: (told['from'] as string | undefined) ?? null,
    to: told['to'] as string,
    by: party(told['by']),
    how: typeof told['how'] === 'string' ? told['how'] : null,
    words: line.line,
    warning: null,
    reason: (told['reason'] as string | undefined) ?? null,
    allowed: (told['allowed'] as string[] | undefined) ?? [],
  };
  return key?.graph === undefined ? step : { ...step, graph: key.graph };
}

function party(value: unknown): Party {
  const [is, rest] = alternative(value);
  return { is, name: (rest['value'] as string | undefined) ?? null };
}

export type { JournalEvent };

// Where threads and calls stand when memory is drawn as lanes over the turns. Only geometry; what is drawn is decided elsewhere.

import { LAYERS, type Call, type Layer, type Thread } from '../api/types';

export interface Lane {
  key: string;
  role: string;
  who: string | null;
  memory: string;
  threads: LaneThread[];
}

export interface LaneThread {
  thread: Thread;
  from: number;
  to: number;
  /** It can still be continued, so it has no end yet. */
  open: boolean;
  calls: LaneCall[];
}

export interface LaneCall {
  call: Call;
  x: number;
  parts: { layer: Layer; y: number; height: number }[];
  height: number;
}

export interface Column {
  turn: string;
  x: number;
  width: number;
}

export interface Lanes {
  columns: Column[];
  lanes: Lane[];
  width: number;
  /** How wide a call is. */
  bar: number;
  /** How far two calls in a row are apart. */
  step: number;
}

const BAR = 9;
const STEP = 13;
const PADDING = 12;
const COLUMN_MIN = 46;
const STRETCH_MAX = 2.4;
export const BARS_HEIGHT = 42;

export function slot(thread: Thread): string {
  return [thread.role, thread.agent, thread.peer, thread.model, thread.sample].join('|');
}

function who(thread: Thread): string | null {
  const parts = [thread.agent, thread.peer === null ? null : `with ${thread.peer}`, thread.model === null ? null : `${thread.model}${thread.sample ? ` ${thread.sample + 1}` : ''}`];
  return parts.filter((part) => part !== null).join(' ') || null;
}

/** Short sessions are stretched towards the room there is. */
export function lanes(threads: readonly Thread[], calls: readonly Call[], room: number): Lanes {
  const laneOf = new Map<string, string>();
  for (const thread of threads) laneOf.set(thread.thread, slot(thread));
  const narrow = place(calls, laneOf, 1).columns.at(-1);
  const stretch = narrow ? Math.max(1, Math.min(STRETCH_MAX, room / (narrow.x + narrow.width))) : 1;
  const barWidth = Math.round(BAR * Math.min(stretch, 1.8));
  const { columns, xs } = place(calls, laneOf, stretch);
  const most = Math.max(1, ...calls.map((call) => call.tokens));
  const last = columns.at(-1);
  const width = last ? last.x + last.width : 0;
  const byThread = groups(calls.filter((call) => call.thread !== null), (call) => call.thread ?? '');
  const list: Lane[] = [];
  const byKey = new Map<string, Lane>();
  for (const thread of threads) {
    const key = slot(thread);
    let lane = byKey.get(key);
    if (!lane) {
      lane = { key, role: thread.role, who: who(thread), memory: thread.memory, threads: [] };
      byKey.set(key, lane);
      list.push(lane);
    }
    lane.threads.push(drawn(thread, byThread.get(thread.thread) ?? [], xs, most, width, barWidth));
  }
  // A lane's older thread ends where the next one begins.
  for (const lane of list) {
    lane.threads.forEach((thread, index) => {
      const next = lane.threads[index + 1];
      if (next) {
        thread.to = Math.min(thread.to, next.from - 4);
        thread.open = false;
      }
    });
  }
  return { columns, lanes: list, width, bar: barWidth, step: STEP * stretch };
}

function groups(calls: readonly Call[], key: (call: Call) => string): Map<string, Call[]> {
  const result = new Map<string, Call[]>();
  for (const call of calls) {
    const group = result.get(key(call));
    if (group) group.push(call);
    else result.set(key(call), [call]);
  }
  return result;
}

/** A column for each turn, as wide as its busiest lane needs it. */
function place(calls: readonly Call[], laneOf: ReadonlyMap<string, string>, stretch: number): { columns: Column[]; xs: Map<string, number> } {
  const columns: Column[] = [];
  const xs = new Map<string, number>();
  const turns = groups(calls, (call) => call.turn ?? 'beside');
  let x = 0;
  for (const [turn, members] of turns) {
    let highest = 0;
    // What comes later stands further right, also across lanes: a reader sees who waited for whom.
    const slots = ranks(members, laneOf);
    for (const call of members) {
      const rank = slots.get(call.call) ?? 0;
      xs.set(call.call, x + (PADDING + rank * STEP) * stretch);
      highest = Math.max(highest, rank);
    }
    const width = Math.max(COLUMN_MIN, PADDING * 2 + highest * STEP + BAR) * stretch;
    columns.push({ turn, x, width });
    x += width;
  }
  return { columns, xs };
}

/** Calls that ran at the same time share a place; one that began after another had ended stands right of it. */
function ranks(calls: readonly Call[], laneOf: ReadonlyMap<string, string>): Map<string, number> {
  const result = new Map<string, number>();
  calls.forEach((call, index) => {
    let rank = 0;
    for (const before of calls.slice(0, index)) {
      const known = result.get(before.call) ?? 0;
      const over = before.ended !== null && before.ended <= call.at && before.seq < call.seq;
      const sameLane = before.thread !== null && call.thread !== null && laneOf.get(before.thread) === laneOf.get(call.thread);
      if (over || sameLane) rank = Math.max(rank, known + 1);
    }
    result.set(call.call, rank);
  });
  return result;
}

function drawn(thread: Thread, calls: readonly Call[], xs: ReadonlyMap<string, number>, most: number, width: number, barWidth: number): LaneThread {
  const placed = calls.map((call) => bar(call, xs.get(call.call) ?? 0, most));
  const first = placed[0]?.x ?? 0;
  const last = placed.at(-1)?.x ?? first;
  const open = thread.stands && thread.why.is !== 'fresh';
  return { thread, from: first, to: open ? width : last + barWidth, open, calls: placed };
}

/** A prompt as a small column, its layers from the bottom up. */
function bar(call: Call, x: number, most: number): LaneCall {
  const height = Math.max(4, (BARS_HEIGHT * call.tokens) / most);
  const known = LAYERS.filter((layer) => (call.layers?.[layer] ?? 0) > 0);
  const sum = known.reduce((total, layer) => total + (call.layers?.[layer] ?? 0), 0);
  if (sum === 0) return { call, x, height, parts: [{ layer: 'instruction', y: 0, height }] };
  let y = 0;
  const parts = known.map((layer) => {
    const own = (height * (call.layers?.[layer] ?? 0)) / sum;
    const part = { layer, y, height: own };
    y += own;
    return part;
  });
  return { call, x, height, parts };
}

/** Where an event stands between the calls: right behind the last call recorded before it. */
export function xOf(seq: number, calls: readonly Call[], all: Lanes): number {
  const places = new Map(all.lanes.flatMap((lane) => lane.threads.flatMap((thread) => thread.calls.map((call) => [call.call.call, call.x] as const))));
  let x = 0;
  for (const call of calls) {
    if (call.seq > seq) break;
    x = Math.max(x, (places.get(call.call) ?? 0) + all.step);
  }
  return x;
}

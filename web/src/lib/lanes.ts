// The geometry of the thread diagram: threads as lanes, turns as columns, calls as bars.

import { LAYERS, type Call, type Layer, type Thread } from '../api/types';

export interface Lane {
  key: string;
  role: string;
  label: string | null;
  memory: string;
  threads: LaneThread[];
}

export interface LaneThread {
  thread: Thread;
  from: number;
  to: number;
  /** The thread can still be continued. */
  active: boolean;
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

export interface LaneLayout {
  columns: Column[];
  lanes: Lane[];
  width: number;
  /** The width of a call's bar. */
  bar: number;
  /** The distance between two consecutive calls. */
  step: number;
}

const BAR = 9;
const STEP = 13;
const PADDING = 12;
const COLUMN_MIN = 46;
const STRETCH_MAX = 2.4;
export const BARS_HEIGHT = 42;

function slotKey(thread: Thread): string {
  return [thread.role, thread.agent, thread.peer, thread.model, thread.sample].join('|');
}

function laneLabel(thread: Thread): string | null {
  const parts = [thread.agent, thread.peer === null ? null : `with ${thread.peer}`, thread.model === null ? null : `${thread.model}${thread.sample ? ` ${thread.sample + 1}` : ''}`];
  return parts.filter((part) => part !== null).join(' ') || null;
}

/** Lays out the lanes. Short sessions are stretched towards the available width. */
export function layoutLanes(threads: readonly Thread[], calls: readonly Call[], availableWidth: number): LaneLayout {
  const laneOf = new Map<string, string>();
  for (const thread of threads) laneOf.set(thread.thread, slotKey(thread));
  const narrow = placeCalls(calls, laneOf, 1).columns.at(-1);
  const stretch = narrow ? Math.max(1, Math.min(STRETCH_MAX, availableWidth / (narrow.x + narrow.width))) : 1;
  const barWidth = Math.round(BAR * Math.min(stretch, 1.8));
  const { columns, xs } = placeCalls(calls, laneOf, stretch);
  const most = Math.max(1, ...calls.map((call) => call.prompt_tokens));
  const last = columns.at(-1);
  const width = last ? last.x + last.width : 0;
  const byThread = groupCalls(calls.filter((call) => call.thread !== null), (call) => call.thread ?? '');
  const list: Lane[] = [];
  const byKey = new Map<string, Lane>();
  for (const thread of threads) {
    const key = slotKey(thread);
    let lane = byKey.get(key);
    if (!lane) {
      lane = { key, role: thread.role, label: laneLabel(thread), memory: thread.memory, threads: [] };
      byKey.set(key, lane);
      list.push(lane);
    }
    lane.threads.push(laneThread(thread, byThread.get(thread.thread) ?? [], xs, most, width, barWidth));
  }
  // A thread ends where the next thread of its lane begins.
  for (const lane of list) {
    lane.threads.forEach((thread, index) => {
      const next = lane.threads[index + 1];
      if (next) {
        thread.to = Math.min(thread.to, next.from - 4);
        thread.active = false;
      }
    });
  }
  return { columns, lanes: list, width, bar: barWidth, step: STEP * stretch };
}

function groupCalls(calls: readonly Call[], key: (call: Call) => string): Map<string, Call[]> {
  const result = new Map<string, Call[]>();
  for (const call of calls) {
    const group = result.get(key(call));
    if (group) group.push(call);
    else result.set(key(call), [call]);
  }
  return result;
}

/** Gives each turn a column that is wide enough for its busiest lane. */
function placeCalls(calls: readonly Call[], laneOf: ReadonlyMap<string, string>, stretch: number): { columns: Column[]; xs: Map<string, number> } {
  const columns: Column[] = [];
  const xs = new Map<string, number>();
  const turns = groupCalls(calls, (call) => call.turn ?? 'outside');
  let x = 0;
  for (const [turn, members] of turns) {
    let highest = 0;
    // Later calls are further right, also across lanes, so that dependencies are visible.
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

/** Calls that ran at the same time share a rank. A call that started after another had ended gets a higher one. */
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

function laneThread(thread: Thread, calls: readonly Call[], xs: ReadonlyMap<string, number>, most: number, width: number, barWidth: number): LaneThread {
  const placed = calls.map((call) => promptBar(call, xs.get(call.call) ?? 0, most));
  const first = placed[0]?.x ?? 0;
  const last = placed.at(-1)?.x ?? first;
  const active = thread.is_active && thread.opening_reason.type !== 'fresh';
  return { thread, from: first, to: active ? width : last + barWidth, active, calls: placed };
}

/** A prompt as a bar, with its layers from bottom to top. */
function promptBar(call: Call, x: number, most: number): LaneCall {
  const height = Math.max(4, (BARS_HEIGHT * call.prompt_tokens) / most);
  const known = LAYERS.filter((layer) => (call.tokens_by_layer?.[layer] ?? 0) > 0);
  const sum = known.reduce((total, layer) => total + (call.tokens_by_layer?.[layer] ?? 0), 0);
  if (sum === 0) return { call, x, height, parts: [{ layer: 'instruction', y: 0, height }] };
  let y = 0;
  const parts = known.map((layer) => {
    const own = (height * (call.tokens_by_layer?.[layer] ?? 0)) / sum;
    const part = { layer, y, height: own };
    y += own;
    return part;
  });
  return { call, x, height, parts };
}

/** The x position of an event: right after the last call that was recorded before it. */
export function eventX(seq: number, calls: readonly Call[], layout: LaneLayout): number {
  const places = new Map(layout.lanes.flatMap((lane) => lane.threads.flatMap((thread) => thread.calls.map((call) => [call.call.call, call.x] as const))));
  let x = 0;
  for (const call of calls) {
    if (call.seq > seq) break;
    x = Math.max(x, (places.get(call.call) ?? 0) + layout.step);
  }
  return x;
}

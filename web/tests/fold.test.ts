import { expect, it } from 'vitest';
import type { EventLine } from '../src/api/types';
import { apply, EMPTY, type Log } from '../src/state/fold';

/** A turn in which one call is under way, and what happens then. */
function after(...events: Record<string, unknown>[]): Log {
  const receipt = { thread: { continued: 1 }, ask: [], tokens: 5, window: 100, prefix: 'first' };
  const opened = { is: 'call_opened', call: 1, role: 'speaker', ask: 'reply', model: 'plain', receipt };
  const all = [{ is: 'turn_started', turn: 1, messages: [] }, opened, ...events];
  const lines = all.map((event, place) => ({ seq: place + 1, at: 1, line: '', turn: 't1', call: null, event }) as unknown as EventLine);
  return lines.reduce((log, line) => apply(log, line, () => true), EMPTY);
}

const cancelled = { is: 'call_cancelled', call: 1, reason: 'stopped by hand', in_flight: true };
const failed = { is: 'call_failed', call: 1, attempt: 1, failure: {}, next: 'give_up' };
const late = { is: 'call_answered_late', call: 1, text: {}, usage: { input: 7, output: 2 }, counted_by: 'vendor' };

function told(log: Log): unknown[] {
  const turn = log.turns[0];
  const call = turn?.calls[0];
  return [call?.status, call?.unknown, turn?.spent.unknown, turn?.spent.failed, turn?.spent.late, turn?.spent.input];
}

it('a call that is cancelled under way may be billed, and one that was not begun is not', () => {
  expect(told(after(cancelled))).toEqual(['cancelled', 1, 1, 0, 0, 0]);
  expect(told(after({ ...cancelled, in_flight: undefined }))).toEqual(['cancelled', 0, 0, 0, 0, 0]);
});

it('it counts once when it is heard of', () => {
  expect(told(after(cancelled, late))).toEqual(['late', 0, 0, 0, 1, 7]);
  expect(told(after(cancelled, failed))).toEqual(['cancelled', 0, 0, 1, 0, 0]);
});

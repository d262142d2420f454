import { expect, it } from 'vitest';
import type { EventView } from '../src/api/types';
import { applyEvent, EMPTY_LOG, type ConversationLog } from '../src/state/fold';

/** The log of a turn with one open call, after these events. */
function logAfter(...events: Record<string, unknown>[]): ConversationLog {
  const receipt = { thread: { continued: 1 }, ask: [], tokens: 5, window_tokens: 100, prefix: 'first' };
  const opened = { type: 'call_opened', call: 1, role: 'speaker', ask: 'reply', model: 'plain', receipt };
  const all = [{ type: 'turn_started', turn: 1, messages: [] }, opened, ...events];
  const views = all.map((event, index) => ({ seq: index + 1, at: 1, summary: '', turn: 't1', call: null, event }) as unknown as EventView);
  return views.reduce((log, view) => applyEvent(log, view, () => true), EMPTY_LOG);
}

const cancelled = { type: 'call_cancelled', call: 1, reason: 'stopped by hand', in_flight: true };
const failed = { type: 'call_failed', call: 1, attempt: 1, failure: {}, next: 'give_up' };
const late = { type: 'call_answered_late', call: 1, text: {}, usage: { input_tokens: 7, output_tokens: 2 }, usage_source: 'vendor' };

function counts(log: ConversationLog): unknown[] {
  const turn = log.turns[0];
  const call = turn?.calls[0];
  return [call?.status, call?.unknown_attempts, turn?.spent.unknown_attempts, turn?.spent.failed_attempts, turn?.spent.answered_late, turn?.spent.input];
}

it('a call that is cancelled in flight counts as unknown, one that was not sent does not', () => {
  expect(counts(logAfter(cancelled))).toEqual(['cancelled', 1, 1, 0, 0, 0]);
  expect(counts(logAfter({ ...cancelled, in_flight: undefined }))).toEqual(['cancelled', 0, 0, 0, 0, 0]);
});

it('a cancelled call whose outcome arrives later counts once', () => {
  expect(counts(logAfter(cancelled, late))).toEqual(['late', 0, 0, 0, 1, 7]);
  expect(counts(logAfter(cancelled, failed))).toEqual(['cancelled', 0, 0, 1, 0, 0]);
});

it('a held tool run waits until a person decides, and shows edited arguments', () => {
  const opened = { type: 'tool_run_opened', run: 1, tool: 'look', arguments: { at: 1 } };
  const held = { type: 'tool_run_held', run: 1, reason: 'approval' };
  const run = (...events: Record<string, unknown>[]) => logAfter(opened, ...events).turns[0]?.tool_runs[0];
  expect(run(held)).toMatchObject({ held: 'approval', arguments: { at: 1 }, outcome: null });
  expect(run(held, { type: 'tool_run_approved', run: 1 })).toMatchObject({ held: null, arguments: { at: 1 }, requested_arguments: null });
  const edited = run(held, { type: 'tool_run_approved', run: 1, edited_arguments: { at: 2 } });
  expect(edited).toMatchObject({ held: null, arguments: { at: 2 }, requested_arguments: { at: 1 } });
  expect(run(held, { type: 'tool_run_ended', run: 1, outcome: 'refused' })).toMatchObject({ held: null, outcome: 'refused' });
});

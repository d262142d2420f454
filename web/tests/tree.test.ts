import { expect, test } from 'vitest';
import type { SessionListItem } from '../src/api/types';
import { sessionTree } from '../src/lib/tree';

function row(session: string, parent: string | null = null): SessionListItem {
  return { session, parent, flow: 'chat', title: '', phase: '', turns: 0, calls: 0, cost_microusd: null, created: 0, updated: 0, is_active: false, seq: 1 };
}

function lines(rows: SessionListItem[]): string[] {
  return sessionTree(rows).flatMap((tree) => tree.map(({ row, depth }) => '  '.repeat(depth) + row.session));
}

test('children are below their parents, the first child first', () => {
  const rows = [row('boss~10', 'boss'), row('other'), row('boss~2~1', 'boss~2'), row('boss'), row('boss~2', 'boss')];
  expect(lines(rows)).toEqual(['other', 'boss', '  boss~2', '    boss~2~1', '  boss~10']);
});

test('a child whose parent is not loaded stays in the list', () => {
  expect(lines([row('boss~1', 'boss'), row('other')])).toEqual(['boss~1', 'other']);
});

// Child sessions below the sessions that started them.

import type { SessionListItem } from '../api/types';

export interface TreeRow {
  row: SessionListItem;
  /** How many of its ancestors are above it. */
  depth: number;
}

/** Puts each child session below its parent, if the parent is in the list, and the first child first. Others keep their order. */
export function sessionTree(rows: readonly SessionListItem[]): TreeRow[][] {
  const known = new Set(rows.map((row) => row.session));
  const children = new Map<string, SessionListItem[]>();
  const roots: SessionListItem[] = [];
  for (const row of rows) {
    if (row.parent !== null && known.has(row.parent)) children.set(row.parent, [...(children.get(row.parent) ?? []), row]);
    else roots.push(row);
  }
  const below = (row: SessionListItem, depth: number): TreeRow[] => [{ row, depth }, ...inOrder(children.get(row.session) ?? []).flatMap((child) => below(child, depth + 1))];
  return roots.map((root) => below(root, 0));
}

function inOrder(children: SessionListItem[]): SessionListItem[] {
  return [...children].sort((left, right) => childNumber(left.session) - childNumber(right.session));
}

function childNumber(session: string): number {
  return Number(session.slice(session.lastIndexOf('~') + 1));
}

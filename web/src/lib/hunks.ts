// A difference in lines, made short: what changed with a little around it, and how much stays hidden between.

import type { DiffLine } from '../api/types';

export type Hunk = { is: 'lines'; lines: DiffLine[] } | { is: 'same'; lines: DiffLine[] };

const AROUND = 3;
/** Hiding fewer lines than this would show nothing but the hiding. */
const HIDDEN_MIN = 3;

export function hunks(lines: readonly DiffLine[]): Hunk[] {
  const keep = new Uint8Array(lines.length);
  lines.forEach((line, at) => {
    if (line.is === 'same') return;
    for (let near = Math.max(0, at - AROUND); near <= Math.min(lines.length - 1, at + AROUND); near += 1) keep[near] = 1;
  });
  const result: Hunk[] = [];
  let at = 0;
  while (at < lines.length) {
    const kept = keep[at] === 1;
    let end = at;
    while (end < lines.length && (keep[end] === 1) === kept) end += 1;
    const part = lines.slice(at, end);
    const is = kept || part.length < HIDDEN_MIN ? 'lines' : 'same';
    const last = result.at(-1);
    if (last && last.is === 'lines' && is === 'lines') last.lines.push(...part);
    else result.push({ is, lines: part });
    at = end;
  }
  return result;
}

export interface WordPart {
  is: 'same' | 'gone' | 'new';
  text: string;
}

/** Beyond this many words on either side a difference word by word says nothing, and costs too much. */
const WORDS_MAX = 1_500;

/** Two texts word by word. */
export function wordDiff(before: string, now: string): WordPart[] {
  const a = words(before);
  const b = words(now);
  if (a.length > WORDS_MAX || b.length > WORDS_MAX) {
    return before === now ? [{ is: 'same', text: before }] : [{ is: 'gone', text: before }, { is: 'new', text: now }];
  }
  return join(walk(a, b, table(a, b)));
}

function words(text: string): string[] {
  return text.match(/\s+|[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_]/gu) ?? [];
}

/** Lengths of the longest common subsequence of every pair of ends. */
function table(a: readonly string[], b: readonly string[]): Uint16Array[] {
  const rows = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i -= 1) {
    const row = rows[i] as Uint16Array;
    const below = rows[i + 1] as Uint16Array;
    for (let j = b.length - 1; j >= 0; j -= 1) {
      row[j] = a[i] === b[j] ? (below[j + 1] ?? 0) + 1 : Math.max(below[j] ?? 0, row[j + 1] ?? 0);
    }
  }
  return rows;
}

function walk(a: readonly string[], b: readonly string[], lengths: readonly Uint16Array[]): WordPart[] {
  const parts: WordPart[] = [];
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      parts.push({ is: 'same', text: a[i] ?? '' });
      i += 1;
      j += 1;
    } else if (i < a.length && (j >= b.length || (lengths[i + 1]?.[j] ?? 0) >= (lengths[i]?.[j + 1] ?? 0))) {
      parts.push({ is: 'gone', text: a[i] ?? '' });
      i += 1;
    } else {
      parts.push({ is: 'new', text: b[j] ?? '' });
      j += 1;
    }
  }
  return parts;
}

function join(parts: readonly WordPart[]): WordPart[] {
  const joined: WordPart[] = [];
  for (const part of parts) {
    const last = joined.at(-1);
    if (last && last.is === part.is) last.text += part.text;
    else joined.push({ ...part });
  }
  return joined;
}

// Diffs: groups changed lines with their context, and compares two texts word by word.

import type { PromptDiffLine } from '../api/types';

export type Hunk = { type: 'lines'; lines: PromptDiffLine[] } | { type: 'same'; lines: PromptDiffLine[] };

const CONTEXT_LINES = 3;
/** Fewer unchanged lines than this are not hidden. */
const HIDDEN_LINES_MIN = 3;

/** Groups lines into changes with their context, and runs of unchanged lines between them. */
export function groupHunks(lines: readonly PromptDiffLine[]): Hunk[] {
  const keep = new Uint8Array(lines.length);
  lines.forEach((line, at) => {
    if (line.type === 'same') return;
    for (let near = Math.max(0, at - CONTEXT_LINES); near <= Math.min(lines.length - 1, at + CONTEXT_LINES); near += 1) keep[near] = 1;
  });
  const result: Hunk[] = [];
  let at = 0;
  while (at < lines.length) {
    const kept = keep[at] === 1;
    let end = at;
    while (end < lines.length && (keep[end] === 1) === kept) end += 1;
    const part = lines.slice(at, end);
    const type = kept || part.length < HIDDEN_LINES_MIN ? 'lines' : 'same';
    const last = result.at(-1);
    if (last && last.type === 'lines' && type === 'lines') last.lines.push(...part);
    else result.push({ type, lines: part });
    at = end;
  }
  return result;
}

export interface WordPart {
  type: 'same' | 'removed' | 'added';
  text: string;
}

/** Longer texts are not compared word by word: it takes too long and the result is unreadable. */
const WORDS_MAX = 1_500;

/** Compares two texts word by word. */
export function wordDiff(before: string, after: string): WordPart[] {
  const a = splitWords(before);
  const b = splitWords(after);
  if (a.length > WORDS_MAX || b.length > WORDS_MAX) {
    return before === after ? [{ type: 'same', text: before }] : [{ type: 'removed', text: before }, { type: 'added', text: after }];
  }
  return mergeParts(diffParts(a, b, commonLengths(a, b)));
}

function splitWords(text: string): string[] {
  return text.match(/\s+|[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_]/gu) ?? [];
}

/** The lengths of the longest common subsequences of all pairs of suffixes. */
function commonLengths(a: readonly string[], b: readonly string[]): Uint16Array[] {
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

function diffParts(a: readonly string[], b: readonly string[], lengths: readonly Uint16Array[]): WordPart[] {
  const parts: WordPart[] = [];
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      parts.push({ type: 'same', text: a[i] ?? '' });
      i += 1;
      j += 1;
    } else if (i < a.length && (j >= b.length || (lengths[i + 1]?.[j] ?? 0) >= (lengths[i]?.[j + 1] ?? 0))) {
      parts.push({ type: 'removed', text: a[i] ?? '' });
      i += 1;
    } else {
      parts.push({ type: 'added', text: b[j] ?? '' });
      j += 1;
    }
  }
  return parts;
}

function mergeParts(parts: readonly WordPart[]): WordPart[] {
  const joined: WordPart[] = [];
  for (const part of parts) {
    const last = joined.at(-1);
    if (last && last.type === part.type) last.text += part.text;
    else joined.push({ ...part });
  }
  return joined;
}

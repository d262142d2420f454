// Loads all calls of a session, page by page.

import { api } from '../api/client';
import type { Call, Seq } from '../api/types';

const CALLS_PER_PAGE = 1_000;

export async function loadAllCalls(session: string, at: Seq | null, signal: AbortSignal): Promise<Call[]> {
  const all: Call[] = [];
  let after: string | undefined;
  for (;;) {
    const page = await api.calls(session, { limit: CALLS_PER_PAGE, after, at }, signal);
    all.push(...page.calls);
    if (page.next === null || page.calls.length === 0) return all;
    after = page.next;
  }
}

// The messages between the pages and the shared worker that holds the connection of all of them.

import type { ConnectionStatus } from './hub';
import type { ProblemDetails } from './types';

export type PageMessage =
  | { type: 'subscribe'; id: number; key: string | null; session: string | null; after: number }
  | { type: 'unsubscribe'; id: number }
  /** Sent regularly. A worker does not notice when a page ends without a word. */
  | { type: 'alive' };

export type WorkerMessage =
  | { type: 'event'; id: number; event: string; data: unknown }
  | { type: 'status'; id: number; status: ConnectionStatus }
  | { type: 'end'; id: number; status: number; details: Partial<ProblemDetails> }
  /** The page was silent for too long, so its subscriptions were ended. */
  | { type: 'dropped' };

export const ALIVE_MS = 15_000;
/** Browsers slow the timers of hidden pages down to one per minute. */
export const SILENT_PAGE_MS_MAX = 150_000;

// The user's actions, shared by buttons, keys and the command palette. A failure is shown as a toast.

import { api, headers, sessionPath } from '../api/client';
import type { ImageRef, InlineImage, Message, Seq } from '../api/types';
import { sessionRoute } from '../lib/route';
import { toasts } from './prefs.svelte';
import { router } from './router.svelte';
import { sessions } from './sessions.svelte';

/** Awaits `work`. Shows a toast and returns `null` if it fails. */
export async function attempt<T>(work: Promise<T>): Promise<T | null> {
  try {
    return await work;
  } catch (error) {
    toasts.showError(error);
    return null;
  }
}

export interface NewConversation {
  flow: string;
  settings?: unknown;
  models?: Record<string, string>;
  text: string;
  images: readonly InlineImage[];
}

/** Creates a session and opens it. The session page sends the first message. */
export async function startConversation(options: NewConversation): Promise<boolean> {
  const { text, images, ...rest } = options;
  const session = await attempt(api.createSession(rest));
  if (!session) return false;
  if (text.trim() !== '') firstMessages.set(session.session, { text, images });
  router.go(sessionRoute(session.session));
  return true;
}

/** The message to send in a session as soon as it is open, by session. */
export const firstMessages = new Map<string, { text: string; images: readonly InlineImage[] }>();

/** Loads images of a session, so that they can be sent again. */
export function loadImages(session: string, images: readonly ImageRef[]): Promise<InlineImage[]> {
  return Promise.all(images.map(async ({ body, media_type }) => ({ data: await api.text(session, body), media_type })));
}

/** Forks a session at an event or turn, and sends `text` in the fork if it is not `null`. */
export async function fork(session: string, at: Seq | string | null, text: string | null, images: readonly ImageRef[] = []): Promise<void> {
  if (text === null) {
    const continues = await attempt(continuesAtOnce(session, at));
    if (continues === null) return;
    if (continues && !confirm('The last message has no reply yet. The fork runs its turn at once, and the model calls may be billed. Create the fork?')) return;
  }
  const loaded = await attempt(loadImages(session, images));
  if (!loaded) return;
  const forked = await attempt(api.fork(session, at === null ? {} : { at }));
  if (!forked) return;
  if (text !== null) firstMessages.set(forked.session, { text, images: loaded });
  router.go(sessionRoute(forked.session));
  toasts.show(text === null ? 'Created a fork. The original session did not change.' : 'Sent in a fork. The original session did not change.');
}

/** Whether a fork at this point has something to do: a turn that has not ended, or a message that waits. */
async function continuesAtOnce(session: string, at: Seq | string | null): Promise<boolean> {
  const seq = typeof at === 'string' ? (await api.turn(session, at)).end_seq : at;
  const { running_turn, queued_messages, closed_reason } = await api.session(session, seq);
  return closed_reason === null && (running_turn !== null || queued_messages.length > 0);
}

export async function closeSession(session: string): Promise<void> {
  if (!confirm(`Close “${session}”? It accepts no more messages, and cannot be opened again. A fork of it can continue.`)) return;
  await attempt(api.close(session).then(() => toasts.show('Closed. The session accepts no more messages.')));
}

/** Forks the conversation before a message and sends `text` instead of it. */
export function editAndFork(session: string, message: Message, text: string): Promise<void> {
  return fork(session, message.seq - 1, text, message.images);
}

export async function deleteSession(session: string): Promise<void> {
  if (!confirm(`Delete “${session}” and all its texts? This cannot be undone.`)) return;
  const here = router.sessionRoute?.session === session;
  if ((await attempt(api.deleteSession(session).then(() => true))) !== true) return;
  sessions.remove(session);
  if (here) router.go({ page: 'home' });
  toasts.show('Deleted');
}

/** Downloads the journal as a file. */
export async function exportJournal(session: string): Promise<void> {
  const response = await attempt(fetch(sessionPath(session, '/export'), { headers: headers() }));
  if (!response) return;
  if (!response.ok) {
    toasts.show('The journal could not be exported', 'bad');
    return;
  }
  const link = document.createElement('a');
  link.href = URL.createObjectURL(await response.blob());
  link.download = `${session}.jsonl`;
  link.click();
  URL.revokeObjectURL(link.href);
}

export async function copy(text: string, message = 'Copied'): Promise<void> {
  await attempt(navigator.clipboard.writeText(text).then(() => toasts.show(message)));
}

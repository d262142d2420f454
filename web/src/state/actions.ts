// What a person can do, each in one place, whether by button, key or palette. Failures are told, never swallowed.

import { api, headers, sessionPath } from '../api/client';
import type { Image, Message, Seq, Shown } from '../api/types';
import { sessionRoute } from '../lib/route';
import { toasts } from './prefs.svelte';
import { router } from './router.svelte';
import { sessions } from './sessions.svelte';

/** Does it, or says why not. */
export async function attempt<T>(work: Promise<T>): Promise<T | null> {
  try {
    return await work;
  } catch (error) {
    toasts.fail(error);
    return null;
  }
}

export interface Wish {
  flow: string;
  settings?: unknown;
  models?: Record<string, string>;
  text: string;
  images: readonly Image[];
}

/** Begins a conversation and goes there. The first message is sent from there, so that it is not lost if the page is left. */
export async function begin(wish: Wish): Promise<boolean> {
  const { text, images, ...rest } = wish;
  const session = await attempt(api.open(rest));
  if (!session) return false;
  if (text.trim() !== '') firstWords.set(session.session, { text, images });
  router.go(sessionRoute(session.session));
  return true;
}

/** What is to be said in a session as soon as it is open. */
export const firstWords = new Map<string, { text: string; images: readonly Image[] }>();

/** Images of a session, to be shown once more. */
export function shownAgain(session: string, images: readonly Shown[]): Promise<Image[]> {
  return Promise.all(images.map(async ({ body, media }) => ({ data: await api.text(session, body), media })));
}

/** A new session with everything up to a place, and in it, if given, something else said. */
export async function branch(session: string, at: Seq | string | null, text: string | null, images: readonly Shown[] = []): Promise<void> {
  const shown = await attempt(shownAgain(session, images));
  if (!shown) return;
  const forked = await attempt(api.fork(session, at === null ? {} : { at }));
  if (!forked) return;
  if (text !== null) firstWords.set(forked.session, { text, images: shown });
  router.go(sessionRoute(forked.session));
  toasts.say(text === null ? 'This is a branch. The original stays as it is.' : 'Said in a branch. The original stays as it is.');
}

/** The same conversation up to this message, with other words in its place. */
export function editAndBranch(session: string, message: Message, text: string): Promise<void> {
  return branch(session, message.seq - 1, text, message.images);
}

export async function erase(session: string): Promise<void> {
  if (!confirm(`Erase “${session}” and all its texts? This cannot be undone.`)) return;
  const here = router.here?.session === session;
  if ((await attempt(api.erase(session).then(() => true))) !== true) return;
  sessions.drop(session);
  if (here) router.go({ page: 'home' });
  toasts.say('Erased');
}

/** The journal as a file. */
export async function exportFile(session: string): Promise<void> {
  const answer = await attempt(fetch(sessionPath(session, '/export'), { headers: headers() }));
  if (!answer) return;
  if (!answer.ok) {
    toasts.say('The journal could not be exported', 'bad');
    return;
  }
  const link = document.createElement('a');
  link.href = URL.createObjectURL(await answer.blob());
  link.download = `${session}.jsonl`;
  link.click();
  URL.revokeObjectURL(link.href);
}

export async function copy(text: string, what = 'Copied'): Promise<void> {
  await attempt(navigator.clipboard.writeText(text).then(() => toasts.say(what)));
}

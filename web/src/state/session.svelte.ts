// One session as it is being looked at: live, or as it was right after some event. Loads what is asked for, keeps in step with the stream, and says when views
// should ask again. Draws nothing.

import { api, Problem, sessionPath, Unreachable } from '../api/client';
import { follow, type Link } from '../api/follow';
import type { EventLine, Flow, Image, Seq, Session, Turn, Words } from '../api/types';
import { flowOf } from './catalog.svelte';
import { apply, EMPTY, merge, number, running, type Log } from './fold';
import { addWords, takesBack, type Streamed } from './words';

/** Turns asked for at once. */
const PAGE = 40;
/** Views of a session that runs are asked for again at most this often. */
const REFRESH_MS = 250;

/** A message on its way to the server. */
export interface Outgoing {
  readonly key: string;
  readonly text: string;
  readonly images: readonly Image[];
  readonly problem: Problem | null;
}

/** While the server cannot be reached, a message is offered again this often, and so many times. */
const RESEND_MS = 1_000;
const RESENDS_MAX = 30;

export class SessionState {
  readonly name: string;
  /** Nothing means now, and live. */
  readonly at: Seq | null;

  header = $state.raw<Session | null>(null);
  log = $state.raw<Log>(EMPTY);
  words = $state.raw<ReadonlyMap<string, Streamed>>(new Map());
  problem = $state.raw<Problem | null>(null);
  link = $state.raw<Link>('connecting');
  /** Everything recorded so far has been heard. */
  live = $state.raw(false);
  flow = $state.raw<Flow | null>(null);
  /** Rises when something was recorded: views that were fetched want to be fetched again. */
  pulse = $state.raw(0);
  gone = $state.raw(false);
  outgoing = $state.raw<readonly Outgoing[]>([]);
  /** How far this machine's clock is ahead of the server's. */
  skew = $state.raw(0);

  #stop: (() => void) | null = null;
  #ended = false;
  #asked = new Set<number>();
  #received = new Set<string>();
  #refresh: ReturnType<typeof setTimeout> | null = null;
  #pendingWords: Words[] = [];
  #frame: number | null = null;

  constructor(name: string, at: Seq | null) {
    this.name = name;
    this.at = at;
  }

  get running(): Turn | null {
    return this.at === null ? running(this.log) : null;
  }

  get title(): string {
    return this.log.title ?? this.header?.title ?? '';
  }

  get closed(): string | null {
    return this.log.closed ?? this.header?.closed ?? null;
  }

  get loaded(): boolean {
    return this.header !== null;
  }

  /** Loads the newest turns, then follows. */
  async start(): Promise<void> {
    try {
      const [header, page] = await Promise.all([
        api.session(this.name, this.at),
        api.turns(this.name, { limit: PAGE, at: this.at }),
      ]);
      if (this.#ended) return;
      this.log = merge(EMPTY, page, Math.max(header.turns, newest(page.turns)));
      this.header = header;
      void flowOf(header.flow).then((flow) => (this.flow = flow));
      if (this.at === null) this.#follow(page.seq);
      else this.live = true;
    } catch (error) {
      if (!this.#ended) this.problem = error instanceof Problem ? error : new Problem(0, { detail: String(error) });
    }
  }

  stop(): void {
    this.#ended = true;
    this.#stop?.();
    if (this.#refresh !== null) clearTimeout(this.#refresh);
    if (this.#frame !== null) cancelAnimationFrame(this.#frame);
  }

  /** Sends a message. Its key makes it safe to offer again, so a server that restarts just now does no harm. */
  async send(text: string, images: readonly Image[] = []): Promise<boolean> {
    const key = crypto.randomUUID();
    this.outgoing = [...this.outgoing, { key, text, images, problem: null }];
    for (let tries = 0; ; tries += 1) {
      try {
        await api.send(this.name, text, key, images);
        // The stream brings the message itself; if it was quicker, there is nothing left to take away.
        if (this.#received.delete(key)) this.#sent(key);
        return true;
      } catch (error) {
        const passing = error instanceof Unreachable || (error instanceof Problem && error.status === 503);
        if (this.#ended || !passing || tries >= RESENDS_MAX) {
          this.outgoing = this.outgoing.filter((message) => message.key !== key);
          throw error;
        }
        this.outgoing = this.outgoing.map((message) => (message.key === key ? { ...message, problem: error as Problem } : message));
        await new Promise((resolve) => setTimeout(resolve, RESEND_MS));
      }
    }
  }

  #sent(key: string): void {
    this.outgoing = this.outgoing.filter((message) => message.key !== key);
  }

  /** Sees to it that the turns from the first to the last of these places are there. */
  async need(first: number, last: number): Promise<void> {
    const missing: number[] = [];
    for (let index = Math.max(0, first); index <= Math.min(last, this.log.turns.length - 1); index += 1) {
      if (this.log.turns[index] === undefined) missing.push(index);
    }
    const pages = new Set(missing.map((index) => Math.floor(index / PAGE)));
    await Promise.all([...pages].filter((page) => !this.#asked.has(page)).map((page) => this.#page(page)));
  }

  async #page(page: number): Promise<void> {
    this.#asked.add(page);
    try {
      const turns = await api.turns(this.name, { limit: PAGE, before: `t${(page + 1) * PAGE + 1}`, at: this.at });
      if (!this.#ended) this.log = merge(this.log, turns, this.log.turns.length);
    } catch {
      // Asked for again when it is next seen.
    } finally {
      this.#asked.delete(page);
    }
  }

  #follow(after: Seq): void {
    this.#stop = follow({
      path: sessionPath(this.name, '/events'),
      after,
      heard: (kind, data) => this.#heard(kind, data),
      stands: (link) => (this.link = link),
      ended: (problem) => {
        if (problem.status === 404) this.gone = true;
        else this.problem = problem;
      },
    });
  }

  #heard(kind: string, data: unknown): void {
    if (kind === 'event') this.#event(data as EventLine);
    else if (kind === 'words') this.#words(data as Words);
    else if (kind === 'live') this.live = true;
    else if (kind === 'gone') {
      this.gone = true;
      this.stop();
    }
  }

  #event(line: EventLine): void {
    this.log = apply(this.log, line, (role) => this.flow?.roles.find((known) => known.role === role)?.heard_by_user ?? false);
    if (this.live) this.skew = Date.now() - line.at;
    const key = line.event['key'];
    if (line.is === 'user_message_received' && typeof key === 'string' && this.outgoing.some((message) => message.key === key)) {
      this.#received.add(key);
      this.#sent(key);
    }
    if (takesBack(line.is) && line.call !== null) this.#forget(line.call);
    if (line.is === 'turn_ended' && line.turn !== null) {
      this.#settle(line.turn);
    }
    this.#soon();
  }

  /** A turn that has ended is shown as the server sees it; words that never became a reply are dropped. */
  #settle(turn: string): void {
    this.#pendingWords = [];
    this.words = new Map();
    void api
      .turn(this.name, turn)
      .then((settled) => {
        if (this.#ended) return;
        const turns = [...this.log.turns];
        turns[number(turn) - 1] = settled;
        this.log = { ...this.log, turns };
      })
      .catch(() => undefined);
  }

  #forget(call: string): void {
    this.#pendingWords = this.#pendingWords.filter((piece) => piece.call !== call);
    if (!this.words.has(call)) return;
    const words = new Map(this.words);
    words.delete(call);
    this.words = words;
  }

  /** Pieces that come within one frame are drawn together. */
  #words(piece: Words): void {
    this.#pendingWords.push(piece);
    this.#frame ??= requestAnimationFrame(() => {
      this.#frame = null;
      const words = new Map(this.words);
      for (const next of this.#pendingWords) words.set(next.call, addWords(words.get(next.call), next));
      this.#pendingWords = [];
      this.words = words;
    });
  }

  #soon(): void {
    this.#refresh ??= setTimeout(() => {
      this.#refresh = null;
      this.pulse += 1;
      void api
        .session(this.name)
        .then((header) => {
          if (!this.#ended) this.header = header;
        })
        .catch(() => undefined);
    }, REFRESH_MS);
  }
}

function newest(turns: readonly Turn[]): number {
  const last = turns.at(-1);
  return last ? number(last.turn) : 0;
}

// The state of one session, live or as it was after some event. Loads turns on demand, follows the event stream, and signals when views should reload.

import { api, Problem, Unreachable } from '../api/client';
import { follow, type ConnectionStatus } from '../api/follow';
import type { EventView, Flow, InlineImage, Seq, Session, TextDelta, ToolProgress, Turn } from '../api/types';
import { loadFlow } from './catalog.svelte';
import { applyEvent, EMPTY_LOG, idNumber, mergePage, runningTurn, type ConversationLog } from './fold';
import { addDelta, discardsStreamedText, type StreamedText } from './streaming';

const TURNS_PER_PAGE = 40;
/** Views of a running session reload at most this often. */
const REFRESH_MS = 250;

/** A message that the server has not confirmed yet. */
export interface OutgoingMessage {
  readonly key: string;
  readonly text: string;
  readonly images: readonly InlineImage[];
  readonly problem: Problem | null;
}

/** While the server cannot be reached, a message is sent again at this interval, up to `RESENDS_MAX` times. */
const RESEND_MS = 1_000;
const RESENDS_MAX = 30;

export class SessionState {
  readonly name: string;
  /** The event after which the session is shown; `null` shows it live. */
  readonly at: Seq | null;

  header = $state.raw<Session | null>(null);
  log = $state.raw<ConversationLog>(EMPTY_LOG);
  streamed = $state.raw<ReadonlyMap<string, StreamedText>>(new Map());
  /** The newest progress of each running tool, by run. */
  toolProgress = $state.raw<ReadonlyMap<string, string>>(new Map());
  problem = $state.raw<Problem | null>(null);
  connection = $state.raw<ConnectionStatus>('connecting');
  /** All events recorded so far have been received. */
  live = $state.raw(false);
  flow = $state.raw<Flow | null>(null);
  /** Increases when events were recorded. Fetched views reload when it changes. */
  revision = $state.raw(0);
  deleted = $state.raw(false);
  outgoing = $state.raw<readonly OutgoingMessage[]>([]);
  /** How far this machine's clock is ahead of the server's, in milliseconds. */
  clockSkew = $state.raw(0);

  #stop: (() => void) | null = null;
  #ended = false;
  #loadingPages = new Set<number>();
  #receivedKeys = new Set<string>();
  #refresh: ReturnType<typeof setTimeout> | null = null;
  #pendingDeltas: TextDelta[] = [];
  #frame: number | null = null;

  constructor(name: string, at: Seq | null) {
    this.name = name;
    this.at = at;
  }

  get running(): Turn | null {
    return this.at === null ? runningTurn(this.log) : null;
  }

  get title(): string {
    return this.log.title ?? this.header?.title ?? '';
  }

  get closedReason(): string | null {
    return this.log.closedReason ?? this.header?.closed_reason ?? null;
  }

  get loaded(): boolean {
    return this.header !== null;
  }

  /** Loads the newest turns, then follows the event stream. */
  async start(): Promise<void> {
    try {
      const [header, page] = await Promise.all([
        api.session(this.name, this.at),
        api.turns(this.name, { limit: TURNS_PER_PAGE, at: this.at }),
      ]);
      if (this.#ended) return;
      this.log = mergePage(EMPTY_LOG, page, Math.max(header.turns, newestTurnNumber(page.turns)));
      this.header = header;
      void loadFlow(header.flow).then((flow) => (this.flow = flow));
      if (this.at === null) this.#follow(page.last_seq);
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

  /** Sends a message. Its idempotency key makes resending safe, for example while the server restarts. */
  async send(text: string, images: readonly InlineImage[] = []): Promise<boolean> {
    const key = crypto.randomUUID();
    this.outgoing = [...this.outgoing, { key, text, images, problem: null }];
    for (let tries = 0; ; tries += 1) {
      try {
        await api.send(this.name, text, key, images);
        // The message itself arrives with the stream, which may have been faster than this response.
        if (this.#receivedKeys.delete(key)) this.#removeOutgoing(key);
        return true;
      } catch (error) {
        const transient = error instanceof Unreachable || (error instanceof Problem && error.status === 503);
        if (this.#ended || !transient || tries >= RESENDS_MAX) {
          this.outgoing = this.outgoing.filter((message) => message.key !== key);
          throw error;
        }
        this.outgoing = this.outgoing.map((message) => (message.key === key ? { ...message, problem: error as Problem } : message));
        await new Promise((resolve) => setTimeout(resolve, RESEND_MS));
      }
    }
  }

  #removeOutgoing(key: string): void {
    this.outgoing = this.outgoing.filter((message) => message.key !== key);
  }

  /** Loads the turns with these indices, if they are missing. */
  async ensureTurns(first: number, last: number): Promise<void> {
    const missing: number[] = [];
    for (let index = Math.max(0, first); index <= Math.min(last, this.log.turns.length - 1); index += 1) {
      if (this.log.turns[index] === undefined) missing.push(index);
    }
    const pages = new Set(missing.map((index) => Math.floor(index / TURNS_PER_PAGE)));
    await Promise.all([...pages].filter((page) => !this.#loadingPages.has(page)).map((page) => this.#loadPage(page)));
  }

  async #loadPage(page: number): Promise<void> {
    this.#loadingPages.add(page);
    try {
      const turns = await api.turns(this.name, { limit: TURNS_PER_PAGE, before: `t${(page + 1) * TURNS_PER_PAGE + 1}`, at: this.at });
      if (!this.#ended) this.log = mergePage(this.log, turns, this.log.turns.length);
    } catch {
      // The page is requested again when it is next scrolled into view.
    } finally {
      this.#loadingPages.delete(page);
    }
  }

  #follow(after: Seq): void {
    this.#stop = follow({
      session: this.name,
      after,
      onEvent: (type, data) => this.#receive(type, data),
      onStatus: (status) => (this.connection = status),
      onEnd: (problem) => {
        if (problem.status === 404) this.deleted = true;
        else this.problem = problem;
      },
    });
  }

  #receive(type: string, data: unknown): void {
    if (type === 'event') this.#applyEvent(data as EventView);
    else if (type === 'delta') this.#queueDelta(data as TextDelta);
    else if (type === 'tool_progress') this.#setToolProgress(data as ToolProgress);
    else if (type === 'live') this.live = true;
    else if (type === 'deleted') {
      this.deleted = true;
      this.stop();
    }
  }

  #setToolProgress({ run, text }: ToolProgress): void {
    this.toolProgress = new Map(this.toolProgress).set(run, text);
  }

  #applyEvent(view: EventView): void {
    this.log = applyEvent(this.log, view, (role) => this.flow?.roles.find((known) => known.role === role)?.visible_to_user ?? false);
    if (this.live) this.clockSkew = Date.now() - view.at;
    const key = view.event['idempotency_key'];
    if (view.type === 'user_message_received' && typeof key === 'string' && this.outgoing.some((message) => message.key === key)) {
      this.#receivedKeys.add(key);
      this.#removeOutgoing(key);
    }
    if (discardsStreamedText(view.type) && view.call !== null) this.#discardStreamedText(view.call);
    if (view.type === 'turn_ended' && view.turn !== null) {
      this.#reloadEndedTurn(view.turn);
    }
    this.#scheduleRefresh();
  }

  /** Replaces an ended turn by the server's view of it. Streamed text that did not become a reply is dropped. */
  #reloadEndedTurn(turn: string): void {
    this.#pendingDeltas = [];
    this.streamed = new Map();
    this.toolProgress = new Map();
    void api
      .turn(this.name, turn)
      .then((loaded) => {
        if (this.#ended) return;
        const turns = [...this.log.turns];
        turns[idNumber(turn) - 1] = loaded;
        this.log = { ...this.log, turns };
      })
      .catch(() => undefined);
  }

  #discardStreamedText(call: string): void {
    this.#pendingDeltas = this.#pendingDeltas.filter((delta) => delta.call !== call);
    if (!this.streamed.has(call)) return;
    const streamed = new Map(this.streamed);
    streamed.delete(call);
    this.streamed = streamed;
  }

  /** Deltas that arrive within one frame are rendered together. */
  #queueDelta(delta: TextDelta): void {
    this.#pendingDeltas.push(delta);
    this.#frame ??= requestAnimationFrame(() => {
      this.#frame = null;
      const streamed = new Map(this.streamed);
      for (const next of this.#pendingDeltas) streamed.set(next.call, addDelta(streamed.get(next.call), next));
      this.#pendingDeltas = [];
      this.streamed = streamed;
    });
  }

  #scheduleRefresh(): void {
    this.#refresh ??= setTimeout(() => {
      this.#refresh = null;
      this.revision += 1;
      void api
        .session(this.name)
        .then((header) => {
          if (!this.#ended) this.header = header;
        })
        .catch(() => undefined);
    }, REFRESH_MS);
  }
}

function newestTurnNumber(turns: readonly Turn[]): number {
  const last = turns.at(-1);
  return last ? idNumber(last.turn) : 0;
}

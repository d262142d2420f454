// What the server offers: itself, its flows, its models. Asked for once.

import { api, Problem } from '../api/client';
import type { Card, Flow, Server } from '../api/types';

class Catalog {
  server = $state.raw<Server | null>(null);
  flows = $state.raw<Flow[]>([]);
  cards = $state.raw<Card[]>([]);
  defaultModel = $state.raw<string | null>(null);
  problem = $state.raw<Problem | null>(null);
  /** A key has to be given before anything else can be seen. */
  locked = $state.raw(false);

  async load(): Promise<void> {
    this.problem = null;
    try {
      const [server, flows, cards] = await Promise.all([api.server(), api.flows(), api.cards()]);
      this.server = server;
      this.flows = flows;
      this.cards = cards.models;
      this.defaultModel = cards.default;
      this.locked = false;
    } catch (error) {
      const problem = error instanceof Problem ? error : new Problem(0, { detail: String(error) });
      if (problem.status === 401) this.locked = true;
      this.problem = problem;
    }
  }
}

export const catalog = new Catalog();

export async function flowOf(name: string): Promise<Flow | null> {
  const known = catalog.flows.find((flow) => flow.flow === name);
  if (known) return known;
  return api.flow(name).catch(() => null);
}

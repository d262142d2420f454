// The server's info, flows and model cards, loaded once.

import { api, Problem } from '../api/client';
import type { Flow, ModelCard, ServerInfo } from '../api/types';

class Catalog {
  server = $state.raw<ServerInfo | null>(null);
  flows = $state.raw<Flow[]>([]);
  cards = $state.raw<ModelCard[]>([]);
  defaultModel = $state.raw<string | null>(null);
  problem = $state.raw<Problem | null>(null);
  /** The server requires an API key. */
  keyRequired = $state.raw(false);

  async load(): Promise<void> {
    this.problem = null;
    try {
      const [server, flows, cards] = await Promise.all([api.server(), api.flows(), api.modelCards()]);
      this.server = server;
      this.flows = flows;
      this.cards = cards.models;
      this.defaultModel = cards.default;
      this.keyRequired = false;
    } catch (error) {
      const problem = error instanceof Problem ? error : new Problem(0, { detail: String(error) });
      if (problem.status === 401) this.keyRequired = true;
      this.problem = problem;
    }
  }
}

export const catalog = new Catalog();

export async function loadFlow(name: string): Promise<Flow | null> {
  const known = catalog.flows.find((flow) => flow.flow === name);
  if (known) return known;
  return api.flow(name).catch(() => null);
}

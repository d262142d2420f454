// Conversations that several tests share.

import { scenario, Server } from './server';

const MESSAGES = [
  'Should we split our program into services?',
  'Billing blocks every release, and a fifth person joins in May.',
  'Changed without fear is enough. Give us a plan.',
  'Ada takes it.',
  'Hm, most of them change the schema.',
  'Well?',
];

/** Starts a server with one long `concierge` conversation: three experts, three phases, a plan, and a step that needed help. */
export async function startConciergeServer(session: string): Promise<Server> {
  const script = scenario('services');
  const server = await Server.start({ models: { atlas: script, birch: script, cedar: script }, flow: 'concierge' });
  await server.converse(session, 'concierge', MESSAGES, { experts: ['atlas', 'birch', 'cedar'] });
  return server;
}

import type { Layer } from '../api/types';

/** What each kind of context is, in a few words. */
export const LAYER_ABOUT: Record<Layer, string> = {
  instruction: 'who the role is and what it must do',
  knowledge: 'what is known beyond this conversation',
  handover: 'what an earlier phase handed over',
  entities: 'what exists',
  conversation: 'what was said',
  reasoning: 'what models decided',
  task: 'what is to be done in this call',
  words: 'the user’s own words',
};

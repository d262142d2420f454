import type { Layer } from '../api/types';

/** A short description of each layer. */
export const LAYER_DESCRIPTION: Record<Layer, string> = {
  instruction: 'the role’s instructions',
  knowledge: 'knowledge from outside the conversation',
  handover: 'the handover from an earlier phase',
  entities: 'records the conversation refers to',
  conversation: 'earlier messages',
  reasoning: 'earlier decisions of models',
  task: 'the task of this call',
  user_words: 'the user’s own words',
};

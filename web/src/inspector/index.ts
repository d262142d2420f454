export { default as CallPanel } from './CallPanel.svelte';
export { default as TurnPanel } from './TurnPanel.svelte';
export { default as HandoverPanel } from './HandoverPanel.svelte';
export { default as ThreadPanel } from './ThreadPanel.svelte';

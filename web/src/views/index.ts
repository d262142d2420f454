export { default as Timeline } from './Timeline.svelte';
export { default as Threads } from './Threads.svelte';
export { default as Phases } from './Phases.svelte';
export { default as Handovers } from './Handovers.svelte';
export { default as Ledger } from './Ledger.svelte';
export { default as Journal } from './Journal.svelte';
export { default as Compare } from './Compare.svelte';
export { default as ArtifactView } from './ArtifactView.svelte';

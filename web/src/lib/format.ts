// Formats numbers, times and names for display.

const whole = new Intl.NumberFormat('en-US');

export function count(value: number): string {
  return whole.format(value);
}

/** 940, 1.2k, 84k, 1.3M */
export function tokens(value: number): string {
  if (value < 1000) return String(value);
  if (value < 999_500) return `${trim(value / 1000)}k`;
  return `${trim(value / 1_000_000)}M`;
}

function trim(value: number): string {
  return value < 9.95 ? value.toFixed(1).replace(/\.0$/, '') : value.toFixed(0);
}

export function plural(value: number, one: string, many = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : many}`;
}

/** 640 ms, 1.4 s, 2 min 5 s, 3 h 20 min, 2 d 4 h */
export function duration(ms: number): string {
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  if (ms < 59_950) return `${(ms / 1000).toFixed(1)} s`;
  const seconds = Math.round(ms / 1000);
  if (seconds < 3600) return twoUnits(Math.floor(seconds / 60), 'min', seconds % 60, 's');
  const minutes = Math.round(seconds / 60);
  if (minutes < 1440) return twoUnits(Math.floor(minutes / 60), 'h', minutes % 60, 'min');
  const hours = Math.round(minutes / 60);
  return twoUnits(Math.floor(hours / 24), 'd', hours % 24, 'h');
}

function twoUnits(big: number, bigUnit: string, small: number, smallUnit: string): string {
  return small === 0 ? `${big} ${bigUnit}` : `${big} ${bigUnit} ${small} ${smallUnit}`;
}

/** Formats millionths of a dollar; `null` means that the price is unknown. */
export function cost(microusd: number | null): string {
  if (microusd === null) return '–';
  const dollars = microusd / 1_000_000;
  if (dollars === 0) return '$0';
  if (dollars < 0.0001) return '<$0.0001';
  if (dollars < 0.1) return `$${dollars.toFixed(4)}`;
  return `$${dollars.toFixed(2)}`;
}

/** Whether at least part of the cost is known. */
export function hasKnownCost(totals: { cost_microusd: number; unpriced: number }): boolean {
  return totals.unpriced === 0 || totals.cost_microusd > 0;
}

/** Formats a total cost: `–` if no price is known, with a `+` if some prices are unknown. */
export function totalCost(totals: { cost_microusd: number; unpriced: number; answered: number }): string {
  if (totals.unpriced > 0 && totals.cost_microusd === 0) return totals.answered === 0 ? '$0' : '–';
  return `${cost(totals.cost_microusd)}${totals.unpriced > 0 ? '+' : ''}`;
}

export function percent(part: number, all: number): string {
  if (all <= 0) return '0 %';
  const value = (100 * part) / all;
  return value > 0 && value < 1 ? '<1 %' : `${Math.round(value)} %`;
}

const clockFormat = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23' });
const shortClock = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit', hourCycle: 'h23' });
const dayFormat = new Intl.DateTimeFormat('en', { day: 'numeric', month: 'short' });
const dayYear = new Intl.DateTimeFormat('en', { day: 'numeric', month: 'short', year: 'numeric' });
const fullFormat = new Intl.DateTimeFormat('en', { dateStyle: 'medium', timeStyle: 'medium', hourCycle: 'h23' });

export const clock = (at: number): string => clockFormat.format(at);
export const fullTime = (at: number): string => fullFormat.format(at);

/** now, 5 min, 14:02, yesterday, 3 Nov, 3 Nov 2024 */
export function ago(at: number, now: number): string {
  const ms = now - at;
  if (ms < 60_000) return 'now';
  if (ms < 3_600_000) return `${Math.floor(ms / 60_000)} min`;
  const days = dayNumber(now) - dayNumber(at);
  if (days === 0) return shortClock.format(at);
  if (days === 1) return 'yesterday';
  return new Date(at).getFullYear() === new Date(now).getFullYear() ? dayFormat.format(at) : dayYear.format(at);
}

function dayNumber(at: number): number {
  const date = new Date(at);
  return Math.floor(Date.UTC(date.getFullYear(), date.getMonth(), date.getDate()) / 86_400_000);
}

export type Age = 'Today' | 'Yesterday' | 'This week' | 'Earlier';

export function age(at: number, now: number): Age {
  const days = dayNumber(now) - dayNumber(at);
  if (days <= 0) return 'Today';
  if (days === 1) return 'Yesterday';
  return days < 7 ? 'This week' : 'Earlier';
}

/** `handover_by_turn` → `Handover by turn` */
export function readableName(name: string): string {
  const words = name.replace(/_ms$/, ' (ms)').replaceAll(/[_-]+/g, ' ').trim();
  return words.charAt(0).toUpperCase() + words.slice(1);
}

/** `awaiting_operator` → `awaiting operator` */
export function statusText(status: string): string {
  return status.replaceAll('_', ' ');
}

/** Joins a text into one line of at most `maxChars` characters. */
export function oneLine(text: string, maxChars = 140): string {
  const line = text.replaceAll(/\s+/g, ' ').trim();
  return line.length <= maxChars ? line : `${line.slice(0, maxChars - 1)}…`;
}

import { expect, it } from 'vitest';
import { ago, cost, duration, oneLine, percent, readableName, tokens, totalCost } from '../src/lib/format';

it('token counts are abbreviated', () => {
  expect([0, 999, 1000, 1250, 9949, 84_000, 999_499, 1_300_000].map(tokens)).toEqual(['0', '999', '1k', '1.3k', '9.9k', '84k', '999k', '1.3M']);
});

it('durations have at most two units', () => {
  expect([0, 640, 1400, 59_949, 125_000, 12_000_000, 187_200_000].map(duration)).toEqual(['0 ms', '640 ms', '1.4 s', '59.9 s', '2 min 5 s', '3 h 20 min', '2 d 4 h']);
});

it('an unknown price is not shown as free', () => {
  expect([null, 0, 5, 6200, 1_250_000].map(cost)).toEqual(['–', '$0', '<$0.0001', '$0.0062', '$1.25']);
  expect(totalCost({ cost_microusd: 0, unpriced: 3, answered: 3 })).toBe('–');
  expect(totalCost({ cost_microusd: 2_000_000, unpriced: 1, answered: 4 })).toBe('$2.00+');
  expect(totalCost({ cost_microusd: 0, unpriced: 0, answered: 0 })).toBe('$0');
});

it('small shares are not rounded to zero', () => {
  expect([percent(0, 10), percent(1, 1000), percent(1, 3), percent(1, 0)]).toEqual(['0 %', '<1 %', '33 %', '0 %']);
});

it('times are shown relative to now', () => {
  const now = new Date(2026, 10, 15, 12, 0).getTime();
  const at = (...date: [number, number, number, number, number]) => ago(new Date(...date).getTime(), now);
  expect(at(2026, 10, 15, 11, 59)).toMatch(/now|1 min/);
  expect(at(2026, 10, 15, 11, 40)).toBe('20 min');
  expect(at(2026, 10, 15, 9, 5)).toBe('09:05');
  expect(at(2026, 10, 14, 23, 0)).toBe('yesterday');
  expect(at(2026, 10, 3, 23, 0)).toBe('Nov 3');
  expect(at(2024, 10, 3, 23, 0)).toBe('Nov 3, 2024');
});

it('names are shown in readable form', () => {
  expect(readableName('handover_by_turn')).toBe('Handover by turn');
  expect(readableName('answer_timeout_ms')).toBe('Answer timeout (ms)');
  expect(oneLine('a\n  b\tc')).toBe('a b c');
  expect(oneLine('abcdef', 4)).toBe('abc…');
});

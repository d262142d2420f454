import { describe, expect, it } from 'vitest';
import { address, parse, sessionRoute, type Route } from '../src/lib/route';

const ROUTES: [string, Route][] = [
  ['/', { page: 'home' }],
  ['/s/fox', sessionRoute('fox')],
  ['/s/fox/c/c3', sessionRoute('fox', { detail: { is: 'call', id: 'c3' } })],
  ['/s/fox/t/t12?at=40', sessionRoute('fox', { detail: { is: 'turn', id: 't12' }, at: 40 })],
  ['/s/fox/timeline', sessionRoute('fox', { view: { is: 'timeline' } })],
  ['/s/fox/threads/th/th2', sessionRoute('fox', { view: { is: 'threads' }, detail: { is: 'thread', id: 'th2' } })],
  ['/s/fox/x/map?at=9', sessionRoute('fox', { view: { is: 'exhibit', name: 'map' }, at: 9 })],
  ['/s/fox/x/c/c/c1', sessionRoute('fox', { view: { is: 'exhibit', name: 'c' }, detail: { is: 'call', id: 'c1' } })],
  ['/s/fox/compare/c1/c7', sessionRoute('fox', { view: { is: 'compare', calls: ['c1', 'c7'] } })],
  ['/s/a%20b%2Fc', sessionRoute('a b/c')],
];

describe('addresses', () => {
  it.each(ROUTES)('%s and back', (path, route) => {
    const [pathname = '', search = ''] = path.split('?');
    expect(parse(pathname, search)).toEqual(route);
    expect(address(route)).toBe(path);
  });

  it('take `3` for `c3`', () => {
    expect(parse('/s/fox/c/3', '')).toEqual(sessionRoute('fox', { detail: { is: 'call', id: 'c3' } }));
  });

  it('that lead nowhere say so', () => {
    for (const path of ['/x', '/s', '/s/fox/nonsense', '/s/fox/c', '/s/fox/c/c1/more']) expect(parse(path, '').page, path).toBe('lost');
  });

  it('ignore a place that is none', () => {
    for (const search of ['?at=0', '?at=-1', '?at=x', '?at=']) expect(parse('/s/fox', search)).toEqual(sessionRoute('fox'));
  });

  it('survive broken escapes', () => {
    expect(parse('/s/%E0%A4%A', '')).toEqual(sessionRoute('%E0%A4%A'));
  });
});

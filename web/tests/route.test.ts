import { describe, expect, it } from 'vitest';
import { parseRoute, routeUrl, sessionRoute, type Route } from '../src/lib/route';

const ROUTES: [string, Route][] = [
  ['/', { page: 'home' }],
  ['/s/fox', sessionRoute('fox')],
  ['/s/fox/c/c3', sessionRoute('fox', { detail: { type: 'call', id: 'c3' } })],
  ['/s/fox/t/t12?at=40', sessionRoute('fox', { detail: { type: 'turn', id: 't12' }, at: 40 })],
  ['/s/fox/timeline', sessionRoute('fox', { view: { type: 'timeline' } })],
  ['/s/fox/threads/th/th2', sessionRoute('fox', { view: { type: 'threads' }, detail: { type: 'thread', id: 'th2' } })],
  ['/s/fox/artifacts/map?at=9', sessionRoute('fox', { view: { type: 'artifact', name: 'map' }, at: 9 })],
  ['/s/fox/artifacts/c/c/c1', sessionRoute('fox', { view: { type: 'artifact', name: 'c' }, detail: { type: 'call', id: 'c1' } })],
  ['/s/fox/compare/c1/c7', sessionRoute('fox', { view: { type: 'compare', calls: ['c1', 'c7'] } })],
  ['/s/a%20b%2Fc', sessionRoute('a b/c')],
];

describe('URLs', () => {
  it.each(ROUTES)('%s is parsed and formatted', (path, route) => {
    const [pathname = '', search = ''] = path.split('?');
    expect(parseRoute(pathname, search)).toEqual(route);
    expect(routeUrl(route)).toBe(path);
  });

  it('accept `3` for `c3`', () => {
    expect(parseRoute('/s/fox/c/3', '')).toEqual(sessionRoute('fox', { detail: { type: 'call', id: 'c3' } }));
  });

  it('of unknown pages are not found', () => {
    for (const path of ['/x', '/s', '/s/fox/nonsense', '/s/fox/c', '/s/fox/c/c1/more']) expect(parseRoute(path, '').page, path).toBe('not_found');
  });

  it('ignore an invalid event number', () => {
    for (const search of ['?at=0', '?at=-1', '?at=x', '?at=']) expect(parseRoute('/s/fox', search)).toEqual(sessionRoute('fox'));
  });

  it('tolerate broken escapes', () => {
    expect(parseRoute('/s/%E0%A4%A', '')).toEqual(sessionRoute('%E0%A4%A'));
  });
});

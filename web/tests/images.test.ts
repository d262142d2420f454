import { describe, expect, it } from 'vitest';
import { address, base64, unfit } from '../src/lib/images';

describe('images', () => {
  it('are refused by what they are and how large, with the name of the file', () => {
    expect(unfit({ type: 'image/png', size: 10, name: 'a.png' })).toBeNull();
    expect(unfit({ type: 'image/svg+xml', size: 10, name: 'a.svg' })).toContain('a.svg');
    expect(unfit({ type: 'image/png', size: 5_000_001, name: 'b.png' })).toBe('b.png is larger than 5 MB');
  });

  it('are the same bytes in base64, however long', () => {
    const bytes = Uint8Array.from({ length: 100_000 }, (_, index) => index % 251);
    expect(Buffer.from(base64(bytes), 'base64').equals(Buffer.from(bytes))).toBe(true);
  });

  it('never become an address of anything else', () => {
    expect(address({ media: 'image/png', data: 'aGk=' })).toBe('data:image/png;base64,aGk=');
    expect(address({ media: 'text/html', data: 'aGk=' })).toBeNull();
    expect(address({ media: 'image/png', data: '"><script>' })).toBeNull();
  });
});

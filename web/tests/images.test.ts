import { describe, expect, it } from 'vitest';
import { base64, dataUrl, fileProblem } from '../src/lib/images';

describe('images', () => {
  it('are refused by type and size, naming the file', () => {
    expect(fileProblem({ type: 'image/png', size: 10, name: 'a.png' })).toBeNull();
    expect(fileProblem({ type: 'image/svg+xml', size: 10, name: 'a.svg' })).toContain('a.svg');
    expect(fileProblem({ type: 'image/png', size: 5_000_001, name: 'b.png' })).toBe('b.png is larger than 5 MB');
  });

  it('are encoded in base64 at any length', () => {
    const bytes = Uint8Array.from({ length: 100_000 }, (_, index) => index % 251);
    expect(Buffer.from(base64(bytes), 'base64').equals(Buffer.from(bytes))).toBe(true);
  });

  it('become a data URL only if they are images', () => {
    expect(dataUrl({ media_type: 'image/png', data: 'aGk=' })).toBe('data:image/png;base64,aGk=');
    expect(dataUrl({ media_type: 'text/html', data: 'aGk=' })).toBeNull();
    expect(dataUrl({ media_type: 'image/png', data: '"><script>' })).toBeNull();
  });
});

import { describe, expect, it } from 'vitest';
import type { Schema } from '../src/api/types';
import { kind, plain, trimmed } from '../src/lib/schema';

const ROOT: Schema = {
  $defs: { Stance: { type: 'string', enum: ['decide', 'explore'] }, Batch: { oneOf: [{ const: 'on_signal' } as Schema, { const: 'every_turn' } as Schema] } },
  properties: {
    stance: { anyOf: [{ $ref: '#/$defs/Stance' }, { type: 'null' }], description: 'how', default: null },
    batch: { $ref: '#/$defs/Batch', default: 'on_signal' },
    quorum: { type: ['integer', 'null'], minimum: 1 },
    confirm: { type: 'boolean', default: false },
    members: { type: 'array', items: { type: 'object', properties: { model: { type: 'string' } } }, default: [{ samples: 3 }] },
  },
};

describe('settings', () => {
  it('are asked for by what they are', () => {
    const kinds = Object.fromEntries(Object.entries(ROOT.properties ?? {}).map(([name, schema]) => [name, kind(plain(schema, ROOT))]));
    expect(kinds).toEqual({ stance: 'choice', batch: 'choice', quorum: 'number', confirm: 'switch', members: 'list' });
    expect(plain(ROOT.properties?.['stance'] ?? {}, ROOT)).toMatchObject({ enum: ['decide', 'explore'], description: 'how' });
    expect(plain(ROOT.properties?.['batch'] ?? {}, ROOT).enum).toEqual(['on_signal', 'every_turn']);
  });

  it('are sent only where they differ', () => {
    expect(trimmed({ batch: 'on_signal', confirm: false, quorum: undefined, stance: '', members: [] }, ROOT)).toBeNull();
    expect(trimmed({ batch: 'every_turn', confirm: false, members: [{ model: 'a' }] }, ROOT)).toEqual({ batch: 'every_turn', members: [{ model: 'a' }] });
  });
});

import { describe, expect, it } from 'vitest';
import type { Schema } from '../src/api/types';
import { choosesModels, kind, plain, trimmed } from '../src/lib/schema';

const ROOT: Schema = {
  $defs: { Stance: { type: 'string', enum: ['decide', 'explore'] }, Batch: { oneOf: [{ const: 'on_signal' } as Schema, { const: 'every_turn' } as Schema] } },
  properties: {
    stance: { anyOf: [{ $ref: '#/$defs/Stance' }, { type: 'null' }], description: 'how', default: null },
    batch: { $ref: '#/$defs/Batch', default: 'on_signal' },
    quorum: { type: ['integer', 'null'], minimum: 1 },
    confirm: { type: 'boolean', default: false },
    speaker: { type: 'string', format: 'model', default: null },
    experts: { type: 'array', items: { anyOf: [{ type: 'string', format: 'model' }, { type: 'object', properties: {} }] }, default: null },
    domain: { anyOf: [{ enum: ['kitchen'] }, { type: 'object' }] },
    members: { type: 'array', items: { type: 'object', properties: { model: { type: 'string' } } }, default: [{ samples: 3 }] },
  },
};

describe('settings', () => {
  it('are asked for by what they are', () => {
    const kinds = Object.fromEntries(Object.entries(ROOT.properties ?? {}).map(([name, schema]) => [name, kind(plain(schema, ROOT), ROOT)]));
    expect(kinds).toEqual({ stance: 'choice', batch: 'choice', quorum: 'number', confirm: 'switch', members: 'list', speaker: 'model', experts: 'models', domain: 'choice' });
    expect(plain(ROOT.properties?.['stance'] ?? {}, ROOT)).toMatchObject({ enum: ['decide', 'explore'], description: 'how' });
    expect(plain(ROOT.properties?.['batch'] ?? {}, ROOT).enum).toEqual(['on_signal', 'every_turn']);
  });

  it('say whether a flow chooses its own models', () => {
    expect(choosesModels(ROOT)).toBe(true);
    expect(choosesModels({ properties: { confirm: { type: 'boolean' } } })).toBe(false);
    expect(choosesModels(null)).toBe(false);
  });

  it('are sent only where they differ', () => {
    expect(trimmed({ batch: 'on_signal', confirm: false, quorum: undefined, stance: '', members: [] }, ROOT)).toBeNull();
    expect(trimmed({ batch: 'every_turn', confirm: false, members: [{ model: 'a' }] }, ROOT)).toEqual({ batch: 'every_turn', members: [{ model: 'a' }] });
  });
});

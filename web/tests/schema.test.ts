import { describe, expect, it } from 'vitest';
import type { JsonSchema } from '../src/api/types';
import { changedSettings, choosesModels, fieldKind, resolveSchema } from '../src/lib/schema';

const ROOT: JsonSchema = {
  $defs: { Stance: { type: 'string', enum: ['decide', 'explore'] }, Batch: { oneOf: [{ const: 'on_signal' } as JsonSchema, { const: 'every_turn' } as JsonSchema] } },
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
  it('get a form field by their type', () => {
    const kinds = Object.fromEntries(Object.entries(ROOT.properties ?? {}).map(([name, schema]) => [name, fieldKind(resolveSchema(schema, ROOT), ROOT)]));
    expect(kinds).toEqual({ stance: 'choice', batch: 'choice', quorum: 'number', confirm: 'switch', members: 'list', speaker: 'model', experts: 'models', domain: 'choice' });
    expect(resolveSchema(ROOT.properties?.['stance'] ?? {}, ROOT)).toMatchObject({ enum: ['decide', 'explore'], description: 'how' });
    expect(resolveSchema(ROOT.properties?.['batch'] ?? {}, ROOT).enum).toEqual(['on_signal', 'every_turn']);
  });

  it('tell whether the flow chooses its own models', () => {
    expect(choosesModels(ROOT)).toBe(true);
    expect(choosesModels({ properties: { confirm: { type: 'boolean' } } })).toBe(false);
    expect(choosesModels(null)).toBe(false);
  });

  it('are sent only if they differ from the default', () => {
    expect(changedSettings({ batch: 'on_signal', confirm: false, quorum: undefined, stance: '', members: [] }, ROOT)).toBeNull();
    expect(changedSettings({ batch: 'every_turn', confirm: false, members: [{ model: 'a' }] }, ROOT)).toEqual({ batch: 'every_turn', members: [{ model: 'a' }] });
  });
});

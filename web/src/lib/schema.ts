// From a JSON schema to what a form needs to know, and from the form back to settings that hold only what differs from the defaults.

import type { Schema } from '../api/types';

export type Kind = 'text' | 'number' | 'switch' | 'choice' | 'list' | 'json';

/** The schema itself, where it is given by name or with `null` as a second choice. */
export function plain(schema: Schema, root: Schema): Schema {
  const named = schema.$ref?.startsWith('#/$defs/') ? root.$defs?.[schema.$ref.slice('#/$defs/'.length)] : undefined;
  const known: Schema = named ? { ...named, ...without(schema, '$ref') } : schema;
  const choices = known.anyOf ?? known.oneOf;
  if (!choices) return known;
  const real = choices.filter((choice) => choice.type !== 'null');
  const constants = real.flatMap((choice) => ('const' in choice ? [(choice as { const: unknown }).const] : []));
  if (constants.length === real.length && real.length > 0) return { ...known, enum: constants };
  return real.length === 1 && real[0] ? plain({ ...real[0], ...pick(known) }, root) : known;
}

function without(schema: Schema, key: keyof Schema): Schema {
  const { [key]: _, ...rest } = schema;
  return rest as Schema;
}

function pick(schema: Schema): Schema {
  const kept: Schema = {};
  if (schema.description !== undefined) kept.description = schema.description;
  if (schema.default !== undefined) kept.default = schema.default;
  return kept;
}

export function kind(schema: Schema): Kind {
  if (schema.enum) return 'choice';
  const type = Array.isArray(schema.type) ? schema.type.find((name) => name !== 'null') : schema.type;
  if (type === 'boolean') return 'switch';
  if (type === 'integer' || type === 'number') return 'number';
  if (type === 'string') return 'text';
  if (type === 'array' && schema.items) return 'list';
  return 'json';
}

/** Settings without what is empty or as it would be anyway; nothing if nothing is left. */
export function trimmed(values: Record<string, unknown>, schema: Schema): Record<string, unknown> | null {
  const kept = Object.entries(values).filter(([name, value]) => {
    if (value === undefined || value === null || value === '') return false;
    if (Array.isArray(value) && value.length === 0) return false;
    return JSON.stringify(value) !== JSON.stringify(schema.properties?.[name]?.default);
  });
  return kept.length > 0 ? Object.fromEntries(kept) : null;
}

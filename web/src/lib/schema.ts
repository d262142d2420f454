// From a JSON schema to what a form needs to know, and from the form back to settings that hold only what differs from the defaults.

import type { Schema } from '../api/types';

export type Kind = 'text' | 'number' | 'switch' | 'choice' | 'model' | 'models' | 'list' | 'json';

/** The schema itself, where it is given by name or with `null` as a second choice. */
export function plain(schema: Schema, root: Schema): Schema {
  const named = schema.$ref?.startsWith('#/$defs/') ? root.$defs?.[schema.$ref.slice('#/$defs/'.length)] : undefined;
  const known: Schema = named ? { ...named, ...without(schema, '$ref') } : schema;
  const choices = known.anyOf ?? known.oneOf;
  if (!choices) return known;
  const real = choices.filter((choice) => choice.type !== 'null');
  const constants = real.flatMap((choice) => ('const' in choice ? [(choice as { const: unknown }).const] : []));
  if (constants.length === real.length && real.length > 0) return { ...known, enum: constants };
  // Of several ways to say the same, the simplest is offered.
  const simple = real.find((choice) => choice.format === 'model' || choice.enum) ?? (real.length === 1 ? real[0] : undefined);
  return simple ? plain({ ...simple, ...pick(known) }, root) : known;
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

export function kind(schema: Schema, root: Schema): Kind {
  if (schema.enum) return 'choice';
  if (schema.format === 'model') return 'model';
  const type = Array.isArray(schema.type) ? schema.type.find((name) => name !== 'null') : schema.type;
  if (type === 'boolean') return 'switch';
  if (type === 'integer' || type === 'number') return 'number';
  if (type === 'string') return 'text';
  if (type === 'array' && schema.items) {
    const items = plain(schema.items, root);
    if (items.format === 'model') return 'models';
    return items.properties ? 'list' : 'json';
  }
  return 'json';
}

/** Whether a flow has ways of its own to say which model plays whom. */
export function choosesModels(schema: Schema | null): boolean {
  return Object.values(schema?.properties ?? {}).some((property) => ['model', 'models'].includes(kind(plain(property, schema ?? {}), schema ?? {})));
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

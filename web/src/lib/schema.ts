// Derives form fields from a JSON Schema, and removes default values from the form's settings.

import type { JsonSchema } from '../api/types';

export type FieldKind = 'text' | 'number' | 'switch' | 'choice' | 'model' | 'models' | 'list' | 'json';

/** Resolves `$ref`s and choices such as "a value or `null`" to one plain schema. */
export function resolveSchema(schema: JsonSchema, root: JsonSchema): JsonSchema {
  const named = schema.$ref?.startsWith('#/$defs/') ? root.$defs?.[schema.$ref.slice('#/$defs/'.length)] : undefined;
  const known: JsonSchema = named ? { ...named, ...without(schema, '$ref') } : schema;
  const choices = known.anyOf ?? known.oneOf;
  if (!choices) return known;
  const real = choices.filter((choice) => choice.type !== 'null');
  const constants = real.flatMap((choice) => ('const' in choice ? [(choice as { const: unknown }).const] : []));
  if (constants.length === real.length && real.length > 0) return { ...known, enum: constants };
  // The form offers only the simplest of several choices.
  const simple = real.find((choice) => choice.format === 'model' || choice.enum) ?? (real.length === 1 ? real[0] : undefined);
  return simple ? resolveSchema({ ...simple, ...descriptionAndDefault(known) }, root) : known;
}

function without(schema: JsonSchema, key: keyof JsonSchema): JsonSchema {
  const { [key]: _, ...rest } = schema;
  return rest as JsonSchema;
}

function descriptionAndDefault(schema: JsonSchema): JsonSchema {
  const kept: JsonSchema = {};
  if (schema.description !== undefined) kept.description = schema.description;
  if (schema.default !== undefined) kept.default = schema.default;
  return kept;
}

export function fieldKind(schema: JsonSchema, root: JsonSchema): FieldKind {
  if (schema.enum) return 'choice';
  if (schema.format === 'model') return 'model';
  const type = Array.isArray(schema.type) ? schema.type.find((name) => name !== 'null') : schema.type;
  if (type === 'boolean') return 'switch';
  if (type === 'integer' || type === 'number') return 'number';
  if (type === 'string') return 'text';
  if (type === 'array' && schema.items) {
    const items = resolveSchema(schema.items, root);
    if (items.format === 'model') return 'models';
    return items.properties ? 'list' : 'json';
  }
  return 'json';
}

/** Whether the flow's own settings choose the models. */
export function choosesModels(schema: JsonSchema | null): boolean {
  return Object.values(schema?.properties ?? {}).some((property) => ['model', 'models'].includes(fieldKind(resolveSchema(property, schema ?? {}), schema ?? {})));
}

/** Removes empty and default values. Returns `null` if nothing is left. */
export function changedSettings(values: Record<string, unknown>, schema: JsonSchema): Record<string, unknown> | null {
  const kept = Object.entries(values).filter(([name, value]) => {
    if (value === undefined || value === null || value === '') return false;
    if (Array.isArray(value) && value.length === 0) return false;
    return JSON.stringify(value) !== JSON.stringify(schema.properties?.[name]?.default);
  });
  return kept.length > 0 ? Object.fromEntries(kept) : null;
}

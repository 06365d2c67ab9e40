// Lists what the panel shows of a driver besides its fix: the card, then the fields, then the
// attributes that no field shows. Pure.
import type { Card, Field, Properties } from './api';
import { moment, upperFirst } from './words';

export interface Property {
  name: string;
  value: string;
  /** For a tooltip; empty: none. */
  comment: string;
}

const CARD: readonly (keyof Card)[] = ['group', 'vehicle', 'phone', 'note'];

function inWords({ type, unit, value }: Field, now: number): string {
  if (type.startsWith('DateTime64')) return moment(Number(value), now);
  if (type === 'Bool') return value === 'true' ? 'yes' : 'no';
  return unit ? `${value} ${unit}` : `${value}`;
}

/**
 * Returns the rows of the panel. An attribute stays visible if its field has no value, because the
 * device sent something that the field cannot read.
 */
export function shownProperties({ attributes, fields, card }: Pick<Properties, 'attributes' | 'card'> & { fields?: Field[] }, now: number): Property[] {
  const known = (fields ?? []).filter(({ value }) => value !== null);
  const read = new Set(known.flatMap(({ from }) => from));
  return [
    ...CARD.filter((name) => card?.[name]).map((name) => ({ name: upperFirst(name), value: card[name], comment: '' })),
    ...known.map((field) => ({ name: field.name, value: inWords(field, now), comment: field.comment })),
    ...Object.entries(attributes).filter(([name]) => !read.has(name)).map(([name, value]) => ({ name, value, comment: '' })),
  ];
}

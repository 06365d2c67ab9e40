// The properties in the panel: their selection, order and format.
import { expect, test } from 'vitest';
import type { Field } from '../src/api';
import { shownProperties } from '../src/properties';

const NOW = Date.UTC(2026, 10, 26, 12);
const CARD = { name: 'Anna', group: 'north', vehicle: '', phone: '+49 1', note: '' };
const field = (name: string, type: string, value: string | null, more: Partial<Field> = {}): Field => ({ name, type, value, comment: '', unit: '', from: [name], ...more });
const rows = (fields: Field[], attributes: Record<string, string>, card = CARD) => shownProperties({ attributes, fields, card }, NOW).map(({ name, value }) => `${name} ${value}`);

test('the card comes first, then fields, then other attributes', () => {
  const battery = field('battery', 'UInt8', '80', { unit: 'per cent', comment: 'Charge', from: ['batt', 'io/113'] });
  expect(rows([battery], { batt: '80', ignition: 'on' })).toEqual(['Group north', 'Phone +49 1', 'battery 80 per cent', 'ignition on']);
  expect(shownProperties({ attributes: {}, fields: [battery], card: CARD }, NOW).at(-1)).toEqual({ name: 'battery', value: '80 per cent', comment: 'Charge' });
});

test('an attribute that its field could not read stays visible', () => {
  expect(rows([field('battery', 'UInt8', null, { from: ['batt'] })], { batt: 'full' })).toContain('batt full');
  expect(rows([field('battery', 'UInt8', null)], {})).toEqual(['Group north', 'Phone +49 1']);
});

test('times and booleans are in words', () => {
  const due = String(Date.UTC(2026, 10, 27, 8, 30));
  expect(rows([field('due', "DateTime64(3, 'UTC')", due), field('ignition', 'Bool', 'false')], {}).slice(2)).toEqual(['due 27 Nov 2026, 08:30:00', 'ignition no']);
});

test('a response without fields, of the previous version, is shown', () => {
  expect(shownProperties({ attributes: { a: '1' }, card: CARD }, NOW).at(-1)).toEqual({ name: 'a', value: '1', comment: '' });
});

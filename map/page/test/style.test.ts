// deploy/map/style.json, the example of a style with streets, is valid for MapLibre.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { validateStyleMin, type StyleSpecification } from '@maplibre/maplibre-gl-style-spec';
import { expect, test } from 'vitest';

test('deploy/map/style.json is valid, with an attribution and one tile host', () => {
  const text = readFileSync(join(import.meta.dirname, '../../../deploy/map/style.json'), 'utf8');
  const style = JSON.parse(text) as StyleSpecification;
  expect(validateStyleMin(style)).toEqual([]);
  expect(style.sources.streets).toHaveProperty('attribution');
  expect(new Set(text.match(/https:\/\/[^/"\\]+/g))).toEqual(new Set(['https://tiles.example', 'https://www.openstreetmap.org']));
});

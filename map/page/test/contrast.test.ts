// Symbols on the map have a contrast of at least 3 with what is below them, in both themes and on
// both basemaps (WCAG 2.2, 1.4.11).
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { style } from '../src/background';
import { stops, type Rgb, type Theme } from '../src/colours';
import { FENCE_COLOURS } from '../src/fence-layers';
import { flavorOf } from '../src/flavor';
import { STATE_COLOURS, STATES } from '../src/states';
import { GAP, STOP } from '../src/track-layers';

const LEAST = 3;
const THEMES: Theme[] = ['dark', 'light'];

const luminance = (rgb: Rgb): number => {
  const [r, g, b] = rgb.map((value) => (value / 255 <= 0.03928 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const contrast = (a: Rgb, b: Rgb): number => {
  const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
  return (high + 0.05) / (low + 0.05);
};
const hex = (text: string): Rgb => [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16)) as unknown as Rgb;
const mix = (above: Rgb, below: Rgb, part: number): Rgb => above.map((value, i) => value * part + below[i] * (1 - part)) as unknown as Rgb;

function grounds(theme: Theme): Record<string, Rgb> {
  const sea = readFileSync(join(import.meta.dirname, '../src/style.css'), 'utf8').match(/--sea: light-dark\((#\w{6}), (#\w{6})\)/)!;
  const land = style(theme).layers.find(({ id }) => id === 'land')!.paint as { 'fill-color': string };
  const { earth, water, buildings, minor_a, major } = flavorOf(theme);
  return {
    sea: hex(sea[theme === 'light' ? 1 : 2]),
    land: hex(land['fill-color']),
    earth: hex(earth),
    water: hex(water),
    // The style draws buildings with half the opacity.
    buildings: mix(hex(buildings), hex(earth), 0.5),
    road: hex(minor_a),
    'major road': hex(major),
  };
}

function symbols(theme: Theme): [string, Rgb][] {
  const ramps = (['speed', 'age'] as const).flatMap((by) => stops(by).map((stop): [string, Rgb] => [`${by} ${stop.label}`, stop[theme]]));
  const [r, g, b] = STOP[theme];
  return [...STATES.map((state): [string, Rgb] => [state, STATE_COLOURS[state][theme]]), ...ramps, ['stop', [r, g, b]], ['fence', hex(FENCE_COLOURS[theme])]];
}

test.each(THEMES)('symbols stand out from every ground of the %s theme', (theme) => {
  const faint: string[] = [];
  for (const [ground, below] of Object.entries(grounds(theme))) {
    for (const [name, colour] of symbols(theme)) {
      if (contrast(colour, below) < LEAST) faint.push(`${name} on ${ground}: ${contrast(colour, below).toFixed(2)}`);
    }
    const [r, g, b, alpha] = GAP[theme];
    const gap = mix([r, g, b], below, alpha / 255);
    if (contrast(gap, below) < LEAST) faint.push(`gap on ${ground}: ${contrast(gap, below).toFixed(2)}`);
  }
  expect(faint).toEqual([]);
});

test.each(THEMES)('names of streets and places can be read in the %s theme', (theme) => {
  const flavor = flavorOf(theme);
  const named = Object.entries(flavor).filter((entry): entry is [string, string] => /_label(_minor|_major)?$/.test(entry[0]));
  expect(named.length).toBeGreaterThan(6);
  const faint = named.map(([name, colour]) => [name, contrast(hex(colour), hex(name === 'ocean_label' ? flavor.water : flavor.earth))] as const).filter(([, ratio]) => ratio < 4.5);
  expect(faint).toEqual([]);
});

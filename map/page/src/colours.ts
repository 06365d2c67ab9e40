// Computes a driver's colour from its state, its speed or the age of its fix. The stops of both
// ramps also differ in lightness, for colour-blind viewers.
import { stateOf, STATE_COLOURS } from './states';

export type Theme = 'dark' | 'light';
export type ColourBy = 'state' | 'speed' | 'age';
export type Rgb = readonly [number, number, number];

interface Stop {
  /** km/h, or seconds. */
  at: number;
  label: string;
  dark: Rgb;
  light: Rgb;
}

const SPEED: Stop[] = [
  { at: 0, label: '0', dark: [126, 140, 170], light: [102, 112, 134] },
  { at: 20, label: '20', dark: [56, 152, 224], light: [28, 104, 184] },
  { at: 50, label: '50', dark: [45, 212, 180], light: [0, 110, 92] },
  { at: 90, label: '90', dark: [250, 204, 80], light: [144, 84, 0] },
  { at: 130, label: '130+', dark: [255, 128, 82], light: [178, 34, 16] },
];

const AGE: Stop[] = [
  { at: 0, label: 'now', dark: [94, 234, 196], light: [0, 124, 100] },
  { at: 30, label: '30 s', dark: [72, 176, 232], light: [24, 100, 172] },
  { at: 300, label: '5 min', dark: [138, 132, 226], light: [88, 72, 172] },
  { at: 3600, label: '1 h', dark: [172, 128, 182], light: [112, 60, 112] },
  { at: 86400, label: '1 day', dark: [130, 138, 158], light: [66, 72, 84] },
];

/** Returns the stops of a ramp; none for states, which have no order. */
export const stops = (by: ColourBy): readonly Stop[] => (by === 'speed' ? SPEED : by === 'age' ? AGE : []);

/**
 * Writes the RGBA bytes of one colour to `out`, from `offset` on. Speed in m/s, NaN if unknown; age in
 * seconds.
 */
export function paint(out: Uint8ClampedArray, offset: number, by: ColourBy, theme: Theme, speed: number, age: number): void {
  if (by === 'state') {
    const colour = STATE_COLOURS[stateOf(speed, age)][theme];
    for (let c = 0; c < 3; c++) out[offset + c] = colour[c];
    out[offset + 3] = 255;
    return;
  }
  const ramp = by === 'speed' ? SPEED : AGE;
  const value = by === 'speed' ? (Number.isNaN(speed) ? 0 : speed * 3.6) : age;
  let i = 1;
  while (i < ramp.length - 1 && value > ramp[i].at) i++;
  const below = ramp[i - 1];
  const above = ramp[i];
  // Ages span five powers of ten, so they are interpolated on a logarithmic scale.
  const scale = by === 'speed' ? (x: number) => x : Math.log1p;
  const part = (scale(Math.max(0, value)) - scale(below.at)) / (scale(above.at) - scale(below.at));
  const t = Math.min(1, Math.max(0, part));
  for (let c = 0; c < 3; c++) out[offset + c] = below[theme][c] + (above[theme][c] - below[theme][c]) * t;
  out[offset + 3] = 255;
}

export function colour(by: ColourBy, theme: Theme, speed: number, age: number): [number, number, number, number] {
  const out = new Uint8ClampedArray(4);
  paint(out, 0, by, theme, speed, age);
  return [out[0], out[1], out[2], out[3]];
}

export const css = (rgb: Rgb): string => `rgb(${rgb[0]} ${rgb[1]} ${rgb[2]})`;

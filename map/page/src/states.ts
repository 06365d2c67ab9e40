// A driver's state, with its colour and its shape, so that it can be recognised without colours.
// The server computes states by the same rule (fleet/filter.rs).
import type { Rgb, Theme } from './colours';
import { STANDING_MPS } from './words';

export type DriverState = 'moving' | 'standing' | 'silent' | 'unknown' | 'hidden';

/** All states, in the order of the legend. The last one is shown only on request. */
export const STATES: readonly DriverState[] = ['moving', 'standing', 'silent', 'unknown', 'hidden'];
export const SHOWN: readonly DriverState[] = STATES.slice(0, -1);

export const LABELS: Record<DriverState, string> = { moving: 'Moving', standing: 'Standing', silent: 'Silent', unknown: 'Speed unknown', hidden: 'Long silent' };

/** Codes of shapes in the column of headings. A value from 0 on is a heading, drawn as a nose. */
export const SHAPES = { disc: -1, square: -2, ring: -3, diamond: -4 } as const;

const SHAPE: Record<DriverState, number> = { moving: SHAPES.disc, standing: SHAPES.square, silent: SHAPES.ring, unknown: SHAPES.diamond, hidden: SHAPES.ring };

export const STATE_COLOURS: Record<DriverState, Record<Theme, Rgb>> = {
  moving: { dark: [45, 212, 180], light: [0, 122, 100] },
  standing: { dark: [110, 168, 255], light: [38, 98, 204] },
  silent: { dark: [168, 176, 196], light: [76, 86, 106] },
  unknown: { dark: [250, 204, 80], light: [154, 92, 0] },
  hidden: { dark: [132, 140, 160], light: [106, 114, 132] },
};

/** `map.silent_after` and `map.hidden_after`, in seconds. */
let limits = { silent: 300, hidden: 30 * 86_400 };

export function setLimits(silent: number, hidden: number): void {
  limits = { silent, hidden };
}

export const silentAfter = (): number => limits.silent;

/** Returns a driver's state. `speed` in m/s, NaN if unknown; `age` in seconds since the fix. */
export function stateOf(speed: number, age: number): DriverState {
  if (age >= limits.hidden) return 'hidden';
  if (age >= limits.silent) return 'silent';
  if (Number.isNaN(speed)) return 'unknown';
  return speed < STANDING_MPS ? 'standing' : 'moving';
}

/** Returns the heading of a driver that moves, or else the code of its shape. */
export function shapeOf(state: DriverState, heading: number): number {
  return state === 'moving' && !Number.isNaN(heading) ? heading : SHAPE[state];
}

// The colours of the basemap from one PMTiles file: Protomaps' own, without points of interest, so
// that drivers are the colourful part of the map. Pure.
import { namedFlavor, type Flavor } from '@protomaps/basemaps';
import type { Theme } from './colours';

/** Protomaps' light water is a cyan on which green and blue drivers are hard to see. */
const LIGHT_WATER = '#cbdfeb';

export function flavorOf(theme: Theme): Flavor {
  const { pois: _, ...flavor } = namedFlavor(theme);
  return theme === 'light' ? { ...flavor, water: LIGHT_WATER } : flavor;
}

// The colours of the basemap from one PMTiles file: Protomaps' own, without points of interest, so
// that drivers are the colourful part of the map. Pure.
import { namedFlavor, type Flavor } from '@protomaps/basemaps';
import type { Theme } from './colours';

/** Protomaps' light water is a cyan on which green and blue drivers are hard to see. */
const LIGHT_WATER = '#cbdfeb';

/** Protomaps' own names of streets and places are too faint to read. */
const NAMES: Record<Theme, Partial<Flavor>> = {
  dark: {
    roads_label_minor: '#999999', roads_label_major: '#a6a6a6', address_label: '#959595',
    subplace_label: '#999999', city_label: '#b4b4b4', state_label: '#959595', country_label: '#a6a6a6', ocean_label: '#a3abbc',
  },
  light: {
    roads_label_minor: '#5f585b', roads_label_major: '#575053', address_label: '#5f585b',
    subplace_label: '#5c5c5c', city_label: '#454545', state_label: '#5f5f5f', country_label: '#585858', ocean_label: '#3d5ca8',
  },
};

export function flavorOf(theme: Theme): Flavor {
  const { pois: _, ...flavor } = namedFlavor(theme);
  return { ...flavor, ...(theme === 'light' ? { water: LIGHT_WATER } : {}), ...NAMES[theme] };
}

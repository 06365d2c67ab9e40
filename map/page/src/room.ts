// The part of the map that no card covers: there an outline is shown, and its corners can be
// dragged.
import type { Map as MapLibre } from 'maplibre-gl';
import { byId } from './dom';

/** Minimum distance in pixels between a card and an outline that the map moves beside it. */
const GAP_PX = 20;
/** An outline may be this much nearer to a card before the map moves. */
export const SLACK_PX = 10;
/** Maximum distance in pixels between the edge of the map and an outline. */
const EDGE_PX = 80;
/** A card that would leave less of the map than this is ignored. */
const ROOM_PX = 60;

/** Four sides in pixels: of a rectangle on the page, or what is covered at each edge of the map. */
export interface Sides {
  top: number;
  bottom: number;
  left: number;
  right: number;
}

/** A card has no width while it is not displayed. */
type Card = Readonly<Sides>;

/** Returns whether a card covers the map from side to side, as on a phone or a tablet. */
export const isAcross = ({ left, right }: Card, width: number): boolean => right - left > width / 2;

/** Returns the pixels at each edge of the map that cards cover. The first cards matter most. */
export function paddingOf(cards: readonly Card[], width: number, height: number): Sides {
  const edge = Math.min(EDGE_PX, width / 16);
  const gap = Math.max(GAP_PX, edge / 2);
  let free: Sides = { left: edge, top: edge, right: width - edge, bottom: height - edge };
  for (const card of cards) {
    if (card.right === card.left) continue;
    // Above or below the card, or at its left or right: where more of the map is left.
    const sides = isAcross(card, width)
      ? [{ ...free, top: Math.max(free.top, card.bottom + gap) }, { ...free, bottom: Math.min(free.bottom, card.top - gap) }]
      : [{ ...free, left: Math.max(free.left, card.right + gap) }, { ...free, right: Math.min(free.right, card.left - gap) }];
    const size = ({ left, top, right, bottom }: Sides) => right - left + bottom - top;
    const best = size(sides[0]) >= size(sides[1]) ? sides[0] : sides[1];
    if (Math.min(best.right - best.left, best.bottom - best.top) >= ROOM_PX) free = best;
  }
  return { left: free.left, top: free.top, right: width - free.right, bottom: height - free.bottom };
}

/** Returns the pixels at each edge of the map that cards cover now. */
export function padding(map: MapLibre): Sides {
  const { clientWidth, clientHeight } = map.getContainer();
  const cards = ['top', 'fences-box', 'legend', 'panel', 'player'].map((id) => byId(id, HTMLElement).getBoundingClientRect());
  return paddingOf(cards, clientWidth, clientHeight);
}

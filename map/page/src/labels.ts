// Names beside drivers and fences, drawn without overlap on their own canvas.
import type { Map as MapLibre } from 'maplibre-gl';
import type { Theme } from './colours';

export interface Label {
  /** Empty: nothing is written, but no other label covers the place. */
  text: string;
  /** The place that the label belongs to, in pixels of the page. */
  x: number;
  y: number;
  /** Pixels between the place and the text; 0: the text is on the place. */
  gap: number;
  /** Pixels between the place and the upper and lower edge of a fence. */
  edge?: number;
  /** Pixels around the place that no other label covers: the symbol with its ring. */
  reach?: number;
  kind: 'driver' | 'fence' | 'chosen';
}

export interface Placed extends Label {
  /** Left end and middle line of the text. */
  left: number;
  middle: number;
  width: number;
}

const HEIGHT_PX = 15;
/** Pixels by which a fence's name moves up or down if a driver is at the middle of the fence. */
const NEXT_LINE_PX = 26;
/**
 * Interval at which the places of cards are measured: a card that opens covers names for at most
 * this long.
 */
const CARDS_MS = 300;
/** Half the size of a dot, in pixels. */
const DOT_PX = 5;
const COLOURS = {
  dark: { driver: '#e9eef7', chosen: '#ffffff', fence: '#cfa6ff', rim: 'rgba(8,12,20,0.92)' },
  light: { driver: '#1a2434', chosen: '#000000', fence: '#6a2db4', rim: 'rgba(255,255,255,0.95)' },
} as const;

/** An area of a card, a disc or a mark, where no name is. Pixels. */
export type Covered = Pick<DOMRect, 'left' | 'top' | 'right' | 'bottom'>;

/**
 * Places each label where no driver, no card and no earlier label is. A driver's name is right of
 * its place, else left, above or below. A fence's name is at its middle, else above or below, else
 * at its upper or lower edge, inside or outside. A label without room is left out.
 */
export function place(labels: readonly Label[], measure: (text: string) => number, width: number, height: number, covered: readonly Covered[] = [], scale = 1): Placed[] {
  const placed: Placed[] = [];
  const [line, nextLine, dotReach] = [HEIGHT_PX, NEXT_LINE_PX, DOT_PX].map((pixels) => pixels * scale);
  // Names do not cover drivers.
  const dots = labels.filter(({ gap }) => gap > 0);
  const coversDriver = (label: Label, left: number, middle: number, wide: number) =>
    dots.some((dot) => {
      const reach = dot.reach ?? dotReach;
      return dot !== label && dot.x > left - reach && dot.x < left + wide + reach && Math.abs(dot.y - middle) < line / 2 + reach;
    });
  const isFree = (left: number, middle: number, wide: number) =>
    left >= 2 && left + wide <= width - 2 && middle >= line / 2 && middle <= height - line / 2 &&
    covered.every((card) => left >= card.right || left + wide <= card.left || middle - line / 2 >= card.bottom || middle + line / 2 <= card.top) &&
    placed.every((other) => left >= other.left + other.width + 4 || other.left >= left + wide + 4 || Math.abs(middle - other.middle) >= line);
  const edges = (edge: number) => [line - edge, edge - line, -line - edge, edge + line].filter((down) => edge > 0 && Math.abs(down) > nextLine);
  for (const label of labels.filter(({ text }) => text !== '')) {
    const { x, y, gap } = label;
    const wide = measure(label.text);
    const spots: [left: number, middle: number][] = gap === 0 ? [0, -nextLine, nextLine, ...edges(label.edge ?? 0)].map((down) => [x - wide / 2, y + down]) : [[x + gap, y], [x - gap - wide, y], [x - wide / 2, y - gap - 4], [x - wide / 2, y + gap + 4]];
    // The chosen driver has its name even among others.
    const free = spots.filter(([left, middle]) => isFree(left, middle, wide));
    const spot = free.find(([left, middle]) => !coversDriver(label, left, middle, wide)) ?? (label.kind === 'chosen' ? free[0] : undefined);
    if (spot) placed.push({ ...label, left: spot[0], middle: spot[1], width: wide });
  }
  return placed;
}

export class Labels {
  private readonly canvas = document.createElement('canvas');
  private readonly context = this.canvas.getContext('2d')!;
  private readonly widths = new Map<string, number>();
  placed: Placed[] = [];
  theme: Theme;
  private covered: Covered[] = [];
  private measuredAt = -Infinity;
  private font = '';

  constructor(
    private readonly map: MapLibre,
    theme: Theme,
    /** Returns the factor by which letters are larger, on a large screen. */
    private readonly scale: () => number,
    private readonly wanted: () => Label[],
    /** Returns the areas of discs and of alerts' marks. */
    private readonly symbols: () => Covered[],
  ) {
    this.theme = theme;
    this.canvas.className = 'labels';
    this.canvas.ariaHidden = 'true';
    // Above the canvas of tracks and discs, which is among the map's controls.
    map.getContainer().append(this.canvas);
    map.on('render', () => this.draw());
  }

  draw(): void {
    const { canvas, context, map } = this;
    const { clientWidth: width, clientHeight: height } = map.getContainer();
    const ratio = devicePixelRatio;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
      canvas.style.width = `${width}px`;
      canvas.style.height = `${height}px`;
    }
    const labels = this.wanted();
    const isEmpty = labels.length === 0;
    if (isEmpty && this.placed.length === 0) return;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    const scale = this.scale();
    const font = `600 ${12 * scale}px "Inter Variable", system-ui, sans-serif`;
    if (font !== this.font) this.widths.clear();
    this.font = context.font = font;
    context.textBaseline = 'middle';
    context.lineJoin = 'round';
    context.lineWidth = 3.5 * scale;
    this.placed = place(labels, (text) => this.measure(text), width, height, [...this.cards(), ...this.symbols()], scale);
    const colours = COLOURS[this.theme];
    context.strokeStyle = colours.rim;
    for (const { text, left, middle, kind } of this.placed) {
      context.strokeText(text, left, middle);
      context.fillStyle = colours[kind];
      context.fillText(text, left, middle);
    }
  }

  /**
   * Returns the areas of the cards. They are not measured for every frame, because that costs a
   * layout of the page.
   */
  private cards(): readonly Covered[] {
    const now = performance.now();
    if (now - this.measuredAt > CARDS_MS) {
      this.measuredAt = now;
      this.covered = [...document.querySelectorAll<HTMLElement>('.card:not([hidden], #tip), .maplibregl-ctrl-bottom-right > *')].map((card) => card.getBoundingClientRect());
    }
    return this.covered;
  }

  private measure(text: string): number {
    let width = this.widths.get(text);
    if (width === undefined) {
      if (this.widths.size > 5_000) this.widths.clear();
      width = this.context.measureText(text).width;
      this.widths.set(text, width);
    }
    return width;
  }
}

// Paints the drivers with the CPU, on a machine without a graphics card: the same discs and noses
// as in driver-layer.ts, in an image. WebGL in software takes about 100 ms for 50,000 points,
// during which the whole page waits; this takes 6 ms.
import type { Map as MapLibre } from 'maplibre-gl';
import type { DriverData, DriverLook } from './driver-layer';
import { remaining } from './fleet';
import { SHAPES } from './states';
import { mercator, shorterX } from './tiles';

/** Number of headings with their own stamp. */
const HEADINGS = 32;

/** A driver's picture. A pixel is given by its offset in the image from the driver's middle. */
interface Stamp {
  /** Pixels that have the driver's colour only. */
  plain: Int32Array;
  /**
   * Pixels at the edge. For each, `cover` is the share of the pixel that the picture covers, and
   * `rim` the share of that which is rim; both in 256ths.
   */
  mixed: Int32Array;
  cover: Uint16Array;
  rim: Uint16Array;
}

export interface Image {
  width: number;
  height: number;
  /** Red, green, blue, alpha from the lowest byte. */
  pixels: Uint32Array;
}

/**
 * Maps a Mercator place, 0..1, to pixels of the image: the place times `world`, plus `left` and
 * `top`.
 */
export interface Projection {
  world: number;
  left: number;
  top: number;
}

/**
 * Returns whether the CPU draws WebGL. Browsers do not report that, so the name of the renderer
 * decides.
 */
export function isSoftwareRendered(): boolean {
  const gl = document.createElement('canvas').getContext('webgl2');
  const unmasked = gl?.getExtension('WEBGL_debug_renderer_info');
  const name = String(gl?.getParameter(unmasked?.UNMASKED_RENDERER_WEBGL ?? gl.RENDERER));
  gl?.getExtension('WEBGL_lose_context')?.loseContext();
  return /swiftshader|llvmpipe|softpipe|basic render|software/i.test(name);
}

/**
 * Pixels of 1080p, which a CPU draws in a tenth of a second. At 4K a frame takes seconds, and the
 * page waits for each.
 */
const SOFTWARE_PIXELS = 1920 * 1080;

/**
 * Returns the pixel ratio at which the CPU draws: the screen's, or less if that has more than
 * `SOFTWARE_PIXELS`.
 */
export const drawnRatio = (width: number, height: number, screen: number): number => Math.min(screen, Math.sqrt(SOFTWARE_PIXELS / Math.max(1, width * height)));

export class Dots {
  private readonly canvas = document.createElement('canvas');
  private readonly context = this.canvas.getContext('2d')!;
  private shown = new ImageData(1, 1);
  private image: Image = { width: 1, height: 1, pixels: new Uint32Array(1) };
  private brush = new Brush(1, false, 0, 1);
  private prepared = '';

  constructor(private readonly map: MapLibre) {
    this.canvas.className = 'dots';
    map.getCanvasContainer().append(this.canvas);
  }

  draw(data: DriverData | null, look: DriverLook): void {
    const { canvas, map } = this;
    canvas.hidden = !data || data.length === 0;
    if (canvas.hidden || !data) return;
    this.prepare(look);
    canvas.style.opacity = String(look.opacity);
    const world = 512 * 2 ** map.getZoom() * map.getPixelRatio();
    const { lat, lng } = map.getCenter();
    const [x, y] = mercator(lat, lng);
    const { image, brush } = this;
    image.pixels.fill(0);
    brush.paint(image, data, look, {
      world,
      left: shorterX(data.anchor[0] - x) * world + image.width / 2,
      top: (data.anchor[1] - y) * world + image.height / 2,
    });
    // Replaces the whole canvas. The margin of the image lies outside it.
    this.context.putImageData(this.shown, -2 * brush.reach, -2 * brush.reach);
  }

  private prepare({ radius, showHeadings, rim }: DriverLook): void {
    const { canvas, map } = this;
    const { width, height } = map.getCanvas();
    const ratio = map.getPixelRatio();
    const name = [width, height, ratio, radius, showHeadings, rim[3]].join();
    if (name === this.prepared) return;
    this.prepared = name;
    Object.assign(canvas, { width, height });
    Object.assign(canvas.style, { width: `${width / ratio}px`, height: `${height / ratio}px` });
    const reach = Brush.reach(radius * ratio, showHeadings);
    this.shown = new ImageData(width + 4 * reach, height + 4 * reach);
    this.image = { width: this.shown.width, height: this.shown.height, pixels: new Uint32Array(this.shown.data.buffer) };
    this.brush = new Brush(radius * ratio, showHeadings, rim[3], this.shown.width);
  }
}

/** Paints drivers of one size into images of one width. */
export class Brush {
  /** Pixels from the middle of a driver to just outside its picture. */
  readonly reach: number;
  /** A stamp for each heading, then one for each shape. */
  private readonly stamps: Stamp[];

  static reach(r: number, showHeadings: boolean): number {
    return Math.ceil(showHeadings ? 1.8 * r : 1.2 * r) + 1;
  }

  constructor(
    r: number,
    private readonly showHeadings: boolean,
    rimStrength: number,
    stride: number,
  ) {
    this.reach = Brush.reach(r, showHeadings);
    const headings = Array.from({ length: showHeadings ? HEADINGS : 0 }, (_, i) => (i * 2 * Math.PI) / HEADINGS);
    const shapes = [SHAPES.disc, SHAPES.square, SHAPES.ring, SHAPES.diamond];
    this.stamps = [...headings.map((heading) => stamp(r, heading, SHAPES.disc, rimStrength, this.reach, stride)), ...shapes.map((shape) => stamp(r, null, shape, rimStrength, this.reach, stride))];
  }

  /**
   * Paints all drivers except those whose picture would be cut off at the edge of the image, which
   * has a margin for them.
   */
  paint(image: Image, { length, attributes }: DriverData, { now, rim }: Pick<DriverLook, 'now' | 'rim'>, { world, left, top }: Projection): void {
    const { stamps, reach, showHeadings } = this;
    const { pixels, width } = image;
    const places = attributes.places.value;
    const moves = attributes.moves.value;
    const times = attributes.times.value;
    const headings = attributes.headings.value;
    const colours = new Uint32Array(attributes.colours.value.buffer);
    /** Index of the first stamp of a shape; the shapes -1, -2, … follow in this order. */
    const shapes = showHeadings ? HEADINGS : 0;
    const rimRb = rim[0] | (rim[2] << 16);
    const rimG = rim[1] << 8;
    const right = width - reach;
    const bottom = image.height - reach;
    const middleX = image.width / 2;
    for (let i = 0; i < length; i++) {
      const share = remaining(times[2 * i], times[2 * i + 1], now);
      const place = (places[2 * i] + moves[2 * i] * share) * world + left;
      // Moves the driver to the copy of the world that is nearest to the middle of the image.
      const x = Math.floor(place > middleX + world / 2 ? place - world : place < middleX - world / 2 ? place + world : place);
      const y = Math.floor((places[2 * i + 1] + moves[2 * i + 1] * share) * world + top);
      if (x < reach || y < reach || x >= right || y >= bottom) continue;
      const { plain, mixed, cover, rim: rims } = stamps[headings[i] < 0 ? shapes - 1 - headings[i] : showHeadings ? Math.round((headings[i] * HEADINGS) / 360) % HEADINGS : shapes];
      const middle = y * width + x;
      const colour = colours[i];
      for (let j = 0; j < plain.length; j++) pixels[middle + plain[j]] = colour;
      const rb = colour & 0xff00ff;
      const g = colour & 0xff00;
      for (let j = 0; j < mixed.length; j++) {
        const index = middle + mixed[j];
        const coverage = cover[j];
        const rimShare = rims[j];
        // Mixes red and blue in one multiplication: 8 free bits lie between them.
        const sourceRb = rimShare > 0 ? ((Math.imul(rb, 256 - rimShare) + Math.imul(rimRb, rimShare)) >>> 8) & 0xff00ff : rb;
        const sourceG = rimShare > 0 ? ((g * (256 - rimShare) + rimG * rimShare) >>> 8) & 0xff00 : g;
        const background = pixels[index];
        if (background === 0 || coverage === 256) {
          pixels[index] = sourceRb | sourceG | (Math.min(255, coverage) << 24);
          continue;
        }
        const mixedRb = ((Math.imul(background & 0xff00ff, 256 - coverage) + Math.imul(sourceRb, coverage)) >>> 8) & 0xff00ff;
        const mixedG = (((background & 0xff00) * (256 - coverage) + sourceG * coverage) >>> 8) & 0xff00;
        const alpha = background >>> 24;
        pixels[index] = mixedRb | mixedG | ((alpha + (((255 - alpha) * coverage) >>> 8)) << 24);
      }
    }
  }
}

/**
 * Draws a stamp, with the formulas of the fragment shader of driver-layer.ts. `heading` in radians;
 * null: the shape has no nose.
 */
function stamp(r: number, heading: number | null, shape: number, rimStrength: number, reach: number, stride: number): Stamp {
  const plain: number[] = [];
  const mixed: [at: number, cover: number, rim: number][] = [];
  for (let y = -reach; y <= reach; y++) {
    for (let x = -reach; x <= reach; x++) {
      // Signed distance to the outline, in pixels; negative inside.
      let distance = Math.hypot(x, y) - r;
      if (heading !== null) {
        const [ahead, down] = [Math.sin(heading), -Math.cos(heading)];
        const along = x * ahead + y * down;
        const aside = Math.abs(x * down - y * ahead);
        if (along > 0.5714 * r) distance = 0.5714 * (along - 1.75 * r) + 0.8207 * aside;
      } else if (r >= 3) {
        if (shape === SHAPES.diamond) distance = (Math.abs(x) + Math.abs(y) - 1.2 * r) * Math.SQRT1_2;
        else if (shape === SHAPES.ring) distance = Math.abs(Math.hypot(x, y) - 0.72 * r) - 0.28 * r;
        else if (shape === SHAPES.square) distance = Math.max(Math.abs(x), Math.abs(y)) - 0.86 * r;
      }
      const cover = Math.round(256 * Math.min(1, Math.max(0, 0.5 - distance)));
      const rim = r < 2.6 || shape === SHAPES.ring ? 0 : Math.round(256 * rimStrength * Math.min(1, Math.max(0, distance + 1.6)));
      if (cover === 0) continue;
      if (cover === 256 && rim === 0) plain.push(y * stride + x);
      else mixed.push([y * stride + x, cover, rim]);
    }
  }
  return {
    plain: Int32Array.from(plain),
    mixed: Int32Array.from(mixed, ([at]) => at),
    cover: Uint16Array.from(mixed, ([, cover]) => cover),
    rim: Uint16Array.from(mixed, ([, , rim]) => rim),
  };
}

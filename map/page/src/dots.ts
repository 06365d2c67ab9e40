// The drivers on a machine without a graphics card: the same discs and noses as in driver-layer.ts, painted by the CPU into an image.
// WebGL in software takes some 100 ms for 50,000 points, and so the whole page waits for it; this takes 6 ms.
import type { Map as MapLibre } from 'maplibre-gl';
import type { DriverData, DriverLook } from './driver-layer';
import { remaining } from './fleet';
import { mercator } from './tiles';

/** Headings that have a picture of their own. */
const HEADINGS = 32;

/** A picture of one driver as pixels, each by how far it is from the middle in the image. */
interface Stamp {
  /** Of the driver's colour alone. */
  plain: Int32Array;
  /** The others: how much of the pixel is covered, and how much of that is rim, of 256. */
  mixed: Int32Array;
  cover: Uint16Array;
  rim: Uint16Array;
}

/** Whether WebGL is drawn by the CPU. Browsers do not say so: it is the name of what draws. */
export function software(): boolean {
  const gl = document.createElement('canvas').getContext('webgl2');
  const unmasked = gl?.getExtension('WEBGL_debug_renderer_info');
  const name = String(gl?.getParameter(unmasked?.UNMASKED_RENDERER_WEBGL ?? gl.RENDERER));
  gl?.getExtension('WEBGL_lose_context')?.loseContext();
  return /swiftshader|llvmpipe|softpipe|basic render|software/i.test(name);
}

export class Dots {
  private readonly canvas = document.createElement('canvas');
  private readonly context = this.canvas.getContext('2d')!;
  private image = new ImageData(1, 1);
  private pixels = new Uint32Array(1);
  /** Of all headings, then of none; for these sizes. */
  private stamps: Stamp[] = [];
  private stamped = '';
  /** Pixels from the middle of a picture to its edge. */
  private reach = 0;

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
    const { width, height } = canvas;
    const world = 512 * 2 ** map.getZoom() * map.getPixelRatio();
    const { lat, lng } = map.getCenter();
    const [x, y] = mercator(lat, lng);
    this.pixels.fill(0);
    this.paint(data, look, world, (data.anchor[0] - x) * world + width / 2, (data.anchor[1] - y) * world + height / 2);
    // It hides all that was there.
    this.context.putImageData(this.image, -2 * this.reach, -2 * this.reach);
  }

  /** An image with a margin: who is on the edge needs no look at each pixel. */
  private prepare({ radius, noses, rim }: DriverLook): void {
    const { canvas, map } = this;
    const { width, height } = map.getCanvas();
    const ratio = map.getPixelRatio();
    const name = [width, height, ratio, radius, noses, rim[3]].join();
    if (name === this.stamped) return;
    this.stamped = name;
    Object.assign(canvas, { width, height });
    Object.assign(canvas.style, { width: `${width / ratio}px`, height: `${height / ratio}px` });
    const r = radius * ratio;
    this.reach = Math.ceil(noses ? 1.8 * r : r) + 1;
    this.image = new ImageData(width + 4 * this.reach, height + 4 * this.reach);
    this.pixels = new Uint32Array(this.image.data.buffer);
    const headings = Array.from({ length: noses ? HEADINGS : 0 }, (_, i) => (i * 2 * Math.PI) / HEADINGS);
    this.stamps = [...headings, null].map((heading) => stamp(r, heading, rim[3], this.reach, this.image.width));
  }

  private paint({ length, attributes }: DriverData, { now, noses, rim }: DriverLook, world: number, left: number, top: number): void {
    const { pixels, stamps, reach, image } = this;
    const places = attributes.places.value;
    const ways = attributes.ways.value;
    const times = attributes.times.value;
    const headings = attributes.headings.value;
    const colours = new Uint32Array(attributes.colours.value.buffer);
    const none = stamps[stamps.length - 1];
    const rimRb = rim[0] | (rim[2] << 16);
    const rimG = rim[1] << 8;
    const right = image.width - reach;
    const bottom = image.height - reach;
    for (let i = 0; i < length; i++) {
      const part = remaining(times[2 * i], times[2 * i + 1], now);
      const x = Math.floor((places[2 * i] + ways[2 * i] * part) * world + left) + 2 * reach;
      const y = Math.floor((places[2 * i + 1] + ways[2 * i + 1] * part) * world + top) + 2 * reach;
      if (x < reach || y < reach || x >= right || y >= bottom) continue;
      const nosed = noses && headings[i] >= 0;
      const { plain, mixed, cover, rim: rims } = nosed ? stamps[Math.round((headings[i] * HEADINGS) / 360) % HEADINGS] : none;
      const middle = y * image.width + x;
      const colour = colours[i];
      for (let j = 0; j < plain.length; j++) pixels[middle + plain[j]] = colour;
      const rb = colour & 0xff00ff;
      const g = colour & 0xff00;
      for (let j = 0; j < mixed.length; j++) {
        const at = middle + mixed[j];
        const k = cover[j];
        const q = rims[j];
        // Red and blue in one go: 8 bits lie between them.
        let sourceRb = rb;
        let sourceG = g;
        if (q > 0) {
          sourceRb = ((Math.imul(rb, 256 - q) + Math.imul(rimRb, q)) >>> 8) & 0xff00ff;
          sourceG = ((g * (256 - q) + rimG * q) >>> 8) & 0xff00;
        }
        const below = pixels[at];
        if (below === 0 || k === 256) {
          pixels[at] = sourceRb | sourceG | (Math.min(255, k) << 24);
          continue;
        }
        const mixedRb = ((Math.imul(below & 0xff00ff, 256 - k) + Math.imul(sourceRb, k)) >>> 8) & 0xff00ff;
        const mixedG = (((below & 0xff00) * (256 - k) + sourceG * k) >>> 8) & 0xff00;
        const alpha = below >>> 24;
        pixels[at] = mixedRb | mixedG | ((alpha + (((255 - alpha) * k) >>> 8)) << 24);
      }
    }
  }
}

/** What the fragment shader of driver-layer.ts computes for each pixel, once. `heading` in radians, null: none. */
function stamp(r: number, heading: number | null, rimStrength: number, reach: number, stride: number): Stamp {
  const plain: number[] = [];
  const mixed: [at: number, cover: number, rim: number][] = [];
  for (let y = -reach; y <= reach; y++) {
    for (let x = -reach; x <= reach; x++) {
      let far = Math.hypot(x, y) - r;
      if (heading !== null) {
        const [ahead, down] = [Math.sin(heading), -Math.cos(heading)];
        const along = x * ahead + y * down;
        const aside = Math.abs(x * down - y * ahead);
        if (along > 0.5714 * r) far = 0.5714 * (along - 1.75 * r) + 0.8207 * aside;
      }
      const cover = Math.round(256 * Math.min(1, Math.max(0, 0.5 - far)));
      const rim = r < 2.6 ? 0 : Math.round(256 * rimStrength * Math.min(1, Math.max(0, far + 1.6)));
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

// Draws all drivers as points in one call: a disc with a nose towards the heading, or the shape of
// the state (states.ts). The GPU moves them between fixes, so a frame uploads no data. Places on
// the Web Mercator map are computed only when the drivers change. Without a graphics card,
// computing them for each frame would be most of the frame's cost.
import { Layer, type DefaultProps, type LayerProps, type UpdateParameters } from '@deck.gl/core';
import { Model } from '@luma.gl/engine';
import { mercator, shorterX } from './tiles';

const uniforms = `\
layout(std140) uniform driversUniforms {
  vec2 scale;
  vec2 shift;
  float now;
  float radius;
  float noses;
  float opacity;
  vec4 rim;
} drivers;
`;

const driversModule = {
  name: 'drivers',
  vs: uniforms,
  fs: uniforms,
  uniformTypes: { scale: 'vec2<f32>', shift: 'vec2<f32>', now: 'f32', radius: 'f32', noses: 'f32', opacity: 'f32', rim: 'vec4<f32>' },
} as const;

const vs = `\
#version 300 es
#define SHADER_NAME driver-layer-vertex
in vec2 places;
in vec2 moves;
in vec2 times;
in float headings;
in vec4 colours;
out vec4 vColour;
out vec2 vAhead;
flat out float vShape;

void main(void) {
  // Share of the move that remains, by the formula of remaining() in fleet.ts.
  float left = times.y > 0.0 ? clamp(1.0 - (drivers.now - times.x) / times.y, 0.0, 1.0) : 0.0;
  vec2 at = (places + moves * left) * drivers.scale + drivers.shift;
  // Moves the driver to the copy of the world that is nearest to the middle of the view.
  at.x -= drivers.scale.x * round(at.x / drivers.scale.x);
  gl_Position = vec4(at, 0.0, 1.0);
  bool nose = drivers.noses > 0.5 && headings >= 0.0;
  // The square has room for the rim; a nose reaches 1.75 times the radius.
  gl_PointSize = 2.0 * ((nose ? 1.8 : 1.2) * drivers.radius + 1.0);
  vAhead = nose ? vec2(sin(radians(headings)), -cos(radians(headings))) : vec2(0.0);
  vColour = colours;
  vShape = headings;
}
`;

const fs = `\
#version 300 es
#define SHADER_NAME driver-layer-fragment
precision highp float;
in vec4 vColour;
in vec2 vAhead;
flat in float vShape;
out vec4 fragColor;

void main(void) {
  float r = drivers.radius;
  bool nose = dot(vAhead, vAhead) > 0.5;
  vec2 pixel = (gl_PointCoord - 0.5) * 2.0 * ((nose ? 1.8 : 1.2) * r + 1.0);
  // Signed distance to the outline, in pixels; negative inside.
  float far = length(pixel) - r;
  if (nose) {
    // The two tangents from the tip, at 1.75 r, to the disc.
    float along = dot(pixel, vAhead);
    float aside = abs(pixel.x * vAhead.y - pixel.y * vAhead.x);
    if (along > 0.5714 * r) far = 0.5714 * (along - 1.75 * r) + 0.8207 * aside;
  } else if (r >= 3.0) {
    // Diamond, ring and square have roughly the same area as the disc.
    if (vShape < -3.5) far = (abs(pixel.x) + abs(pixel.y) - 1.2 * r) * 0.7071;
    else if (vShape < -2.5) far = abs(length(pixel) - 0.72 * r) - 0.28 * r;
    else if (vShape < -1.5) far = max(abs(pixel.x), abs(pixel.y)) - 0.86 * r;
  }
  float inside = clamp(0.5 - far, 0.0, 1.0);
  if (inside <= 0.0) discard;
  // A ring is too thin for a rim.
  float rim = vShape < -2.5 && vShape > -3.5 ? 0.0 : clamp(far + 1.6, 0.0, 1.0) * step(2.6, r);
  fragColor = vec4(mix(vColour.rgb, drivers.rim.rgb, rim * drivers.rim.a), vColour.a * inside * drivers.opacity);
}
`;

/** Attributes of the drivers, from `driverData`; the layer uploads each new object. */
export interface DriverData {
  length: number;
  /**
   * Mercator, 0..1. Places are offsets from this point, so that 32 bits are enough at every zoom.
   */
  anchor: readonly [number, number];
  attributes: Record<string, { value: Float32Array | Uint8ClampedArray; size: number }>;
}

export interface DriverColumns {
  n: number;
  lat: Float64Array;
  lng: Float64Array;
  dLat: Float32Array;
  dLng: Float32Array;
  start: Float32Array;
  duration: Float32Array;
  /** Degrees; below 0: the code of a shape. */
  headings: Float32Array;
  colours: Uint8ClampedArray;
}

export function driverData({ n, lat, lng, dLat, dLng, start, duration, headings, colours }: DriverColumns): DriverData {
  const places = new Float32Array(n * 2);
  const moves = new Float32Array(n * 2);
  const times = new Float32Array(n * 2);
  const anchor = n > 0 ? mercator(lat[0], lng[0]) : ([0, 0] as [number, number]);
  for (let i = 0; i < n; i++) {
    const [x, y] = mercator(lat[i], lng[i]);
    places[2 * i] = shorterX(x - anchor[0]);
    places[2 * i + 1] = y - anchor[1];
    if (dLat[i] !== 0 || dLng[i] !== 0) {
      const [fromX, fromY] = mercator(lat[i] + dLat[i], lng[i] + dLng[i]);
      moves[2 * i] = fromX - x;
      moves[2 * i + 1] = fromY - y;
    }
    times[2 * i] = start[i];
    times[2 * i + 1] = duration[i];
  }
  return {
    length: n,
    anchor,
    attributes: {
      places: { value: places, size: 2 },
      moves: { value: moves, size: 2 },
      times: { value: times, size: 2 },
      headings: { value: headings.slice(0, n), size: 1 },
      colours: { value: colours.slice(0, 4 * n), size: 4 },
    },
  };
}

interface Props {
  /** Seconds on the clock of `times`. */
  now: number;
  /** Pixels. */
  radius: number;
  showHeadings: boolean;
  /** Red, green and blue 0..255, and strength 0..1. */
  rim: [number, number, number, number];
}

export type DriverLook = Props & { opacity: number };

export type DriverLayerProps = LayerProps & Props & { data: DriverData };

export class DriverLayer extends Layer<Props> {
  static override layerName = 'DriverLayer';
  static override defaultProps: DefaultProps<Props> = { now: 0, radius: 5, showHeadings: true, rim: { type: 'array', value: [0, 0, 0, 0.5] } };
  declare state: { model?: Model };

  override getShaders() {
    return super.getShaders({ vs, fs, modules: [driversModule] });
  }

  override initializeState(): void {
    this.getAttributeManager()!.add({
      places: { size: 2, noAlloc: true },
      moves: { size: 2, noAlloc: true },
      times: { size: 2, noAlloc: true },
      headings: { size: 1, noAlloc: true },
      colours: { size: 4, type: 'unorm8', noAlloc: true },
    });
  }

  override getNumInstances(): number {
    return 0;
  }

  override updateState(params: UpdateParameters<this>): void {
    super.updateState(params);
    if (params.changeFlags.extensionsChanged) {
      this.state.model?.destroy();
      this.state.model = new Model(this.context.device, {
        ...this.getShaders(),
        id: this.props.id,
        bufferLayout: this.getAttributeManager()!.getBufferLayouts(),
        topology: 'point-list',
      });
      this.getAttributeManager()!.invalidateAll();
    }
    this.state.model?.setVertexCount((this.props.data as unknown as DriverData).length);
  }

  override draw(): void {
    const { now, radius, showHeadings, rim, opacity, data } = this.props;
    const { anchor, length } = data as unknown as DriverData;
    if (length === 0) return;
    const { viewport } = this.context;
    const { width, height, zoom, longitude, latitude } = viewport as unknown as Record<'width' | 'height' | 'zoom' | 'longitude' | 'latitude', number>;
    // deck.gl calls this for each copy of the world in view; the one in the middle draws all
    // drivers.
    if (Math.abs(viewport.project([longitude, latitude])[0] - width / 2) > 1) return;
    // The map is flat with north up (view.ts), so clip space is Mercator, moved and scaled. The
    // shift is computed in doubles, because it is a small difference of large numbers.
    const world = 512 * 2 ** zoom;
    const [x, y] = mercator(latitude, longitude);
    const scale: [number, number] = [(2 * world) / width, (-2 * world) / height];
    const [red, green, blue, strength] = rim;
    const model = this.state.model!;
    model.shaderInputs.setProps({
      drivers: {
        scale,
        shift: [shorterX(anchor[0] - x) * scale[0], (anchor[1] - y) * scale[1]],
        now,
        radius: radius * this.context.device.canvasContext!.cssToDeviceRatio(),
        noses: showHeadings ? 1 : 0,
        opacity,
        rim: [red / 255, green / 255, blue / 255, strength],
      },
    });
    model.draw(this.context.renderPass);
  }
}

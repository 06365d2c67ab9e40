// The drivers as one instanced draw: a disc, with a nose where it is heading. The GPU moves them between fixes, so a frame costs no data.
import { Layer, project32, type DefaultProps, type LayerProps, type UpdateParameters } from '@deck.gl/core';
import { Geometry, Model } from '@luma.gl/engine';

const uniforms = `\
layout(std140) uniform driversUniforms {
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
  uniformTypes: { now: 'f32', radius: 'f32', noses: 'f32', opacity: 'f32', rim: 'vec4<f32>' },
} as const;

const vs = `\
#version 300 es
#define SHADER_NAME driver-layer-vertex
in vec2 positions;
in vec2 instancePlaces;
in vec2 instancePlaces64Low;
in vec2 instanceWays;
in vec2 instanceTimes;
in float instanceHeadings;
in vec4 instanceColours;
out vec2 vPixel;
out vec4 vColour;
out float vNose;

void main(void) {
  // remaining() in fleet.ts. The way that is left is small: it goes to the low part, where it loses no digits.
  float left = instanceTimes.y > 0.0 ? clamp(1.0 - (drivers.now - instanceTimes.x) / instanceTimes.y, 0.0, 1.0) : 0.0;
  vec3 low = vec3(instancePlaces64Low + instanceWays * left, 0.0);
  gl_Position = project_position_to_clipspace(vec3(instancePlaces, 0.0), low, vec3(0.0));
  vNose = drivers.noses * step(0.0, instanceHeadings);
  // A nose reaches to twice the radius.
  float reach = (vNose > 0.5 ? 2.0 * drivers.radius : drivers.radius) + 1.0;
  vPixel = positions * reach;
  float turn = vNose * radians(instanceHeadings);
  // Clockwise from north; pixels go up here.
  vec2 offset = vec2(vPixel.x * cos(turn) + vPixel.y * sin(turn), vPixel.y * cos(turn) - vPixel.x * sin(turn));
  gl_Position.xy += project_pixel_size_to_clipspace(offset);
  vColour = instanceColours;
}
`;

const fs = `\
#version 300 es
#define SHADER_NAME driver-layer-fragment
precision highp float;
in vec2 vPixel;
in vec4 vColour;
in float vNose;
out vec4 fragColor;

void main(void) {
  float r = drivers.radius;
  float far = length(vPixel) - r;
  if (vNose > 0.5) {
    // The two tangents from the tip, at 1.75 r, to the disc.
    float side = 0.5714 * (vPixel.y - 1.75 * r) + 0.8207 * abs(vPixel.x);
    far = min(far, vPixel.y > 0.5714 * r ? side : far);
  }
  float inside = clamp(0.5 - far, 0.0, 1.0);
  if (inside <= 0.0) discard;
  float rim = clamp(far + 1.6, 0.0, 1.0) * step(2.6, r);
  vec3 colour = mix(vColour.rgb, drivers.rim.rgb, rim * drivers.rim.a);
  fragColor = vec4(colour, vColour.a * inside * drivers.opacity);
}
`;

export interface DriverData {
  length: number;
  attributes: Record<string, { value: Float64Array | Float32Array | Uint8ClampedArray; size: number }>;
}

interface Props {
  /** Seconds on the clock of `instanceTimes`. */
  now: number;
  /** Pixels. */
  radius: number;
  noses: boolean;
  rim: [number, number, number, number];
}

export type DriverLayerProps = LayerProps & Props & { data: DriverData };

export class DriverLayer extends Layer<Props> {
  static override layerName = 'DriverLayer';
  static override defaultProps: DefaultProps<Props> = { now: 0, radius: 5, noses: true, rim: { type: 'array', value: [0, 0, 0, 0.5] } };
  declare state: { model?: Model };

  override getShaders() {
    return super.getShaders({ vs, fs, modules: [project32, driversModule] });
  }

  override initializeState(): void {
    this.getAttributeManager()!.addInstanced({
      instancePlaces: { size: 2, type: 'float64', fp64: this.use64bitPositions(), noAlloc: true },
      instanceWays: { size: 2, noAlloc: true },
      instanceTimes: { size: 2, noAlloc: true },
      instanceHeadings: { size: 1, noAlloc: true },
      instanceColours: { size: 4, type: 'unorm8', noAlloc: true },
    });
  }

  override updateState(params: UpdateParameters<this>): void {
    super.updateState(params);
    if (!params.changeFlags.extensionsChanged) return;
    this.state.model?.destroy();
    this.state.model = new Model(this.context.device, {
      ...this.getShaders(),
      id: this.props.id,
      bufferLayout: this.getAttributeManager()!.getBufferLayouts(),
      geometry: new Geometry({
        topology: 'triangle-strip',
        attributes: { positions: { size: 2, value: new Float32Array([-1, -1, 1, -1, -1, 1, 1, 1]) } },
      }),
      isInstanced: true,
    });
    this.getAttributeManager()!.invalidateAll();
  }

  override draw(): void {
    const { now, radius, noses, rim, opacity } = this.props;
    const [red, green, blue, strength] = rim;
    const model = this.state.model!;
    model.shaderInputs.setProps({
      drivers: { now, radius, noses: noses ? 1 : 0, opacity, rim: [red / 255, green / 255, blue / 255, strength] },
    });
    model.draw(this.context.renderPass);
  }
}

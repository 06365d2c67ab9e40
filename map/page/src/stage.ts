// The map with all that is on it. Loaded after the page itself: it brings the large libraries.
import type { Map as MapLibre } from 'maplibre-gl';
import type { Config, Fix, Found, Tick } from './api';
import { repaint } from './background';
import { byId } from './dom';
import { Dots, software } from './dots';
import { Fences } from './fences';
import { format, parse, type Shared } from './hash';
import { Heat } from './heat';
import { LiveTiles } from './live';
import { Panel } from './panel';
import { player, type Player } from './player';
import { Replay } from './replay';
import { Scene } from './scene';
import type { ColourBy, Theme } from './colours';
import { tip, under } from './tip';
import { area } from './track';
import { bounds, view } from './view';
import { whereabouts } from './whereabouts';

/** Close enough that every driver is a dot of its own. */
const CLOSE_ZOOM = 14.5;
const PAN_PX = 120;
/** A finger is no pointer. */
const TOUCH_PX = 14;

export interface Stage {
  readonly map: MapLibre;
  readonly scene: Scene;
  readonly heat: Heat;
  readonly fences: Fences;
  readonly panel: Panel;
  readonly player: Player;
  readonly replay: Replay;
  tick(tick: Tick, isFirst: boolean): void;
  find(id: string): Promise<void>;
  /** Rings around them. */
  mark(found: Found[]): void;
  fit(): Promise<void>;
  colour(by: ColourBy): void;
  setTheme(theme: Theme): void;
  pan(x: number, y: number): void;
  /** Closes the topmost of what is open. */
  escape(): void;
}

export async function makeStage({ style_url: styleUrl, edits_fences }: Config, theme: Theme, shared: Shared): Promise<Stage> {
  // Counts are drawn from this font: it must be there first.
  const font = document.fonts.load('600 16px "Inter Variable"').catch(() => []);
  const slow = software();
  const { map, overlay } = await view(byId('map', HTMLElement), styleUrl, theme, shared.place, slow);
  await font;

  const scene = new Scene(map, overlay, slow ? new Dots(map) : null, theme, rem);
  const tiles = new LiveTiles((shown) => scene.show(shown, map.getZoom()));
  const look = () => tiles.look(bounds(map), map.getZoom());
  const fences = new Fences(map, edits_fences);
  const heat = new Heat(map, (on) => scene.setQuiet(on));
  const slider = player(() => (replay.isPlaying ? replay.toggle() : panel.closeTrack()));
  const replay = new Replay({
    bounds: () => bounds(map),
    play(film) {
      panel.closeTrack();
      slider.open(film);
      slider.toggle();
    },
    show: (drivers) => scene.showPast(drivers),
    stop: () => slider.close(),
  });
  let lastCentred = '';
  const panel = new Panel({
    player: {
      open(film) {
        if (replay.isPlaying) replay.toggle();
        slider.open(film);
      },
      close() {
        if (!replay.isPlaying) slider.close();
      },
      seek: (ms) => slider.seek(ms),
    },
    chosen(fix: Fix | null) {
      scene.choose(fix && { id: fix.driver_id, lng: fix.lng, lat: fix.lat });
      const centred = fix && panel.isFollowed ? `${fix.driver_id} ${fix.ts}` : '';
      if (fix && centred && centred !== lastCentred) centre(fix, map.getZoom(), 1000);
      lastCentred = centred;
    },
    tracked(track) {
      if (!track) return scene.showTrack(null);
      fitTo(area(track.points));
    },
    played(track, ms) {
      scene.showTrack({ track, ms });
      panel.played(ms);
    },
    shared: remember,
  });

  function fitTo(box: { west: number; south: number; east: number; north: number }): void {
    map.fitBounds([box.west, box.south, box.east, box.north], { padding: padding(), maxZoom: 16.5, duration: 600, essential: false });
  }

  async function fit(): Promise<void> {
    const box = await whereabouts(AbortSignal.timeout(10_000)).catch(() => null);
    if (box) fitTo(box);
  }

  async function find(id: string): Promise<void> {
    await panel.open(id);
    const { fix } = panel;
    if (!fix || panel.id !== id) return;
    centre(fix, Math.max(map.getZoom(), CLOSE_ZOOM), 700);
  }

  /** In the middle of what no card covers. */
  function centre({ lng, lat }: Fix, zoom: number, duration: number): void {
    // Not as padding: the map would keep it, and fitTo's would come on top, more than a phone is high.
    const { top, bottom, left, right } = padding();
    map.easeTo({ center: [lng, lat], zoom, offset: [(left - right) / 2, (top - bottom) / 2], duration });
  }

  function remember(): void {
    const { lng, lat } = map.getCenter();
    const hash = format({ place: { zoom: map.getZoom(), lat, lng }, driver: panel.id, day: panel.day });
    // Not a step of the history: a map would fill it.
    if (hash !== location.hash) history.replaceState(null, '', hash);
  }

  map.on('click', (event) => {
    if (scene.quiet || fences.isDrawing) return;
    const found = under(map, scene, event, TOUCH_PX);
    if (!found) return;
    if ('driver' in found) void panel.open(scene.fleet.ids[found.driver]);
    else map.easeTo({ center: [found.disc.lng, found.disc.lat], zoom: map.getZoom() + 2, duration: 500 });
  });
  map.on('dragstart', () => panel.follow(false));
  map.on('moveend', () => {
    look();
    remember();
  });
  addEventListener('hashchange', () => {
    const { place, driver, day } = parse(location.hash);
    if (place) map.jumpTo({ center: [place.lng, place.lat], zoom: place.zoom });
    if (driver) void panel.open(driver, day);
    else panel.close();
  });
  byId('fit', HTMLButtonElement).addEventListener('click', () => void fit());
  tip(map, scene);

  let wasAway = false;
  /** It began before there was anybody: the first drivers are shown when they come. */
  let waiting = false;
  if (!shared.place) {
    const box = await whereabouts(AbortSignal.timeout(10_000)).catch(() => null);
    if (box) map.fitBounds([box.west, box.south, box.east, box.north], { padding: padding(), maxZoom: 15, duration: 0 });
    waiting = !box;
    map.once('dragstart', () => (waiting = false));
  }
  look();
  if (shared.driver) {
    const { driver, day } = shared;
    // A link without a place: where the driver is.
    void (shared.place ? panel.open(driver, day) : find(driver).then(() => panel.open(driver, day)));
  }

  return {
    map,
    scene,
    heat,
    fences,
    panel,
    player: slider,
    replay,
    find,
    mark: (found) => scene.mark(found),
    fit,
    tick(tick, isFirst) {
      const asks = tiles.tick(tick.generation, isFirst);
      if (!asks && scene.colourBy === 'age') scene.restyle();
      // Others may have changed them meanwhile, or there was no answer.
      if (isFirst || (wasAway && tick.state !== 'away')) void fences.load();
      wasAway = tick.state === 'away';
      if (waiting && tick.drivers > 0) {
        waiting = false;
        void fit();
      }
      void panel.refresh();
    },
    colour(by) {
      scene.colourBy = by;
      scene.restyle();
    },
    setTheme(next) {
      scene.theme = next;
      if (!styleUrl) repaint(map, next);
      scene.restyle();
    },
    pan: (x, y) => map.panBy([x * PAN_PX, y * PAN_PX], { duration: 200 }),
    escape() {
      if (fences.isOpen) fences.toggle();
      else if (heat.on) heat.toggle();
      else if (replay.isOpen) replay.toggle();
      else if (slider.isOpen) panel.closeTrack();
      else panel.close();
    },
  };
}

/** How much larger than on a laptop everything is. */
const rem = (): number => parseFloat(getComputedStyle(document.documentElement).fontSize) / 16;

/** What the cards cover. */
function padding(): { top: number; bottom: number; left: number; right: number } {
  const unit = 16 * rem();
  const panelBox = byId('panel', HTMLElement);
  const narrow = innerWidth <= 640;
  const open = !panelBox.hidden;
  return {
    top: (narrow ? 11.5 : 5.5) * unit,
    // The player and, on a phone, the panel above it.
    bottom: Math.max(6 * unit, ...['player', ...(narrow ? ['panel'] : [])].map((id) => byId(id, HTMLElement)).filter(({ hidden }) => !hidden).map((card) => innerHeight - card.offsetTop + 2 * unit)),
    left: (narrow ? 1.5 : 4) * unit,
    right: !narrow && open ? 25 * unit : (narrow ? 1.5 : 4) * unit,
  };
}

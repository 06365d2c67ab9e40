// The map with everything on it. Loaded after the page itself, because it needs the large
// libraries.
import type { Map as MapLibre, PointLike } from 'maplibre-gl';
import { EVERYBODY, type Config, type Fix, type Found, type Tick } from './api';
import { Alerts } from './alerts';
import { repaint } from './background';
import { byId, isNarrow } from './dom';
import { Dots, isSoftwareRendered } from './dots';
import { keepOwnLayers } from './fence-layers';
import { Fences } from './fences';
import { format, parse, type Shared } from './hash';
import { seconds } from './clock';
import { Labels, type Label } from './labels';
import { Names } from './names';
import { middle, placeName } from './places';
import { setLimits, SHOWN, type DriverState } from './states';
import { Heat } from './heat';
import { LiveTiles } from './live';
import { Panel } from './panel';
import { player, type Player } from './player';
import { Replay, type Moment } from './replay';
import { MARK_PX, Scene } from './scene';
import type { ColourBy, Theme } from './colours';
import { tip, pickAt } from './tip';
import { area } from './track';
import { bounds, createMap, project } from './view';
import { areaFor } from './whereabouts';

/** Zoom at which a found driver is shown: every driver is a separate dot. */
const CLOSE_ZOOM = 14.5;
const PAN_PX = 120;
/** From this zoom on, drivers have names if at most `LABELS_MAX` are drawn. */
const LABEL_ZOOM = 9;
const LABELS_MAX = 300;
/** A fence has its name in it if it is at least this wide. */
const FENCE_LABEL_PX = 40;
/** Maximum width of a fence that has a name and can be clicked, in widths of the map. */
const FENCE_WIDEST = 2;
/** Interval at which colours and shapes are updated without new fixes. */
const RESTYLE_MS = 10_000;
/**
 * Distance in pixels within which a click or tap finds a driver. It is large because a finger is
 * less precise than a mouse.
 */
const TOUCH_PX = 14;

export interface Stage {
  readonly map: MapLibre;
  readonly scene: Scene;
  readonly heat: Heat;
  readonly fences: Fences;
  readonly panel: Panel;
  readonly player: Player;
  readonly replay: Replay;
  readonly alerts: Alerts;
  readonly labels: Labels;
  /** Draws only drivers in these states and, unless it is empty, in this group. */
  filter(shown: readonly DriverState[], group: string): void;
  tick(tick: Tick, isFirst: boolean): void;
  find(id: string): Promise<void>;
  /** Draws rings around these drivers. */
  mark(found: Found[]): void;
  fit(): Promise<void>;
  colour(by: ColourBy): void;
  setTheme(theme: Theme): void;
  /** Writes speeds and times again. Called when units or zone have changed. */
  redraw(): void;
  pan(x: number, y: number): void;
  /** Called before the list of drivers opens. */
  openingList(): void;
  /** Closes the topmost open card. */
  escape(): void;
}

interface Options {
  /** Called with the moment of a replay; null: the map shows the present again. */
  replayed(moment: Moment | null): void;
  /** Called when the map shows a track, and when it no longer does. */
  tracked(hasTrack: boolean): void;
  /** Called with the group of another link that the viewer opens; empty: every group. */
  grouped(group: string): void;
  /** Group that is chosen in the list; empty: every group. It may change while the map loads. */
  group(): string;
  /** Closes the list of drivers, if it is open. */
  closeList(): void;
  /** Shows above the map which fences were not saved; empty: all were. */
  warn(text: string): void;
}

export async function makeStage(config: Config, theme: Theme, shared: Shared, options: Options): Promise<Stage> {
  const { style_url: styleUrl, edits_fences } = config;
  setLimits(config.silent_after_s, config.hidden_after_s);
  // Counts are drawn in this font, so it must have loaded before.
  const font = document.fonts.load('600 16px "Inter Variable"').catch(() => []);
  const slow = isSoftwareRendered();
  const streets = config.has_basemap && !styleUrl ? await import('./streets') : null;
  const { map, overlay } = await createMap(byId('map', HTMLElement), styleUrl, streets?.streets(theme) ?? null, theme, shared.place, slow, (made) => streets?.keepIcons(made));
  await font;

  const scene = new Scene(map, overlay, slow ? new Dots(map) : null, theme, scale);
  const tiles = new LiveTiles((shown) => scene.show(shown, map.getZoom()));
  const updateTiles = () => tiles.setView(bounds(map), map.getZoom());
  const names = new Names(() => {
    panel.title();
    fences.redrawNames();
    alerts.redraw();
    scene.invalidate();
  });
  const fences = new Fences(map, theme, edits_fences, {
    opening: makeRoom,
    seesAll: config.sees_all,
    name: (id) => names.getOrRequest(id),
    choose: (id) => void find(id),
    // The next fix of a followed driver would move the map away from the fence.
    moving: () => panel.follow(false),
    warn: options.warn,
    changed() {
      panel?.redrawNames();
      scene.invalidate();
    },
  });
  const labels = new Labels(map, theme, scale, labelsNow, () => [...scene.discAreas(), ...alerts.areas()]);
  scene.drawn = () => labels.draw();
  const alerts = new Alerts(map, {
    opening: makeRoom,
    writes: config.writes,
    name: (id) => names.getOrRequest(id),
    group: () => chosen.group,
    groupOf: (id) => names.groupOf(id),
    go(alert) {
      // The next fix of the driver, if it is followed, would move the map away from the alert.
      panel.follow(false);
      map.easeTo({ center: [alert.lng, alert.lat], zoom: Math.max(map.getZoom(), 13), duration: 700 });
      void panel.open(alert.driver_id);
    },
  });
  let chosen = { ...EVERYBODY, group: shared.group };
  tiles.filter(chosen);
  const heat = new Heat(map, {
    opening: closeBoxes,
    group: () => chosen.group,
    changed: (on) => scene.setFleetHidden(on),
  });
  const slider = player(() => (replay.isPlaying ? replay.toggle() : panel.closeTrack()));
  const replay = new Replay({
    opening: closeBoxes,
    bounds: () => bounds(map),
    group: () => chosen.group,
    moment: () => slider.moment,
    moved(moment) {
      alerts.setHidden(moment !== null);
      panel.setReplay(moment !== null);
      options.replayed(moment);
    },
    play(film, isSame) {
      const plays = !isSame || slider.isPlaying;
      panel.closeTrack();
      slider.open(film, isSame);
      if (plays) slider.toggle();
    },
    show: (drivers) => scene.showPast(drivers),
    stop: () => slider.close(),
  });
  let lastCentred = '';
  /** `fit` waits for the server. Following goes on only if there is no answer. */
  let isFitting = false;
  const panel: Panel = new Panel({
    name: (id) => names.get(id),
    place: (lng, lat) => placeName(fences.all, lng, lat),
    makesLinks: config.makes_links,
    // A replay or a heatmap has room above the panel.
    opening: () => isNarrow() && closeLists(),
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
      const centred = fix && panel.isFollowed && !isFitting ? `${fix.driver_id} ${fix.ts}` : '';
      if (fix && centred && centred !== lastCentred) centre(fix, map.getZoom(), 1000);
      lastCentred = centred;
    },
    tracked(track) {
      options.tracked(track !== null);
      if (!track) return scene.showTrack(null);
      fitTo(area(track.points));
    },
    played(track, ms) {
      scene.showTrack({ track, ms });
      panel.played(ms);
    },
    shared: updateUrl,
  });

  /** Closes the boxes at the left, which are at the same place, except a fence that is edited. */
  function closeBoxes(): void {
    closeLists();
    if (heat.on) heat.toggle();
    if (replay.isOpen) replay.toggle();
  }

  /** Closes the boxes with a list, except a fence that is edited. */
  function closeLists(): void {
    if (alerts.isOpen) alerts.toggle();
    if (fences.isOpen && !fences.isEditing) fences.toggle();
    if (isNarrow()) options.closeList();
  }

  /** Makes room for a box with a list: on a phone it would be below the driver's panel. */
  function makeRoom(): void {
    closeBoxes();
    if (isNarrow()) panel.close();
  }

  /**
   * Returns the names of drivers and fences in view, the chosen driver's first. If the map is
   * zoomed out or shows many drivers, no other driver has a name.
   */
  function labelsNow(): Label[] {
    const found: Label[] = [];
    const now = seconds();
    const { fleet } = scene;
    if (!scene.isFleetHidden) {
      const gap = scene.dotSize() + 5;
      const chosenGap = scene.ringSize() + 3;
      const marked = scene.markedIds;
      const ids: string[] = [];
      const { clientWidth: width, clientHeight: height } = map.getContainer();
      const hasNames = map.getZoom() >= LABEL_ZOOM;
      // While a track is shown, names of other drivers would hide it.
      if (fleet.n <= LABELS_MAX && !scene.hasTrack) {
        for (let slot = 0; slot < fleet.n; slot++) {
          const at = fleet.at(slot, now);
          const { x, y } = project(map, at);
          if (x < 0 || y < 0 || x > width || y > height) continue;
          const id = fleet.ids[slot];
          if (!hasNames) {
            // Names of fences do not cover the driver.
            if (id !== panel.id) found.push({ text: '', x, y, gap, reach: scene.dotSize(), kind: 'driver' });
            continue;
          }
          ids.push(id);
          const isChosen = id === panel.id;
          const reach = isChosen ? scene.ringSize() : scene.dotSize() + (marked.has(id) ? MARK_PX : 0);
          found.push({ text: names.get(id), x, y, gap: isChosen ? chosenGap : marked.has(id) ? gap + MARK_PX : gap, reach, kind: isChosen ? 'chosen' : 'driver' });
        }
      }
      // A replay shows where drivers were, so the place of the last fix says nothing.
      if (panel.id && !ids.includes(panel.id) && panel.fix && !scene.isReplay) {
        const slot = fleet.slot(panel.id);
        const { x, y } = project(map, slot === undefined ? [panel.fix.lng, panel.fix.lat] : fleet.at(slot, now));
        ids.push(panel.id);
        found.push({ text: names.get(panel.id), x, y, gap: chosenGap, reach: scene.ringSize(), kind: 'chosen' });
      }
      void names.load(ids);
      found.sort((a, b) => Number(b.kind === 'chosen') - Number(a.kind === 'chosen'));
    }
    const named: Label[] = [];
    const pixelsPerDegree = (512 * 2 ** map.getZoom()) / 360;
    for (const fence of fences.all) {
      const { lng, lat, width, north } = middle(fence);
      const pixels = width * pixelsPerDegree;
      // Its outline is out of view, and its name would seem to belong to a smaller fence.
      if (pixels < FENCE_LABEL_PX || pixels > FENCE_WIDEST * map.getContainer().clientWidth) continue;
      const { x, y } = project(map, [lng, lat]);
      named.push({ text: fence.properties.name, x, y, gap: 0, edge: y - project(map, [lng, north]).y, kind: 'fence' });
    }
    // The chosen driver first, then the few fences.
    const first = found[0]?.kind === 'chosen' ? 1 : 0;
    return [...found.slice(0, first), ...named, ...found.slice(first)];
  }

  function fitTo(box: { west: number; south: number; east: number; north: number }): void {
    map.fitBounds([box.west, box.south, box.east, box.north], { padding: padding(), maxZoom: 16.5, duration: 600, essential: false });
  }

  /**
   * Shows all drivers, unless the viewer moves the map or chooses another group before the server
   * has answered.
   */
  async function fit(): Promise<void> {
    map.stop();
    const { isFollowed } = panel;
    isFitting = true;
    const box = await areaFor(map, options.group);
    isFitting = false;
    // The viewer may have wanted to follow a driver meanwhile.
    if (box === 'none' || box === 'moved' || (panel.isFollowed && !isFollowed)) return;
    panel.follow(false);
    fitTo(box);
  }

  /** Opens a driver, optionally with its track of a day, and moves the map there. */
  async function find(id: string, day: string | null = null): Promise<void> {
    await panel.open(id, day);
    const { fix } = panel;
    if (!fix || panel.id !== id) return;
    centre(fix, Math.max(map.getZoom(), CLOSE_ZOOM), 700);
  }

  /** Moves the map so that a fix is in the middle of the area that no card covers. */
  function centre({ lng, lat }: Fix, zoom: number, duration: number): void {
    // Use an offset instead of padding. The map would keep the padding and add that of `fitTo`;
    // together they may be more than the height of a phone.
    const { top, bottom, left, right } = padding();
    map.easeTo({ center: [lng, lat], zoom, offset: [(left - right) / 2, (top - bottom) / 2], duration });
  }

  function updateUrl(): void {
    const { lng, lat } = map.getCenter().wrap();
    const hash = format({ place: { zoom: map.getZoom(), lat, lng }, driver: panel.id, day: panel.day, group: chosen.group });
    // Replace the history entry: a new entry for each move of the map would fill the history.
    if (hash !== location.hash) history.replaceState(null, '', hash);
  }

  /** Returns the fence that a click at this point shows. A replay does not show who is inside now. */
  const fenceAt = (point: PointLike) => (scene.isReplay ? null : fences.at(point, FENCE_WIDEST * map.getContainer().clientWidth));

  map.on('click', (event) => {
    if (scene.isFleetHidden || fences.isDrawing) return;
    const found = pickAt(map, scene, event, TOUCH_PX);
    if (!found) {
      const fence = fenceAt(event.point);
      if (!fence) return;
      // The box may have been open beside the panel before the page became narrow.
      if (isNarrow()) panel.close();
      fences.show(fence);
    } else if ('driver' in found) void panel.open(scene.fleet.ids[found.driver]);
    else map.easeTo({ center: [found.disc.lng, found.disc.lat], zoom: map.getZoom() + 2, duration: 500 });
  });
  map.on('dragstart', () => panel.follow(false));
  map.on('moveend', () => {
    updateTiles();
    updateUrl();
  });
  addEventListener('hashchange', () => {
    const { place, driver, day, group } = parse(location.hash);
    options.grouped(group);
    if (place) map.jumpTo({ center: [place.lng, place.lat], zoom: place.zoom });
    if (driver) void panel.open(driver, day);
    else panel.close();
  });
  byId('fit', HTMLButtonElement).addEventListener('click', () => void fit());
  tip(map, scene, (id) => names.get(id), (point) => fenceAt(point) !== null);

  let restyled = 0;
  let wasAway = false;
  /**
   * The fleet was empty when the page was opened, so the map will move to the first drivers that
   * appear.
   */
  let isWaitingForDrivers = false;
  if (!shared.place) {
    const box = await areaFor(map, options.group);
    if (box === 'none') isWaitingForDrivers = true;
    else if (box !== 'moved') map.fitBounds([box.west, box.south, box.east, box.north], { padding: padding(), maxZoom: 15, duration: 0 });
    map.once('dragstart', () => (isWaitingForDrivers = false));
  }
  updateTiles();
  if (shared.driver) {
    const { driver, day } = shared;
    // A link without a place opens at the driver.
    void (shared.place ? panel.open(driver, day) : find(driver, day));
  }

  return {
    map,
    scene,
    heat,
    fences,
    panel,
    player: slider,
    replay,
    alerts,
    labels,
    filter(shown, group) {
      const isUsual = shown.length === 0 || shown.join() === SHOWN.join();
      const isOtherGroup = group !== chosen.group;
      chosen = { states: isUsual ? '' : shown.join(), group };
      tiles.filter(chosen);
      scene.setStates(shown);
      if (isOtherGroup) {
        replay.reload();
        heat.reload();
        alerts.redraw();
        updateUrl();
      } else if (replay.isPlaying) slider.redraw();
    },
    find,
    mark: (found) => scene.mark(found),
    fit,
    tick(tick, isFirst) {
      const isRequesting = tiles.tick(tick.generation, isFirst);
      // Ages, and so states, change without a new fix.
      if (!isRequesting && (scene.colourBy === 'age' || tick.now - restyled > RESTYLE_MS)) {
        restyled = tick.now;
        scene.restyle();
      }
      names.tick(tick.names ?? 0, isFirst);
      void alerts.tick();
      // Load the fences again: other users may have changed them while the page was disconnected,
      // or the last request may have failed.
      if (isFirst || (wasAway && tick.state !== 'away')) void fences.load();
      wasAway = tick.state === 'away';
      if (isWaitingForDrivers && tick.drivers > 0) {
        isWaitingForDrivers = false;
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
      labels.theme = next;
      fences.layers.setTheme(next);
      if (streets) map.setStyle(streets.streets(next), { transformStyle: (before, after) => keepOwnLayers(before, after) });
      else if (!styleUrl) repaint(map, next);
      scene.restyle();
    },
    redraw() {
      panel.redraw();
      fences.redraw();
      alerts.redraw();
      slider.redraw();
      replay.redraw();
      heat.redraw();
    },
    pan: (x, y) => map.panBy([x * PAN_PX, y * PAN_PX], { duration: 200 }),
    openingList() {
      if (isNarrow()) makeRoom();
    },
    escape() {
      if (fences.isOpen) fences.toggle();
      else if (alerts.isOpen) alerts.toggle();
      else if (heat.on) heat.toggle();
      else if (replay.isOpen) replay.toggle();
      else if (slider.isOpen) panel.closeTrack();
      else panel.close();
    },
  };
}

/** Returns the factor by which everything is larger than on a laptop (style.css). */
const scale = (): number => parseFloat(getComputedStyle(document.documentElement).fontSize) / 16;

/** Returns the pixels at each edge that cards cover. */
function padding(): { top: number; bottom: number; left: number; right: number } {
  const unit = 16 * scale();
  const panelBox = byId('panel', HTMLElement);
  const narrow = isNarrow();
  const open = !panelBox.hidden;
  return {
    // At the top: the header, and a guest's line.
    top: (narrow ? 11.5 : 5.5) * unit + byId('guest', HTMLElement).offsetHeight,
    // At the bottom: the player and, on a phone, the panel above it.
    bottom: Math.max(6 * unit, ...['player', ...(narrow ? ['panel'] : [])].map((id) => byId(id, HTMLElement)).filter(({ hidden }) => !hidden).map((card) => innerHeight - card.offsetTop + 2 * unit)),
    // At the left: the legend in the corner.
    left: (narrow ? 1.5 : 15.5) * unit,
    right: !narrow && open ? 25 * unit : (narrow ? 1.5 : 4) * unit,
  };
}

// Entry point of the page: creates its parts and connects them.
import { ApiError, config } from './api';
import { banner } from './banner';
import { syncClock } from './clock';
import { byId, setText } from './dom';
import { guest } from './guest';
import { parse } from './hash';
import { legend } from './legend';
import { keys } from './keys';
import { list } from './list';
import { search } from './search';
import { settings } from './settings';
import { SHOWN, type DriverState } from './states';
import { status } from './status';
import { listen } from './stream';
import { current, themes } from './theme';
import type { Tick } from './api';
import type { Stage } from './stage';

// The map's libraries are large, so numbers, search and banner appear before they have loaded.
const stageModule = import('./stage');

const numbers = status();
const warning = banner();
const shared = parse(location.hash);
let stage: Stage | null = null;
let newest: Tick | null = null;

let states: readonly DriverState[] = SHOWN;
let group = '';
const filter = () => stage?.filter(states, group);
const colours = legend(
  (by) => stage?.colour(by),
  (shown) => {
    states = shown;
    filter();
  },
  () => driverList.setGroup(''),
);
const guestLine = guest();
settings(() => {
  guestLine.redraw();
  colours.draw();
  driverList.redraw();
  stage?.redraw();
});
colours.setTheme(current());
const themeSwitch = themes((theme) => {
  colours.setTheme(theme);
  stage?.setTheme(theme);
});
const openDriver = (id: string) => void stageReady.then((ready) => ready.find(id));
const searchField = search(openDriver);
const driverList = list(
  openDriver,
  () => stage?.openingList(),
  (found) => stage?.mark(found),
  (next) => {
    group = next;
    colours.setGroup(group);
    numbers.setGroup(group);
    countGroup(group);
    filter();
  },
);

const help = byId('help', HTMLDialogElement);
byId('help-open', HTMLButtonElement).addEventListener('click', () => help.showModal());
byId('help-close', HTMLButtonElement).addEventListener('click', () => help.close());
help.addEventListener('click', (event) => {
  if (event.target === help) help.close();
});

keys({
  '/': () => searchField.focus(),
  '?': () => help.showModal(),
  c: () => colours.toggle(),
  d: () => themeSwitch.toggle(),
  a: () => void stage?.fit(),
  h: () => stage?.heat.toggle(),
  l: () => driverList.toggle(),
  g: () => stage?.fences.toggle(),
  e: () => stage?.alerts.toggle(),
  r: () => stage?.replay.toggle(),
  f: () => stage?.panel.follow(!stage.panel.isFollowed),
  t: () => stage?.panel.lastHour(),
  ' ': () => stage?.player.toggle(),
  '+': () => stage?.map.zoomIn(),
  '=': () => stage?.map.zoomIn(),
  '-': () => stage?.map.zoomOut(),
  ArrowLeft: () => stage?.pan(-1, 0),
  ArrowRight: () => stage?.pan(1, 0),
  ArrowUp: () => stage?.pan(0, -1),
  ArrowDown: () => stage?.pan(0, 1),
  Escape: () => (help.open ? help.close() : driverList.isOpen ? driverList.toggle() : stage?.escape()),
});

const countGroup = listen({
  tick(tick, isFirst) {
    syncClock(tick.now);
    numbers.tick(tick);
    warning.tick(tick, group);
    colours.tick(tick);
    // Drivers may have got their groups after the page was opened, or while it was disconnected.
    if (newest && (isFirst || newest.names !== tick.names)) void config().then(({ groups }) => driverList.groups(groups), () => {});
    newest = tick;
    stage?.tick(tick, isFirst);
  },
  lost() {
    numbers.lost();
    warning.lost();
    // Check whether the server refuses this viewer: an expired link or login is not an outage.
    void config().then(
      ({ is_full }) => warning.refused(is_full ? 'too many pages are open (http.viewers_max), and this one tries again every few seconds' : ''),
      (error: unknown) => warning.refused(error instanceof ApiError && [401, 403].includes(error.status) ? error.message : ''),
    );
  },
});

if (shared.group) driverList.setGroup(shared.group);
const stageReady = open();
stageReady.catch((error: unknown) => {
  const webgl = document.createElement('canvas').getContext('webgl2') !== null;
  warning.broken(webgl ? 'The map could not be loaded. Load this page again.' : 'This browser has no WebGL 2, which the map needs. Its settings may have turned it off. The list of drivers works without it.');
  if (!driverList.isOpen) driverList.toggle();
  throw error;
});

async function open(): Promise<Stage> {
  const [{ makeStage }, configuration] = await Promise.all([stageModule, configured()]);
  setText(byId('version', HTMLElement), configuration.version ? `milepost ${configuration.version}` : '');
  driverList.groups(configuration.groups ?? []);
  if (configuration.makes_links) driverList.allowSharing();
  guestLine.open(configuration.link_until ?? null);
  const made = await makeStage(configuration, current(), shared, {
    replayed(moment) {
      colours.replayed(moment);
      numbers.replayed(moment);
    },
    tracked: (hasTrack) => colours.setTrack(hasTrack),
    grouped(next) {
      if (next !== group) driverList.setGroup(next);
    },
    group: () => group,
    closeList() {
      if (driverList.isOpen) driverList.toggle();
    },
    warn: warning.fences,
  });
  stage = made;
  filter();
  // For the console, and for the browser tests, which cannot read a canvas.
  Object.assign(window, { milepost: made });
  if (newest) stage.tick(newest, false);
  return made;
}

/**
 * Requests the configuration until the server answers: the page may come from a cache, or the
 * server may still be starting.
 */
async function configured() {
  for (;;) {
    try {
      return await config();
    } catch {
      await new Promise((resolve) => setTimeout(resolve, 2000));
    }
  }
}

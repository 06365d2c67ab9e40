// The legend: the meaning of colours, the switch between state, speed and age, and the number of
// drivers in each state. A click on a state shows or hides its drivers.
import type { Tick } from './api';
import { css, stops, type ColourBy, type Theme } from './colours';
import { serverNow } from './clock';
import { byId, make, setPressed, setText, svg } from './dom';
import { LABELS, SHOWN, STATE_COLOURS, STATES, type DriverState } from './states';
import type { Moment } from './replay';
import { formatCount, isoDay, lowerFirst, minuteOf, SPEEDS, speedUnit } from './words';

const ORDER: readonly ColourBy[] = ['state', 'speed', 'age'];

/** SVG paths of the shapes of driver-layer.ts, in a square of 14 by 14. */
const SHAPE: Record<DriverState, string> = {
  moving: 'M7 1 10 4.600A4.200 4.200 0 1 1 4 4.600Z',
  standing: 'M3 3h8v8H3Z',
  silent: 'M7 2.800a4.200 4.200 0 1 0 .01 0Zm0 2.600a1.600 1.600 0 1 1-.01 0Z',
  unknown: 'M7 1.500 12.500 7 7 12.500 1.500 7Z',
  hidden: 'M7 2.800a4.200 4.200 0 1 0 .01 0Zm0 2.600a1.600 1.600 0 1 1-.01 0Z',
};

/** `onUngroup` is called when the viewer wants to see every group again. */
export function legend(onColourBy: (by: ColourBy) => void, onFilter: (shown: readonly DriverState[]) => void, onUngroup: () => void) {
  const ramp = byId('ramp', SVGElement);
  const labels = byId('ramp-labels', HTMLUListElement);
  const trackBox = byId('track-legend', HTMLElement);
  const trackRamp = byId('track-ramp', SVGElement);
  const trackLabels = byId('track-labels', HTMLUListElement);
  /** The map shows a track, whose colours are always speeds. */
  let hasTrack = false;
  const list = byId('states', HTMLUListElement);
  const buttons = document.querySelectorAll<HTMLButtonElement>('#legend [data-by]');
  const shown = new Set<DriverState>(SHOWN);
  const rows = new Map(STATES.map((state) => [state, row(state)]));
  const momentLine = byId('legend-moment', HTMLElement);
  const groupButton = byId('legend-group', HTMLButtonElement);
  /** The newest live counts, and those of the replay; null: there are none. */
  let live: Record<DriverState, number> | null = null;
  let past: Record<DriverState, number> | null = null;
  let by: ColourBy = 'state';
  let theme: Theme = 'dark';
  list.replaceChildren(...[...rows.values()].map(({ item }) => item));

  function row(state: DriverState) {
    const item = make('li');
    const button = make('button');
    button.type = 'button';
    const picture = svg('svg', { viewBox: '0 0 14 14', class: 'shape', 'aria-hidden': 'true' });
    const path = svg('path', { d: SHAPE[state], 'fill-rule': 'evenodd' });
    picture.append(path);
    const count = make('span', '–', 'count');
    button.append(picture, make('span', LABELS[state]), count);
    setPressed(button, shown.has(state));
    button.addEventListener('click', () => {
      if (!shown.delete(state)) shown.add(state);
      setPressed(button, shown.has(state));
      onFilter(STATES.filter((other) => shown.has(other)));
    });
    item.append(button);
    return { item, button, path, count };
  }

  function draw(): void {
    for (const [state, { path }] of rows) path.setAttribute('fill', by === 'state' ? css(STATE_COLOURS[state][theme]) : 'currentColor');
    drawRamp(ramp, labels, by);
    trackBox.hidden = !hasTrack || by === 'speed';
    if (!trackBox.hidden) drawRamp(trackRamp, trackLabels, 'speed');
    for (const button of buttons) setPressed(button, button.dataset.by === by);
  }

  function drawRamp(picture: SVGElement, texts: HTMLUListElement, of: ColourBy): void {
    const all = stops(of);
    picture.toggleAttribute('hidden', all.length === 0);
    texts.hidden = all.length === 0;
    const gradient = svg('linearGradient', { id: `${picture.id}-colours` });
    all.forEach((stop, i) => gradient.append(svg('stop', { offset: i / (all.length - 1), 'stop-color': css(stop[theme]) })));
    picture.replaceChildren(gradient, svg('rect', { width: 100, height: 6, rx: 0, fill: `url(#${picture.id}-colours)` }));
    const speed = (kmh: number) => String(Math.round((kmh / SPEEDS['km/h']) * SPEEDS[speedUnit()]));
    texts.replaceChildren(...all.map(({ at, label }) => make('li', of === 'speed' ? label.replace(String(at), speed(at)) : label)));
    texts.dataset.unit = of === 'speed' ? speedUnit() : '';
  }

  function count(): void {
    const counts = past ?? live;
    for (const [state, { item, count, button }] of rows) {
      const n = counts?.[state] ?? 0;
      setText(count, counts ? formatCount(n) : '–');
      // A rare state takes no space while no driver is in it, unless the viewer has clicked it.
      item.hidden = n === 0 && (state === 'unknown' || state === 'hidden') && shown.has(state) === SHOWN.includes(state);
      button.title = `${shown.has(state) ? 'Hide' : 'Show'} ${lowerFirst(LABELS[state])}`;
    }
  }

  function set(next: ColourBy): void {
    by = next;
    draw();
    onColourBy(by);
  }

  groupButton.addEventListener('click', onUngroup);
  // The cards above the legend end where it begins.
  const box = byId('legend', HTMLElement);
  new ResizeObserver(() => document.documentElement.style.setProperty('--legend', `${box.offsetHeight}px`)).observe(box);
  for (const button of buttons) button.addEventListener('click', () => set(button.dataset.by as ColourBy));
  return {
    draw,
    toggle: () => set(ORDER[(ORDER.indexOf(by) + 1) % ORDER.length]),
    setTheme(next: Theme): void {
      theme = next;
      draw();
    },
    /** Explains the colours of a track, or no longer. */
    setTrack(next: boolean): void {
      if (next === hasTrack) return;
      hasTrack = next;
      draw();
    },
    /** Shows the counts; they are unknown while ClickHouse does not answer. */
    tick({ states, state: health }: Tick): void {
      live = health === 'away' ? null : (states ?? null);
      if (!past) count();
    },
    /** Shows the counts of a moment of a replay; null: the live ones again. */
    replayed(moment: Moment | null): void {
      past = moment?.states ?? null;
      setText(momentLine, moment ? `Replay: ${minuteOf(moment.ms, isoDay(serverNow()))}` : '');
      list.setAttribute('aria-label', moment ? 'Drivers by state in the replay' : 'Drivers by state');
      count();
    },
    /** Says that only drivers of a group are shown; empty: of every group. */
    setGroup(group: string): void {
      groupButton.hidden = group === '';
      setText(groupButton, `Only ${group} ✕`);
      groupButton.setAttribute('aria-label', `Only ${group}: show every group`);
    },
  };
}

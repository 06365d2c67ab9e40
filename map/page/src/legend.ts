// The colours' meaning, and the switch between speed and age.
import { css, stops, type ColourBy, type Theme } from './colours';
import { byId, make, press, svg } from './dom';
import { SPEEDS, speedUnit } from './words';

export function legend(changed: (by: ColourBy) => void) {
  const ramp = byId('ramp', SVGElement);
  const labels = byId('ramp-labels', HTMLUListElement);
  const buttons = document.querySelectorAll<HTMLButtonElement>('#legend [data-by]');
  let by: ColourBy = 'speed';
  let theme: Theme = 'dark';

  function draw(): void {
    const all = stops(by);
    const gradient = svg('linearGradient', { id: 'ramp-colours' });
    all.forEach((stop, i) => gradient.append(svg('stop', { offset: i / (all.length - 1), 'stop-color': css(stop[theme]) })));
    ramp.replaceChildren(gradient, svg('rect', { width: 100, height: 6, rx: 0, fill: 'url(#ramp-colours)' }));
    const speed = (kmh: number) => String(Math.round((kmh / SPEEDS['km/h']) * SPEEDS[speedUnit()]));
    labels.replaceChildren(...all.map(({ at, label }) => make('li', by === 'speed' ? label.replace(String(at), speed(at)) : label)));
    labels.dataset.unit = by === 'speed' ? speedUnit() : '';
    for (const button of buttons) press(button, button.dataset.by === by);
  }

  function set(next: ColourBy): void {
    by = next;
    draw();
    changed(by);
  }

  for (const button of buttons) button.addEventListener('click', () => set(button.dataset.by as ColourBy));
  return {
    draw,
    toggle: () => set(by === 'speed' ? 'age' : 'speed'),
    setTheme(next: Theme): void {
      theme = next;
      draw();
    },
  };
}

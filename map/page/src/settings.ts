// The viewer's units and time zone, which this browser stores.
import { byId, make, setPressed } from './dom';
import { setUnit, speedUnit } from './words';
import { setZone, zone } from './zone';

export function settings(changed: () => void): void {
  const zones = byId('zone', HTMLSelectElement);
  const units = document.querySelectorAll<HTMLButtonElement>('[data-unit-choice]');
  setUnit(loadChoice('unit'));
  const own = zone();
  setZone(loadChoice('zone'));
  const named = (name: string, text: string) => Object.assign(make('option', text), { value: name });
  zones.append(named('', `${own} (this browser’s)`), ...[...new Set(['UTC', ...Intl.supportedValuesOf('timeZone')])].filter((name) => name !== own).map((name) => named(name, name)));
  zones.value = zone() === own ? '' : zone();

  zones.addEventListener('change', () => {
    saveChoice('zone', zones.value);
    setZone(zones.value);
    changed();
  });
  for (const button of units) {
    setPressed(button, button.dataset.unitChoice === speedUnit());
    button.addEventListener('click', () => {
      setUnit(button.dataset.unitChoice ?? '');
      saveChoice('unit', speedUnit());
      for (const other of units) setPressed(other, other === button);
      changed();
    });
  }
}

function loadChoice(name: string): string {
  try {
    return localStorage.getItem(name) ?? '';
  } catch {
    return '';
  }
}

function saveChoice(name: string, value: string): void {
  try {
    localStorage.setItem(name, value);
  } catch {
    // Without storage the choice lasts for this visit only.
  }
}

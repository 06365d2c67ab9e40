// A moment as two fields: a date, and a time of 24 hours. The browser's own field for both has 12
// hours in some languages.
import { byId } from './dom';
import { instant, local } from './zone';

/** Shown to a viewer who writes something else. */
export const WRITE_TIME = 'Write the time in 24 hours, such as 14:05.';

/** Parses a time such as 14:05, 9.30, 0930, 9 or 2:05 pm; null: it is none. */
export function timeOf(text: string): string | null {
  const found = /^(\d{1,2})(?:[:.h]?(\d{2}))?(?: ?([ap])\.?m\.?)?$/i.exec(text.trim());
  if (!found) return null;
  const [, hours, minutes = '00', half] = found;
  const hour = half ? (Number(hours) % 12) + (half.toLowerCase() === 'p' ? 12 : 0) : Number(hours);
  if (hour > 23 || Number(minutes) > 59 || (half && (Number(hours) < 1 || Number(hours) > 12))) return null;
  return `${String(hour).padStart(2, '0')}:${minutes}`;
}

export class When {
  readonly date: HTMLInputElement;
  readonly time: HTMLInputElement;
  /** The moment in Unix ms; NaN: a field is empty or wrong. */
  ms = NaN;

  /** `id`: that of the fields, without `-date` and `-time`. `changed`: the viewer chose a moment. */
  constructor(id: string, changed: () => void = () => {}) {
    this.date = byId(`${id}-date`, HTMLInputElement);
    this.time = byId(`${id}-time`, HTMLInputElement);
    // The viewer writes another time instead of inserting digits.
    this.time.addEventListener('focus', () => this.time.select());
    for (const field of [this.date, this.time]) field.addEventListener('input', () => this.read());
    this.time.addEventListener('change', () => {
      this.time.value = timeOf(this.time.value) ?? this.time.value;
      changed();
    });
    this.date.addEventListener('change', changed);
  }

  /** The moment, such as `2026-11-22T14:05`; empty: a field is empty or wrong. */
  get value(): string {
    const time = timeOf(this.time.value);
    return this.date.value && time ? `${this.date.value}T${time}` : '';
  }

  set value(text: string) {
    this.write(text);
    this.read();
  }

  /** Called when the zone has changed: the fields show the same moment in it. */
  redraw(): void {
    // Not read again: a local time that occurs twice would become the first one.
    if (!Number.isNaN(this.ms)) this.write(local(this.ms));
  }

  private write(text: string): void {
    [this.date.value, this.time.value] = [text.slice(0, 10), text.slice(11, 16)];
  }

  private read(): void {
    this.ms = instant(this.value);
    const isWrong = this.time.value !== '' && timeOf(this.time.value) === null;
    this.time.setCustomValidity(isWrong ? WRITE_TIME : '');
  }
}

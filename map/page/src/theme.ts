// Switches between the dark and the light theme. The system's theme applies until the viewer
// chooses one; public/theme.js applies the choice before the first paint.
import type { Theme } from './colours';
import { byId } from './dom';

export function themes(onChange: (theme: Theme) => void): { toggle(): void } {
  const system = matchMedia('(prefers-color-scheme: dark)');
  function toggle(): void {
    const theme = current() === 'dark' ? 'light' : 'dark';
    document.documentElement.dataset.theme = theme;
    try {
      localStorage.setItem('theme', theme);
    } catch {
      // Without storage the choice lasts for this visit only.
    }
    onChange(theme);
  }
  system.addEventListener('change', () => onChange(current()));
  byId('theme', HTMLButtonElement).addEventListener('click', toggle);
  return { toggle };
}

export function current(): Theme {
  const chosen = document.documentElement.dataset.theme;
  if (chosen === 'dark' || chosen === 'light') return chosen;
  return matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light';
}

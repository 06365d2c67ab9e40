// Single-key shortcuts, as the help lists them. Except for Escape, they do not work while a field
// is being edited.

export function keys(actions: Record<string, () => void>): void {
  document.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const target = event.target as Element;
    const typing = target.matches('input:not([type=range]), textarea, select, [contenteditable]');
    if (event.key !== 'Escape' && (typing || document.querySelector('dialog[open]'))) return;
    // The focused element handles its own keys: a slider and a list the arrows, the map all keys
    // that move it.
    if (event.key.startsWith('Arrow') && target !== document.body) return;
    if (/^[-+=]$/.test(event.key) && target.closest('#map')) return;
    // A button handles the space key itself.
    if (event.key === ' ' && target.matches('button, summary')) return;
    const action = actions[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!action) return;
    event.preventDefault();
    action();
  });
}

// Before the first paint: the theme chosen earlier. Without one the system's is used.
try {
  const theme = localStorage.getItem('theme');
  if (theme === 'dark' || theme === 'light') document.documentElement.dataset.theme = theme;
} catch {
  // No storage: the system's theme.
}

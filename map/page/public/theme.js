// Applies the theme chosen earlier, before the first paint. Without a choice the system's theme is used.
try {
  const theme = localStorage.getItem('theme');
  if (theme === 'dark' || theme === 'light') document.documentElement.dataset.theme = theme;
} catch {
  // Without storage the system's theme is used.
}

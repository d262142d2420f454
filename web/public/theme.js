// Applies the stored theme before the first paint.
try {
  const theme = localStorage.getItem('segue.theme');
  if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
} catch {
  // Without storage the system theme applies.
}

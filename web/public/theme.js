// Before anything is painted: the theme that was chosen here, if one was.
try {
  const theme = localStorage.getItem('segue.theme');
  if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
} catch {
  // Storage may be forbidden; the system's theme holds then.
}

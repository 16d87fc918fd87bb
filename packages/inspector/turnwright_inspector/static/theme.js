// Runs before anything is painted, so that a page never flashes in the other theme.
(() => {
  const root = document.documentElement;
  root.classList.add("js");
  try {
    const theme = localStorage.getItem("theme");
    if (theme === "light" || theme === "dark") root.dataset.theme = theme;
  } catch {
    // Storage may be forbidden: then the theme is that of the system.
  }
})();

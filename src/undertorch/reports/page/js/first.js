try {
  const theme = localStorage.getItem("undertorch-theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch { /* a browser that keeps nothing: the system's theme holds */ }

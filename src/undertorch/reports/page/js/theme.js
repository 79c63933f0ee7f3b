// Light or dark: the system's choice until the button says otherwise, which is remembered.

const systemIsDark = matchMedia("(prefers-color-scheme: dark)");
const themeListeners = [];

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : systemIsDark.matches;
}

/** Calls the function whenever the colours change. */
function onTheme(listener) {
  themeListeners.push(listener);
}

function startTheme() {
  const button = document.getElementById("theme");
  const tell = () => {
    button.setAttribute("aria-label", isDark() ? "Switch to light" : "Switch to dark");
    themeListeners.forEach((listener) => listener());
  };
  button.addEventListener("click", () => {
    const theme = isDark() ? "light" : "dark";
    document.documentElement.dataset.theme = theme;
    try {
      localStorage.setItem("undertorch-theme", theme);
    } catch { /* then it holds for this visit */ }
    tell();
  });
  systemIsDark.addEventListener("change", tell);
  tell();
}

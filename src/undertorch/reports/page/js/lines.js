// Ways to a line: links in the page, launches of the timeline, dots of the roofline, the address itself.

/** Shows the step that holds the line, opens the line and goes there. */
function goToLine(id) {
  const row = document.getElementById(id);
  if (!row) return;
  showStep(row.closest(".step"));
  if (row.classList.contains("hot")) fold(row, true);
  row.scrollIntoView({ block: "center" });
  row.classList.remove("found");
  void row.offsetWidth; // starts the animation anew
  row.classList.add("found");
  row.querySelector(".unfold")?.focus({ preventScroll: true });
}

function startLines() {
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href^='#']");
    const id = link?.getAttribute("href").slice(1);
    if (id && document.getElementById(id)?.classList.contains("hot")) {
      event.preventDefault();
      history.replaceState(null, "", `#${id}`);
      goToLine(id);
    }
  });
  const follow = () => {
    const target = document.getElementById(location.hash.slice(1));
    if (target?.classList.contains("hot")) goToLine(target.id);
    else if (target?.closest(".step")) showStep(target.closest(".step"));
  };
  addEventListener("hashchange", follow);
  follow();
}

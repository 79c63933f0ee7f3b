// The timeline from the keyboard.

function startKeys(timeline) {
  const keys = {
    ArrowRight: () => timeline.go(1),
    ArrowLeft: () => timeline.go(-1),
    Home: () => timeline.go(-Infinity),
    End: () => timeline.go(Infinity),
    "+": () => timeline.zoom(0.5),
    "=": () => timeline.zoom(0.5), // + without shift
    "-": () => timeline.zoom(2),
    0: () => timeline.showAll(),
    Enter: () => { if (timeline.at >= 0) timeline.open(timeline.at); },
  };
  timeline.canvas.addEventListener("keydown", (event) => {
    if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    keys[event.key]();
  });
}

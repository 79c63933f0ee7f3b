// The timeline under a mouse or fingers: pointing reads out, dragging moves, pinching zooms, a click goes to the line.

const STILL = 4; // pixels up to which a press is a click and no drag

function startPointer(timeline) {
  const { canvas, lanes } = timeline;
  const pressed = new Map();
  let moved = 0;

  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    pressed.set(event.pointerId, event);
    moved = 0;
  });
  canvas.addEventListener("pointermove", (event) => {
    const before = pressed.get(event.pointerId);
    if (!before) {
      lookAt(timeline, event);
      return;
    }
    const other = [...pressed].find(([id]) => id !== event.pointerId)?.[1];
    moved += Math.abs(event.clientX - before.clientX);
    if (other) pinch(timeline, before, event, other);
    else if (moved > STILL) {
      canvas.classList.add("dragged");
      lanes.move(((before.clientX - event.clientX) / canvas.clientWidth) * lanes.width);
    }
    pressed.set(event.pointerId, event);
    timeline.draw();
  });
  const lift = (event) => {
    pressed.delete(event.pointerId);
    canvas.classList.remove("dragged");
  };
  canvas.addEventListener("pointerup", (event) => {
    lift(event);
    if (moved > STILL) return;
    const launch = lookAt(timeline, event);
    if (launch >= 0 && event.pointerType === "mouse") timeline.open(launch); // a finger has the link below
  });
  canvas.addEventListener("pointercancel", lift);
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return; // without a key the page scrolls
    event.preventDefault();
    lanes.zoom(event.deltaY > 0 ? 1.25 : 0.8, place(canvas, event));
    timeline.draw();
  }, { passive: false });
}

/** Where a pointer is, from 0 at the canvas' left to 1 at its right. */
function place(canvas, event) {
  const box = canvas.getBoundingClientRect();
  return (event.clientX - box.left) / box.width;
}

function pinch(timeline, before, now, other) {
  const apart = (one) => Math.abs(one.clientX - other.clientX) || 1;
  timeline.lanes.zoom(apart(before) / apart(now), place(timeline.canvas, other));
}

/** Points at the launch under a pointer, or reads out the idle time there. Answers the launch, -1 where none is. */
function lookAt(timeline, event) {
  const { canvas, lanes, step } = timeline;
  const box = canvas.getBoundingClientRect();
  const time = lanes.from + place(canvas, event) * lanes.width;
  const lane = Math.floor((event.clientY - box.top - PHASES) / (LANE + GAP));
  const launch = lane < 0 ? -1 : lanes.at(lane, time, (lanes.width / box.width) * 3);
  timeline.point(launch);
  const idle = launch < 0 ? lanes.idleAt(time) : -1;
  if (idle >= 0) say(timeline.readout, idleSaid(step, idle));
  return launch;
}

// The timeline answers to pointer, fingers and keys, and shows which launches belong to the lines that are open.

function startTimeline(element, step) {
  const canvas = element.querySelector("canvas");
  const readout = element.querySelector(".readout");
  const lanes = new Lanes(step);
  const article = element.closest(".step");
  let at = -1;
  let chosen = null;

  const draw = () => { if (canvas.clientWidth) drawTimeline(canvas, lanes, chosen, at); };
  const point = (launch) => {
    at = launch;
    if (launch >= 0) say(readout, launchSaid(step, launch));
    draw();
  };

  const where = (event) => {
    const box = canvas.getBoundingClientRect();
    const time = lanes.from + ((event.clientX - box.left) / box.width) * lanes.width;
    const lane = Math.floor((event.clientY - box.top - PHASES) / (LANE + GAP));
    return { time, lane, around: (event.clientX - box.left) / box.width, slack: (lanes.width / box.width) * 3 };
  };
  const lookAt = (event) => {
    const { time, lane, slack } = where(event);
    const launch = lane >= 0 && lane < step.lanes.length ? lanes.at(lane, time, slack) : -1;
    point(launch);
    const idle = launch < 0 ? lanes.idleAt(time) : -1;
    if (idle >= 0) say(readout, idleSaid(step, idle));
    return launch;
  };

  const fingers = new Map();
  let moved = 0;
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    fingers.set(event.pointerId, event);
    moved = 0;
  });
  canvas.addEventListener("pointermove", (event) => {
    const before = fingers.get(event.pointerId);
    if (!before) {
      lookAt(event);
      return;
    }
    const by = event.clientX - before.clientX;
    moved += Math.abs(by);
    const other = [...fingers].find(([id]) => id !== event.pointerId)?.[1];
    if (other) {
      const apart = Math.abs(before.clientX - other.clientX) || 1;
      lanes.zoom(apart / (Math.abs(event.clientX - other.clientX) || 1), where(other).around);
    } else if (moved > 4) {
      canvas.classList.add("dragged");
      lanes.move((-by / canvas.clientWidth) * lanes.width);
    }
    fingers.set(event.pointerId, event);
    draw();
  });
  const lift = (event) => {
    fingers.delete(event.pointerId);
    canvas.classList.remove("dragged");
  };
  canvas.addEventListener("pointerup", (event) => {
    lift(event);
    if (moved > 4) return;
    const launch = lookAt(event);
    if (launch >= 0 && event.pointerType === "mouse") open(launch);
  });
  canvas.addEventListener("pointercancel", lift);
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    lanes.zoom(event.deltaY > 0 ? 1.25 : 0.8, where(event).around);
    draw();
  }, { passive: false });
  canvas.addEventListener("dblclick", (event) => {
    lanes.zoom(0.3, where(event).around);
    draw();
  });

  const open = (launch) => {
    const line = step.launches.line[launch];
    if (line !== null) goToLine(step.lines[line].id);
  };
  const zoomHere = (by) => {
    const { start, time } = step.launches;
    lanes.zoom(by, at < 0 ? 0.5 : Math.min(Math.max((start[at] + time[at] / 2 - lanes.from) / lanes.width, 0), 1));
    draw();
  };
  const keys = {
    ArrowRight: () => step1(1),
    ArrowLeft: () => step1(-1),
    Home: () => step1(-Infinity),
    End: () => step1(Infinity),
    "+": () => zoomHere(0.5),
    "=": () => zoomHere(0.5),
    "-": () => zoomHere(2),
    0: () => { lanes.showAll(); draw(); },
    Enter: () => { if (at >= 0) open(at); },
  };
  const step1 = (by) => {
    const next = Math.max(0, Math.min(at + by, lanes.count - 1));
    lanes.reach(next);
    point(next);
  };
  canvas.addEventListener("keydown", (event) => {
    if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    keys[event.key]();
  });
  element.querySelectorAll("[data-zoom]").forEach((button) => {
    const ways = { in: () => zoomHere(0.5), out: () => zoomHere(2), all: keys[0] };
    button.addEventListener("click", ways[button.dataset.zoom]);
  });

  article.addEventListener("fold", () => {
    const openIds = new Set([...article.querySelectorAll(".hot")].filter(isOpen).map((row) => row.id));
    const ofLines = new Set();
    step.launches.line.forEach((line, launch) => {
      if (line !== null && openIds.has(step.lines[line].id)) ofLines.add(launch);
    });
    chosen = ofLines.size ? ofLines : null;
    draw();
  });
  onTheme(draw);
  new ResizeObserver(draw).observe(canvas.parentElement);
}

/** A launch in words: what, for which line, how long, how near the peak. */
function launchSaid(step, launch) {
  const of = step.launches;
  const kernel = step.kernels[of.kernel[launch]];
  const name = (texts, number) => (number === null ? "" : texts[number]);
  const share = of.share[launch];
  return [
    [kernel.name, true],
    [humanTime(of.time[launch]), true],
    [of.line[launch] === null ? "no line" : step.lines[of.line[launch]].place],
    [step.phases[of.phase[launch]]],
    [name(step.ops, of.op[launch])],
    [name(step.modules, of.module[launch])],
    [kernel.facts],
    [of.bound[launch] === null ? "bound not known" : `bound: ${step.bounds[of.bound[launch]]}`],
    [share === null ? "" : `${humanShare(share)} of the peak`],
    [`at ${humanTime(of.start[launch])}`],
    [`launch ${launch + 1} of ${of.start.length}`],
    [step.origin],
  ];
}

function idleSaid(step, idle) {
  const of = step.idle;
  return [
    [`idle: ${step.causes[of.cause[idle]]}`, true],
    [humanTime(of.time[idle]), true],
    [of.line[idle]],
    [`at ${humanTime(of.start[idle])}`],
  ];
}

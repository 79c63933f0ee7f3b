// Draws a step's lanes on a canvas: phases on top, a lane a stream, idle time, the axis.

const AXIS = 20;
const PHASES = 16;
const LANE = 84;
const LEAST = 5; // so that a launch far from any peak is there to be seen
const IDLE = 14;
const GAP = 8;

function timelineHeight(step) {
  return PHASES + GAP + step.lanes.length * (LANE + GAP) + IDLE + GAP + AXIS;
}

/** Colours of the page by name, as a canvas takes them: asked of an element, since they differ by theme. */
function pageColours(names) {
  const probe = document.createElement("span");
  document.body.append(probe);
  const found = {};
  for (const name of names) {
    probe.style.color = `var(--${name})`;
    found[name] = getComputedStyle(probe).color;
  }
  probe.remove();
  return found;
}

/** Draws all. `chosen`: a Set of launches that stand out, or null; `at`: the launch that is pointed at, or -1. */
function drawTimeline(canvas, lanes, chosen, at) {
  const { step } = lanes;
  const ratio = devicePixelRatio || 1;
  const width = canvas.clientWidth;
  const height = timelineHeight(step);
  canvas.style.height = `${height + 2}px`;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  const colours = pageColours([...step.phases, "ink", "ink-3", "rule", "sunk", "off"]);
  const x = (time) => ((time - lanes.from) / lanes.width) * width;
  drawPhases(pen, lanes, colours, x, width);
  lanes.order.forEach((launches, lane) => {
    const top = PHASES + GAP + lane * (LANE + GAP);
    pen.fillStyle = colours.sunk;
    pen.fillRect(0, top, width, LANE);
    drawLaunches(pen, lanes, launches, top, colours, x, width, chosen, at);
    if (step.lanes.length > 1) label(pen, step.lanes[lane], 4, top + 12, colours["ink-3"]);
  });
  drawIdle(pen, lanes, height - AXIS - GAP - IDLE, colours, x, width);
  drawAxis(pen, lanes, height - AXIS, colours, x, width);
}

function label(pen, text, x, y, colour) {
  pen.font = "11px ui-sans-serif, system-ui, sans-serif";
  pen.fillStyle = colour;
  pen.fillText(text, x, y);
}

function drawPhases(pen, lanes, colours, x, width) {
  const { phase, start, end } = lanes.step.stretches;
  pen.font = "11px ui-sans-serif, system-ui, sans-serif";
  for (let i = 0; i < phase.length; i += 1) {
    const left = Math.max(x(start[i]), 0);
    const right = Math.min(x(end[i]), width);
    if (right <= left) continue;
    const name = lanes.step.phases[phase[i]];
    pen.fillStyle = colours[name];
    pen.fillRect(left, 0, Math.max(right - left - 0.5, 0.5), 3);
    if (pen.measureText(name).width + 4 < right - left) label(pen, name, left, 14, colours["ink-3"]);
  }
}

function drawLaunches(pen, lanes, launches, top, colours, x, width, chosen, at) {
  const { step } = lanes;
  const { start, time, phase, share } = step.launches;
  for (const launch of launches) {
    const left = x(start[launch]);
    const wide = Math.max((time[launch] / lanes.width) * width, 0.6);
    if (left > width || left + wide < 0) continue;
    const known = step.peaks && share[launch] !== null;
    const high = known ? Math.max(Math.min(share[launch], 1) * LANE, LEAST) : step.peaks ? 5 : LANE * 0.7;
    pen.globalAlpha = chosen && !chosen.has(launch) ? 0.16 : 1;
    pen.fillStyle = launch === at ? colours.ink : colours[step.phases[phase[launch]]];
    if (known || !step.peaks) pen.fillRect(left, top + LANE - high, wide > 3 ? wide - 0.5 : wide, high);
    else for (let y = 0; y < LANE; y += 6) pen.fillRect(left, top + y, wide > 3 ? wide - 0.5 : wide, 2); // unknown: dashes
  }
  pen.globalAlpha = 1;
}

function drawIdle(pen, lanes, top, colours, x, width) {
  const { start, time } = lanes.step.idle;
  pen.strokeStyle = colours["ink-3"];
  pen.fillStyle = colours["ink-3"];
  for (let i = 0; i < start.length; i += 1) {
    const left = Math.max(x(start[i]), 0);
    const right = Math.min(x(start[i] + time[i]), width);
    if (right <= left) continue;
    if (right - left < 6) {
      pen.globalAlpha = 0.5;
      pen.fillRect(left, top, Math.max(right - left, 0.5), IDLE);
      pen.globalAlpha = 1;
      continue;
    }
    pen.save();
    pen.beginPath();
    pen.rect(left, top, right - left, IDLE);
    pen.stroke();
    pen.clip();
    for (let at = left - IDLE; at < right; at += 4) {
      pen.moveTo(at, top + IDLE);
      pen.lineTo(at + IDLE, top);
    }
    pen.lineWidth = 0.7;
    pen.stroke();
    pen.restore();
  }
}

function drawAxis(pen, lanes, top, colours, x, width) {
  pen.fillStyle = colours.rule;
  pen.fillRect(0, top, width, 1);
  const raw = lanes.width / Math.max(2, Math.floor(width / 130));
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((times) => times * power).find((one) => one >= raw * 0.999);
  for (let tick = Math.ceil(lanes.from / step) * step; tick <= lanes.to; tick += step) {
    const at = x(tick);
    pen.fillStyle = colours["ink-3"];
    pen.fillRect(at, top, 1, 4);
    const text = axisTime(tick, step);
    if (at + pen.measureText(text).width + 4 < width) label(pen, text, at + 3, top + 14, colours["ink-3"]);
  }
}

/** A tick's time in the unit that its steps ask for. */
function axisTime(tick, step) {
  const [unit, name] = step >= 1e5 ? [1e6, "s"] : step >= 100 ? [1e3, "ms"] : [1, "µs"];
  const decimals = Math.max(0, -Math.floor(Math.log10(step / unit) + 1e-9));
  return `${(tick / unit).toFixed(decimals)} ${name}`;
}

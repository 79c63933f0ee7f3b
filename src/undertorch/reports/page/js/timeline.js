// The timeline of a step: what is in sight, what is pointed at, which launches stand out.

class Timeline {
  constructor(element, step) {
    this.step = step;
    this.lanes = new Lanes(step);
    this.canvas = element.querySelector("canvas");
    this.readout = element.querySelector(".readout");
    this.article = element.closest(".step");
    this.at = -1; // the launch that is pointed at
    this.chosen = null; // the launches of the lines that are open
  }

  draw() {
    if (this.canvas.clientWidth) drawTimeline(this.canvas, this.lanes, this.chosen, this.at);
  }

  /** Points at a launch and reads it out; -1 points at none. */
  point(launch) {
    this.at = launch;
    if (launch >= 0) say(this.readout, launchSaid(this.step, launch));
    this.draw();
  }

  /** Points at a launch so many further, as far as there are some. */
  go(by) {
    const next = Math.max(0, Math.min(this.at + by, this.lanes.count - 1));
    this.lanes.reach(next);
    this.point(next);
  }

  /** Shows a stretch so many times as long, around the launch that is pointed at. */
  zoom(by) {
    const { start, time } = this.step.launches;
    const middle = this.at < 0 ? 0.5 : (start[this.at] + time[this.at] / 2 - this.lanes.from) / this.lanes.width;
    this.lanes.zoom(by, Math.min(Math.max(middle, 0), 1));
    this.draw();
  }

  showAll() {
    this.lanes.showAll();
    this.draw();
  }

  /** Goes to the line of a launch. */
  open(launch) {
    const line = this.step.launches.line[launch];
    if (line !== null) goToLine(this.step.lines[line].id);
  }

  /** Lets the launches of the lines that are open stand out. */
  choose() {
    const open = new Set([...this.article.querySelectorAll(".hot")].filter(isOpen).map((row) => row.id));
    const chosen = new Set();
    this.step.launches.line.forEach((line, launch) => {
      if (line !== null && open.has(this.step.lines[line].id)) chosen.add(launch);
    });
    this.chosen = chosen.size ? chosen : null;
    this.draw();
  }
}

function startTimeline(element, step) {
  const timeline = new Timeline(element, step);
  startPointer(timeline);
  startKeys(timeline);
  const ways = { in: () => timeline.zoom(0.5), out: () => timeline.zoom(2), all: () => timeline.showAll() };
  element.querySelectorAll("[data-zoom]").forEach((button) => {
    button.addEventListener("click", ways[button.dataset.zoom]);
  });
  timeline.article.addEventListener("fold", () => timeline.choose());
  onTheme(() => timeline.draw());
  new ResizeObserver(() => timeline.draw()).observe(element);
}

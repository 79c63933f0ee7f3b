// What the timeline shows of a step: which stretch of time, which launch is where.

/** A step's launches in time, and the stretch that is in sight. */
class Lanes {
  constructor(step) {
    this.step = step;
    this.from = step.start;
    this.to = step.end > step.start ? step.end : step.start + 1;
    this.count = step.launches.start.length;
    this.order = step.lanes.map((_, lane) => {
      const inLane = [];
      for (let i = 0; i < this.count; i += 1) if (step.launches.lane[i] === lane) inLane.push(i);
      return inLane;
    });
  }

  get width() {
    return this.to - this.from;
  }

  /** Shows a stretch around a share (0 to 1) of what is in sight, `by` times as long, within the step. */
  zoom(by, around) {
    const whole = this.step.end - this.step.start || 1;
    const width = Math.min(Math.max(this.width * by, whole / 20000, 0.5), whole);
    this.from += (this.width - width) * around;
    this.to = this.from + width;
    this.move(0);
  }

  /** Moves by microseconds, as far as the step goes. */
  move(by) {
    const width = this.width;
    this.from = Math.max(this.step.start, Math.min(this.from + by, this.step.end - width));
    this.to = this.from + width;
  }

  showAll() {
    this.from = this.step.start;
    this.to = this.step.end > this.step.start ? this.step.end : this.step.start + 1;
  }

  /** Brings a launch into sight. */
  reach(launch) {
    const start = this.step.launches.start[launch];
    const end = start + this.step.launches.time[launch];
    if (start < this.from || end > this.to) this.move((start + end) / 2 - (this.from + this.to) / 2);
  }

  /** The launch of a lane at a time, or the nearest within some microseconds; -1 where none is. */
  at(lane, time, within) {
    const { start, time: lasts } = this.step.launches;
    let found = -1;
    let nearest = within;
    for (const launch of this.order[lane] ?? []) {
      if (start[launch] - within > time) break;
      const away = Math.max(start[launch] - time, time - start[launch] - lasts[launch], 0);
      if (away <= nearest) {
        nearest = away;
        found = launch;
      }
    }
    return found;
  }

  /** The idle interval at a time; -1 where none is. */
  idleAt(time) {
    const { start, time: lasts } = this.step.idle;
    return start.findIndex((begin, index) => begin <= time && time <= begin + lasts[index]);
  }
}

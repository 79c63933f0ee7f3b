// What is pointed at, in words.

/** Puts parts into an element, dots between them. A part: { text, bold, href }; those without text are left out. */
function say(element, parts) {
  element.replaceChildren();
  parts.filter(({ text }) => text).forEach(({ text, bold, href }, index) => {
    if (index) element.append(" · ");
    const part = document.createElement(href ? "a" : bold ? "b" : "span");
    if (href) part.href = href;
    part.textContent = text;
    element.append(part);
  });
}

/** A launch: what, for which line, how long, how near the peak. */
function launchSaid(step, launch) {
  const of = step.launches;
  const kernel = step.kernels[of.kernel[launch]];
  const line = of.line[launch] === null ? null : step.lines[of.line[launch]];
  const bound = of.bound[launch] === null ? "not known" : step.bounds[of.bound[launch]];
  return [
    { text: kernel.name, bold: true },
    { text: `${humanTime(of.time[launch])} ${step.origin}`, bold: true },
    line ? { text: line.place, href: `#${line.id}` } : { text: "no line" },
    { text: step.phases[of.phase[launch]] },
    { text: step.ops[of.op[launch]] },
    { text: step.modules[of.module[launch]] },
    { text: kernel.facts },
    { text: `bound: ${bound}` },
    { text: of.share[launch] === null ? "" : `${humanShare(of.share[launch])} of the peak` },
    { text: `at ${humanTime(of.start[launch])}` },
    { text: `launch ${launch + 1} of ${of.start.length}` },
  ];
}

function idleSaid(step, idle) {
  const of = step.idle;
  return [
    { text: `idle: ${step.causes[of.cause[idle]]}`, bold: true },
    { text: humanTime(of.time[idle]), bold: true },
    { text: of.line[idle] },
    { text: `at ${humanTime(of.start[idle])}` },
  ];
}

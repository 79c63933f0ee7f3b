// Figures as people read them: three digits and a unit, as in the rest of the page.

function humanTime(us) {
  let unit = 0;
  while (Math.abs(us) >= 999.5 && unit < 2) {
    us /= 1000;
    unit += 1;
  }
  const decimals = Math.abs(us) < 9.995 ? 2 : Math.abs(us) < 99.95 ? 1 : 0;
  return `${us.toFixed(decimals)} ${["µs", "ms", "s"][unit]}`;
}

/** A share from 0 to 1 as `13.2 %`. */
function humanShare(part) {
  return `${(part * 100).toFixed(1)} %`;
}

/** Puts rows of text into an element: [text, isBold] pairs, joined by dots. */
function say(element, parts) {
  element.replaceChildren();
  parts.filter(([text]) => text).forEach(([text, bold], index) => {
    if (index) element.append(" · ");
    const part = bold ? document.createElement("b") : document.createTextNode(text);
    if (bold) part.textContent = text;
    element.append(part);
  });
}

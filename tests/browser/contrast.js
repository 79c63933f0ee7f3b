// Texts that do not stand out from what is behind them, by the contrast of WCAG 2.2: [texts looked at, those too faint].

const pen = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d", { willReadFrequently: true });
const known = new Map();
const rgba = (text) => {
  if (!known.has(text)) {
    pen.clearRect(0, 0, 1, 1); pen.fillStyle = text; pen.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data; known.set(text, [r, g, b, a / 255]);
  }
  return known.get(text);
};
const over = (top, below) => [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);
const ground = (element) => {
  if (!element) return [255, 255, 255, 1];
  const own = rgba(getComputedStyle(element).backgroundColor);
  return own[3] === 1 ? own : over(own, ground(element.parentElement));
};
const light = (colour) => [0.2126, 0.7152, 0.0722].reduce((sum, weight, i) => {
  const part = colour[i] / 255;
  return sum + weight * (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
}, 0);
const found = new Map(); let checked = 0;
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const element = walker.currentNode.parentElement;
  const text = walker.currentNode.textContent.trim();
  if (!text || !element.checkVisibility() || element.closest(".hidden, script, style, svg, .skip, noscript")) continue;
  const style = getComputedStyle(element);
  const behind = ground(element);
  const [a, b] = [light(over(rgba(style.color), behind)), light(behind)].sort((x, y) => y - x);
  const size = parseFloat(style.fontSize);
  const least = size >= 24 || (size >= 18.66 && style.fontWeight >= 700) ? 3 : 4.5;
  checked += 1;
  const ratio = (a + 0.05) / (b + 0.05);
  if (ratio < least) found.set(`${element.tagName}.${element.className} ${style.color}`, `${ratio.toFixed(2)} ${text.slice(0, 40)}`);
}
return [checked, [...found].map((pair) => pair.join(": "))];

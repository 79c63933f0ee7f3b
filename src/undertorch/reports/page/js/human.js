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

/** A share from 0 to 1 as `13.2 %`; what is there but rounds to nothing as `<0.1 %`. */
function humanShare(part) {
  if (part > 0 && part < 0.0005) return "<0.1 %";
  return `${(part * 100).toFixed(1)} %`;
}

// Stretches of a file in which nothing happens: their text is put in when it is asked for.

function startGaps(sources) {
  document.querySelectorAll(".fill").forEach((button) => {
    button.addEventListener("click", () => {
      const gap = button.closest("tr");
      const there = gap.nextElementSibling?.classList.contains("filled") ? gap.nextElementSibling : null;
      button.setAttribute("aria-expanded", String(!there));
      if (there) there.remove();
      else gap.after(filled(sources[button.dataset.source], Number(button.dataset.first), Number(button.dataset.last)));
    });
  });
}

function filled(rows, first, last) {
  const numbers = document.createElement("span");
  const text = document.createElement("code");
  numbers.className = "numbers";
  text.className = "text";
  numbers.setAttribute("aria-hidden", "true");
  numbers.textContent = Array.from({ length: last - first + 1 }, (_, index) => first + index).join("\n");
  text.textContent = rows.slice(first - 1, last).join("\n");
  const block = document.createElement("pre");
  block.tabIndex = 0;
  block.append(numbers, text);
  const row = document.createElement("tr");
  row.className = "filled";
  row.insertCell().colSpan = 9;
  row.cells[0].append(block);
  return row;
}

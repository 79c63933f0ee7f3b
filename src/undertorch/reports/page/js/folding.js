// Lines open into their kernels, and close again; so do the kernels that hardly count.

/** Opens or closes a line's row; tells whoever listens to "fold". */
function fold(row, open) {
  const button = row.querySelector(".unfold");
  if ((button.getAttribute("aria-expanded") === "true") === open) return;
  button.setAttribute("aria-expanded", String(open));
  document.getElementById(button.getAttribute("aria-controls")).hidden = !open;
  row.dispatchEvent(new CustomEvent("fold", { bubbles: true, detail: { open } }));
}

function isOpen(row) {
  return row.querySelector(".unfold").getAttribute("aria-expanded") === "true";
}

function startFolding() {
  document.querySelectorAll(".listing .hot").forEach((row) => {
    row.addEventListener("click", (event) => {
      const selecting = String(getSelection()) !== "" && !event.target.closest(".unfold");
      if (!event.target.closest("a") && !selecting) fold(row, !isOpen(row));
    });
  });
  document.querySelectorAll(".file .all").forEach((button) => {
    button.addEventListener("click", () => {
      const open = button.dataset.open !== "true";
      button.dataset.open = String(open);
      button.firstElementChild.textContent = open ? "close all" : "open all"; // its name says it: no pressed state beside it
      button.closest(".file").querySelectorAll(".hot").forEach((row) => fold(row, open));
    });
  });
  document.querySelectorAll(".reveal").forEach((button) => {
    button.addEventListener("click", () => {
      const open = button.getAttribute("aria-expanded") !== "true";
      button.setAttribute("aria-expanded", String(open));
      document.getElementById(button.getAttribute("aria-controls")).hidden = !open;
    });
  });
}

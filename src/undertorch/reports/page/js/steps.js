// Several steps in one page: one is shown, the table of the comparison chooses.

/** Shows one step and hides the others; the links above lead into it. */
function showStep(step) {
  document.querySelectorAll(".step").forEach((other) => { other.hidden = other !== step; });
  document.querySelectorAll(".choose").forEach((button) => {
    button.setAttribute("aria-pressed", String(button.dataset.step === step.dataset.step));
  });
  document.querySelectorAll(".bar nav a").forEach((link) => { link.href = `#${step.id}-${link.dataset.part}`; });
}

function startSteps() {
  const steps = document.querySelectorAll(".step");
  document.querySelectorAll(".choose").forEach((button) => {
    button.addEventListener("click", () => showStep(steps[button.dataset.step]));
  });
  showStep(steps[0]);
}

// Dots of the roofline say what they are when they are pointed at.

function startRoofline() {
  document.querySelectorAll(".chart").forEach((chart) => {
    const readout = chart.querySelector(".readout");
    chart.querySelectorAll(".dot").forEach((dot) => {
      dot.addEventListener("pointerenter", () => say(readout, [[dot.dataset.name, true], [dot.dataset.what]]));
    });
  });
}

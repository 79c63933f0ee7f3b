// Dots of the roofline say what they are when they are pointed at.

function startRoofline() {
  document.querySelectorAll(".chart").forEach((chart) => {
    const readout = chart.querySelector(".readout");
    chart.querySelectorAll(".dot").forEach((dot) => {
      dot.addEventListener("pointerenter", () => say(readout, [{ text: dot.dataset.name, bold: true }, { text: dot.dataset.what }]));
    });
  });
}

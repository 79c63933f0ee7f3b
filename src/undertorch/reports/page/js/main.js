// Starts everything.

const data = JSON.parse(document.getElementById("data").textContent);
startTheme();
startFolding();
startGaps(data.sources);
startRoofline();
startSteps();
document.querySelectorAll(".step").forEach((article) => {
  const element = article.querySelector(".timeline");
  if (element) startTimeline(element, data.steps[article.dataset.step]);
});
startLines();

// Following a trend run by run: with the pointer, with a finger, or with the arrow keys on a chart that has the focus.
// What is said of a run is read from the table of all numbers below the charts.
"use strict";
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const state = { chart: null, run: 0 };

  const rowsOf = (chart) => {
    const table = chart.closest(".detail") && chart.closest(".detail").querySelector(".numbers table");
    return table ? [[...table.tHead.rows[0].cells], [...table.tBodies[0].rows]] : [[], []];
  };
  const wayOf = (chart) => chart.dataset.followed.split(" ").map(Number);

  function runAt(chart, x) {
    const [left, right, low, high] = wayOf(chart);
    const box = chart.getBoundingClientRect();
    const inside = ((x - box.left) / box.width) * chart.viewBox.baseVal.width;
    return Math.round(low + ((inside - left) / (right - left)) * (high - low));
  }

  function hide() {
    if (!state.chart) return;
    for (const one of state.chart.parentElement.querySelectorAll(".cursor, .tip")) one.remove();
    state.chart = null;
  }

  function show(chart, wanted) {
    const [heads, rows] = rowsOf(chart);
    if (!rows.length) return;
    const run = Math.min(Math.max(wanted, 1), rows.length);
    if (state.chart === chart && state.run === run) return;
    hide();
    Object.assign(state, { chart, run });
    const [left, right, low, high, top, bottom] = wayOf(chart);
    const x = left + ((run - low) / (high - low)) * (right - left);
    const line = document.createElementNS(SVG, "path");
    line.setAttribute("class", "cursor");
    line.setAttribute("d", `M${x.toFixed(1)} ${top}V${bottom}`);
    chart.append(line);
    chart.parentElement.append(tip(heads, rows[run - 1], x < (left + right) / 2));
  }

  function tip(heads, row, atLeft) {
    const made = document.createElement("div");
    made.className = `tip ${atLeft ? "right" : "left"}`;
    made.setAttribute("role", "status");
    const list = document.createElement("dl");
    heads.forEach((head, place) => {
      const value = row.cells[place].textContent;
      if (value === "-") return;
      const pair = document.createElement("div"), name = document.createElement("dt"), said = document.createElement("dd");
      name.textContent = head.textContent;
      said.textContent = value;
      pair.append(name, said);
      list.append(pair);
    });
    made.append(list);
    return made;
  }

  const chartOf = (event) => event.target instanceof Element && event.target.closest("svg[data-followed]");

  addEventListener("pointermove", (event) => {
    const chart = chartOf(event);
    if (chart) show(chart, runAt(chart, event.clientX));
    else if (state.chart && state.chart !== document.activeElement) hide();
  });
  addEventListener("pointerdown", (event) => {
    const chart = chartOf(event);
    if (chart) show(chart, runAt(chart, event.clientX));
    else hide();
  });
  addEventListener("focusin", (event) => {
    const chart = chartOf(event);
    if (chart && state.chart !== chart && chart.matches(":focus-visible")) show(chart, Infinity);
    else if (!chart) hide();
  });
  addEventListener("keydown", (event) => {
    const chart = chartOf(event);
    if (!chart) return;
    if (event.key === "Escape") return hide();
    const now = state.chart === chart ? state.run : Infinity;
    const steps = { ArrowLeft: now - 1, ArrowRight: now + 1, Home: 1, End: Infinity, PageUp: now - 10, PageDown: now + 10 };
    if (!(event.key in steps)) return;
    event.preventDefault();
    show(chart, steps[event.key]);
  });

  // What is drawn on demand is demanded by paper too.
  let printed = [];
  addEventListener("beforeprint", () => {
    printed = [...document.querySelectorAll("#table .opener[aria-expanded=false]")].filter((one) => one.getClientRects().length);
    for (const one of printed) one.click();
  });
  addEventListener("afterprint", () => {
    for (const one of printed) one.click();
    printed = [];
  });
})();

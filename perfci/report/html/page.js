// What the page does beyond being read: sorting, filtering, opening rows, and drawing the charts of packed cases.
// Texts get into the page as text nodes and attributes only, never as markup.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const words = data.words;
  const table = document.getElementById("table");
  const root = document.documentElement;
  root.classList.add("js");

  // --- small helpers ---------------------------------------------------------------------------------------------

  const element = (name, attributes = {}, ...children) => fill(document.createElement(name), attributes, children);
  const drawing = (name, attributes = {}, ...children) =>
    fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);

  function fill(made, attributes, children) {
    for (const [name, value] of Object.entries(attributes)) if (value !== "") made.setAttribute(name, value);
    made.append(...children.filter((child) => child !== null));
    return made;
  }

  const told = (text, facts) => text.replace(/\{(\w+)\}/g, (all, name) => facts[name] ?? all);
  const number = (value) => value.toFixed(1).replace(/\.0$/, "").replace(/^-0$/, "0");

  // Words between single backticks are code, as everywhere in perfci.
  const spoken = (text) => text.split(/`([^`|\\]+)`/).map((part, index) => (index % 2 ? element("code", {}, part) : part));

  // --- light and dark --------------------------------------------------------------------------------------------

  const remembered = (theme) => {
    try {
      if (theme) sessionStorage.setItem("perfci-theme", theme);
      return sessionStorage.getItem("perfci-theme");
    } catch {
      return null; // storage may be forbidden; then the choice lasts as long as the page
    }
  };
  const button = document.getElementById("theme");
  const isDark = () =>
    (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  function themed(theme) {
    if (theme === "dark" || theme === "light") root.dataset.theme = theme;
    button.textContent = isDark() ? words.light : words.dark;
  }
  button.hidden = false;
  button.addEventListener("click", () => themed(remembered(isDark() ? "light" : "dark") || (isDark() ? "light" : "dark")));
  themed(remembered());

  // --- charts ----------------------------------------------------------------------------------------------------

  // A series: decimals, then integers, each less the one before; null where there is none.
  function series(place) {
    const [digits, ...steps] = data.series[place];
    let sum = 0;
    return steps.map((step) => (step === null ? null : (sum += step) / 10 ** digits));
  }

  const share = ([low, high, log], value) => (log ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low));
  const label = (text, x, y, kind = "") => drawing("text", { class: kind, x: number(x), y: number(y) }, text);

  function chart([title, text, [width, height], legend, panels, way]) {
    const [name] = data.styles[title];
    const made = drawing("svg", { class: "chart narrow", role: "img", viewBox: `0 0 ${number(width)} ${number(height)}` });
    if (way) fill(made, { tabindex: "0", "data-followed": way }, []);
    made.append(drawing("title", {}, name), drawing("desc", {}, text));
    for (const [name, kind, style, row, x] of data.styles[legend]) {
      const middle = 16 * row + 8;
      made.append(marked(kind, data.styles[style], [x, x + 18], [middle, middle], true), label(name, x + 22, middle + 3.6));
    }
    for (const panel of panels) made.append(...panelled(panel));
    return made;
  }

  function panelled([place, xAxis, yAxis, marks]) {
    const [left, right, low, high, grid, xLabels, yLabels] = data.styles[place];
    const x = data.axes[xAxis], y = data.axes[yAxis];
    const across = (value) => left + (right - left) * share(x, value);
    const up = (value) => low + (high - low) * share(y, value);
    const rules = grid.includes("x") ? x[4].map(([tick]) => `M${number(across(tick))} ${number(low)}V${number(high)}`) : [];
    if (grid.includes("y")) rules.push(...y[4].map(([tick]) => `M${number(left)} ${number(up(tick))}H${number(right)}`));
    const made = rules.length ? [drawing("path", { class: "r", d: rules.join("") })] : [];
    const frame = [`M${number(left)} ${number(high)}V${number(low)}H${number(right)}`];
    frame.push(...x[4].map(([tick]) => `M${number(across(tick))} ${number(low)}v3`));
    frame.push(...y[4].map(([tick]) => `M${number(left)} ${number(up(tick))}h-3`));
    made.push(drawing("path", { class: "a", d: frame.join("") }));
    for (const [kind, style, ...rest] of marks) made.push(placed(kind, data.styles[style], rest, { x, y, across, up, left, right, low, high }));
    if (xLabels) {
      made.push(...x[4].map(([tick, name]) => label(name, across(tick), low + 14, "m")));
      if (x[3]) made.push(label(x[3], (left + right) / 2, low + 28, "m"));
    }
    if (yLabels) made.push(...y[4].map(([tick, name]) => label(name, left - 6, up(tick) + 3.6, "r")));
    return made;
  }

  function placed(kind, style, [first, second, third], at) {
    if (kind < 2) return marked(kind, style, series(first).map(at.across), series(second).map(at.up));
    const within = (axis, value) => Math.min(Math.max(value, axis[0]), axis[1]);
    if (kind === 2) {
      const xs = first ? first.map((value) => at.across(within(at.x, value))) : [at.left, at.right];
      const ys = second ? second.map((value) => at.up(within(at.y, value))) : [at.low, at.high];
      return marked(2, style, [xs[0] - style[2], xs[1] + style[2]], [ys[1], ys[0]]);
    }
    const [classes, right, down, dataX, dataY] = style;
    const x = dataX ? at.across(second) : at.left + (at.right - at.left) * second;
    const y = dataY ? at.up(third) : at.low + (at.high - at.low) * third;
    return label(data.styles[first][0], x + right, y + down, classes);
  }

  // One mark at its pixels: a line, markers, or a band; a sample of the legend is as high as its line.
  function marked(kind, style, xs, ys, sample = false) {
    if (kind === 0) {
      const d = "M" + xs.map((x, index) => `${number(x)} ${number(ys[index])}`).join("L");
      return drawing("path", { class: `l ${style[0]}`, "stroke-width": style[1], "stroke-dasharray": style[2], d });
    }
    if (kind === 1) {
      const places = sample ? [[(xs[0] + xs[1]) / 2, ys[0]]] : xs.map((x, index) => [x, ys[index]]);
      const d = places.map(([x, y]) => `M${number(x)} ${number(y)}${style[2]}`).join("");
      return drawing("path", { class: `${style[1] ? "h" : "p"} ${style[0]}`, d });
    }
    const [top, bottom] = sample ? [ys[0] - 4, ys[0] + 4] : ys;
    const size = { width: number(Math.max(xs[1] - xs[0], 0)), height: number(Math.max(bottom - top, 0)) };
    return drawing("rect", { class: `q ${style[0]}`, "fill-opacity": style[1], x: number(xs[0]), y: number(top), ...size });
  }

  // --- the details of a packed case ------------------------------------------------------------------------------

  function detail([why, facts, arms, differs, commands, charts, blocks]) {
    const made = element("div", { class: "detail" });
    for (const text of why) made.append(element("p", {}, ...spoken(text)));
    if (charts.length) {
      const figures = charts.map((one) => element("figure", {}, element("figcaption", {}, data.styles[one[0]][0]), chart(one)));
      made.append(element("div", { class: "charts" }, ...figures));
    }
    if (facts.length) {
      made.append(element("dl", {}, ...facts.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value)))));
    }
    if (arms.length) made.append(element("h4", {}, words.launches), rows(words.arms, arms, words.launches, 1));
    if (blocks.length) {
      const columns = blocks.map(([, place, texts]) => {
        if (texts) return data.styles[place];
        const digits = data.series[place][0];
        return series(place).map((value) => (value === null ? "-" : value.toFixed(digits)));
      });
      const lines = columns[0].map((_, index) => columns.map((column) => column[index]));
      const numbers = rows(blocks.map(([name]) => name), lines, words.numbers, 0);
      made.append(element("details", { class: "numbers" }, element("summary", {}, words.numbers), numbers));
    }
    if (differs.length) made.append(element("h4", {}, words.environment), rows(words.changes, differs, words.environment));
    if (commands.length) made.append(element("h4", {}, words.repeat));
    for (const [what, command] of commands) {
      made.append(element("p", { class: "what" }, ...spoken(what)), element("pre", { tabindex: "0" }, command));
    }
    return made;
  }

  // numbers: from which column on there are numbers.
  function rows(headings, lines, name, numbers = Infinity) {
    const kind = (index) => (index < numbers ? "" : "n");
    const head = element("tr", {}, ...headings.map((text, index) => element("th", { scope: "col", class: kind(index) }, text)));
    const body = lines.map((cells) => element("tr", {}, ...cells.map((text, index) => element("td", { class: kind(index) }, text))));
    const made = element("table", { class: "plain" }, element("thead", {}, head), element("tbody", {}, ...body));
    return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": name }, made);
  }

  const ran = document.getElementById("ran");
  if (ran && matchMedia("(max-width: 1160px)").matches) ran.open = false;
  if (!table) return;

  // --- opening rows ----------------------------------------------------------------------------------------------

  const bodies = [...table.tBodies];
  const columns = [...table.tHead.rows[0].cells];

  for (const body of bodies) {
    if (!body.dataset.packed && !body.querySelector(".more")) continue;
    body.classList.add("openable");
    const cell = body.querySelector(".c");
    const opener = element("button", { type: "button", class: "opener", "aria-expanded": "false" });
    const name = element("span", {}, ...cell.childNodes);
    if (!name.textContent.trim()) name.append(body.dataset.op);
    opener.append(name);
    cell.append(opener);
    body.rows[0].addEventListener("click", (event) => {
      if (event.target.closest("a") || String(getSelection())) return;
      opened(body, !body.classList.contains("open"));
      remember();
    });
  }

  function opened(body, open) {
    if (!body.classList.contains("openable")) return;
    if (open && body.dataset.packed) {
      const shown = element("details", {}, element("summary"), detail(data.cases[body.dataset.packed]));
      body.append(element("tr", { class: "more" }, element("td", { colspan: String(columns.length) }, shown)));
      delete body.dataset.packed;
    }
    body.classList.toggle("open", open);
    body.querySelector(".opener").setAttribute("aria-expanded", String(open));
    const shown = body.querySelector(".more details");
    if (shown) shown.open = open;
  }

  // --- sorting and filtering -------------------------------------------------------------------------------------

  const natural = new Intl.Collator(undefined, { numeric: true });
  // What the chips and the list filter by: the rows' attributes of these names.
  const kind = table.dataset.chips || "verdict", group = table.dataset.list || "op";
  const find = document.getElementById("find"), op = document.getElementById("op") || { value: "" };
  const chips = [...document.querySelectorAll(".chip")];
  const unfold = document.getElementById("unfold");
  const state = { sort: "", descending: false, unfolded: false };
  const texts = bodies.map((body) => body.rows[0].textContent.toLowerCase());

  table.classList.add("sortable");
  for (const column of columns) {
    if (!column.dataset.sort) continue;
    const head = element("button", { type: "button" }, column.textContent);
    column.replaceChildren(head);
    head.addEventListener("click", () => {
      const again = state.sort === column.dataset.sort;
      // Numbers start with the greatest, the slowest or most changed; a third press gives the first order back.
      const first = column.classList.contains("n");
      if (again && state.descending !== first) Object.assign(state, { sort: "", descending: false });
      else Object.assign(state, { sort: column.dataset.sort, descending: again ? !first : first });
      shown();
    });
  }

  function keyOf(body, place) {
    if (state.sort === kind) return Number(body.dataset.rank);
    const cell = body.rows[0].cells[place];
    if (!columns[place].classList.contains("n")) return cell.textContent.trim();
    return cell.dataset.n === undefined ? null : Number(cell.dataset.n);
  }

  // What has no number comes last in either direction; equals stay in their first order.
  function sorted() {
    const place = columns.findIndex((column) => column.dataset.sort === state.sort);
    if (place < 0) return bodies;
    const keyed = bodies.map((body) => [keyOf(body, place), body]);
    const known = keyed.filter(([key]) => key !== null);
    const sign = state.descending ? -1 : 1;
    known.sort(([a], [b]) => sign * (typeof a === "number" ? a - b : natural.compare(a, b)));
    return [...known, ...keyed.filter(([key]) => key === null)].map(([, body]) => body);
  }

  function shown() {
    const wanted = new Set(chips.filter((chip) => chip.getAttribute("aria-pressed") === "true").map((chip) => chip.dataset[kind]));
    const searched = find.value.toLowerCase().split(/\s+/).filter(Boolean);
    const filtered = searched.length || wanted.size || op.value;
    let count = 0, folded = 0;
    bodies.forEach((body, index) => {
      const fits =
        (!wanted.size || wanted.has(body.dataset[kind])) &&
        (!op.value || body.dataset[group] === op.value) &&
        searched.every((word) => texts[index].includes(word));
      body.hidden = !fits;
      const unfolded = Boolean(filtered || state.sort || state.unfolded);
      body.classList.toggle("unfolded", unfolded);
      const hides = fits && !unfolded && body.classList.contains("folded");
      folded += hides;
      count += fits && !hides;
    });
    table.append(...sorted());
    for (const column of columns) {
      if (column.dataset.sort !== state.sort) column.removeAttribute("aria-sort");
      else column.setAttribute("aria-sort", state.descending ? "descending" : "ascending");
    }
    document.getElementById("count").textContent = count
      ? told(words.shown, { shown: count, count: bodies.length })
      : told(words.nothing, { count: bodies.length });
    if (unfold) {
      unfold.hidden = !folded;
      unfold.textContent = told(words.more, { count: folded });
    }
    remember();
  }

  // --- the address: report.html#sort=change&verdict=REGRESSED&op=softmax&open=softmax/rows=4096 --------------------

  let restoring = false;

  function remember() {
    if (restoring) return;
    const parts = new URLSearchParams();
    if (state.sort) parts.set("sort", (state.descending ? "-" : "") + state.sort);
    const wanted = chips.filter((chip) => chip.getAttribute("aria-pressed") === "true").map((chip) => chip.dataset[kind]);
    if (wanted.length) parts.set(kind, wanted.join(","));
    if (op.value) parts.set(group, op.value);
    if (find.value) parts.set("q", find.value);
    for (const body of bodies) if (body.classList.contains("open")) parts.append("open", body.dataset.key);
    const hash = String(parts).replaceAll("%3D", "=").replaceAll("%2C", ",").replaceAll("%2F", "/");
    try {
      history.replaceState(null, "", hash ? `#${hash}` : location.pathname + location.search);
    } catch {
      // some hosts show the page where its address may not change; then nothing is remembered
    }
  }

  function restore() {
    const hash = location.hash.slice(1);
    if (!hash.includes("=")) return revealed(hash);
    const parts = new URLSearchParams(hash);
    restoring = true;
    const sort = parts.get("sort") || "";
    Object.assign(state, { sort: sort.replace(/^-/, ""), descending: sort.startsWith("-") });
    const wanted = (parts.get(kind) || "").split(",");
    for (const chip of chips) chip.setAttribute("aria-pressed", String(wanted.includes(chip.dataset[kind])));
    op.value = parts.get(group) || "";
    if (op.selectedIndex < 0) op.value = "";
    find.value = parts.get("q") || "";
    shown();
    const open = new Set(parts.getAll("open"));
    for (const body of bodies) opened(body, open.has(body.dataset.key));
    restoring = false;
    const first = bodies.find((body) => body.classList.contains("open"));
    if (first) first.scrollIntoView();
  }

  // A link to a folded place opens what it lies in.
  function revealed(id) {
    const place = id && document.getElementById(id);
    for (let up = place; up; up = up.parentElement) if (up.tagName === "DETAILS") up.open = true;
    if (place) place.scrollIntoView();
  }

  document.getElementById("filters").hidden = false;
  document.getElementById("filters").addEventListener("submit", (event) => event.preventDefault());
  find.addEventListener("input", shown);
  if (op.addEventListener) op.addEventListener("change", shown);
  for (const chip of chips) {
    chip.addEventListener("click", () => {
      chip.setAttribute("aria-pressed", String(chip.getAttribute("aria-pressed") !== "true"));
      shown();
    });
  }
  document.getElementById("clear").addEventListener("click", () => {
    find.value = op.value = "";
    for (const chip of chips) chip.setAttribute("aria-pressed", "false");
    shown();
  });
  if (unfold) {
    unfold.addEventListener("click", () => {
      state.unfolded = true;
      shown();
    });
  }
  addEventListener("hashchange", restore);
  addEventListener("beforeprint", () => {
    for (const one of document.querySelectorAll("details:not(.numbers)")) {
      if (!one.open) one.dataset.printed = "";
      one.open = true;
    }
  });
  addEventListener("afterprint", () => {
    for (const one of document.querySelectorAll("details[data-printed]")) {
      one.open = false;
      delete one.dataset.printed;
    }
  });
  restoring = true;
  shown();
  if (!location.hash) for (const body of bodies) if (body.dataset.open) opened(body, true);
  restoring = false;
  restore();
})();

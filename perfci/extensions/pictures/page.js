// What the page does beyond being read: sorting, filtering, and opening rows.
// Texts get into the page as text nodes and attributes only, never as markup.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const words = data.words;
  const table = document.getElementById("table");
  const root = document.documentElement;
  root.classList.add("js");

  // --- small helpers ---------------------------------------------------------------------------------------------

  function element(name, attributes, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }

  const told = (text, facts) => text.replace(/\{(\w+)\}/g, (all, name) => facts[name] ?? all);

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

  const ran = document.getElementById("ran");
  if (ran && matchMedia("(max-width: 1160px)").matches) ran.open = false;
  if (!table) return;

  // --- opening rows ----------------------------------------------------------------------------------------------

  const bodies = [...table.tBodies];
  const columns = [...table.tHead.rows[0].cells];

  for (const body of bodies) {
    if (!body.querySelector(".more")) continue;
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

"use strict";
(() => {
  const LONG = 12; // rows of a table that gets a filter box
  const ORDERS = ["none", "ascending", "descending"];
  const natural = new Intl.Collator("en-GB", { numeric: true });

  // What a cell is sorted by: its number in a column of numbers, else its text; null is missing.
  const sortKey = (cell, numeric) => {
    if (numeric) return "value" in cell.dataset ? Number(cell.dataset.value) : null;
    const text = cell.textContent.trim();
    return text === "" || text === "-" || text === "\u2013" ? null : text;
  };

  const sortBy = (body, rows, at, order) => {
    if (order === "none") {
      body.append(...rows);
      return;
    }
    const numeric = rows.some((row) => "value" in row.cells[at].dataset);
    const sign = order === "ascending" ? 1 : -1;
    const keyed = rows.map((row) => [sortKey(row.cells[at], numeric), row]);
    const known = keyed.filter(([key]) => key !== null);
    known.sort(([a], [b]) =>
      sign * (numeric ? (a < b ? -1 : a > b ? 1 : 0) : natural.compare(a, b)));
    const missing = keyed.filter(([key]) => key === null);
    body.append(...known.concat(missing).map(([, row]) => row));
  };

  const makeSortable = (table, rows) => {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, at) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      head.setAttribute("aria-sort", "none");
      button.addEventListener("click", () => {
        const before = ORDERS.indexOf(head.getAttribute("aria-sort"));
        const order = ORDERS[(before + 1) % ORDERS.length];
        heads.forEach((other) => other.setAttribute("aria-sort", "none"));
        head.setAttribute("aria-sort", order);
        sortBy(table.tBodies[0], rows, at, order);
      });
    });
  };

  const makeFilter = (box, table, rows) => {
    const tools = document.createElement("div");
    tools.className = "tools";
    const input = document.createElement("input");
    input.type = "search";
    input.placeholder = "Filter rows";
    input.setAttribute("aria-label", "Filter the rows of this table by the words they hold");
    const count = document.createElement("span");
    count.setAttribute("role", "status");
    const texts = rows.map((row) =>
      [...row.cells].map((cell) => cell.textContent).join("\n").toLowerCase());
    const show = () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      rows.forEach((row, at) => {
        row.hidden = !words.every((word) => texts[at].includes(word));
        shown += row.hidden ? 0 : 1;
      });
      count.textContent = words.length ? `${shown} of ${rows.length} rows` : `${rows.length} rows`;
    };
    input.addEventListener("input", show);
    show();
    tools.append(input, count);
    box.prepend(tools);
  };

  // Where there is no pointer that hovers, a tap shows what a cell has to add.
  const makeHints = (box, table) => {
    if (!table.querySelector(".hint")) return;
    const line = document.createElement("p");
    line.className = "detail";
    line.setAttribute("role", "status");
    box.querySelector(".scroll").after(line);
    table.addEventListener("click", (event) => {
      const cell = event.target.closest(".hint");
      if (cell) line.textContent = `${cell.parentNode.cells[0].textContent}: ${cell.title}`;
    });
  };

  for (const box of document.querySelectorAll(".table")) {
    const table = box.querySelector("table");
    const rows = [...table.tBodies[0].rows];
    if (rows.length > 1) makeSortable(table, rows);
    if (rows.length > LONG) makeFilter(box, table, rows);
    makeHints(box, table);
  }

  const narrow = window.matchMedia("(max-width: 71.99rem)");
  const contents = document.querySelector("nav details");
  if (contents) {
    const fold = () => { contents.open = !narrow.matches; };
    fold();
    narrow.addEventListener("change", fold);
  }

  // A link to a folded part, or into one, unfolds it.
  const unfold = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    for (let at = target; at; at = at.parentElement) {
      if (at instanceof HTMLDetailsElement) at.open = true;
    }
    target.scrollIntoView();
  };
  window.addEventListener("hashchange", unfold);
  if (location.hash) unfold();

  let opened = [];
  window.addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll(":is(main, .boxes) details:not([open])")];
    opened.forEach((part) => { part.open = true; });
  });
  window.addEventListener("afterprint", () => {
    opened.forEach((part) => { part.open = false; });
  });
})();

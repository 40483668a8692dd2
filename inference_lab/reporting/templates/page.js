"use strict";
(() => {
  const LONG = 12; // rows beyond which a table gets a filter box
  const ORDERS = ["none", "ascending", "descending"];
  const natural = new Intl.Collator("en-GB", { numeric: true });

  // The sort key of a cell: its number in a column of numbers, else its text; null is missing.
  const sortKey = (cell, numeric) => {
    const text = cell.textContent.trim();
    if (numeric) {
      const shown = cell.dataset.value ?? text.replaceAll(",", "");
      return shown === "" || Number.isNaN(Number(shown)) ? null : Number(shown);
    }
    return text === "" || text === "-" || text === "\u2013" ? null : text;
  };

  const sortBy = (body, rows, at, order) => {
    if (order === "none") {
      body.append(...rows);
      return;
    }
    const numeric = rows.some((row) =>
      row.cells[at].matches("td:not(.text)") && sortKey(row.cells[at], true) !== null);
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

  // A tap shows the explanation of a cell, because touch screens cannot hover.
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

  // The edge fades, with a line above it, where a table exceeds its frame.
  const makeCue = (box) => {
    const frame = box.querySelector(".scroll");
    const cue = document.createElement("p");
    cue.className = "cue";
    cue.textContent = "More columns to the right: scroll sideways \u2192";
    frame.before(cue);
    const show = () => {
      const left = frame.scrollWidth - frame.clientWidth;
      cue.hidden = left <= 1;
      frame.classList.toggle("more", left - frame.scrollLeft > 1);
    };
    frame.addEventListener("scroll", show, { passive: true });
    new ResizeObserver(show).observe(frame);
  };

  const makeTable = (box) => {
    const table = box.querySelector("table");
    const rows = [...table.tBodies[0].rows];
    makeCue(box);
    if (rows.length > 1) makeSortable(table, rows);
    if (rows.length > LONG) makeFilter(box, table, rows);
    makeHints(box, table);
  };
  // Tables are prepared when first shown, because folded parts may hold hundreds of them.
  const waiting = new Set();
  const prepare = () => {
    for (const box of waiting) {
      if (box.closest("details:not([open])")) continue;
      waiting.delete(box);
      makeTable(box);
    }
  };
  const awaitTables = (root) => {
    root.querySelectorAll(".table").forEach((box) => waiting.add(box));
    prepare();
  };
  document.addEventListener("toggle", prepare, true);
  awaitTables(document);

  // Decompress the text in a template.
  const unpack = (template) => {
    const bytes = Uint8Array.from(atob(template.content.textContent), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Response(stream).text();
  };

  // Links save the files of tables from a compressed copy in the page.
  const packed = document.getElementById("files");
  let files = null;
  document.addEventListener("click", async (event) => {
    const link = event.target.closest(".files a");
    if (!link || !packed || link.protocol === "data:") return;
    event.preventDefault();
    files ??= JSON.parse(await unpack(packed));
    link.href = `data:text/plain;charset=utf-8,${encodeURIComponent(files[link.download])}`;
    link.click();
  });

  const narrow = window.matchMedia("(max-width: 71.99rem)");
  const contents = document.querySelector("nav details");
  if (contents) {
    const fold = () => { contents.open = !narrow.matches; };
    fold();
    narrow.addEventListener("change", fold);
  }

  // Links to a folded part, or into one, unfold it.
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

  document.querySelectorAll(".packed").forEach(async (part) => {
    const inside = document.createElement("div");
    inside.innerHTML = await unpack(part.querySelector("template"));
    part.replaceWith(inside);
    awaitTables(inside);
    if (location.hash) unfold();
  });

  const NARROW = 560; // pixels: narrower charts have their legends below
  const ON_PAPER = 700; // pixels: width of charts in folded parts, for printed pages
  const NAMES = { x: "Horizontal", y: "Vertical" };

  // All encodings of one axis in a specification.
  const encodings = (part, axis) => [
    ...(part.encoding?.[axis]?.scale ? [part.encoding[axis]] : []),
    ...(part.layer ?? []).flatMap((layer) => encodings(layer, axis)),
  ];

  // Charts are drawn for the available width, and again when it changes.
  const makeChart = async (chart) => {
    const plot = chart.querySelector(".plot");
    const given = JSON.parse(await unpack(chart.querySelector("template")));
    const linear = new Set();
    let width = 0;
    let drawn = null;

    const draw = async () => {
      width = plot.clientWidth;
      const room = width || ON_PAPER;
      const spec = structuredClone(given);
      const legend = spec.config.legend;
      if (room < NARROW || spec.facet) {
        const columns = Math.max(1, Math.floor(room / NARROW * 2) - 1);
        Object.assign(legend, { orient: "bottom", direction: "vertical", columns });
        legend.labelLimit = room / columns - 60;
      }
      if (spec.facet) {
        spec.columns = Math.max(1, Math.min(spec.columns, Math.floor(room / spec.usermeta.panel)));
      } else if (width && typeof spec.width === "number") {
        spec.width = "container";
        spec.autosize = { type: "fit-x", contains: "padding" };
      }
      linear.forEach((axis) => encodings(spec, axis).forEach((encoding) => {
        encoding.scale.type = "linear";
        delete encoding.axis.values;
      }));
      const before = drawn;
      // Expressions are interpreted, because the page forbids evaluating text as code.
      drawn = await vegaEmbed(plot, spec, { ast: true, actions: false, renderer: "svg", logLevel: 1 });
      before?.finalize();
    };

    Object.entries(NAMES).forEach(([axis, name]) => {
      const [first] = encodings(given, axis);
      if (!["log", "symlog"].includes(first?.scale.type)) return;
      const button = document.createElement("button");
      button.type = "button";
      const say = () => {
        button.textContent = `${name} axis: ${linear.has(axis) ? "linear" : "logarithmic"}`;
      };
      button.addEventListener("click", () => {
        if (!linear.delete(axis)) linear.add(axis);
        say();
        draw();
      });
      say();
      chart.querySelector(".controls").append(button);
    });

    draw();
    let soon = 0;
    new ResizeObserver(() => {
      if (!plot.clientWidth || plot.clientWidth === width) return;
      clearTimeout(soon);
      soon = setTimeout(draw, 150);
    }).observe(plot);
  };
  document.querySelectorAll(".chart").forEach(makeChart);

  let opened = [];
  window.addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll(":is(main, .boxes) details:not([open])")];
    opened.forEach((part) => { part.open = true; });
  });
  window.addEventListener("afterprint", () => {
    opened.forEach((part) => { part.open = false; });
  });
})();

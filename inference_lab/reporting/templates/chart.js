"use strict";
(() => {
  // The data of a chart are in the page; it is drawn for the room that there is.
  const [LEFT, RIGHT, TOP, BOTTOM, NEAR] = [62, 10, 8, 44, 30]; // pixels
  const element = (tag, attributes, text) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    Object.entries(attributes).forEach(([name, value]) => made.setAttribute(name, value));
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const button = (text, click) => {
    const made = document.createElement("button");
    made.type = "button";
    made.textContent = text;
    made.addEventListener("click", click);
    return made;
  };
  const number = (value) => {
    const size = Math.abs(value);
    return size >= 1e7 || (size > 0 && size < 1e-4)
      ? value.toExponential(3).replace(/\.?0+e/, "e") : String(Number(value.toPrecision(7)));
  };

  // An axis: where a value lies, from 0 to 1, and which values are named. A logarithmic one that
  // reaches zero is linear below its floor.
  const makeAxis = ([label, low, high, log, given], smallest) => {
    const floor = given || 10 ** Math.floor(Math.log10(smallest));
    const axis = { label, log: Boolean(log), can: low >= 0 || Boolean(log) };
    const below = low <= 0;
    const raw = (v) => (!axis.log ? v : below && v < floor
      ? Math.log10(floor) + 0.4 * (v / floor - 1) : Math.log10(Math.max(v, 1e-300)));
    axis.at = (v) => (raw(v) - raw(low)) / (raw(high) - raw(low) || 1);
    axis.ticks = (most) => {
      if (!axis.log) {
        const wanted = (high - low) / most;
        const power = 10 ** Math.floor(Math.log10(wanted));
        const step = power * ([1, 2, 5].find((m) => m * power >= wanted) || 10);
        const first = Math.ceil(low / step - 1e-9);
        return Array.from({ length: Math.floor(high / step + 1e-9) - first + 1 },
          (_, n) => Number(((first + n) * step).toPrecision(12)));
      }
      const from = Math.floor(Math.log10(below ? floor : low));
      const to = Math.floor(Math.log10(high));
      const within = to - from < 2 ? [1, 2, 5] : [1];
      const every = Math.ceil((to - from + 1) / most);
      const found = below ? [0] : [];
      for (let power = from; power <= to; power += every) {
        found.push(...within.map((m) => Number(`${m}e${power}`)));
      }
      return found.filter((v) => v >= low && v <= high);
    };
    return axis;
  };

  const makeChart = (chart) => {
    const plot = chart.querySelector(".plot");
    const svg = plot.querySelector("svg");
    const [scales, shared, given] = JSON.parse(svg.dataset.chart);
    const parts = given.map(([curve, kind, at, y]) => ({ curve, kind, x: shared[at], y }));
    const smallest = (lists) => {
      let least = Infinity;
      for (const list of lists) for (const v of list) if (v > 0 && v < least) least = v;
      return least === Infinity ? 1 : least;
    };
    const x = makeAxis(scales[0], smallest(shared));
    const y = makeAxis(scales[1], smallest(parts.map((part) => part.y)));
    const items = [...chart.querySelectorAll(".legend li")];
    const hidden = new Set();
    const drawn = [...svg.querySelectorAll("[data-curve]")];
    const ticks = svg.querySelector(".ticks");
    const tip = document.createElement("output");
    tip.className = "tip";
    tip.hidden = true;
    plot.append(tip);
    let [width, height] = [0, 0];

    const draw = () => {
      width = plot.clientWidth;
      height = Math.round(Math.max(250, Math.min(360, 0.6 * width)));
      const [across, up] = [width - LEFT - RIGHT, height - TOP - BOTTOM];
      const [px, py] = [(v) => LEFT + across * x.at(v), (v) => TOP + up * (1 - y.at(v))];
      svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
      svg.querySelectorAll("rect").forEach((frame) => {
        frame.setAttribute("width", across);
        frame.setAttribute("height", up);
      });
      const text = (attributes, said) => element("text", { "text-anchor": "middle", ...attributes }, said);
      const middle = TOP + up / 2;
      ticks.replaceChildren(
        ...x.ticks(Math.max(2, Math.floor(across / 75))).flatMap((v) => [
          element("path", { class: "grid", d: `M${px(v)} ${TOP}v${up}` }),
          text({ x: px(v), y: TOP + up + 16 }, number(v))]),
        ...y.ticks(6).flatMap((v) => [
          element("path", { class: "grid", d: `M${LEFT} ${py(v)}h${across}` }),
          text({ x: LEFT - 6, y: py(v) + 4, "text-anchor": "end" }, number(v))]),
        text({ class: "axis", x: LEFT + across / 2, y: height - 6 }, x.label),
        text({ class: "axis", x: 14, y: middle, transform: `rotate(-90 14 ${middle})` }, y.label));
      parts.forEach((part, n) => {
        part.px = part.x.map(px);
        part.py = part.y.map((v) => Math.max(-9999, Math.min(9999, py(v))));
        const points = part.px.map((h, i) => (i === 0 ? `M${h} ${part.py[0]}`
          : part.kind === "step" ? `H${h}V${part.py[i]}` : `L${h} ${part.py[i]}`));
        drawn[n].setAttribute("d", points.join("") + (part.kind === "band" ? "Z" : ""));
      });
    };

    const point = (wanted) => {
      const curve = hidden.has(wanted) ? null : wanted;
      chart.classList.toggle("chosen", curve !== null);
      [...drawn, ...items].forEach((each) =>
        each.classList.toggle("on", curve !== null && each.dataset.curve === String(curve)));
      tip.hidden = true;
    };
    const tell = (part, at) => {
      point(part.curve);
      const name = document.createElement("strong");
      name.textContent = items[part.curve].querySelector(".word").textContent;
      tip.replaceChildren(name, ` ${x.label}: ${number(part.x[at])}; ${y.label}: ${number(part.y[at])}`);
      tip.hidden = false;
      const box = [part.px[at], part.py[at]];
      tip.style.left = `${Math.max(0, Math.min(box[0] + 12, width - tip.offsetWidth))}px`;
      tip.style.top = `${Math.max(0, box[1] - tip.offsetHeight - 10)}px`;
    };
    plot.addEventListener("pointermove", (event) => {
      const frame = svg.getBoundingClientRect();
      const [h, v] = [event.clientX - frame.left, event.clientY - frame.top];
      let [best, at, least] = [null, 0, NEAR];
      for (const part of parts) {
        if (part.kind === "band" || hidden.has(part.curve) || !part.px.length) continue;
        let i = part.px.findLastIndex((left) => left <= h);
        if (i < 0) continue;
        const j = Math.min(i + 1, part.px.length - 1);
        const share = part.kind === "step" || j === i ? 0 : (h - part.px[i]) / (part.px[j] - part.px[i]);
        const off = Math.abs(part.py[i] + share * (part.py[j] - part.py[i]) - v);
        if (share > 0.5) i = j;
        if (off < least) [best, at, least] = [part, i, off];
      }
      if (best) tell(best, at);
      else point(null);
    });
    plot.addEventListener("pointerleave", () => point(null));

    const show = () => [...drawn, ...items].forEach((each) =>
      each.classList.toggle("off", hidden.has(Number(each.dataset.curve))));
    items.forEach((item, curve) => {
      const toggle = button("", () => {
        if (!hidden.delete(curve)) hidden.add(curve);
        toggle.setAttribute("aria-pressed", String(!hidden.has(curve)));
        show();
        point(curve);
      });
      toggle.setAttribute("aria-pressed", "true");
      toggle.append(...item.childNodes);
      item.append(toggle);
      ["pointerenter", "focusin"].forEach((kind) => item.addEventListener(kind, () => point(curve)));
      ["pointerleave", "focusout"].forEach((kind) => item.addEventListener(kind, () => point(null)));
    });

    const controls = document.createElement("p");
    controls.className = "controls";
    [[x, "Horizontal"], [y, "Vertical"]].filter(([axis]) => axis.can).forEach(([axis, name]) => {
      const said = () => `${name} axis: ${axis.log ? "logarithmic" : "linear"}`;
      const change = button(said(), () => {
        axis.log = !axis.log;
        change.textContent = said();
        draw();
      });
      controls.append(change);
    });
    if (items.length > 2) {
      controls.append(button("All lines on or off", () => {
        const all = hidden.size === 0;
        items.forEach((item, curve) => {
          if (all) hidden.add(curve);
          else hidden.delete(curve);
          item.querySelector("button").setAttribute("aria-pressed", String(!all));
        });
        show();
      }));
    }
    chart.append(controls);
    new ResizeObserver(() => { if (plot.clientWidth && plot.clientWidth !== width) draw(); }).observe(plot);
  };
  document.querySelectorAll(".chart").forEach(makeChart);
})();

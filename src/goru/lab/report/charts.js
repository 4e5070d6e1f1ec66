// The charts of the page: drawn over the data in #data, with no library. Without this script the still images show.
"use strict";
const element = (name, attributes = {}, ...children) => {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
};
const draw = (parent, name, attributes = {}, text = "") => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text) made.textContent = text;
  parent.append(made);
  return made;
};
const button = (text, label, act) => {
  const made = element("button", { type: "button", "aria-label": label, title: label }, text);
  made.addEventListener("click", act);
  return made;
};
const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
const known = (value) => value !== null && value !== undefined;

// Numbers as people read them
const figures = (value) => {
  if (!known(value)) return "";
  const size = Math.abs(value);
  return size !== 0 && (size < 1e-3 || size >= 1e6) ? value.toExponential(2) : String(Number(value.toPrecision(4)));
};
const counted = (value) => Math.round(value).toLocaleString("en");
const ticks = (low, high, wanted) => {
  const rough = (high - low) / wanted, unit = 10 ** Math.floor(Math.log10(rough));
  const step = unit * [1, 2, 5, 10].find((k) => k * unit >= rough * 0.7);
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) found.push(Number((k * step).toPrecision(12)));
  return found;
};
const logTicks = (low, high) => {
  const decades = Math.log10(high / low), found = [];
  const multiples = decades > 3 ? [1] : decades > 1.2 ? [1, 3] : [1, 1.5, 2, 3, 5, 7];
  for (let k = Math.floor(Math.log10(low)); 10 ** k <= high; k++)
    for (const m of multiples) if (m * 10 ** k >= low && m * 10 ** k <= high) found.push(m * 10 ** k);
  return found;
};

const drawing = () => document.createElementNS("http://www.w3.org/2000/svg", "svg");
const swatch = (s) => {
  const made = drawing();
  made.setAttribute("class", "swatch");
  made.setAttribute("viewBox", "0 0 22 8");
  made.setAttribute("aria-hidden", "true");
  draw(made, "line", { x1: 0, x2: 22, y1: 4, y2: 4, stroke: s.color, "stroke-width": 3, ...(s.dash ? { "stroke-dasharray": s.dash } : {}) });
  return made;
};
// What it switches, and between what: "x: iterations | minutes"
const choice = (name, options, chosen, act) => {
  const made = element("span", { class: "choice", role: "group", "aria-label": name.replace(":", " axis") }, name);
  for (const [value, text] of Object.entries(options)) {
    const one = element("button", { type: "button", "aria-pressed": String(value === chosen) }, text);
    one.addEventListener("click", () => {
      for (const other of made.querySelectorAll("button")) other.setAttribute("aria-pressed", String(other === one));
      act(value);
    });
    made.append(one);
  }
  return made;
};

const onResize = (target, act) => {
  let width = 0;
  new ResizeObserver(() => {
    if (Math.abs(target.clientWidth - width) > 1) { width = target.clientWidth; act(); }
  }).observe(target);
};

let clips = 0;

// A chart of losses. A small one is a panel of the overview: no tools, and the table beside it says whose line it is;
// that has no ablations, so neither has the panel, unless nothing else was run.
function losses(figure, data, small = false) {
  if (small && data.series.some((s) => !s.ablation)) data = { ...data, series: data.series.filter((s) => !s.ablation) };
  const margin = { left: small ? 40 : 52, right: 26, top: 26, bottom: 40 };
  const shown = data.series.map(() => true);
  const state = { along: "steps", log: data.log, x: null, y: null, at: null };
  const svg = drawing();
  svg.setAttribute("tabindex", "0");
  svg.setAttribute("role", "group");
  svg.setAttribute("aria-roledescription", "chart");
  svg.setAttribute("aria-label", `${data.title}. Arrow keys read values, plus and minus zoom, 0 shows all.`);
  const tip = element("div", { class: "tip", role: "status" });
  const legend = element("div", { class: "legend", role: "group", "aria-label": "Models" });
  const clip = `clip${clips++}`;
  let scale = null;

  const visible = () => data.series.filter((_, k) => shown[k]);
  const fullX = () => [0, Math.max(1e-9, ...data.series.flatMap((s) => s[state.along].slice(-1)))];
  const xRange = () => state.x ?? fullX();
  const yRange = () => {
    if (state.y) return state.y;
    const [x0, x1] = xRange();
    let [low, high] = data.limits;
    if (state.x) {
      const inside = visible().flatMap((s) => s.mean.filter((v, i) => known(v) && s[state.along][i] >= x0 && s[state.along][i] <= x1));
      if (inside.length) {
        low = Math.min(...inside); high = Math.max(...inside);
        const pad = state.log ? 0 : 0.08 * (high - low) || 0.1 * Math.abs(high) || 1;
        low -= pad; high += pad;
        if (state.log) { low *= 0.9; high *= 1.1; }
      }
    }
    if (state.log && low <= 0) {
      const positive = visible().flatMap((s) => s.mean.filter((v) => known(v) && v > 0));
      low = positive.length ? 0.8 * Math.min(...positive) : high / 1000;
    }
    return [low, high];
  };
  const nearest = (s, x) => {
    const along = s[state.along];
    let best = 0;
    for (let i = 1; i < along.length; i++) if (Math.abs(along[i] - x) < Math.abs(along[best] - x)) best = i;
    return best;
  };

  function render() {
    const width = Math.max(260, svg.parentNode.clientWidth), height = small ? 190 : clamp(Math.round(width * 0.52), 260, 330);
    const labeled = !small && width >= 480;
    margin.right = labeled ? 6.8 * Math.max(...visible().map((s) => s.name.length + (s.mean.at(-1) > data.limits[1] ? 9 : 0)), 8) + 26 : 26;
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.replaceChildren();
    const [x0, x1] = xRange(), [y0, y1] = yRange();
    const right = width - margin.right, bottom = height - margin.bottom;
    const toY = state.log ? (v) => Math.log(v) : (v) => v;
    const px = (x) => margin.left + ((x - x0) / (x1 - x0)) * (right - margin.left);
    const py = (y) => bottom - ((toY(y) - toY(y0)) / (toY(y1) - toY(y0))) * (bottom - margin.top);
    scale = { px, py, x: (p) => x0 + ((p - margin.left) / (right - margin.left)) * (x1 - x0),
      y: (p) => { const v = toY(y0) + ((bottom - p) / (bottom - margin.top)) * (toY(y1) - toY(y0)); return state.log ? Math.exp(v) : v; },
      width, height, right, bottom };
    const clipPath = draw(draw(svg, "defs"), "clipPath", { id: clip });
    draw(clipPath, "rect", { x: margin.left, y: margin.top, width: right - margin.left, height: bottom - margin.top });
    for (const y of state.log ? logTicks(y0, y1) : ticks(y0, y1, 5)) {
      draw(svg, "line", { class: "grid", x1: margin.left, x2: right, y1: py(y), y2: py(y) });
      draw(svg, "text", { x: margin.left - 8, y: py(y) + 4, "text-anchor": "end" }, figures(y));
    }
    for (const x of ticks(x0, x1, Math.max(3, width / 130))) {
      draw(svg, "line", { class: "axis", x1: px(x), x2: px(x), y1: bottom, y2: bottom + 4 });
      draw(svg, "text", { x: px(x), y: bottom + 18, "text-anchor": "middle" }, state.along === "steps" ? x.toLocaleString("en") : figures(x));
    }
    draw(svg, "line", { class: "axis", x1: margin.left, x2: right, y1: bottom, y2: bottom });
    draw(svg, "text", { x: right, y: height - 6, "text-anchor": "end" }, state.along === "steps" ? "iterations" : "minutes of training");
    draw(svg, "text", { x: 0, y: 12, ...(small ? { class: "title" } : {}) }, small ? `${data.label}: ${data.loss}` : `${data.loss}${state.log ? ", log scale" : ""}`);
    const plot = draw(svg, "g", { "clip-path": `url(#${clip})` });
    draw(plot, "rect", { class: "plot", fill: "transparent", x: margin.left, y: margin.top, width: right - margin.left, height: bottom - margin.top });
    draw(plot, "line", { class: "baseline", x1: margin.left, x2: right, y1: py(data.baseline), y2: py(data.baseline) });
    data.series.forEach((s, k) => {
      if (!shown[k]) return;
      const points = (values) => values.map((v, i) => (known(v) && !(state.log && v <= 0) ? `${px(s[state.along][i]).toFixed(1)},${clamp(py(v), -1e4, 1e4).toFixed(1)}` : null));
      if (s.low) {
        const high = points(s.high).filter(known), low = points(s.low).filter(known).reverse();
        if (high.length) draw(plot, "path", { class: "band", fill: s.color, d: `M${[...high, ...low].join("L")}Z` });
      }
      let d = "", pen = false;
      for (const point of points(s.mean)) { if (point) d += (pen ? "L" : "M") + point; pen = Boolean(point); }
      draw(plot, "path", { class: "curve", "data-series": s.name, stroke: s.color, d: d || "M0,0", ...(s.dash ? { "stroke-dasharray": s.dash } : {}) });
    });
    const ends = data.series.map((s, k) => {
      const last = s.mean.findLastIndex((v, i) => known(v) && s[state.along][i] <= x1);
      return shown[k] && last >= 0 ? { s, value: s.mean[last], x: px(s[state.along][last]), y: py(s.mean[last]) } : null;
    }).filter(known);
    ends.push({ value: data.baseline, x: right, y: py(data.baseline), s: { name: "baseline", color: "currentColor" } });
    offScale(ends.filter((end) => end.y < margin.top - 1));
    if (labeled) labels(ends.filter((end) => !(end.y > bottom + 20)));
    draw(plot, "g", { class: "marks" });
    mark();
  }

  // Curves that end above the window: an arrow at the edge with the value, where each leaves it
  function offScale(ends) {
    ends.forEach((end, k) => {
      const x = Math.min(end.x, scale.right) - 8 - 70 * k * Number(small), y = margin.top + 2;
      const arrow = draw(svg, "path", { class: "off", fill: end.s.color, d: `M${x - 5},${y + 8}h10l-5,-8z` });
      draw(arrow, "title", {}, `${end.s.name} ends off the scale, at ${figures(end.value)}`);
      if (small) draw(svg, "text", { x: x - 9, y: y + 9, "text-anchor": "end" }, figures(end.value));
    });
  }

  // The name of each line at its end, moved apart where they would meet
  function labels(ends) {
    const apart = 14, x = scale.right + 18;
    const placed = ends.map((end) => ({ ...end, at: clamp(end.y, margin.top + 4, scale.bottom) })).sort((a, b) => a.at - b.at || a.y - b.y);
    for (let k = 1; k < placed.length; k++) placed[k].at = Math.max(placed[k].at, placed[k - 1].at + apart);
    const over = placed.at(-1).at - scale.bottom - 4;
    if (over > 0) {
      placed.at(-1).at -= over;
      for (let k = placed.length - 2; k >= 0; k--) placed[k].at = Math.min(placed[k].at, placed[k + 1].at - apart);
    }
    for (const { s, x: from, y, at, value } of placed) {
      const off = y < margin.top - 1;
      draw(svg, "path", { class: "leader", stroke: s.color, d: `M${Math.min(from, scale.right) + 2},${clamp(y, margin.top + 4, scale.bottom)}L${x - 4},${at}` });
      draw(svg, "text", { class: "label", x, y: at + 4 }, off ? `${s.name} ↑ ${figures(value)}` : s.name);
    }
  }

  // The cursor: a line, a dot on every curve, and the values beside it
  function mark() {
    const marks = svg.querySelector(".marks");
    marks.replaceChildren();
    tip.hidden = !known(state.at);
    if (tip.hidden) return;
    draw(marks, "line", { class: "cursor", x1: scale.px(state.at), x2: scale.px(state.at), y1: margin.top, y2: scale.bottom });
    const rows = [];
    data.series.forEach((s, k) => {
      if (!shown[k]) return;
      const i = nearest(s, state.at), value = s.mean[i], reached = state.at <= s[state.along].at(-1) * 1.0001;
      rows.push({ s, value, text: reached ? figures(value) || "none" : "ended" });
      if (known(value) && reached)
        draw(marks, "circle", { cx: scale.px(s[state.along][i]), cy: clamp(scale.py(value), -1e4, 1e4), r: 3.5, fill: s.color });
    });
    rows.sort((a, b) => (b.value ?? -1) - (a.value ?? -1));
    const where = state.along === "steps" ? `iteration ${counted(state.at)}` : `${figures(state.at)} minutes`;
    tip.replaceChildren(element("strong", {}, where), ...rows.map(({ s, text }) => element("span", {}, swatch(s), ` ${s.name} `, element("b", {}, text))));
    const shift = scale.px(state.at) * (svg.clientWidth / scale.width), left = shift + 14;
    const fits = left + tip.offsetWidth <= svg.clientWidth;
    tip.style.left = `${fits ? left : Math.max(0, shift - 14 - tip.offsetWidth)}px`;
    tip.style.top = `${clamp((state.height ?? margin.top) - tip.offsetHeight / 2, 0, Math.max(0, svg.clientHeight - tip.offsetHeight))}px`;
  }

  const moveTo = (x) => { state.at = x; mark(); };
  const zoom = (factor, about) => {
    const [x0, x1] = xRange(), [f0, f1] = fullX(), middle = about ?? state.at ?? (x0 + x1) / 2;
    const low = Math.max(f0, middle - (middle - x0) * factor), high = Math.min(f1, middle + (x1 - middle) * factor);
    if (high - low < (f1 - f0) / 500) return;
    state.x = low <= f0 && high >= f1 ? null : [low, high];
    state.y = null;
    render();
  };
  const reset = () => { state.x = state.y = null; render(); };
  const pan = (share) => {
    const [x0, x1] = xRange(), [f0, f1] = fullX(), by = clamp((x1 - x0) * share, f0 - x0, f1 - x1);
    if (state.x) { state.x = [x0 + by, x1 + by]; render(); }
  };
  const step = (by) => {
    const [x0, x1] = xRange();
    const all = [...new Set(visible().flatMap((s) => s[state.along]))].filter((x) => x >= x0 && x <= x1).sort((a, b) => a - b);
    if (!all.length) return;
    const here = known(state.at) ? all.findIndex((x) => x >= state.at - 1e-9) : by > 0 ? -1 : all.length;
    moveTo(all[clamp((here < 0 && by < 0 ? all.length : here) + by, 0, all.length - 1)]);
  };

  svg.addEventListener("keydown", (event) => {
    const keys = {
      ArrowLeft: () => (event.shiftKey ? pan(-0.25) : step(-1)), ArrowRight: () => (event.shiftKey ? pan(0.25) : step(1)),
      Home: () => moveTo(xRange()[0]), End: () => moveTo(xRange()[1]), Escape: () => moveTo(null),
      "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), 0: reset,
    };
    if (keys[event.key] && !event.ctrlKey && !event.metaKey) { keys[event.key](); event.preventDefault(); }
  });

  let from = null;
  const place = (event) => {
    const box = svg.getBoundingClientRect();
    return [clamp((event.clientX - box.left) * (scale.width / box.width), margin.left, scale.right),
      clamp((event.clientY - box.top) * (scale.height / box.height), margin.top, scale.bottom)];
  };
  const follow = (event) => {
    state.height = event.clientY - svg.getBoundingClientRect().top;
    const at = scale.x(place(event)[0]), points = visible().map((s) => s[state.along][nearest(s, at)]);
    if (points.length) moveTo(points.reduce((a, b) => (Math.abs(b - at) < Math.abs(a - at) ? b : a)));
  };
  svg.addEventListener("pointerdown", (event) => {
    if (event.pointerType !== "mouse") { follow(event); return; }
    if (event.button !== 0) return;
    from = place(event);
    svg.setPointerCapture(event.pointerId);
  });
  svg.addEventListener("pointermove", (event) => {
    const [x, y] = place(event);
    if (from) {
      svg.querySelector(".box")?.remove();
      const tall = Math.abs(y - from[1]) > 20;
      draw(svg, "rect", { class: "box", x: Math.min(x, from[0]), width: Math.abs(x - from[0]),
        y: tall ? Math.min(y, from[1]) : margin.top, height: tall ? Math.abs(y - from[1]) : scale.bottom - margin.top });
    } else follow(event);
  });
  svg.addEventListener("pointerup", (event) => {
    if (!from) return;
    const [x, y] = place(event), [fx, fy] = from;
    from = null;
    svg.querySelector(".box")?.remove();
    if (Math.abs(x - fx) < 8) return;
    state.x = [scale.x(Math.min(x, fx)), scale.x(Math.max(x, fx))];
    state.y = Math.abs(y - fy) > 20 ? [scale.y(Math.max(y, fy)), scale.y(Math.min(y, fy))] : null;
    render();
  });
  svg.addEventListener("pointercancel", () => { from = null; svg.querySelector(".box")?.remove(); });
  // A finger that is lifted has left too: what it touched stays.
  svg.addEventListener("pointerleave", (event) => { if (!from && event.pointerType === "mouse") moveTo(null); });
  svg.addEventListener("wheel", (event) => {
    // Only on a figure that was chosen (clicked, or reached by keyboard): elsewhere the wheel scrolls the page.
    if (document.activeElement !== svg && !event.ctrlKey) return;
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, scale.x(place(event)[0]));
  }, { passive: false });

  if (small) {
    figure.append(element("div", { class: "chart" }, svg, tip));
  } else {
    data.series.forEach((s, k) => {
      const toggle = element("button", { type: "button", "aria-pressed": "true" }, swatch(s), s.name);
      toggle.addEventListener("click", () => {
        shown[k] = !shown[k];
        toggle.setAttribute("aria-pressed", String(shown[k]));
        render();
      });
      legend.append(toggle);
    });
    const along = choice("x:", { steps: "iterations", minutes: "minutes" }, state.along, (value) => {
      state.along = value;
      state.at = null;
      reset();
    });
    const scaled = choice("y:", { linear: "linear", log: "log" }, state.log ? "log" : "linear", (value) => {
      state.log = value === "log";
      state.y = null;
      render();
    });
    const zooms = element("span", {}, button("+", "Zoom in", () => zoom(0.5)), button("−", "Zoom out", () => zoom(2)), button("Reset", "Show all", reset));
    figure.append(element("div", { class: "tools" }, along, scaled, zooms), element("div", { class: "chart" }, svg, tip), legend);
  }
  render();
  onResize(svg.parentNode, render);
}

function overview(figure, data) {
  const panels = element("div", { class: "panels" });
  figure.insertBefore(panels, figure.querySelector("p"));
  for (const name of data.panels) {
    const panel = element("div");
    panels.append(panel);
    losses(panel, everything[name], true);
  }
}

function gates(figure, data) {
  const margin = { left: 40, right: 8, top: 20, bottom: 24 }, high = 44, gap = 26, last = data.noise.length - 1;
  const svg = drawing();
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `Share of update-gate units above ${data.threshold} over ${last + 1} time steps; gray: noise in the input`);
  const slider = element("input", { class: "time", type: "range", min: 0, max: last, step: 1, value: 0, "aria-label": "Time step" });
  const readout = element("p", { class: "readout" }); // the slider says the same to a screen reader
  let px = null, at = 0;

  function render() {
    const width = Math.max(260, svg.parentNode.clientWidth), height = margin.top + data.series.length * (high + gap) - gap + margin.bottom;
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.replaceChildren();
    const wide = (width - margin.left - margin.right) / (last + 1), bottom = height - margin.bottom;
    px = (t) => margin.left + t * wide;
    data.series.forEach((s, k) => {
      const top = margin.top + k * (high + gap);
      data.noise.forEach((noise, t) => {
        if (!noise) return;
        draw(svg, "rect", { class: "noise", x: px(t), y: top, width: wide, height: high });
        draw(svg, "rect", { class: "noise-mark", x: px(t), y: top + high, width: wide, height: 3 });
      });
      draw(svg, "text", { x: margin.left, y: top - 6 }, s.name);
      for (const y of [0, 0.5, 1]) {
        draw(svg, "line", { class: "grid", x1: margin.left, x2: width - margin.right, y1: top + high * (1 - y), y2: top + high * (1 - y) });
        draw(svg, "text", { x: margin.left - 6, y: top + high * (1 - y) + 4, "text-anchor": "end" }, `${100 * y}%`);
      }
      let d = "";
      s.share.forEach((share, t) => { d += `M${px(t).toFixed(2)},${top + high}v${(-high * share).toFixed(2)}h${wide.toFixed(2)}V${top + high}Z`; });
      draw(svg, "path", { class: "bars", "data-series": s.name, fill: s.color, d });
    });
    for (const t of ticks(0, last, Math.max(3, width / 110))) draw(svg, "text", { x: px(t + 0.5), y: bottom + 17, "text-anchor": "middle" }, String(t));
    draw(svg, "rect", { class: "now", fill: "none", stroke: "currentColor", y: margin.top, height: bottom - margin.top, width: Math.max(wide, 2) });
    show();
  }
  function show() {
    svg.querySelector(".now").setAttribute("x", px(at));
    const values = data.series.map((s) => `${s.name} ${(100 * s.share[at]).toFixed(0)}%`).join(" · ");
    readout.textContent = `Step ${at}, ${data.noise[at] ? "noise" : "a bracket"}: ${values}`;
    slider.setAttribute("aria-valuetext", readout.textContent);
  }
  slider.addEventListener("input", () => { at = Number(slider.value); show(); });
  const follow = (event) => {
    const box = svg.getBoundingClientRect();
    const scaled = (event.clientX - box.left) * (svg.viewBox.baseVal.width / box.width);
    at = clamp(Math.floor((scaled - margin.left) / (px(1) - px(0))), 0, last);
    slider.value = at;
    show();
  };
  for (const kind of ["pointerdown", "pointermove"]) svg.addEventListener(kind, follow);
  figure.append(element("p", { class: "soft" }, `Share of update-gate units above ${data.threshold} at each time step. Gray: noise in the input.`),
    element("div", {}, svg), slider, readout);
  render();
  onResize(svg.parentNode, render);
}

// The advisor: the rule of report/advice.py (see there), repeated for the page. Tests compare the two.
const onelipAdvisor = (() => {
  const data = onelipData.advisor;
  const GIB = 2 ** 30;
  const GROUPS = ["fits", "uncertain", "excluded"];
  const known = (value) => (value === null ? Infinity : value);
  const byCode = (a, b) => (a < b ? -1 : a > b ? 1 : 0);

  const judge = (candidate, limits) => {
    const hours = (r) => known(r.hours);
    const within = candidate.results.filter((r) => limits.hours === null || hours(r) <= limits.hours);
    const better = within.length
      ? (a, b) => a.certified > b.certified || (a.certified === b.certified && hours(a) < hours(b))
      : (a, b) => hours(a) < hours(b) || (hours(a) === hours(b) && a.certified > b.certified);
    const result = (within.length ? within : candidate.results).reduce((best, next) => (better(next, best) ? next : best));
    const broken = [], unknown = [];
    let excess = 1;
    const memory = candidate.memory_bytes === null ? null : candidate.memory_bytes + data.allowance;
    for (const [name, cost] of [["memory", memory], ["hours", result.hours], ["latency", candidate.latency_ratio]]) {
      if (limits[name] === null) continue;
      if (cost === null) unknown.push(name);
      else if (cost > limits[name]) {
        broken.push(name);
        excess *= cost / limits[name];
      }
    }
    const group = broken.length ? "excluded" : unknown.length ? "uncertain" : "fits";
    return { candidate, group, result, broken, unknown, excess };
  };

  const order = (a, b) =>
    GROUPS.indexOf(a.group) - GROUPS.indexOf(b.group) ||
    a.excess - b.excess ||
    b.result.certified - a.result.certified ||
    byCode(known(a.candidate.latency_ratio), known(b.candidate.latency_ratio)) ||
    byCode(known(a.candidate.memory_bytes), known(b.candidate.memory_bytes)) ||
    byCode(a.candidate.method, b.candidate.method) ||
    byCode(a.candidate.size, b.candidate.size);

  const rank = (candidates, limits) => candidates.map((candidate) => judge(candidate, limits)).sort(order);

  const costs = {
    memory: { name: "training memory [GiB]", of: (v) => (v.candidate.memory_bytes === null ? null : v.candidate.memory_bytes / GIB) },
    memoryMib: { name: "training memory [MiB]", of: (v) => (v.candidate.memory_bytes === null ? null : v.candidate.memory_bytes / 2 ** 20) },
    hours: { name: "training time [h]", of: (v) => v.result.hours },
    latency: { name: "inference time relative to plain", of: (v) => v.candidate.latency_ratio },
  };

  const percent = (x) => (x === null ? "–" : `${(100 * x).toFixed(1)} %`);
  const share = (r) => (r.error === null ? percent(r.certified) : `${(100 * r.certified).toFixed(1)} ± ${(100 * r.error).toFixed(1)} %`);
  const short = (x) => (x >= 100 ? x.toFixed(0) : Number(x.toPrecision(3)).toString());
  const three = (x) => (x >= 99.95 ? x.toFixed(0) : x.toPrecision(3));
  const duration = (h) => (h === null ? "–" : h >= 2 ? `${short(h)} h` : h * 60 >= 1 ? `${short(h * 60)} min` : `${short(h * 3600)} s`);
  const memory = (bytes) => (bytes === null ? "–" : bytes < GIB ? `${three(bytes / 2 ** 20)} MiB` : `${three(bytes / GIB)} GiB`);
  const ratio = (x) => (x === null ? "–" : `${x.toFixed(2)}\u00a0×`);
  return { GIB, data, known, rank, costs, percent, share, short, duration, memory, ratio };
})();

(() => {
  const { GIB, data, known, rank, costs, percent, share, short, duration, memory, ratio } = onelipAdvisor;
  const $ = (id) => document.getElementById(id);
  if (!$("limits")) return;
  const svgElement = (name, attributes, text) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text !== undefined) element.textContent = text;
    return element;
  };
  const cell = (className, text) => Object.assign(document.createElement("td"), { className, textContent: text });

  const candidates = () => {
    const group = data.evidence.find((evidence) => evidence.name === $("advisor-evidence").value);
    return group.candidates.filter((candidate) => candidate.dataset === $("advisor-dataset").value);
  };

  // A slider goes over round values, from the first that something fits to the first that everything fits; its right
  // end is no limit.
  const needs = {
    memory: (c) => (c.memory_bytes === null ? [] : [c.memory_bytes + data.allowance]),
    hours: (c) => c.results.map((r) => r.hours).filter((h) => h !== null),
    latency: (c) => (c.latency_ratio === null ? [] : [c.latency_ratio]),
  };
  const minutes = [1 / 12, 1 / 6, 1 / 2, 1, 2, 5, 10, 15, 30].map((m) => m / 60);
  const round = {
    memory: [1, 1.5, 2, 3, 4, 6, 8, 10, 12, 16, 24, 32, 40, 48, 64, 80, 96, 128, 192, 256].map((gib) => gib * GIB),
    hours: [...minutes, 1, 2, 5, 10, 15, 24, 48, 72, 120, 240, 500, 1000, 2000, 5000],
    latency: [0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 7, 10, 20, 50, 100],
  };
  const steps = (name, list) => {
    const values = list.flatMap(needs[name]);
    if (!values.length) return [];
    const least = Math.min(...values), most = Math.max(...values);
    const below = round[name].filter((step) => step < least).slice(-1);
    const inside = round[name].filter((step) => step >= least && step < most);
    const above = round[name].filter((step) => step >= most).slice(0, 1);
    return [...below, ...inside, ...above];
  };
  const units = { h: "h", m: "min", s: "s" };
  const spaced = (budget) => budget.replace(/([\d.]+)([hms])(?=\d|\s|$)/g, (_, n, unit) => `${n} ${units[unit]} `)
    .replace(/\s+cores$/, " of processor time").trim();
  const card = (bytes) => `${short(bytes / GIB)} GiB`;
  const shown = { memory: card, hours: duration, latency: (x) => `${short(x)} ×` };

  const options = (select, values) => {
    const before = select.value;
    select.replaceChildren(...values.map((value) => new Option(value, value)));
    if (values.includes(before)) select.value = before;
  };

  const label = (v) => `${v.candidate.label} ${v.candidate.size}`;
  const reasons = (v) => {
    const words = { memory: "memory", hours: "training time", latency: "latency" };
    if (v.broken.length) return `too much ${v.broken.map((b) => words[b]).join(", ")}`;
    return v.unknown.length ? `${v.unknown.map((b) => words[b]).join(", ")} not known` : "fits";
  };

  const takes = (v) => {
    const words = {
      memory: `${memory(v.candidate.memory_bytes)} of memory and ${card(data.allowance)} to spare`,
      hours: `a training of ${v.result.budget}`,
      latency: `${ratio(v.candidate.latency_ratio)} the inference time of the plain network`,
    };
    return v.broken.map((name) => words[name]).join(" and ");
  };

  const advise = (verdicts) => {
    const best = verdicts[0];
    const box = $("advice");
    box.classList.toggle("none", best.group !== "fits");
    if (best.group !== "fits") {
      const uncertain = verdicts.find((v) => v.group === "uncertain"), closest = verdicts.find((v) => v.group === "excluded");
      let text = "Nothing is known to fit these limits. ";
      if (uncertain) text += `${label(uncertain)} may fit, with ${share(uncertain.result)} certified: its ${reasons(uncertain)}. `;
      if (closest) text += `The closest that does not is ${label(closest)} with ${share(closest.result)} certified: it takes ${takes(closest)}.`;
      box.textContent = text;
      return;
    }
    const bits = [`training for ${spaced(best.result.budget)}`];
    if (best.candidate.memory_bytes !== null) bits.push(`${memory(best.candidate.memory_bytes)} of memory in training`);
    if (best.candidate.latency_ratio !== null) bits.push(`${ratio(best.candidate.latency_ratio)} the inference time of the plain network`);
    let text = `Use ${label(best)}: it certifies ${share(best.result)} at radius 36/255. Costs: ${bits.join(", ")}. `;
    const gap = (v) => Math.abs(v.result.certified - best.result.certified) <= 1.96 * Math.hypot(v.result.error ?? 0, best.result.error ?? 0);
    const equal = verdicts.filter((v) => v !== best && v.group === "fits" && gap(v)).slice(0, 4);
    if (equal.length) text += `Not distinguishable from it: ${equal.map((v) => `${label(v)} (${share(v.result)})`).join(", ")}. `;
    const excluded = verdicts.filter((v) => v.group === "excluded" && v.result.certified > best.result.certified);
    const lost = excluded.sort((a, b) => b.result.certified - a.result.certified)[0];
    if (lost) text += `Your limits exclude ${label(lost)}, which would certify ${share(lost.result)} but takes ${takes(lost)}.`;
    box.textContent = text;
  };

  const fillRanking = (verdicts) => {
    const rows = verdicts.map((v) => {
      const row = document.createElement("tr");
      row.className = v.group;
      const name = cell("word", label(v));
      const dot = Object.assign(document.createElement("i"), { className: `dot dot-${v.candidate.slug}` });
      name.prepend(dot);
      row.append(name, cell("num", share(v.result)), cell("num", percent(v.result.accuracy)), cell("num", duration(v.result.hours)));
      row.append(cell("num", memory(v.candidate.memory_bytes)), cell("num", ratio(v.candidate.latency_ratio)), cell(`word ${v.group}`, reasons(v)));
      return row;
    });
    $("advisor-ranking").tBodies[0].replaceChildren(...rows);
  };

  // The fewest round numbers of which four are in sight.
  const ticks = (low, high) => {
    let inside = [];
    for (const steps of [[1], [1, 2, 5], [1, 1.5, 2, 3, 5, 7], [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8]]) {
      inside = [];
      for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1)
        inside.push(...steps.map((step) => step * 10 ** power).filter((tick) => tick >= low && tick <= high));
      if (inside.length > 3) break;
    }
    if (inside.length > 2) return inside;
    const step = 10 ** Math.floor(Math.log10(high - low)); // a narrow range, on which the axis looks linear
    const wide = [5, 2, 1, 0.5].map((part) => part * step).find((width) => (high - low) / width >= 3);
    const first = Math.ceil(low / wide);
    return Array.from({ length: Math.floor(high / wide) - first + 1 }, (_, index) => (first + index) * wide);
  };

  const draw = (verdicts) => {
    const plot = $("advisor-plot");
    const kind = $("advisor-axis").value;
    const small = kind === "memory" && verdicts.every((v) => known(v.candidate.memory_bytes) < GIB || v.candidate.memory_bytes === null);
    const cost = costs[small ? "memoryMib" : kind];
    const points = verdicts.map((v) => ({ v, x: cost.of(v), y: 100 * v.result.certified })).filter((p) => p.x !== null && p.x > 0);
    plot.replaceChildren();
    if (!points.length) {
      plot.append(svgElement("text", { x: 260, y: 190, "text-anchor": "middle" }, "This cost is not known for these models."));
      return;
    }
    const [left, right, top, bottom] = [58, 508, 14, 330];
    const xs = points.map((p) => p.x), ys = points.map((p) => p.y);
    const spread = Math.max(Math.max(...xs) / Math.min(...xs), 1.2) ** 0.08;
    const low = Math.min(...xs) / spread, high = Math.max(...xs) * spread;
    const step = [0.5, 1, 2, 5, 10, 20].find((s) => (Math.max(...ys) - Math.min(...ys)) / s <= 6) ?? 20;
    const base = Math.max(0, step * Math.floor(Math.min(...ys) / step)), roof = Math.max(step * Math.ceil(Math.max(...ys) / step), base + step);
    const px = (x) => left + ((right - left) * Math.log(x / low)) / Math.log(high / low);
    const py = (y) => bottom - ((bottom - top) * (y - base)) / (roof - base);
    for (let y = base; y <= roof + 1e-9; y += step) {
      plot.append(svgElement("line", { x1: left, x2: right, y1: py(y), y2: py(y), class: "gridline" }));
      plot.append(svgElement("text", { x: left - 8, y: py(y) + 4, "text-anchor": "end", class: "tick" }, short(y)));
    }
    for (const x of ticks(low, high)) {
      plot.append(svgElement("line", { x1: px(x), x2: px(x), y1: top, y2: bottom, class: "gridline" }));
      plot.append(svgElement("text", { x: px(x), y: bottom + 18, "text-anchor": "middle", class: "tick" }, short(x)));
    }
    plot.append(svgElement("text", { x: (left + right) / 2, y: 370, "text-anchor": "middle" }, cost.name));
    const middle = (top + bottom) / 2;
    const upright = { x: 14, y: middle, "text-anchor": "middle", transform: `rotate(-90 14 ${middle})` };
    plot.append(svgElement("text", upright, "certified accuracy at 36/255 [%]"));
    const fitting = points.filter((p) => p.v.group === "fits").sort((a, b) => a.x - b.x || b.y - a.y);
    const front = fitting.filter((p) => !fitting.some((q) => q.x <= p.x && q.y >= p.y && (q.x < p.x || q.y > p.y)));
    const path = front.map((p, i) => (i ? `H${px(p.x)}V${py(p.y)}` : `M${px(p.x)} ${py(p.y)}`)).join("");
    if (path) plot.append(svgElement("path", { d: path, class: "front" }));
    for (const p of [...points].reverse()) {
      const inside = p.v.group === "fits";
      const colour = `var(--m-${p.v.candidate.slug})`;
      const circle = svgElement("circle", { cx: px(p.x), cy: py(p.y), r: inside ? 6 : 4, class: `point ${p.v.group}` });
      Object.assign(circle.style, { fill: inside ? colour : "none", stroke: colour, opacity: inside ? 1 : 0.4 });
      circle.dataset.tip = `${label(p.v)}: ${share(p.v.result)}, ${reasons(p.v)}`;
      plot.append(circle);
    }
    // Every point has its name, as long as names do not lie on each other: colours alone tell too few readers enough.
    const taken = [];
    for (const p of [...front, ...points.filter((q) => !front.includes(q))]) {
      const width = (front.includes(p) ? 7.6 : 6.2) * label(p.v).length;
      const places = [[9, -7], [-9, -7], [9, 17], [-9, 17]].map(([dx, dy]) => ({ dx, x: px(p.x) + dx, y: py(p.y) + dy }));
      const box = (o) => ({ left: o.dx > 0 ? o.x : o.x - width, right: o.dx > 0 ? o.x + width : o.x, top: o.y - 11, bottom: o.y + 3 });
      const free = ({ left: l, right: r, top: t, bottom: b }) =>
        l >= left && r <= right && !taken.some((o) => l < o.right && o.left < r && t < o.bottom && o.top < b) &&
        !points.some((q) => px(q.x) > l - 6 && px(q.x) < r + 6 && py(q.y) > t - 5 && py(q.y) < b + 5);
      const found = places.find((o) => free(box(o))) ?? (front.includes(p) ? places[px(p.x) > right - width - 9 ? 1 : 0] : null);
      if (!found) continue;
      taken.push(box(found));
      const { x, y } = found;
      const place = { x, y, "text-anchor": found.dx > 0 ? "start" : "end", class: front.includes(p) ? "named" : "beaten" };
      const text = svgElement("text", place, label(p.v));
      if (front.includes(p)) text.style.fill = `var(--m-${p.v.candidate.slug})`;
      plot.append(text);
    }
  };

  const update = () => {
    const list = candidates();
    const limits = {};
    for (const name of ["memory", "hours", "latency"]) {
      const values = steps(name, list), slider = $(name);
      if (Number(slider.max) !== values.length) slider.value = slider.max = values.length;
      limits[name] = values[Number(slider.value)] ?? null;
      $(`${name}-value`).textContent = values.length ? (limits[name] === null ? "no limit" : `at most ${shown[name](limits[name])}`) : "not measured here";
      slider.disabled = !values.length;
    }
    const verdicts = rank(list, limits);
    advise(verdicts);
    fillRanking(verdicts);
    draw(verdicts);
    const unique = (key) => [...new Set(list.map((c) => c[key]))].join("; ");
    $("sources").textContent = `Accuracies: ${unique("result_source")}. Memory: ${unique("memory_source")}. Latency: ${unique("latency_source")}. A card keeps ${card(data.allowance)} free for its context and scratch space.`;
  };

  const datasetsOf = (name) => [...new Set(data.evidence.find((e) => e.name === name).candidates.map((c) => c.dataset))];
  const changeEvidence = () => {
    options($("advisor-dataset"), datasetsOf($("advisor-evidence").value));
    // The plot begins with a cost that is known, if there is one.
    const known = ["memory", "hours", "latency"].find((name) => candidates().flatMap(needs[name]).length);
    $("advisor-axis").value = known ?? "memory";
    update();
  };
  options($("advisor-evidence"), data.evidence.map((evidence) => evidence.name));
  $("advisor-evidence").addEventListener("change", changeEvidence);
  for (const id of ["advisor-dataset", "memory", "hours", "latency", "advisor-axis"]) $(id).addEventListener("input", update);
  $("limits").addEventListener("submit", (event) => event.preventDefault());
  changeEvidence();
})();

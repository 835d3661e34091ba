// The advisor: the rule of onelip/advice.py (see there), repeated for the page. Tests compare the two.
const onelipAdvisor = (() => {
  const data = JSON.parse(document.getElementById("advisor-data").textContent);
  const GIB = 2 ** 30;
  const GROUPS = ["fits", "uncertain", "excluded"];
  const known = (value) => (value === null ? Infinity : value);
  const byCode = (a, b) => (a < b ? -1 : a > b ? 1 : 0);

  const bestResult = (results) =>
    results.reduce((best, next) => {
      const better = next.certified - best.certified || known(best.hours) - known(next.hours);
      return better > 0 ? next : best;
    });

  const judge = (candidate, limits) => {
    const inTime = (r) => limits.hours === null || (r.hours !== null && r.hours <= limits.hours);
    const within = candidate.results.filter(inTime);
    const result = bestResult(within.length ? within : candidate.results);
    const broken = [], unknown = [];
    if (limits.memory !== null) {
      if (candidate.memory_bytes === null) unknown.push("memory");
      else if (candidate.memory_bytes + data.allowance > limits.memory) broken.push("memory");
    }
    if (!within.length) (result.hours === null ? unknown : broken).push("hours");
    if (limits.latency !== null) {
      if (candidate.latency_ratio === null) unknown.push("latency");
      else if (candidate.latency_ratio > limits.latency) broken.push("latency");
    }
    const group = broken.length ? "excluded" : unknown.length ? "uncertain" : "fits";
    return { candidate, group, result, broken, unknown };
  };

  const order = (a, b) =>
    GROUPS.indexOf(a.group) - GROUPS.indexOf(b.group) ||
    b.result.certified - a.result.certified ||
    byCode(known(a.candidate.latency_ratio), known(b.candidate.latency_ratio)) ||
    byCode(known(a.candidate.memory_bytes), known(b.candidate.memory_bytes)) ||
    byCode(a.candidate.method, b.candidate.method) ||
    byCode(a.candidate.size, b.candidate.size);

  const rank = (candidates, limits) => candidates.map((candidate) => judge(candidate, limits)).sort(order);

  const costs = {
    memory: { name: "training memory [GiB]", of: (v) => (v.candidate.memory_bytes === null ? null : v.candidate.memory_bytes / GIB) },
    hours: { name: "training time [h]", of: (v) => v.result.hours },
    latency: { name: "latency relative to plain convolutions", of: (v) => v.candidate.latency_ratio },
  };

  const percent = (x) => (x === null ? "–" : `${(100 * x).toFixed(1)} %`);
  const short = (x) => (x >= 100 ? x.toFixed(0) : Number(x.toPrecision(3)).toString());
  const duration = (h) => (h === null ? "–" : h >= 2 ? `${short(h)} h` : h * 60 >= 2 ? `${short(h * 60)} min` : `${short(h * 3600)} s`);
  const memory = (bytes) => (bytes === null ? "–" : `${short(bytes / GIB)} GiB`);
  const ratio = (x) => (x === null ? "–" : `${x.toFixed(2)} ×`);
  return { data, rank, costs, percent, short, duration, memory, ratio };
})();

(() => {
  const { data, rank, costs, percent, short, duration, memory, ratio } = onelipAdvisor;
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

  // A slider goes over the range of what the candidates need, in equal ratios; its right end is no limit.
  const ranges = {
    memory: (c) => (c.memory_bytes === null ? [] : [c.memory_bytes + data.allowance]),
    hours: (c) => c.results.map((r) => r.hours).filter((h) => h !== null),
    latency: (c) => (c.latency_ratio === null ? [] : [c.latency_ratio]),
  };
  const shown = { memory, hours: duration, latency: ratio };
  const limitOf = (name, list) => {
    const position = Number($(name).value);
    const values = list.flatMap(ranges[name]);
    if (position >= 100 || !values.length) return null;
    const low = Math.min(...values) * 0.999, high = Math.max(...values) * 1.001;
    return low * (high / low) ** (position / 99);
  };

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

  const advise = (verdicts) => {
    const best = verdicts[0];
    const box = $("advice");
    box.classList.toggle("none", best.group !== "fits");
    if (best.group !== "fits") {
      const nearest = `Closest: ${label(best)} (${reasons(best)}), which certifies ${percent(best.result.certified)}.`;
      box.textContent = `Nothing is known to fit these limits. ${nearest}`;
      return;
    }
    const bits = [`${best.result.budget} of training`];
    if (best.candidate.memory_bytes !== null) bits.push(`${memory(best.candidate.memory_bytes)} of memory in training`);
    const what = best.candidate.latency_source.startsWith("counted") ? "operations at inference" : "inference time";
    if (best.candidate.latency_ratio !== null) bits.push(`${ratio(best.candidate.latency_ratio)} the ${what} of plain convolutions`);
    let text = `Use ${label(best)}: it certifies ${percent(best.result.certified)} at radius 36/255, with ${bits.join(", ")}. `;
    const second = verdicts.find((v) => v.group === "fits" && v.candidate.method !== best.candidate.method);
    if (second) text += `The best of another method is ${label(second)} with ${percent(second.result.certified)}. `;
    const lost = verdicts.find((v) => v.group === "excluded" && v.result.certified > best.result.certified);
    if (lost) text += `${label(lost)} would certify ${percent(lost.result.certified)}, but needs ${reasons(lost)}.`;
    box.textContent = text;
  };

  const fillRanking = (verdicts) => {
    const rows = verdicts.map((v) => {
      const row = document.createElement("tr");
      row.className = v.group;
      const name = cell("word", label(v));
      const dot = Object.assign(document.createElement("i"), { className: "dot" });
      dot.style.background = `var(${v.candidate.colour})`;
      name.prepend(dot);
      row.append(name, cell("num", percent(v.result.certified)), cell("num", percent(v.result.accuracy)), cell("num", duration(v.result.hours)));
      row.append(cell("num", memory(v.candidate.memory_bytes)), cell("num", ratio(v.candidate.latency_ratio)), cell(`word ${v.group}`, reasons(v)));
      return row;
    });
    $("advisor-ranking").tBodies[0].replaceChildren(...rows);
  };

  const ticks = (low, high) => {
    const all = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1)
      for (const step of [1, 2, 5]) all.push(step * 10 ** power);
    const inside = all.filter((tick) => tick >= low && tick <= high);
    const round = inside.filter((tick) => Math.abs(Math.log10(tick) % 1) < 1e-9);
    return inside.length > 9 && round.length > 2 ? round : inside;
  };

  const draw = (verdicts) => {
    const plot = $("advisor-plot");
    const cost = costs[$("advisor-axis").value];
    const points = verdicts.map((v) => ({ v, x: cost.of(v), y: 100 * v.result.certified })).filter((p) => p.x !== null && p.x > 0);
    plot.replaceChildren();
    if (!points.length) {
      plot.append(svgElement("text", { x: 260, y: 190, "text-anchor": "middle" }, "This cost is not known for these models."));
      return;
    }
    const [left, right, top, bottom] = [46, 500, 14, 330];
    const xs = points.map((p) => p.x), ys = points.map((p) => p.y);
    const spread = Math.max(Math.max(...xs) / Math.min(...xs), 1.2) ** 0.08;
    const low = Math.min(...xs) / spread, high = Math.max(...xs) * spread;
    const step = [0.5, 1, 2, 5, 10, 20].find((s) => (Math.max(...ys) - Math.min(...ys)) / s <= 6) ?? 20;
    const base = step * Math.floor(Math.min(...ys) / step), roof = Math.max(step * Math.ceil(Math.max(...ys) / step), base + step);
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
    const fitting = points.filter((p) => p.v.group === "fits").sort((a, b) => a.x - b.x || b.y - a.y);
    const front = fitting.filter((p) => !fitting.some((q) => q.x <= p.x && q.y >= p.y && (q.x < p.x || q.y > p.y)));
    const path = front.map((p, i) => (i ? `H${px(p.x)}V${py(p.y)}` : `M${px(p.x)} ${py(p.y)}`)).join("");
    if (path) plot.append(svgElement("path", { d: path, class: "front" }));
    for (const p of [...points].reverse()) {
      const inside = p.v.group === "fits";
      const colour = `var(${p.v.candidate.colour})`;
      const attributes = { cx: px(p.x), cy: py(p.y), r: inside ? 6 : 4, class: `point ${p.v.group}`, style: `fill:${inside ? colour : "none"};stroke:${colour};opacity:${inside ? 1 : 0.4}` };
      const circle = svgElement("circle", attributes);
      circle.append(svgElement("title", {}, `${label(p.v)}: ${percent(p.v.result.certified)}, ${reasons(p.v)}`));
      plot.append(circle);
    }
    front.forEach((p) => {
      const nearRight = px(p.x) > right - 60;
      const place = { x: px(p.x) + (nearRight ? -9 : 9), y: py(p.y) - 8, "text-anchor": nearRight ? "end" : "start", style: `fill:var(${p.v.candidate.colour});font-weight:600` };
      plot.append(svgElement("text", place, label(p.v)));
    });
  };

  const update = () => {
    const list = candidates();
    const limits = {};
    for (const name of ["memory", "hours", "latency"]) {
      limits[name] = limitOf(name, list);
      const values = list.flatMap(ranges[name]);
      $(`${name}-value`).textContent = values.length ? (limits[name] === null ? "no limit" : `at most ${shown[name](limits[name])}`) : "not known here";
      $(name).disabled = !values.length;
    }
    const verdicts = rank(list, limits);
    advise(verdicts);
    fillRanking(verdicts);
    draw(verdicts);
    const unique = (key) => [...new Set(list.map((c) => c[key]))].join("; ");
    $("sources").textContent = `Accuracies: ${unique("result_source")}. Memory: ${unique("memory_source")}. Latency: ${unique("latency_source")}. A card keeps ${memory(data.allowance)} free for its context and scratch space.`;
  };

  const datasetsOf = (name) => [...new Set(data.evidence.find((e) => e.name === name).candidates.map((c) => c.dataset))];
  const changeEvidence = () => {
    options($("advisor-dataset"), datasetsOf($("advisor-evidence").value));
    // The plot begins with a cost that is known, if there is one.
    const known = ["memory", "hours", "latency"].find((name) => candidates().flatMap(ranges[name]).length);
    $("advisor-axis").value = known ?? "memory";
    update();
  };
  options($("advisor-evidence"), data.evidence.map((evidence) => evidence.name));
  $("advisor-evidence").addEventListener("change", changeEvidence);
  for (const id of ["advisor-dataset", "memory", "hours", "latency", "advisor-axis"]) $(id).addEventListener("input", update);
  $("limits").addEventListener("submit", (event) => event.preventDefault());
  changeEvidence();
})();

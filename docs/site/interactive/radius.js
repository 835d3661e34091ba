// "What is a radius?": a picture, a change of it, and the network's answer, computed here. radius_page.py makes the data.
const onelipRadius = (() => {
  const data = onelipRadiusData;
  const scores = onelipNetwork.network(data.layers);
  const pictures = data.pictures.map((picture) => {
    const pixels = Float64Array.from(onelipNetwork.bytes(picture.pixels), (value) => value / 255);
    const along = onelipNetwork.halves(picture.direction), length = Math.hypot(...along);
    return { ...picture, pixels, along: along.map((value) => value / length) };
  });
  // Random numbers that are the same for everybody, made orthogonal to the direction of the nearest change.
  const across = (along) => {
    let state = 1;
    const noise = along.map(() => (state = (state * 16807) % 2147483647) / 2147483647 - 0.5);
    const overlap = noise.reduce((sum, value, index) => sum + value * along[index], 0);
    const rest = noise.map((value, index) => value - overlap * along[index]), length = Math.hypot(...rest);
    return rest.map((value) => value / length);
  };
  for (const picture of pictures) picture.across = across(picture.along);

  const moved = (picture, u, v) => picture.pixels.map((value, index) => value + u * picture.along[index] + v * picture.across[index]);
  const scoresOf = (pixels) => scores({ side: 32, channels: 3, values: pixels.map((value, index) => value - data.mean[index % 3]) });
  const best = (values) => values.indexOf(Math.max(...values));
  return { data, pictures, moved, scoresOf, best };
})();

(() => {
  const { data, pictures, moved, scoresOf, best } = onelipRadius;
  const $ = (id) => document.getElementById(`radius-${id}`);
  if (!$("form")) return;
  const CELLS = 33;
  const ground = (answer) => `hsl(${36 * answer + 8} 55% 72%)`;
  const down = (x) => (Math.floor(100 * x) / 100).toFixed(2); // a radius that is rounded up is not proven
  const state = { picture: pictures[0], maps: new Map() };
  const extent = () => 2 * state.picture.found;
  const position = () => {
    const angle = (Number($("angle").value) * Math.PI) / 180, length = Number($("length").value);
    return [length * Math.cos(angle), length * Math.sin(angle)];
  };

  const paint = (canvas, pixels) => {
    const small = new ImageData(32, 32);
    for (let pixel = 0; pixel < 1024; pixel += 1) {
      for (let channel = 0; channel < 3; channel += 1) small.data[4 * pixel + channel] = 255 * pixels[3 * pixel + channel];
      small.data[4 * pixel + 3] = 255;
    }
    canvas.getContext("2d").putImageData(small, 0, 0);
  };

  const drawPlane = () => {
    const canvas = $("plane"), size = canvas.width, context = canvas.getContext("2d"), scale = size / (2 * extent());
    const map = state.maps.get(state.picture) ?? [];
    context.fillStyle = "#e4e6ea";
    context.fillRect(0, 0, size, size);
    const cell = size / CELLS;
    map.forEach((answer, index) => {
      context.fillStyle = ground(answer);
      context.fillRect(Math.floor((index % CELLS) * cell), Math.floor((CELLS - 1 - Math.floor(index / CELLS)) * cell), Math.ceil(cell), Math.ceil(cell));
    });
    const [u, v] = position(), x = size / 2 + u * scale, y = size / 2 - v * scale;
    context.beginPath();
    context.arc(size / 2, size / 2, state.picture.radius * scale, 0, 2 * Math.PI);
    context.fillStyle = "#ffffffb0";
    context.fill();
    context.strokeStyle = context.fillStyle = "#10131a";
    context.lineWidth = 3;
    context.stroke();
    context.lineWidth = 2;
    context.beginPath();
    context.moveTo(size / 2, size / 2);
    context.lineTo(x, y);
    context.stroke();
    for (const [px, py, r] of [[size / 2, size / 2, 4], [x, y, 8]]) {
      context.beginPath();
      context.arc(px, py, r, 0, 2 * Math.PI);
      context.fill();
    }
  };

  // The answers in the plane, a few milliseconds of work at a time.
  const fillMap = () => {
    const picture = state.picture, map = state.maps.get(picture) ?? [];
    state.maps.set(picture, map);
    const until = performance.now() + 25;
    while (map.length < CELLS * CELLS && performance.now() < until) {
      const at = (index) => ((2 * index + 1) / CELLS - 1) * extent();
      map.push(best(scoresOf(moved(picture, at(map.length % CELLS), at(Math.floor(map.length / CELLS))))));
    }
    drawPlane();
    const names = [...new Set(map)].map((answer) => {
      const entry = Object.assign(document.createElement("li"), { textContent: data.classes[answer] });
      entry.style.setProperty("--ground", ground(answer));
      return entry;
    });
    $("legend").replaceChildren(...names);
    if (map.length < CELLS * CELLS) setTimeout(() => picture === state.picture && fillMap(), 0);
  };

  const update = () => {
    const { picture } = state, [u, v] = position(), length = Math.hypot(u, v);
    const pixels = moved(picture, u, v), values = scoresOf(pixels), answer = best(values);
    const [first, second] = [...values].sort((a, b) => b - a);
    $("length-value").textContent = length.toFixed(2);
    $("angle-value").textContent = `${$("angle").value}°`;
    paint($("original"), picture.pixels);
    const largest = Math.max(...pixels.map((value, index) => Math.abs(value - picture.pixels[index])), 1e-9);
    paint($("change"), pixels.map((value, index) => 0.5 + (value - picture.pixels[index]) / (2 * largest)));
    paint($("changed"), pixels);
    drawPlane();
    const inside = length <= picture.radius, same = answer === picture.answer, name = data.classes[answer];
    const proof = inside
      ? `${length.toFixed(2)} is within the certified radius ${down(picture.radius)}: every change of this length leaves the answer as it is.`
      : `${length.toFixed(2)} is beyond the certified radius ${down(picture.radius)}: nothing is proven here, and the answer ${same ? "happens to stay" : "has changed"}.`;
    $("answer").textContent = `The network answers “${name}”, ahead by ${(first - second).toFixed(2)}. ${proof}`;
    $("answer").dataset.state = inside ? "proven" : same ? "open" : "changed";
    const range = Math.max(...values) - Math.min(...values);
    [...$("scores").children].forEach((row, index) => {
      row.lastChild.textContent = values[index].toFixed(2);
      row.style.setProperty("--share", `${(100 * (values[index] - Math.min(...values))) / range}%`);
      row.classList.toggle("best", index === answer);
    });
  };

  const choose = () => {
    state.picture = pictures[Number($("picture").value)];
    $("length").max = extent().toFixed(2);
    $("length").value = (0.8 * state.picture.radius).toFixed(2);
    $("angle").value = 0;
    update();
    fillMap();
  };

  $("picture").append(...pictures.map((picture, index) => new Option(`${data.classes[picture.answer]}, radius ${down(picture.radius)}`, index)));
  const scoreRow = (name) => {
    const row = document.createElement("li");
    row.append(...[name, ""].map((textContent) => Object.assign(document.createElement("span"), { textContent })));
    return row;
  };
  $("scores").append(...data.classes.map(scoreRow));
  $("picture").addEventListener("input", choose);
  for (const name of ["length", "angle"]) $(name).addEventListener("input", update);
  $("plane").addEventListener("pointerdown", (event) => {
    const box = $("plane").getBoundingClientRect();
    const u = ((event.clientX - box.left) / box.width - 0.5) * 2 * extent(), v = (0.5 - (event.clientY - box.top) / box.height) * 2 * extent();
    $("length").value = Math.hypot(u, v);
    $("angle").value = (Math.atan2(v, u) * 180) / Math.PI;
    update();
  });
  $("form").addEventListener("submit", (event) => event.preventDefault());
  choose();
})();

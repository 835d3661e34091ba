"use strict";
// Sorting, filtering and downloading; values under the pointer; the theme; the current section in the navigation.
const onelipData = JSON.parse(document.getElementById("data").textContent);
(() => {
  const cellValue = (row, index) => row.cells[index].dataset.v;

  const compare = (numeric, direction) => (a, b) => {
    // Empty cells come last in both directions: nothing is not a small number.
    if (a === "" || b === "") return (a === "") - (b === "");
    const order = numeric ? Number(a) - Number(b) : a.localeCompare(b, "en", { numeric: true });
    return direction * order;
  };

  const sortBy = (table, heading, index) => {
    const numeric = heading.classList.contains("num");
    const before = heading.getAttribute("aria-sort");
    const first = numeric ? "descending" : "ascending";
    const second = numeric ? "ascending" : "descending";
    const now = before === first ? second : first;
    for (const other of table.querySelectorAll("th[aria-sort]")) other.setAttribute("aria-sort", "none");
    heading.setAttribute("aria-sort", now);
    const order = compare(numeric, now === "ascending" ? 1 : -1);
    const body = table.tBodies[0];
    const rows = [...body.rows].sort((a, b) => order(cellValue(a, index), cellValue(b, index)));
    body.append(...rows);
  };

  for (const table of document.querySelectorAll("table[data-table]")) {
    [...table.querySelectorAll("th[aria-sort]")].forEach((heading, index) => {
      heading.querySelector("button").addEventListener("click", () => sortBy(table, heading, index));
    });
  }

  for (const input of document.querySelectorAll("input[data-filter]")) {
    const name = input.dataset.filter;
    const rows = [...document.querySelector(`table[data-table="${name}"]`).tBodies[0].rows];
    const count = document.querySelector(`[data-count="${name}"]`);
    const texts = rows.map((row) => [...row.cells].map((cell) => cell.textContent).join(" ").toLowerCase());
    input.addEventListener("input", () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      rows.forEach((row, index) => {
        row.hidden = !words.every((word) => texts[index].includes(word));
        shown += !row.hidden;
      });
      count.textContent = words.length ? `${shown} of ${rows.length} rows` : `${rows.length} rows`;
    });
  }

  const types = { svg: "image/svg+xml", png: "image/png", pdf: "application/pdf" };
  for (const button of document.querySelectorAll("button[data-download]")) {
    button.addEventListener("click", () => {
      const { kind, download: name, form } = button.dataset;
      const content = onelipData[kind][name][form];
      const bytes = kind === "figures" ? Uint8Array.from(atob(content), (letter) => letter.charCodeAt(0)) : content;
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([bytes], { type: types[form] ?? "text/plain;charset=utf-8" }));
      link.download = `${name}.${form}`;
      link.click();
      URL.revokeObjectURL(link.href);
    });
  }

  // What a mark of a figure tells appears beside the pointer at once; the browser's own titles take a second.
  const tip = document.getElementById("tip");
  for (const title of document.querySelectorAll(".picture svg g > title")) {
    title.parentElement.dataset.tip = title.textContent;
    title.remove();
  }
  document.addEventListener("pointerover", (event) => {
    const mark = event.target.closest("[data-tip]");
    tip.hidden = !mark;
    if (!mark) return;
    tip.textContent = mark.dataset.tip;
    tip.style.left = `${Math.max(4, Math.min(event.clientX + 12, innerWidth - tip.offsetWidth - 8))}px`;
    tip.style.top = `${Math.max(4, event.clientY - tip.offsetHeight - 10)}px`;
  });

  const root = document.documentElement;
  const remembered = (value) => {
    // Storage may be forbidden for pages opened from a file.
    try {
      if (value) localStorage.setItem("onelip-theme", value);
      return localStorage.getItem("onelip-theme");
    } catch {
      return null;
    }
  };
  const stored = remembered();
  if (stored) root.dataset.theme = stored;
  document.getElementById("theme").addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    remembered(root.dataset.theme);
  });

  const links = new Map([...document.querySelectorAll("nav li a")].map((link) => [link.hash.slice(1), link]));
  const visible = new Set();
  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries) entry.isIntersecting ? visible.add(entry.target.id) : visible.delete(entry.target.id);
    const current = [...links.keys()].find((id) => visible.has(id));
    for (const [id, link] of links) id === current ? link.setAttribute("aria-current", "true") : link.removeAttribute("aria-current");
  }, { rootMargin: "-15% 0px -60% 0px" });
  for (const part of document.querySelectorAll("section.part")) watcher.observe(part);
})();

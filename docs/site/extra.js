// Screen readers tell landmarks apart by their labels: the theme gives the tools of code blocks none, and two parts of
// a table of contents the same.
const labelled = () => {
  const seen = new Map();
  document.querySelectorAll("nav").forEach((nav) => {
    const label = nav.dataset.label ?? nav.getAttribute("aria-label") ?? "Tools of a code block";
    nav.dataset.label = label;
    const key = label.toLowerCase(); // a module and its class differ in nothing else
    const count = (seen.get(key) ?? 0) + 1;
    seen.set(key, count);
    const unique = count > 1 ? `${label} ${count}` : label;
    if (nav.getAttribute("aria-label") !== unique) nav.setAttribute("aria-label", unique);
  });
};
// What scrolls sideways on a small screen can be reached by the keyboard.
const reachable = () =>
  document.querySelectorAll(".md-typeset__scrollwrap, .md-typeset pre > code").forEach((part) => {
    if (part.scrollWidth > part.clientWidth && !part.hasAttribute("tabindex")) part.setAttribute("tabindex", "0");
  });
// An option such as --runs-dir is not broken behind its dashes.
const whole = () =>
  document.querySelectorAll(".md-typeset :is(p, li, td) > code").forEach((code) => {
    if (code.children.length || !code.textContent.includes("--")) return;
    const parts = code.textContent.split(/(--\w[\w-]*)/);
    code.replaceChildren(...parts.map((text, i) => (i % 2 ? Object.assign(document.createElement("span"), { className: "whole", textContent: text }) : text)));
  });
const mend = () => {
  whole();
  labelled();
  reachable();
};
new MutationObserver(mend).observe(document.body, { childList: true, subtree: true });
addEventListener("resize", reachable);
mend();

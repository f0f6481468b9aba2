// Numbers and names as the other views print them, and elements of the page.

function seconds(ns) {
  for (const [unit, size] of [["s", 1e9], ["ms", 1e6], ["us", 1e3]])
    if (Math.abs(ns) >= size) return (ns / size).toPrecision(4).replace(/\.?0+$/, "") + " " + unit;
  return Math.round(ns) + " ns";
}

function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let k = 0;
  for (; Math.abs(n) >= 999.5 && k + 1 < units.length; k++) n /= 1024;
  return (k ? n.toPrecision(3) : n) + " " + units[k];
}

const percent = (part, whole) => whole ? (100 * part / whole).toFixed(2) + " %" : "0 %";
const rate = (b, ns) => ns ? (b / ns).toPrecision(3) + " GB/s" : ""; // bytes per nanosecond

function element(tag, options = {}, ...children) {
  const e = document.createElement(tag);
  for (const [key, v] of Object.entries(options))
    if (key in e && key !== "style") e[key] = v;
    else e.setAttribute(key, v);
  e.append(...children);
  return e;
}

const color = name => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();

// rows of cells; a cell is a text, an element, or { text, value } with the number that the text stands for
function table(caption, head, rows) {
  const cell = (tag, c) => c instanceof Node ? element(tag, {}, c) :
    c?.text === undefined ? element(tag, {}, c ?? "") : element(tag, { "data-value": c.value }, c.text);
  return element("div", { className: "scroll" }, element("table", {}, element("caption", {}, caption),
    element("thead", {}, element("tr", {}, ...head.map(h => element("th", { scope: "col" }, h)))),
    element("tbody", {}, ...rows.map(r => element("tr", {}, ...r.map((c, i) => cell(i ? "td" : "th", c)))))));
}

const ACTIONS = { F: "forward", B: "backward", I: "input gradient", W: "weight gradient", O: "optimizer", H: "begin of the step" };

function actionName(b) {
  const one = x => (x.action || "-") + (x.microbatch >= 0 ? x.microbatch : "");
  return b.other ? one(b) + " & " + one(b.other) : one(b);
}

function rankName(role) {
  return `rank ${role.number} of the pipeline (layers ${role.layers})`;
}

// What the compiler said, drawn.

const TIME = { compute_s: ["compute", "F"], tp_comm_s: ["layer transfers", "exposed"], pp_comm_s: ["stage transfers", "wait"],
  dp_comm_s: ["gradients and parameters", "comm"], bubble_s: ["bubble", "warm-up"], optimizer_s: ["optimizer", "O"] };
const MEMORY = { parameter_bytes: ["parameters", "F"], gradient_bytes: ["gradients", "B"], optimizer_bytes: ["optimizer", "O"],
  activation_bytes: ["activations", "W"], buffer_bytes: ["buffers", "I"], allocator_bytes: ["allocator", "R"],
  communicator_bytes: ["communicators", "comm"], context_bytes: ["context", "other"] };

const tile = (key, value, text, name, worse) => element("div", { className: worse ? "tile worse" : "tile", "data-key": key, "data-value": value },
  element("b", {}, text), element("span", {}, name));

function tiles(a) {
  const p = a.predicted, gpus = a.cluster.gpus_used, over = p.peak_memory_bytes > a.memory_limit_bytes;
  return [tile("step_time_s", p.step_time_s, seconds(p.step_time_s * 1e9), "per step"),
    element("div", { className: "tile" }, element("b", {}, Math.round(p.tokens_per_s_per_gpu * gpus).toLocaleString("en")), element("span", {}, "tokens/s")),
    tile("tokens_per_s_per_gpu", p.tokens_per_s_per_gpu, p.tokens_per_s_per_gpu.toPrecision(5), "tokens/s/GPU"),
    tile("model_flops_per_gpu_s", p.model_flops_per_gpu_s, (p.model_flops_per_gpu_s / 1e12).toPrecision(4), "TFLOP/s/GPU"),
    tile("mfu", p.mfu, percent(p.mfu, 1), "MFU"), tile("bubble_fraction", p.bubble_fraction, percent(p.bubble_fraction, 1), "bubble"),
    tile("exposed_comm_fraction", p.exposed_comm_fraction, percent(p.exposed_comm_fraction, 1), "exposed transfers"),
    tile("peak_memory_bytes", p.peak_memory_bytes, bytes(p.peak_memory_bytes),
      a.memory_limit_bytes ? `of ${bytes(a.memory_limit_bytes)} on rank ${p.peak_memory_rank}` : `on rank ${p.peak_memory_rank}`, over)];
}

const briefly = a => `${seconds(a.predicted.step_time_s * 1e9)} per step, MFU ${percent(a.predicted.mfu, 1)}, ` +
  `bubble ${percent(a.predicted.bubble_fraction, 1)}, ${bytes(a.predicted.peak_memory_bytes)}`;

function decisionText(d) {
  const chunks = d.vpp > 1 ? `, vpp ${d.vpp}` : "", experts = d.ep > 1 ? `, ep ${d.ep}${d.etp > 1 ? ", etp " + d.etp : ""}` : "";
  return `tp ${d.tp}${d.sp ? " sp" : ""}, cp ${d.cp}, pp ${d.pp}${chunks}, dp ${d.dp}${experts}, zero ${d.zero}, ` +
    `microbatch ${d.microbatch} x ${d.microbatches}, ${d.schedule}, recompute ${d.recompute}`;
}

// items as a bar and a table; names: per key its name and colour
function parts(items, names, show, caption, whole) {
  const list = Object.entries(items).filter(([, v]) => v > 0), sum = whole || list.reduce((s, [, v]) => s + v, 0);
  const colour = key => `var(--${names[key]?.[1] || "other"})`, name = key => names[key]?.[0] || key;
  return element("div", {}, element("div", { className: "whole", role: "img", ariaLabel: caption }, ...list.map(([key, v]) =>
    element("i", { style: `width:${100 * v / sum}%;background:${colour(key)}`, title: `${name(key)}: ${show(v)}` }))),
    table(caption, ["", "", "share"], list.sort((x, y) => y[1] - x[1]).map(([key, v]) => [
      element("span", { "data-key": key }, element("i", { className: "swatch", style: "background:" + colour(key) }), name(key)),
      { text: show(v), value: v }, percent(v, sum)])));
}

function trafficOf(a) {
  return table("on the fullest pipeline rank: bytes of the largest operands; time of the transfers alone, hidden or not",
    ["tier", "bytes", "time"], (a.traffic || []).map(t => [t.tier, { text: bytes(t.bytes), value: t.bytes },
      { text: seconds(t.time_s * 1e9), value: t.time_s }]));
}

function othersOf(a, pin) {
  return table("by the search's estimate, or as compiled", ["decision", "step", "memory", ""], a.candidates.map(c => [decisionText(c.decision),
    { text: seconds(c.predicted.step_time_s * 1e9), value: c.predicted.step_time_s },
    { text: bytes(c.predicted.peak_memory_bytes) + (c.fits ? "" : ", too large"), value: c.predicted.peak_memory_bytes },
    element("button", { type: "button", onclick: () => pin(c) }, "pin")]));
}

function lessonOf(a) {
  if (!a.formulas) return "";
  return element("dl", { className: "lesson" }, ...a.formulas.flatMap(f => [element("dt", {}, f.name),
    element("dd", { "data-key": f.key }, element("div", {}, f.formula), element("div", {}, "= " + f.values),
      element("div", { className: "source" }, f.source))]));
}

// numbers of the JSON that nothing above shows
function restOf(a) {
  const known = new Set(["schema", "model", "cluster", "decision", "predicted", "emittable", "cannot_emit", "time", "memory", "memory_limit_bytes",
    "traffic", "formulas", "target", "profile", "extrapolated", "search", "candidates"]), rows = [];
  const add = (name, v) => {
    if (v && typeof v === "object") for (const [key, x] of Object.entries(v)) add(name ? `${name}.${key}` : key, x);
    else rows.push([name, { text: typeof v === "number" ? v.toLocaleString("en", { maximumSignificantDigits: 6 }) : "" + v, value: v }]);
  };
  for (const [key, v] of Object.entries(a)) if (!known.has(key)) add(key, v);
  return rows.length ? table("also in the JSON", ["key", "value"], rows) : "";
}

function drawAnswer(a, pin) {
  const put = (id, ...children) => document.getElementById(id).replaceChildren(...children);
  put("tiles", ...tiles(a));
  put("decision", decisionText(a.decision), a.emittable ? "" : ` (cannot be emitted yet: ${a.cannot_emit})`,
    a.extrapolated ? " (extrapolated: no run has calibrated kernels of this GPU)" : "");
  put("time", parts(a.time, TIME, v => seconds(v * 1e9), "mean over ranks; the parts add up to the step"));
  put("bytes", parts(a.memory, MEMORY, bytes, "the parts add up to the peak"));
  put("traffic", trafficOf(a));
  put("lesson", lessonOf(a));
  put("others", othersOf(a, pin));
  put("rest", restOf(a));
}

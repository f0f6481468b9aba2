// Everything below the timeline: tables of what the other views print, memory, the cluster's map, the search.

const HUES = ["#4a7fd6", "#4f9d57", "#d9a326", "#8d5bc4", "#d9782d", "#2fa3a0", "#c7453b", "#7d8790", "#a0547f", "#6f7f2d",
  "#2b5ea8", "#8fc97a", "#b58900", "#5e3a8c", "#e8a878", "#1f6f6d", "#e07a9a", "#4a4f57"];
const hue = k => HUES[k % HUES.length];

// ---- header ----

function tiles(plan, other) {
  const p = plan.show.predicted, q = other?.show.predicted;
  const rows = [["step", "step_time_s", v => seconds(v * 1e9), 1], ["tokens/s/GPU", "tokens_per_s_per_gpu", v => v.toPrecision(4), -1],
    ["MFU", "mfu", v => (100 * v).toFixed(1) + " %", -1], ["bubble", "bubble_fraction", v => (100 * v).toFixed(2) + " %", 1],
    ["exposed transfers", "exposed_comm_fraction", v => (100 * v).toFixed(2) + " %", 1],
    ["fullest GPU", "peak_memory_bytes", bytes, 1]];
  const tile = (p, q) => ([name, key, text, sign]) => {
    const worse = q && sign * (p[key] - q[key]) > 1e-9 * Math.abs(q[key]);
    return element("div", { className: "tile" + (worse ? " worse" : ""), title: key },
      element("b", { "data-key": key, "data-value": p[key] }, text(p[key])), element("span", {}, name));
  };
  const run = plan.show.run ?? {}, other_run = other?.show.run, whole = v => Math.round(v).toLocaleString("en");
  const run_rows = [["days of the whole run", "seconds", v => (v / 86400).toPrecision(3), 1], ["GPU hours", "gpu_hours", whole, 1],
    ["dollars", "dollars", whole, 1], ["goodput", "goodput", v => (100 * v).toFixed(1) + " %", -1],
    ["interruptions", "interruptions", whole, 1], ["between checkpoints, at best", "checkpoint_every_s", v => seconds(v * 1e9), 0]];
  return element("div", { className: "tiles" }, ...rows.map(tile(p, q)),
    ...run_rows.filter(([, key]) => key in run).map(tile(run, other_run)), element("div", { className: "tile" }, element("b", {}, plan.show.cluster.gpus_used.toLocaleString("en")),
    element("span", {}, "GPUs of " + plan.show.cluster.name)));
}

function header(plans) {
  document.getElementById("title").textContent = [...new Set(plans.map(p => p.show.model.name))].join(" and ") + " on " +
    [...new Set(plans.map(p => p.show.cluster.name))].join(" and ");
  document.title = document.getElementById("title").textContent + ": llmc report";
  document.getElementById("plans").append(...plans.map((p, i) => element("div", { className: "plan" },
    plans.length > 1 ? element("h3", {}, p.name) : "", element("p", { className: "decision" }, p.decision_text),
    tiles(p, plans[1 - i]))));
  if (plans.length > 1) document.getElementById("plans").append(differences(plans));
}

// keys of the decision, and figures, in which two plans differ
function differences([x, y]) {
  const rows = [], a = x.show.decision, b = y.show.decision, text = v => v === undefined ? "" : JSON.stringify(v);
  for (const key of new Set([...Object.keys(a), ...Object.keys(b)]))
    if (text(a[key]) !== text(b[key])) rows.push([key, text(a[key]), text(b[key])]);
  for (const key of Object.keys(x.show.predicted)) {
    const u = x.show.predicted[key], v = y.show.predicted[key];
    if (u !== v) rows.push([key, { text: String(u), value: u }, { text: u ? `${v} (${v > u ? "+" : ""}${(100 * (v / u - 1)).toFixed(2)} %)` : String(v), value: v }]);
  }
  return table("what differs", ["", x.name, y.name], rows);
}

// ---- idle time ----

function bar(parts, whole) {
  return element("div", { className: "bar" }, ...parts.map(([name, ns, background]) =>
    element("i", { title: `${name}: ${seconds(ns)}`, style: `width: ${100 * ns / whole}%; background: ${background}` })));
}

function idleTable(plan) {
  const whole = plan.step_ns, names = ["warm-up", "cool-down", "exposed", "wait", "O"];
  const rows = plan.roles.map(r => [rankName(r), bar([["computing", r.busy_ns, "var(--F)"],
    ...plan.causes.map((cause, k) => [cause, r.idle_ns[k], `var(--${names[k]})`])], whole),
    { text: percent(r.busy_ns, whole), value: r.busy_ns },
    ...r.idle_ns.map(ns => ({ text: percent(ns, whole), value: ns })), waits(r)]);
  return table(`shares of the step, ${seconds(whole)}, by pipeline rank`,
    ["", "", "computing", ...plan.causes, "waited for"], rows);
}

function waits(role) {
  const list = role.waited_ns.map((ns, who) => [ns, who]).filter(x => x[0] > 0).sort((x, y) => y[0] - x[0]).slice(0, 3);
  return list.map(([ns, who]) => `${who === role.number ? "own transfers" : "rank " + who} ${percent(ns, role.plan.step_ns)}`).join(", ");
}

// ---- memory ----

function drawMemory(canvas, role, onpoint) {
  const ratio = devicePixelRatio || 1, width = canvas.clientWidth, height = 220, c = canvas.getContext("2d");
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  canvas.style.height = height + "px";
  c.scale(ratio, ratio);
  const most = role.arena_bytes * 1.02, end = role.plan.step_ns;
  const x = t => 70 + (t - role.begin_ns) / end * (width - 70), y = b => height - 18 - b / most * (height - 24);
  const order = role.classes.map((_, k) => k).sort((a, b) => spread(role, a) - spread(role, b));
  const below = new Float64Array(role.memory.length);
  for (const k of order) {
    c.fillStyle = hue(k);
    c.beginPath();
    const upper = role.memory.map((m, i) => below[i] + m.bytes[k]);
    role.memory.forEach((m, i) => {
      if (i) c.lineTo(x(m.at), y(upper[i - 1]));
      c.lineTo(x(m.at), y(upper[i]));
    });
    for (let i = role.memory.length - 1; i >= 0; i--) {
      c.lineTo(x(role.memory[i].at), y(below[i]));
      if (i) c.lineTo(x(role.memory[i].at), y(below[i - 1]));
    }
    c.fill();
    upper.forEach((v, i) => { below[i] = v; });
  }
  c.fillStyle = color("ink");
  c.strokeStyle = color("mark");
  c.font = "11px system-ui, sans-serif";
  c.setLineDash([4, 3]);
  c.strokeRect(70, y(role.arena_bytes), width, 0);
  c.fillText("arena", 4, y(role.arena_bytes) + 4);
  for (let k = 1; k < 4; k++) c.fillText(bytes(role.arena_bytes * k / 4), 4, y(role.arena_bytes * k / 4) + 4);
  for (let k = 0; k < 5; k++) c.fillText(seconds(end * k / 5), x(role.begin_ns + end * k / 5), height - 4);
  canvas.onpointermove = e => {
    const t = role.begin_ns + (e.offsetX - 70) / (width - 70) * end;
    onpoint(role.memory.findLast(m => m.at <= t) || role.memory[0]);
  };
}

// how much a class changes over the step: those that do not change lie below
function spread(role, k) {
  let least = Infinity, most = 0;
  for (const m of role.memory) {
    least = Math.min(least, m.bytes[k]);
    most = Math.max(most, m.bytes[k]);
  }
  return most - least;
}

function memoryTable(role) {
  const peak = role.memory.reduce((best, m) => m.sum > best.sum ? m : best);
  const rows = role.classes.map((name, k) => [k, name, peak.bytes[k]]).filter(r => r[2]).sort((a, b) => b[2] - a[2])
    .map(([k, name, n]) => [element("span", {}, element("i", { style:
      `display:inline-block;width:.9em;height:.9em;margin-right:.4em;background:${hue(k)}` }), name),
      { text: bytes(n), value: n }, percent(n, role.arena_bytes)]);
  const rest = role.arena_bytes - peak.sum;
  rows.push(["not live at the peak", { text: bytes(rest), value: rest }, percent(rest, role.arena_bytes)],
    ["arena", { text: bytes(role.arena_bytes), value: role.arena_bytes }, ""]);
  return table(`at the peak, ${seconds(peak.at - role.begin_ns)} after the step's begin`, ["", "bytes", "of the arena"], rows);
}

// ---- traffic ----

// seconds of exposed transfers of a rank, by its partners and opcode
function exposed(role) {
  const sum = new Map();
  for (const d of role.idles) {
    const i = d.on >= 0 ? d.on : d.insn;
    if (d.cause !== 2 || i < 0) continue;
    const kind = role.kinds[role.kind[i]], t = role.transfers[kind.transfer];
    const key = t ? `${role.plan.ops[kind.op]} ${t.group}` : "";
    sum.set(key, (sum.get(key) || 0) + d.end - d.start);
  }
  return sum;
}

function trafficRow(plan, t, shown) {
  const link = t.tier === "scale-up" ? plan.scale_up_bytes_s : plan.nic_bytes_s, ns = t.time_s * 1e9;
  return [t.op, t.group, "" + t.members, t.tier, "" + t.count, { text: bytes(t.bytes), value: t.bytes },
    { text: seconds(ns), value: t.time_s }, rate(t.bytes, ns), link ? rate(link, 1e9) : "", { text: seconds(shown), value: shown }];
}

function trafficOf(role) {
  const plan = role.plan, of = exposed(role), mine = plan.traffic.traffic.filter(t => t.role === role.number), told = new Set();
  const rows = mine.map(t => {
    const key = `${t.op} ${t.group}`, shown = told.has(key) ? 0 : of.get(key) || 0; // both directions of a group's queue
    told.add(key);
    return trafficRow(plan, t, shown);
  });
  return table("bytes of the largest operand, summed over the step; link: what a GPU's links carry; exposed: while nothing computed",
    ["operation", "group", "members", "tier", "count", "bytes", "time", "rate", "link", "exposed"], rows);
}

function trafficTable(plan) {
  const sum = role => plan.traffic.traffic.filter(t => t.role === role.number).reduce((n, t) => n + t.bytes, 0);
  return element("div", {}, ...plan.roles.map(role => element("details", { open: !role.number },
    element("summary", {}, `${rankName(role)}: ${bytes(sum(role))}, ${percent(role.idle_ns[2], plan.step_ns)} of the step exposed`),
    trafficOf(role))));
}

// ---- cluster ----

// the pipeline rank of every rank: digits of a mixed-radix number, innermost first
function stageOf(plan, rank) {
  for (const d of plan.mesh) {
    if (d.pp) return rank % d.size;
    rank = Math.floor(rank / d.size);
  }
  return 0;
}

function svg(tag, attributes, ...children) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, v] of Object.entries(attributes)) e.setAttribute(key, v);
  e.append(...children);
  return e;
}

// A node is a cell, cut into the pipeline ranks of its GPUs; groups of the lowest tier stand apart.
function clusterMap(plan) {
  const size = plan.cluster_nodes > 600 ? 9 : 16, group = plan.tiers[0] && plan.tiers.length > 1 ? plan.tiers[0].span : Infinity;
  const used = plan.nodes.flatMap(([first, n]) => Array.from({ length: n }, (_, k) => first + k));
  const at = new Map(used.map((node, k) => [node, k])), across = Math.max(8, Math.floor(1000 / (size + 2)));
  const cells = [];
  let x = 0, y = 0;
  for (let node = 0; node < plan.cluster_nodes; node++) {
    if (node && (x >= across || node % group === 0)) {
      y += node % group === 0 ? size + 6 : size + 2;
      x = 0;
    }
    const k = at.get(node), left = x++ * (size + 2);
    if (k === undefined) {
      cells.push(svg("rect", { x: left, y, width: size, height: size, fill: "none", stroke: "var(--line)" }));
      continue;
    }
    const first = k * plan.gpus_per_node, last = Math.min(first + plan.gpus_per_node, plan.roles.length * plan.roles[0].ranks) - 1;
    const stages = [...new Set(Array.from({ length: last - first + 1 }, (_, g) => stageOf(plan, first + g)))];
    stages.forEach((s, i) => cells.push(svg("rect", { x: left, y: y + i * size / stages.length, width: size,
      height: size / stages.length, fill: `hsl(${360 * s / plan.roles.length} 55% 55%)` },
      svg("title", {}, `node ${node}: ranks ${first} to ${last}, pipeline rank ${stages.join(", ")}`))));
  }
  const width = across * (size + 2);
  return element("div", {}, element("p", { className: "hint" }, `${plan.cluster_nodes} nodes of ${plan.gpus_per_node} GPUs, ` +
    `a cell each, coloured by pipeline rank; ranks count ${plan.mesh.map(d => `${d.name} (${d.size})`).join(", ") || "one"}, ` +
    `innermost first. Tiers: ${plan.tiers.map(t => `${t.name} of ${t.span} nodes`).join(", ") || "none"}.`),
    svg("svg", { viewBox: `0 0 ${width} ${y + size + 2}`, width, height: y + size + 2, role: "img",
      "aria-label": "nodes by pipeline rank" }, ...cells));
}

// ---- proofs, search ----

const PROPERTIES = ["", "programs are well formed", "every send and collective meets its partners", "no deadlock",
  "no race between queues", "nothing is read before it is written", "no rank needs more memory than it has",
  "the step is the model's training step, no more and no less", "the machine of the plan exists"];

function proofsTable(plan) {
  const c = plan.check, found = n => c.violations.filter(v => v.property === n).length;
  return table(`${c.instructions.toLocaleString("en")} instructions, ${c.ranks.toLocaleString("en")} ranks, from the folder's files alone`,
    ["property", "holds"], PROPERTIES.slice(1).map((text, i) => [`${i + 1}. ${text}`, found(i + 1) ? `no: ${found(i + 1)} violations` : "yes"]));
}

function searchPlot(plan) {
  const all = plan.candidates, width = 760, height = 300;
  const times = all.map(c => c.step_time_s), memory = all.map(c => c.peak_memory_bytes);
  const own = plan.show.predicted, t0 = Math.min(...times, own.step_time_s) * 0.98, t1 = Math.max(...times, own.step_time_s) * 1.02;
  const fullest = Math.max(...memory, own.peak_memory_bytes), limit = plan.memory_limit_bytes;
  const most = 1.1 * (limit < 3 * fullest ? Math.max(limit, fullest) : fullest);
  const x = t => 70 + (t - t0) / (t1 - t0) * (width - 90), y = b => height - 30 - b / most * (height - 45);
  let least = Infinity;
  const frontier = [...all].sort((a, b) => a.step_time_s - b.step_time_s || a.peak_memory_bytes - b.peak_memory_bytes)
    .filter(c => c.peak_memory_bytes < least && (least = c.peak_memory_bytes));
  const dot = (c, name, r, fill) => svg("circle", { cx: x(c.step_time_s), cy: y(c.peak_memory_bytes), r, fill },
    svg("title", {}, `${name}: ${seconds(c.step_time_s * 1e9)}, ${bytes(c.peak_memory_bytes)}`));
  const removed = Object.entries(plan.branches_removed).filter(r => r[1]);
  return element("div", {}, svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img",
    "aria-label": "step time and memory of the candidates" },
    ...(limit < most ? [svg("line", { x1: 70, x2: width, y1: y(limit), y2: y(limit), stroke: "var(--mark)", "stroke-dasharray": "4 3" }),
      svg("text", { x: 74, y: y(limit) - 4 }, `limit ${bytes(limit)}`)] : []),
    ...[0, 0.25, 0.5, 0.75].map(part => svg("text", { x: 4, y: y(part * most) + 4 }, bytes(part * most))),
    svg("text", { x: 70, y: height - 8 }, seconds(t0 * 1e9)), svg("text", { x: width - 60, y: height - 8 }, seconds(t1 * 1e9)),
    svg("polyline", { points: frontier.map(c => `${x(c.step_time_s)},${y(c.peak_memory_bytes)}`).join(" "), fill: "none", stroke: "var(--faint)" }),
    ...all.map(c => dot(c, c.decision, 3.5, "var(--F)")), dot(own, "the plan, as simulated: " + plan.decision_text, 6, "var(--mark)")),
    table("step time and memory by the search's model, best first; the line in the drawing joins what nothing beats in both",
      ["decision", "step", "memory"], all.slice(0, 12).map(c => [c.decision, seconds(c.step_time_s * 1e9), bytes(c.peak_memory_bytes)])),
    table(`of ${plan.show.search.space.toLocaleString("en")} decisions; branches of the space that were cut off`, ["because", "branches"],
      removed.map(([why, n]) => [why, n.toLocaleString("en")])));
}

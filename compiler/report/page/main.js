// Puts the page together.

function legend(timeline) {
  const c = name => `background: var(--${name})`;
  const rows = [["F", "forward"], ["B", "backward"], ["I", "input gradient"], ["W", "weight gradient"], ["R", "recomputation (zoomed in)"],
    ["O", "optimizer"], ["comm", "transfer"], ["warm-up", "idle: warm-up"], ["cool-down", "idle: cool-down"],
    ["wait", "idle: wait for others, imbalance among it"], ["exposed", "idle: exposed transfer"]];
  const used = new Set(timeline.plans.flatMap(p => p.roles.flatMap(r => r.kinds.map(k => k.again ? "R" : k.action))));
  document.getElementById("legend").replaceChildren(...rows.filter(([name]) => !/^[FBIWR]$/.test(name) || used.has(name))
    .map(([name, text]) => element("li", {}, element("i", { style: c(name) }), text)));
}

function showMemory(roles) {
  const select = document.getElementById("memory-rank"), canvas = document.getElementById("memory-plot");
  roles.forEach((r, i) => select.append(element("option", { value: i }, (r.plan.label || "") + rankName(r))));
  const draw = () => {
    const role = roles[select.value], out = document.getElementById("memory-at");
    drawMemory(canvas, role, m => {
      out.value = `${seconds(m.at - role.begin_ns)}: ${bytes(m.sum)} live`;
    });
    document.getElementById("memory-table").replaceChildren(memoryTable(role));
  };
  select.value = roles.reduce((best, r, i) => r.arena_bytes > roles[best].arena_bytes ? i : best, 0);
  select.addEventListener("change", draw);
  new ResizeObserver(draw).observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  draw();
}

async function main() {
  const plans = [await readPlan(0)];
  if (document.getElementById("plan1")) plans.push(await readPlan(1));
  if (plans.length > 1) plans.forEach(p => { p.label = p.name + ": "; });
  header(plans);
  const timeline = new Timeline(document.getElementById("steps"), plans);
  timeline.onchoose = what => showDetail(timeline, what);
  legend(timeline);
  document.getElementById("zoom-in").addEventListener("click", () => timeline.zoom(0.5));
  document.getElementById("zoom-out").addEventListener("click", () => timeline.zoom(2));
  document.getElementById("zoom-fit").addEventListener("click", () => timeline.show(0, timeline.whole));
  document.getElementById("queues").addEventListener("change", e => {
    timeline.showQueues = e.target.checked;
    timeline.layout();
  });
  for (const [id, make] of [["idle-table", idleTable], ["traffic-table", trafficTable], ["cluster-map", clusterMap],
    ["proofs-table", proofsTable], ["search-plot", searchPlot]]) {
    const box = document.getElementById(id);
    box.className = plans.length > 1 ? "two" : "";
    for (const p of plans) box.append(element("div", {}, plans.length > 1 ? element("h3", {}, p.name) : "", make(p)));
  }
  showMemory(plans.flatMap(p => p.roles));
  window.report = { plans, timeline }; // for whoever looks from a console
}

main().catch(e => {
  document.body.prepend(element("p", { role: "alert" }, "This page could not be drawn: " + e.message));
  throw e;
});

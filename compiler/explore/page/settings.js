// The controls: what they offer, and the words of the command line that they stand for.

const FILE = "as the file says", FREE = "free";

const powers = (least, most) => {
  const list = [];
  for (let n = least; n <= most; n *= 2) list.push(n);
  return list;
};

// powers of two, three halves of them, and the most
const counts = (least, most) => [...new Set(powers(least, most).flatMap(n => [n, 1.5 * n]).concat(most))]
  .filter(n => Number.isInteger(n) && n <= most).sort((a, b) => a - b);

// free: what is said to leave the choice to the search; found: what a decision has; holds: what of that can be pinned: dp
// follows from the others, and which parts of which layers are recomputed has no menu
function settingsOf(job) {
  const { gpus, gpus_per_node: node } = job.cluster, stages = Array.from({ length: 20 }, (_, k) => k + 1)
    .concat(21, 24, 28, 30, 32, 40, 42, 48, 61, 63, 64, 80, 96, 126, 128).filter(n => n <= gpus);
  const degree = (key, label, values, least = 1) => ({ group: "layout", key, label, values: values.filter(n => n <= gpus),
    free: `${key}>=${least}`, found: a => a.decision[key] });
  return [
    { ...degree("gpus", "GPUs", counts(1, gpus).filter(n => n <= node || n % node === 0 || n === gpus)), found: a => a.cluster.gpus_used },
    degree("tp", "tensor parallel", powers(1, 64)), degree("cp", "context parallel", powers(1, 64)),
    degree("pp", "pipeline stages", stages), degree("vpp", "chunks per stage", [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16]),
    { ...degree("dp", "data parallel", counts(1, gpus)), holds: () => undefined }, degree("ep", "expert parallel", powers(1, 512)),
    { ...degree("zero", "ZeRO", [], 0), group: "memory", menu: [0, 1, 2, 3] },
    { ...degree("shard", "ranks that share state", counts(1, gpus)), group: "memory" },
    { ...degree("microbatch", "microbatch", []), group: "memory", values: [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64] },
    { group: "memory", key: "recompute", label: "recompute", menu: job.recomputes.filter(w => w !== "auto"), free: "recompute=auto",
      found: a => a.decision.recompute, holds: a => a.decision.recompute === "selective" ? undefined : a.decision.recompute },
    { group: "memory", key: "schedule", label: "schedule", menu: job.schedules, free: `schedule in [${job.schedules.join(", ")}]`,
      found: a => a.decision.schedule },
    { group: "run", key: "sequence", label: "sequence", values: powers(64, 1 << 20), found: () => job.model.sequence },
    { group: "run", key: "batch", label: "batch, sequences", values: powers(1, 1 << 16), found: () => job.model.batch,
      word: v => `batch=${v} sequences` },
    { group: "run", key: "target", label: "target", menu: job.targets, found: a => a.target },
    { group: "run", key: "profile", label: "its numbers", menu: job.profiles, found: a => a.profile },
    { group: "run", key: "budget", label: "search at most", menu: [1000, 10000, 100000, 1000000, 10000000], option: true,
      found: a => a.search.budget },
  ];
}

class Setting {
  constructor(about, onchange) {
    Object.assign(this, about);
    const id = "set-" + this.key, first = [FILE].concat(this.free ? FREE : []);
    this.choices = first.concat(this.menu || this.values);
    if (this.menu) {
      this.input = element("select", { id }, ...this.choices.map((c, i) => element("option", { value: i }, i ? "" + c : this.option ? "as usual" : c)));
    } else {
      this.input = element("input", { id, type: "range", min: 0, max: this.choices.length - 1, value: 0 });
      this.output = element("output", { htmlFor: id });
    }
    this.input.addEventListener("input", onchange);
    this.box = element("div", { className: "setting" }, element("label", { htmlFor: id }, this.label), this.input, this.output || "");
  }
  get choice() {
    return this.choices[this.input.value];
  }
  set choice(v) { // one that is not offered is offered from now on
    if (!this.choices.includes(v)) this.add(v);
    this.input.value = this.choices.indexOf(v);
  }
  add(v) {
    const at = this.menu ? -1 : this.choices.findIndex(c => typeof c === "number" && c > v), chosen = this.choice;
    this.choices.splice(at < 0 ? this.choices.length : at, 0, v);
    if (this.menu) this.input.append(element("option", { value: this.choices.length - 1 }, "" + v));
    else this.input.max = this.choices.length - 1;
    this.input.value = this.choices.indexOf(chosen);
  }
  get pinned() {
    return this.choice !== FILE && this.choice !== FREE;
  }
  words() {
    if (this.choice === FILE) return [];
    if (this.option) return ["--" + this.key, "" + this.choice];
    return ["--set", this.choice === FREE ? this.free : this.word ? this.word(this.choice) : `${this.key}=${this.choice}`];
  }
  show(answer) { // answer: what an estimate says, or undefined
    this.box.classList.toggle("pinned", this.pinned);
    const found = answer ? this.found(answer) ?? "" : "";
    if (this.menu) {
      if (!this.option) this.input.options[0].textContent = found !== "" && this.choice === FILE ? `${FILE}: ${found}` : FILE;
      if (this.free) this.input.options[1].textContent = found !== "" && this.choice === FREE ? `${FREE}: ${found}` : FREE;
      return;
    }
    const number = v => typeof v === "number" ? v.toLocaleString("en") : v;
    this.output.value = this.pinned ? number(this.choice) : (this.choice === FREE ? "free: " : "file: ") + number(found);
    this.input.setAttribute("aria-valuetext", this.pinned ? number(this.choice) : `${this.choice}: ${number(found)}`);
  }
}

// Numbers of the model's text that have an input of their own, with their places: outside of comments and blocks of
// train and plan.
function modelNumbers(text) {
  const list = [], words = /\b(?:(vocab|width|repeat|experts|active|shared)\s+|(heads|kv|head|q_rank|kv_rank|nope|v)\s*=\s*|(swiglu|geglu|gelu|relu2?)\()(\d[\d_]*)/g;
  let at = 0, line = 0;
  for (const whole of text.split("\n")) {
    line++;
    const code = whole.replace(/#.*/, "");
    if (/^\s*(train|plan)\b/.test(code)) break;
    for (const m of code.matchAll(words))
      list.push({ name: m[1] || m[2] || m[3], line, value: Number(m[4].replaceAll("_", "")),
        start: at + m.index + m[0].length - m[4].length, length: m[4].length });
    at += whole.length + 1;
  }
  return list;
}

// Inputs for them, which write into the text; a text that was edited by hand gets new ones.
function showModelNumbers(box, area, onchange) {
  const list = modelNumbers(area.value);
  box.querySelectorAll(".setting").forEach(e => e.remove());
  list.forEach((n, i) => {
    const id = "model-" + i, input = element("input", { id, type: "number", min: 1, value: n.value });
    input.addEventListener("input", () => {
      const now = modelNumbers(area.value)[i];
      if (!input.value || !now) return;
      area.value = area.value.slice(0, now.start) + input.value + area.value.slice(now.start + now.length);
      onchange();
    });
    box.append(element("div", { className: "setting" }, element("label", { htmlFor: id }, `${n.name}, line ${n.line}`), input));
  });
}

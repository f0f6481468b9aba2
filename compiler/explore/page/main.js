// Puts the page together: a control moves, the compiler is asked, its answer is drawn.

const byId = id => document.getElementById(id);
const quote = word => /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;

class Explorer {
  constructor(job, compiler) {
    this.job = job;
    this.compiler = compiler;
    this.settings = settingsOf(job).map(about => new Setting(about, () => this.update()));
    for (const s of this.settings) byId(s.group).append(s.box);
    byId("title").textContent = `${job.model.title} on ${job.cluster.title}`;
    document.title = `llmc explore: ${job.model.title}`;
    byId("model").value = job.model.text;
    byId("further").value = job.sets.join("\n");
    this.showNumbers = () => showModelNumbers(byId("shape"), byId("model"), () => this.update());
    this.showNumbers();
    byId("model").addEventListener("input", () => {
      this.showNumbers();
      this.update();
    });
    byId("further").addEventListener("input", () => this.update());
    byId("teach").addEventListener("change", () => this.update());
    byId("best").addEventListener("click", () => this.choose(s => s.free && !s.pinned ? FREE : s.choice));
    byId("reset").addEventListener("click", () => this.choose(() => FILE));
    byId("hold").addEventListener("click", () => this.answer && this.pin(this.answer));
    byId("explain").addEventListener("click", () => this.explain());
    byId("settings").addEventListener("submit", e => e.preventDefault());
  }
  setting(key) {
    return this.settings.find(s => s.key === key);
  }
  choose(what) {
    for (const s of this.settings) s.choice = what(s);
    return this.update();
  }
  // what a decision has becomes pinned, as far as a setting can say it
  pin(candidate) {
    const found = { cluster: this.answer.cluster, ...candidate };
    return this.choose(s => s.group === "run" ? s.choice : (s.holds ?? s.found)(found) ?? FREE);
  }
  words() {
    const further = byId("further").value.split("\n").map(s => s.trim()).filter(s => s);
    const chosen = this.settings.flatMap(s => s.words());
    return [this.job.model.name, this.job.cluster.name, ...further.flatMap(s => ["--set", s]), ...chosen];
  }
  ask(words) {
    return this.compiler.run(["llmc", ...words], { name: this.job.model.name, text: byId("model").value });
  }
  update() {
    return (this.pending = this.estimate());
  }
  async estimate() {
    const words = ["estimate", ...this.words(), "--json", ...(byId("teach").checked ? ["--formulas"] : [])];
    byId("command").textContent = ["llmc", ...words].map(quote).join(" ");
    byId("status").textContent = "computing ...";
    byId("numbers").className = "old";
    const said = await this.ask(words);
    if (!said) return; // something newer was asked
    this.said = { ...said, words };
    const failure = said.status ? await this.ask(words.filter(w => w !== "--json")) : { err: said.err };
    if (!failure) return;
    this.show(said, failure.err);
  }
  show(said, message) {
    this.answer = said.status ? undefined : JSON.parse(said.out);
    byId("error").hidden = !message;
    byId("error").textContent = message;
    byId("error").className = this.answer ? "note" : "";
    byId("numbers").hidden = !this.answer;
    byId("numbers").className = "";
    byId("explanation").hidden = true;
    byId("status").textContent = this.answer ? `${briefly(this.answer)}; computed in ${Math.round(said.ms)} ms` : "no plan: " + message.split("\n")[0];
    for (const s of this.settings) s.show(this.answer);
    if (this.answer) drawAnswer(this.answer, c => this.pin(c));
    this.link("download", this.job.model.name, byId("model").value);
    this.link("download-json", "estimate.json", said.out);
  }
  link(id, name, text) {
    const a = byId(id);
    if (a.href) URL.revokeObjectURL(a.href);
    a.href = URL.createObjectURL(new Blob([text]));
    a.download = name;
  }
  async explain() {
    const box = byId("explanation");
    box.hidden = false;
    box.textContent = "computing; this takes several searches ...";
    const said = await this.ask(["explain", ...this.words()]);
    if (said) box.textContent = said.out + said.err;
  }
}

async function main() {
  const job = JSON.parse(byId("job").textContent), { cluster } = job;
  const compiler = new Compiler(await unpackModule(), { [cluster.name]: cluster.text, [cluster.name + ".tree"]: cluster.tree });
  const explorer = new Explorer(job, compiler);
  await explorer.update();
  window.explore = explorer; // for whoever looks from a console
}

main().catch(e => {
  document.body.prepend(element("p", { role: "alert" }, "This page cannot run: " + e.message));
  throw e;
});

// The step on one time axis: a lane of actions per pipeline rank, and where asked for one per queue of transfers.
//
// Where a lane has more to show than pixels, each column of pixels is filled by the shares of what happens in it, computing
// from above and idle time from below; the shares are found once, for SHARES equal parts of the step.

const LANE = 22, QUEUE = 9, GAP = 5, LEFT = 58, AXIS = 20, SHARES = 16384;
const COMPUTING = ["F", "B", "I", "W", "O", "other"], IDLE = ["warm-up", "cool-down", "exposed", "wait"]; // by cause

// index of the first item that ends after t
function firstAfter(ends, t) {
  let low = 0, high = ends.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ends[middle] > t) high = middle;
    else low = middle + 1;
  }
  return low;
}

class Timeline {
  constructor(canvas, plans) {
    this.canvas = canvas;
    this.plans = plans;
    this.whole = Math.max(...plans.map(p => Math.max(...p.roles.map(r => r.begin_ns)) + p.step_ns));
    this.from = 0;
    this.to = this.whole;
    this.showQueues = false;
    this.chosen = null;
    this.listen();
    this.layout();
  }

  // ---- what there is to draw ----

  layout() {
    this.lanes = [];
    let y = AXIS;
    for (const plan of this.plans) {
      if (this.plans.length > 1) y += 16;
      plan.y = y;
      for (const role of plan.roles) {
        this.lanes.push({ role, y, height: LANE });
        y += LANE;
        role.queues.forEach((items, queue) => {
          if (!queue || !this.showQueues) return;
          this.lanes.push({ role, queue, y, height: QUEUE, ...this.itemsOf(role, queue) });
          y += QUEUE;
        });
        y += GAP;
      }
    }
    this.height = y;
    this.draw();
  }

  // starts and ends of one queue's instructions in order of time, and shares of what they are
  itemsOf(role, queue) {
    role.drawn ||= [];
    return role.drawn[queue] ||= (() => {
      const index = [...role.queues[queue]].sort((a, b) => role.start[a] - role.start[b]);
      const starts = Float64Array.from(index, i => role.start[i]), ends = Float64Array.from(index, i => role.end[i]);
      const kinds = queue ? ["comm"] : [...COMPUTING, ...IDLE];
      const shares = kinds.map(() => new Float32Array(SHARES + 1)); // made sums of the parts before each below
      index.forEach((i, k) => {
        const kind = role.kinds[role.kind[i]], action = COMPUTING.indexOf(kind.action);
        if (queue || kind.transfer < 0) this.addShare(shares[queue ? 0 : action < 0 ? COMPUTING.length - 1 : action], starts[k], ends[k]);
      });
      if (!queue) role.idles.forEach(d => this.addShare(shares[COMPUTING.length + d.cause], d.start, d.end));
      for (const share of shares)
        for (let bin = 0, sum = 0, own; bin <= SHARES; bin++, sum += own) {
          own = share[bin];
          share[bin] = sum;
        }
      return { index, starts, ends, kinds, shares };
    })();
  }

  addShare(share, start, end) {
    const width = this.whole / SHARES;
    for (let bin = Math.floor(start / width); bin < SHARES && bin * width < end; bin++)
      share[bin] += (Math.min(end, (bin + 1) * width) - Math.max(start, bin * width)) / width;
  }

  blocksOf(role) {
    return role.blockEnds ||= Float64Array.from(role.blocks, b => b.end);
  }

  idleEndsOf(role) {
    return role.idleEnds ||= Float64Array.from(role.idles, d => d.end);
  }

  x(t) { return LEFT + (t - this.from) * this.scale; }

  // ---- drawing ----

  draw() {
    this.pending ||= requestAnimationFrame(() => {
      this.pending = 0;
      this.paint();
    });
  }

  paint() {
    const ratio = devicePixelRatio || 1, width = this.canvas.clientWidth, c = this.canvas.getContext("2d");
    this.canvas.width = width * ratio;
    this.canvas.height = this.height * ratio;
    this.canvas.style.height = this.height + "px";
    this.width = width;
    this.scale = (width - LEFT) / (this.to - this.from);
    c.scale(ratio, ratio);
    this.colors = Object.fromEntries(["paper", "ink", "faint", "line", "mark", "R", "comm", ...COMPUTING, ...IDLE].map(n => [n, color(n)]));
    this.ratio = ratio;
    c.fillStyle = this.colors.paper;
    c.fillRect(0, 0, width, this.height);
    c.font = "11px system-ui, sans-serif";
    c.textBaseline = "middle";
    this.paintAxis(c);
    for (const lane of this.lanes)
      if (lane.queue) this.paintQueue(c, lane);
      else this.paintRole(c, lane);
    this.paintChosen(c);
    this.frames = (this.frames || 0) + 1;
    const out = document.getElementById("window");
    if (out) out.value = `${seconds(this.from)} to ${seconds(this.to)} of ${seconds(this.whole)}`;
  }

  paintAxis(c) {
    const about = (this.to - this.from) * 110 / this.width, power = 10 ** Math.floor(Math.log10(about));
    const step = [1, 2, 5, 10].map(f => f * power).find(s => s >= about);
    c.strokeStyle = this.colors.line;
    c.fillStyle = this.colors.faint;
    for (let t = Math.ceil(this.from / step) * step; t <= this.to; t += step) {
      c.fillRect(this.x(t), AXIS - 5, 1, this.height);
      c.fillText(seconds(t), this.x(t) + 3, AXIS / 2);
    }
    for (const plan of this.plans)
      if (this.plans.length > 1) c.fillText(plan.name, 2, plan.y - 8);
  }

  paintRole(c, { role, y, height }) {
    c.fillStyle = this.colors.ink;
    c.fillText("rank " + role.number, 2, y + height / 2);
    const ends = this.blocksOf(role), first = firstAfter(ends, this.from);
    let end = first, insns = 0;
    for (; end < ends.length && role.blocks[end].start < this.to; end++)
      insns += role.blocks[end].last - role.blocks[end].first + 1;
    const idles = this.idleEndsOf(role);
    if (4 * (end - first) > this.width || 3 * (firstAfter(idles, this.to) - firstAfter(idles, this.from)) > this.width) {
      this.paintShares(c, this.itemsOf(role, 0), y, height);
      return;
    }
    c.save();
    c.beginPath();
    c.rect(LEFT, y, this.width - LEFT, height);
    c.clip();
    for (const b of role.blocks.slice(first, end))
      if (insns < this.width) this.paintInsns(c, role, b, y, height);
      else this.paintBlock(c, role, b, y, height);
    this.paintIdles(c, role, y, height);
    c.restore();
  }

  // a column of pixels per share of the lane's kinds
  paintShares(c, { kinds, shares }, y, height) {
    const { ratio } = this, left = Math.round(LEFT * ratio), top = Math.round(y * ratio);
    const width = Math.round(this.width * ratio) - left, rows = Math.round(height * ratio);
    const image = c.createImageData(width, rows), pixels = new Uint32Array(image.data.buffer);
    const colors = kinds.map(k => parseInt("ff" + this.colors[k].match(/[0-9a-f]{2}/gi).reverse().join(""), 16));
    pixels.fill(parseInt("ff" + this.colors.paper.match(/[0-9a-f]{2}/gi).reverse().join(""), 16));
    const part = x => Math.min(SHARES, (this.from + x / ratio / this.scale) / this.whole * SHARES);
    const before = (share, at) => share[Math.floor(at)] + (at % 1 && (share[Math.ceil(at)] - share[Math.floor(at)]) * (at % 1));
    for (let x = 0; x < width; x++) {
      const from = part(x), to = part(x + 1);
      for (let k = 0, row = 0, sum = 0; k < kinds.length; k++) {
        sum += (before(shares[k], to) - before(shares[k], from)) / (to - from);
        for (const end = Math.min(rows, Math.round(sum * rows)); row < end; row++) pixels[row * width + x] = colors[k];
      }
    }
    c.putImageData(image, left, top);
  }

  paintBlock(c, role, b, y, height) {
    const x = Math.max(this.x(b.start), LEFT - 1), w = Math.max(this.x(b.end) - x, 1);
    c.fillStyle = this.colors[b.action] || this.colors.other;
    c.fillRect(x, y, w, height);
    if (b.other) {
      c.fillStyle = this.colors[b.other.action] || this.colors.other;
      c.fillRect(x, y + height / 2, w, height / 2);
    }
    this.paintChunk(c, role, b.stage, x, y, w, height);
    this.paintFrame(c, b.action, b.other ? `${b.microbatch}&${b.other.microbatch}` : b.microbatch, x, y, w, height);
  }

  // stages after a rank's first one are lighter, and have a dot per chunk where it fits
  paintChunk(c, role, stage, x, y, w, height) {
    const chunk = role.stages.indexOf(stage), n = role.stages.length;
    if (chunk < 1) return;
    c.fillStyle = this.colors.paper;
    c.globalAlpha = 0.15 + 0.4 * chunk / n;
    c.fillRect(x, y, w, height);
    c.globalAlpha = 1;
    if (w > 5 * chunk + 4)
      for (let k = 0; k < chunk; k++) c.fillRect(x + 3 + 5 * k, y + height - 5, 3, 3);
  }

  paintFrame(c, action, label, x, y, w, height) {
    if (w < 4) return;
    c.fillStyle = this.colors.paper;
    c.fillRect(x + w - 0.5, y, 0.5, height);
    if (label === undefined || label === -1) return;
    if (c.measureText(label).width + 6 > w) return;
    c.fillStyle = action === "W" ? "#000000" : "#ffffff";
    c.fillText(label, x + 4, y + height / 2);
  }

  paintInsns(c, role, b, y, height) {
    for (let i = b.first; i <= b.last; i++) {
      const kind = role.kinds[role.kind[i]];
      if (kind.queue) continue;
      const x = this.x(role.start[i]), w = Math.max(this.x(role.end[i]) - x, 0.6);
      if (x + w < LEFT || x > this.width) continue;
      c.fillStyle = kind.transfer >= 0 ? this.colors.comm : kind.again ? this.colors.R :
        this.colors[kind.action] || this.colors.other;
      c.fillRect(x, y, w, height);
      this.paintChunk(c, role, kind.stage, x, y, w, height);
      this.paintFrame(c, kind.action, role.plan.ops[kind.op], x, y, w, height);
    }
  }

  paintIdles(c, role, y, height) {
    for (let k = firstAfter(this.idleEndsOf(role), this.from); k < role.idles.length && role.idles[k].start < this.to; k++) {
      const d = role.idles[k], x = this.x(d.start);
      c.fillStyle = this.colors[IDLE[d.cause]];
      c.fillRect(x, y, this.x(d.end) - x, height);
    }
  }

  paintQueue(c, lane) {
    const { role, y, height, starts, ends } = lane;
    c.fillStyle = this.colors.faint;
    c.fillText(role.plan.queues[lane.queue], 14, y + height / 2);
    c.fillStyle = this.colors.comm;
    const first = firstAfter(ends, this.from), end = firstAfter(starts, this.to);
    if (2 * (end - first) > this.width) {
      this.paintShares(c, lane, y + 1, height - 2);
      return;
    }
    for (let k = first; k < end; k++) {
      const x = Math.max(this.x(starts[k]), LEFT);
      c.fillRect(x, y + 1, Math.max(this.x(ends[k]) - x - 0.3, 0.4), height - 2);
    }
  }

  paintChosen(c) {
    const what = this.chosen;
    if (!what) return;
    const x = this.x(what.start);
    c.strokeStyle = this.colors.mark;
    c.lineWidth = 2;
    c.strokeRect(x, what.lane.y - 1, Math.max(this.x(what.end) - x, 2), what.lane.height + 2);
  }

  // ---- moving ----

  show(from, to) {
    const least = 200, width = Math.min(Math.max(to - from, least), this.whole);
    this.from = Math.min(Math.max(from, 0), this.whole - width);
    this.to = this.from + width;
    this.draw();
  }

  zoom(factor, at = (this.from + this.to) / 2) {
    this.show(at - (at - this.from) * factor, at + (this.to - at) * factor);
  }

  move(share) {
    const by = (this.to - this.from) * share;
    this.show(this.from + by, this.to + by);
  }

  listen() {
    const c = this.canvas;
    const time = e => this.from + (e.offsetX - LEFT) / this.scale;
    let drag = null;
    c.addEventListener("wheel", e => {
      e.preventDefault();
      if (Math.abs(e.deltaX) > Math.abs(e.deltaY)) this.move(e.deltaX / this.width);
      else this.zoom(1.0015 ** e.deltaY, time(e));
    }, { passive: false });
    c.addEventListener("pointerdown", e => {
      drag = { x: e.offsetX, from: this.from, to: this.to, moved: false };
      c.setPointerCapture(e.pointerId);
    });
    c.addEventListener("pointermove", e => {
      if (!drag) return;
      const by = (drag.x - e.offsetX) / this.scale;
      drag.moved ||= Math.abs(drag.x - e.offsetX) > 3;
      if (drag.moved) this.show(drag.from + by, drag.to + by);
    });
    c.addEventListener("pointerup", e => {
      if (drag && !drag.moved) this.choose(e.offsetX, e.offsetY);
      drag = null;
    });
    c.addEventListener("keydown", e => {
      const keys = { ArrowLeft: () => this.move(-0.1), ArrowRight: () => this.move(0.1), "+": () => this.zoom(0.7),
        "=": () => this.zoom(0.7), "-": () => this.zoom(1 / 0.7), 0: () => this.show(0, this.whole) };
      if (!keys[e.key]) return;
      e.preventDefault();
      keys[e.key]();
    });
    new ResizeObserver(() => this.draw()).observe(c);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  // ---- what is where ----

  choose(x, y) {
    const lane = this.lanes.find(l => y >= l.y && y < l.y + l.height), t = this.from + (x - LEFT) / this.scale;
    this.chosen = lane && x >= LEFT ? this.find(lane, t) : null;
    this.onchoose?.(this.chosen);
    this.draw();
  }

  // the instruction or idle interval of a lane at time t, as { lane, start, end, insn, idle }
  find(lane, t) {
    const { role } = lane;
    if (lane.queue) {
      const k = firstAfter(lane.ends, t);
      return k < lane.starts.length && lane.starts[k] <= t + 2 / this.scale ? this.insn(lane, lane.index[k]) : null;
    }
    const { index, starts, ends } = this.itemsOf(role, 0);
    const k = firstAfter(ends, t);
    if (k < starts.length && starts[k] <= t) return this.insn(lane, index[k]);
    const idle = role.idles.find(d => d.start <= t && t < d.end);
    return idle ? { lane, start: idle.start, end: idle.end, idle } : null;
  }

  insn(lane, i) {
    const { role } = lane;
    return { lane, start: role.start[i], end: role.end[i], insn: i, idle: role.idles.find(d => d.insn === i) };
  }

  // chooses an instruction, on whatever lane it is drawn, and moves so that it is seen
  reveal(role, i) {
    const queue = role.kinds[role.kind[i]].queue;
    if (queue && !this.showQueues) {
      this.showQueues = true;
      document.getElementById("queues").checked = true;
      this.layout();
    }
    this.chosen = this.insn(this.lanes.find(l => l.role === role && (l.queue || 0) === queue), i);
    const width = Math.max(this.to - this.from, 2 * (this.chosen.end - this.chosen.start));
    if (this.chosen.start < this.from || this.chosen.end > this.to)
      this.show(this.chosen.start - width / 2, this.chosen.start + width / 2);
    this.onchoose?.(this.chosen);
    this.draw();
  }
}

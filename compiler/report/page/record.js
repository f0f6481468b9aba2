// What record.c wrote: the step of every pipeline rank, as arrays that the drawings walk.

async function unpack(id) {
  const text = document.getElementById(id).textContent.trim();
  const bytes = Uint8Array.from(atob(text), c => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

class Reader {
  constructor(bytes) {
    this.bytes = bytes;
    this.at = 0;
  }
  number() { // beyond 2^31 shifts would lose bits
    const bytes = this.bytes;
    let v = 0, scale = 1, b;
    do {
      b = bytes[this.at++];
      v += (b & 127) * scale;
      scale *= 128;
    } while (b > 127);
    return v;
  }
  signed() {
    const v = this.number();
    return v % 2 ? -(v + 1) / 2 : v / 2;
  }
}

function readKind(r) {
  const k = { op: r.number(), queue: r.number(), action: String.fromCharCode(r.number()), stage: r.number() - 1,
    layer: r.number() - 1, line: r.number(), again: r.number() > 0, bytes: r.number(), transfer: r.number() - 1,
    peer: r.number() - 1 };
  if (k.action === "\0") k.action = "";
  return k;
}

function readInsns(r, role) {
  role.kinds = Array.from({ length: r.number() }, () => readKind(r));
  const n = r.number(), now = new Float64Array(16);
  Object.assign(role, { n, kind: new Uint32Array(n), microbatch: new Int32Array(n), start: new Float64Array(n),
    end: new Float64Array(n), after: new Int32Array(n), queues: [] });
  for (let i = 0; i < n; i++) {
    const kind = role.kind[i] = r.number(), queue = role.kinds[kind].queue;
    role.microbatch[i] = r.number() - 1;
    role.start[i] = now[queue] + r.signed();
    role.end[i] = now[queue] = role.start[i] + r.number();
    const back = r.number();
    role.after[i] = back ? i - back : -1;
    (role.queues[queue] ||= []).push(i);
  }
}

function readIdles(r, role) {
  const n = r.number();
  let now = 0;
  role.idles = Array.from({ length: n }, () => {
    const start = now + r.signed(), end = now = start + r.number();
    return { start, end, cause: r.number(), insn: r.number() - 1, on: r.number() - 1, who: r.number() };
  });
}

function readMemory(r, role) {
  const n = r.number(), classes = role.classes.length, now = new Float64Array(classes);
  let at = role.begin_ns;
  role.memory = Array.from({ length: n }, () => {
    at += r.number();
    for (let k = 0; k < classes; k++) now[k] += r.signed();
    return { at, bytes: Float64Array.from(now), sum: now.reduce((x, y) => x + y, 0) };
  });
}

function readBlocks(r, role) {
  const one = (action, stage, microbatch) => ({ action: String.fromCharCode(action).replace("\0", ""), stage, microbatch });
  role.blocks = Array.from({ length: r.number() }, () => {
    const first = r.number(), last = r.number(), b = one(r.number(), r.number() - 1, r.number() - 1);
    const other = one(r.number(), r.number() - 1, r.number() - 1);
    return Object.assign(b, { first, last, start: role.start[first], end: role.end[last],
      other: other.action ? other : undefined });
  });
}

async function readPlan(index) {
  const plan = JSON.parse(document.getElementById("plan" + index).textContent);
  const r = new Reader(await unpack("record" + index));
  plan.roles.forEach((role, number) => {
    role.number = number;
    role.plan = plan;
    readInsns(r, role);
    readBlocks(r, role);
    readIdles(r, role);
    readMemory(r, role);
    role.stages = [...new Set(role.kinds.filter(k => k.action && k.stage >= 0).map(k => k.stage))].sort((a, b) => a - b);
  });
  return plan;
}

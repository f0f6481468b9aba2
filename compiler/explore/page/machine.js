// The machine that the compiler runs on: a worker with arguments, files in memory, and what is printed, for programs of
// WASI's preview 1.

// The worker's whole text: nothing outside of this function is known to it.
function machine() {
  const SUCCESS = 0, BAD_DESCRIPTOR = 8, NO_SUCH_FILE = 44, FOLDER = 3, FIRST_FILE = 4, DIRECTORY_TYPE = 3, FILE_TYPE = 4;
  const utf8 = new TextEncoder();
  class Exit {
    constructor(status) {
      this.status = status;
    }
  }

  // calls of a program with these arguments and files (a Map of names to bytes); out: parts of what it prints, by descriptor
  function calls(words, files, out, memory) {
    const open = new Map();
    const view = () => new DataView(memory().buffer), bytes = (at, n) => new Uint8Array(memory().buffer, at, n);
    const put = (at, v) => view().setUint32(at, v, true);
    const named = (at, n) => files.get(new TextDecoder().decode(bytes(at, n)));
    const describe = (file, at) => {
      bytes(at, 64).fill(0);
      view().setUint8(at + 16, FILE_TYPE);
      view().setBigUint64(at + 32, BigInt(file.length), true);
      return SUCCESS;
    };
    const each = (vectors, n, act) => {
      let sum = 0;
      for (let i = 0; i < n; i++)
        sum += act(bytes(view().getUint32(vectors + 8 * i, true), view().getUint32(vectors + 8 * i + 4, true)));
      return sum;
    };
    return {
      args_sizes_get(n, size) {
        put(n, words.length);
        put(size, utf8.encode(words.join("\0") + "\0").length);
        return SUCCESS;
      },
      args_get(pointers, at) {
        words.forEach((word, i) => {
          const b = utf8.encode(word + "\0");
          put(pointers + 4 * i, at);
          bytes(at, b.length).set(b);
          at += b.length;
        });
        return SUCCESS;
      },
      environ_sizes_get(n, size) {
        put(n, 0);
        put(size, 0);
        return SUCCESS;
      },
      environ_get: () => SUCCESS,
      clock_time_get(id, precision, at) {
        view().setBigUint64(at, BigInt(Math.round(performance.now() * 1e6)), true);
        return SUCCESS;
      },
      proc_exit(status) {
        throw new Exit(status);
      },
      fd_prestat_get(fd, at) { // the one folder that there is, "."
        if (fd !== FOLDER) return BAD_DESCRIPTOR;
        put(at, 0);
        put(at + 4, 1);
        return SUCCESS;
      },
      fd_prestat_dir_name(fd, at) {
        bytes(at, 1)[0] = ".".charCodeAt(0);
        return SUCCESS;
      },
      fd_fdstat_get(fd, at) { // all rights
        bytes(at, 24).fill(0);
        bytes(at + 8, 16).fill(255);
        view().setUint8(at, fd === FOLDER ? DIRECTORY_TYPE : FILE_TYPE);
        return SUCCESS;
      },
      fd_fdstat_set_flags: () => SUCCESS,
      path_filestat_get(fd, flags, name, n, at) {
        const file = named(name, n);
        return file ? describe(file, at) : NO_SUCH_FILE;
      },
      path_open(fd, flags, name, n, how, base, inherited, status, at) {
        const file = named(name, n), number = FIRST_FILE + open.size;
        if (!file) return NO_SUCH_FILE;
        open.set(number, { file, at: 0 });
        put(at, number);
        return SUCCESS;
      },
      fd_filestat_get(fd, at) {
        return open.has(fd) ? describe(open.get(fd).file, at) : BAD_DESCRIPTOR;
      },
      fd_read(fd, vectors, n, got) {
        const from = open.get(fd);
        if (!from) return BAD_DESCRIPTOR;
        put(got, each(vectors, n, to => {
          const part = from.file.subarray(from.at, from.at + to.length);
          to.set(part);
          from.at += part.length;
          return part.length;
        }));
        return SUCCESS;
      },
      fd_write(fd, vectors, n, written) {
        put(written, each(vectors, n, from => {
          out[fd].push(from.slice());
          return from.length;
        }));
        return SUCCESS;
      },
      fd_close: () => SUCCESS,
    };
  }

  // { status, out, err, ms }; every run has an instance, and so a memory, of its own
  function run(module, words, files) {
    const began = performance.now(), out = { 1: [], 2: [] }, unknown = () => 52;
    let instance, status = SUCCESS;
    const known = calls(words, files, out, () => instance.exports.memory);
    const imports = Object.fromEntries(WebAssembly.Module.imports(module).map(i => [i.name, known[i.name] || unknown]));
    instance = new WebAssembly.Instance(module, { wasi_snapshot_preview1: imports });
    try {
      instance.exports._start();
    } catch (e) {
      if (!(e instanceof Exit)) throw e;
      status = e.status;
    }
    const text = parts => {
      const decoder = new TextDecoder();
      return parts.map(p => decoder.decode(p, { stream: true })).join("");
    };
    return { status, out: text(out[1]), err: text(out[2]), ms: performance.now() - began };
  }

  let module, cluster;
  onmessage = ({ data }) => {
    if (data.module) {
      ({ module, cluster } = data);
      return;
    }
    const files = new Map(Object.entries(cluster).concat([[data.model.name, data.model.text]])
      .map(([name, text]) => [name, utf8.encode(text)]));
    try {
      postMessage(run(module, data.words, files));
    } catch (e) {
      postMessage({ status: 70, out: "", err: "the compiler has stopped in this browser: " + e.message, ms: 0 });
    }
  };
}

async function unpackModule() {
  const bytes = Uint8Array.from(atob(document.getElementById("module").textContent.replace(/\s/g, "")), c => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return WebAssembly.compile(await new Response(stream).arrayBuffer());
}

// Runs llmc's commands one after the other.  Of several that wait, the newest alone is run: run() then gives undefined to
// the others.  One that has been running for long is cut off for it.
class Compiler {
  constructor(module, cluster) {
    this.module = module;
    this.cluster = cluster;
    this.url = URL.createObjectURL(new Blob([`(${machine})()`], { type: "text/javascript" }));
    this.start();
  }
  start() {
    this.worker = new Worker(this.url);
    this.worker.postMessage({ module: this.module, cluster: this.cluster });
    this.worker.onmessage = ({ data }) => this.finish(data);
  }
  finish(answer) {
    const { settle } = this.running;
    this.running = undefined;
    settle(answer);
    if (this.waiting) this.begin(this.waiting);
  }
  begin(job) {
    this.waiting = undefined;
    this.running = { ...job, since: performance.now() };
    this.worker.postMessage({ model: job.model, words: job.words });
  }
  run(words, model) {
    const PATIENCE_MS = 1500;
    return new Promise(settle => {
      this.waiting?.settle(undefined);
      this.waiting = { words, model, settle };
      if (this.running && performance.now() - this.running.since > PATIENCE_MS) {
        this.worker.terminate();
        this.start();
        this.running.settle(undefined);
        this.running = undefined;
      }
      if (!this.running) this.begin(this.waiting);
    });
  }
}

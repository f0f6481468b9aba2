#!/usr/bin/env python3
"""The schema of cluster files says what the compiler's table says: the same elements below the same parents, with the same
attributes, of which those are required that the table requires, and the same words.  The schema may be stricter: of two
attributes it may want exactly one.  Prints what differs; exit 1 where something does."""

import re
import sys
import xml.etree.ElementTree as tree

SCHEMA, TABLE = "topologies/cluster.rng", "compiler/topology/topo_vocabulary.c"
RNG = "{http://relaxng.org/ns/structure/1.0}"


def table():
    """(element, parent): {attribute: (required, words or None)}"""
    with open(TABLE) as f:
        text = f.read()
    words = {name: set(re.findall(r'"([^"]*)"', body)) for name, body in re.findall(r"(\w+_words)\[\w*\] = \{(.*?)\};", text, re.S)}
    lists = {}
    for name, body in re.findall(r"struct attr_rule (\w+)\[\] = \{(.*?)\};", text, re.S):
        rows = re.findall(r'(NEED|MAY)(?:_WORD)?\(\s*"([^"]+)",\s*(\w+)', body)
        rows += [("NEED" if needed == "true" else "MAY", attr, kind) for attr, needed, kind in
                 re.findall(r'\{"([^"]+)",\s+VALUE_WORD,\s+(true|false),\s+[^,]*,\s+WORDS\((\w+)\)', body)]
        lists[name] = {attr: (need == "NEED", words.get(kind)) for need, attr, kind in rows}
    elements = re.search(r"elements\[\] = \{(.*?)\n\};", text, re.S).group(1)
    return {(name, parent): lists.get(attrs, {}) for name, parent, attrs in
            re.findall(r'\{"([^"]+)", "([^"]*)", \w+, (?:WORDS\((\w+)\)|NULL, 0)', elements)}


def schema():
    """the same of the schema, with 2 for required, 1 for one of a choice, 0 for optional"""
    root = tree.parse(SCHEMA).getroot()
    defines = {d.get("name"): d for d in root.iter(RNG + "define")}
    found = {}

    def words(node):
        values = {v.text for v in node.iter(RNG + "value")}
        for ref in node.iter(RNG + "ref"):
            values |= words(defines[ref.get("name")])
        return values

    def walk(node, element, parent, required):
        tag = node.tag.replace(RNG, "") if isinstance(node.tag, str) else ""
        if tag == "attribute" and node.get("name"):
            known = found[element, parent].get(node.get("name"), (0, set()))
            found[element, parent][node.get("name")] = (max(required, known[0]), known[1] | words(node))
        elif tag == "ref" and node.get("name") != "anything":
            for below in defines[node.get("name")]:
                walk(below, element, parent, required)
        elif tag == "element" and node.get("name"):
            found.setdefault((node.get("name"), element), {})
            for below in node:
                walk(below, node.get("name"), element, 2)
        elif tag not in ("attribute", "element", "ref"):
            for below in node:
                walk(below, element, parent, min(required, {"optional": 0, "choice": 1}.get(tag, 2)))

    walk(root.find(RNG + "start"), "", "", 2)
    return found


def main():
    want, have, wrong = table(), schema(), []
    for key in sorted(want.keys() | have.keys()):
        place = "<%s> in <%s>" % key
        if key not in want or key not in have:
            wrong.append("%s: only in %s" % (place, TABLE if key in want else SCHEMA))
            continue
        for attr in sorted(want[key].keys() | have[key].keys()):
            w, h = want[key].get(attr), have[key].get(attr)
            if not w or not h:
                wrong.append("%s: %s is only in %s" % (place, attr, TABLE if w else SCHEMA))
            elif h[0] == (0 if w[0] else 2):
                wrong.append("%s: %s is required by %s alone" % (place, attr, TABLE if w[0] else SCHEMA))
            elif w[1] and h[1] != w[1] and h[1] != {"yes"}:
                wrong.append("%s: %s: %s and %s" % (place, attr, sorted(h[1]), sorted(w[1])))
    print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if wrong or len(want) < 20 else 0


if __name__ == "__main__":
    sys.exit(main())

"""Places in a C file where one fault can be put, for source_mutants.py: tokens of its own, no parser.

A fault is a replacement of a stretch of text that keeps the number of lines, in a function's body; string literals,
preprocessor lines, asserts and prototypes are left alone.  What does not compile is the caller's to find out: types are
not known here but for the fields of structs and the constants of enums, which are read from plain declarations.
"""

import re
from collections import namedtuple

Fault = namedtuple("Fault", "kind start end text line")

TOKEN = re.compile(
    r"""(?P<skip>\s+|//[^\n]*|/\*.*?\*/)
      |(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
      |(?P<number>\.?\d(?:[eEpP][+-]|[\w.])*)
      |(?P<name>[A-Za-z_]\w*)
      |(?P<mark>\.\.\.|<<=|>>=|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|.)""",
    re.X | re.S,
)
PREPROCESSOR = re.compile(r"^[ \t]*\#(?:[^\n\\]|\\.|\\\n)*", re.M | re.S)
KEYWORDS = set("""auto break case char const continue default do double else enum extern float for goto if inline int
    long register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while
    bool""".split())
CONTROL = {"if", "for", "while", "switch"}
RELATION = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
ARITHMETIC = {"+": "-", "-": "+", "*": "/", "/": "*", "%": "/", "&": "|", "|": "&", "<<": ">>", ">>": "<<", "+=": "-=",
              "-=": "+=", "*=": "=", "|=": "=", "&=": "="}
QUIET = {"assert", "_Static_assert", "sizeof", "offsetof", "__attribute__"}

# calls by which the verifier and the loader refuse a plan, and what such a call is worth where nothing is wrong
REFUSALS = {"prove_report": "(void)0", "conserve_fail": "true", "conserve_fail_inputs": "true", "fail_start": "true",
            "fail_read": "true", "report": "(void)0", "FAULT": "STATUS_OK", "insn_fault": "STATUS_OK"}


class Token:
    __slots__ = ("kind", "text", "start", "end", "line", "match", "body", "paren", "quiet")

    def __init__(self, kind, text, start, line):
        self.kind, self.text, self.start, self.end, self.line = kind, text, start, start + len(text), line
        self.match = None  # index of the other bracket
        self.body = self.quiet = False  # in a function; in an assert or sizeof
        self.paren = 0


class Source:
    """Tokens of a file, with brackets matched and function bodies and statements found."""

    def __init__(self, text):
        self.raw = text
        text = PREPROCESSOR.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)
        self.tokens, line = [], 1
        for m in TOKEN.finditer(text):
            if m.lastgroup != "skip":
                self.tokens.append(Token(m.lastgroup, m.group(), m.start(), line))
            line += m.group().count("\n")
        self._brackets()
        self._bodies()
        self.statements = self._statements()

    def _brackets(self):
        stack, t = [], self.tokens
        for i, token in enumerate(t):
            if token.text in ("(", "[", "{"):
                stack.append(i)
            elif token.text in (")", "]", "}") and stack:
                token.match = stack.pop()
                t[token.match].match = i

    def _bodies(self):
        t, i = self.tokens, 0
        while i < len(t):
            if t[i].text == "{" and t[i].match:
                if i and t[i - 1].text == ")":
                    for k in range(i, t[i].match):
                        t[k].body = True
                i = t[i].match
            i += 1
        for i, token in enumerate(t):
            if token.text in QUIET and i + 1 < len(t) and t[i + 1].text == "(" and t[i + 1].match:
                for k in range(i, t[i + 1].match + 1):
                    t[k].quiet = True

    def _statements(self):
        """(first token, its semicolon) of every simple statement in a body, and of every return."""
        t, out, i = self.tokens, [], 0
        while i < len(t):
            before = t[i - 1] if i else None
            starts = before is not None and t[i].body and (
                before.text in (";", "}", "else", "do", ":")
                or (before.text == "{" and self._block(i - 1))
                or (before.text == ")" and before.match and t[before.match - 1].text in CONTROL))
            if not starts or t[i].text in ("{", "}", ";", "else", "do", "case", "default") or t[i].text in CONTROL:
                i += 1
                continue
            k = i
            while k < len(t) and t[k].text != ";" and t[k].text != "}":
                k = t[k].match if t[k].text in ("(", "[", "{") and t[k].match else k
                k += 1
            if k < len(t) and t[k].text == ";" and not (before.text == ":" and "?" in [x.text for x in t[i - 6:i]]):
                out.append((i, k))
            i += 1
        return out

    def _block(self, i):
        t = self.tokens
        if t[i - 1].text in (";", "{", "}", "else", "do", ":"):
            return True
        return t[i - 1].text == ")" and t[i - 1].match is not None and (
            t[t[i - 1].match - 1].text in CONTROL or not t[i - 1].body)

    def statement_line(self, offset):
        """The line on which the statement around an offset begins."""
        line = self.raw.count("\n", 0, offset) + 1
        for first, last in self.statements:
            if self.tokens[first].start <= offset <= self.tokens[last].end:
                line = self.tokens[first].line
        return line

    def fault(self, kind, start, end, text):
        old = self.raw[start:end]
        text += "\n" * (old.count("\n") - text.count("\n"))
        return Fault(kind, start, end, text, self.raw.count("\n", 0, start) + 1)

    def at(self, kind, i, text):
        return self.fault(kind, self.tokens[i].start, self.tokens[i].end, text)

    def drop(self, kind, first, last):
        return self.fault(kind, self.tokens[first].start, self.tokens[last].end, ";")

    def last_in_function(self, semicolon):
        t = self.tokens
        return t[semicolon + 1].text == "}" and not t[t[semicolon + 1].match - 1].body

    def binary(self, i):
        before, after = self.tokens[i - 1], self.tokens[i + 1]
        operand = before.kind == "number" or before.text in (")", "]") or (
            before.kind == "name" and before.text not in KEYWORDS and not before.text.endswith("_t"))
        if i > 1 and self.tokens[i - 2].text in ("struct", "enum", "union"):
            return False
        return operand and after.text not in (")", ",", ";", "*")


def declared(headers):
    """Fields by name: those of the same type beside them in a struct; constants of an enum likewise."""
    fields, constants = {}, {}
    for text in headers:
        text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", PREPROCESSOR.sub("", text), flags=re.S)
        for m in re.finditer(r"\b(struct|union|enum)\s*\w*\s*\{([^{}]*)\}", text):
            if m.group(1) == "enum":
                names = re.findall(r"(?:^|,)\s*([A-Z]\w+)", m.group(2))
                for name in names:
                    constants.setdefault(name, set()).update(n for n in names if n != name)
                continue
            types = {}
            for line in m.group(2).split(";"):
                d = re.match(r"\s*((?:const\s+|unsigned\s+|struct\s+|enum\s+)*\w+)\s+(.*)$", line, re.S)
                for item in d.group(2).split(",") if d and "(" not in line else []:
                    f = re.match(r"\s*(\**)\s*(\w+)\s*(\[.*)?$", item)
                    if f:
                        types.setdefault(d.group(1) + f.group(1) + ("[]" if f.group(3) else ""), []).append(f.group(2))
            for names in types.values():
                for name in names:
                    fields.setdefault(name, set()).update(n for n in names if n != name)
    return {k: sorted(v) for k, v in fields.items()}, {k: sorted(v) for k, v in constants.items()}


def number(text):
    """Other values of a constant."""
    m = re.match(r"(0[xX][0-9a-fA-F]+|\d+)([uUlL]*)$", text)
    if m:
        n = int(m.group(1), 0) if not re.match(r"0\d", m.group(1)) else int(m.group(1), 8)
        return [f"{v}{m.group(2)}" for v in ((1,) if n == 0 else (0,) if n == 1 else (n - 1, n + 1))]
    try:
        value = float(text.rstrip("fFlL"))
    except ValueError:
        return []
    return [f"({text} + 1)"] if value == 0 or value >= 1 else [f"({text} * 2)"]


def faults(source, fields, constants):
    """All drawn kinds of faults of a file, by kind."""
    t, out = source.tokens, {}

    def add(f):
        out.setdefault(f.kind, []).append(f)

    for i, x in enumerate(t):
        if not x.body or x.quiet or i < 1 or i + 1 >= len(t):
            continue
        before, after = t[i - 1], t[i + 1]
        if x.text in RELATION:
            add(source.at("relation", i, RELATION[x.text]))
        elif x.text in ARITHMETIC and (len(x.text) == 2 or source.binary(i)):
            add(source.at("arithmetic", i, ARITHMETIC[x.text]))
        elif x.text in ("&&", "||"):
            add(source.at("logic", i, "||" if x.text == "&&" else "&&"))
        elif x.text == "!":
            add(source.at("logic", i, ""))
        elif x.text == "if" and after.text == "(" and after.match:
            condition = source.raw[after.start:t[after.match].end]
            add(source.fault("condition", after.start, t[after.match].end, f"({condition} || 1)"))
            add(source.fault("condition", after.start, t[after.match].end, f"({condition} && 0)"))
        elif x.kind == "number":
            if before.text == "[" and after.text == "]" and t[i - 2].kind == "name" and (
                    t[i - 3].kind == "name" or t[i - 3].text == "*"):
                continue  # the size of an array
            for text in number(x.text):
                add(source.at("constant", i, text))
        elif x.text in ("true", "false"):
            add(source.at("constant", i, "false" if x.text == "true" else "true"))
        elif x.kind == "name" and before.text in ("->", ".") and after.text != "(" and t[i - 2].text not in ("{", ","):
            for other in fields.get(x.text, []):
                add(source.at("field", i, other))
        elif x.text in constants and before.text not in ("case", "->", "."):
            for other in constants[x.text]:
                add(source.at("enum", i, other))
        elif x.text == "," and before.kind == after.kind == "name" and t[i - 2].text in ("(", ",") and \
                i + 2 < len(t) and t[i + 2].text in (")", ",") and before.text not in KEYWORDS and before.text != after.text:
            add(source.fault("arguments", before.start, after.end, f"{after.text}, {before.text}"))
    for first, last in source.statements:
        x, after = t[first], t[first + 1]
        if x.quiet or not x.body or x.text == "goto":
            continue
        if x.text in ("break", "continue") or (x.text == "return" and after.text == ";"):
            add(source.drop("statement", first, last))
        elif x.text in ("*", "++", "--", "(") or (x.kind == "name" and x.text not in KEYWORDS and (
                after.text in ("(", "[", "->", ".", "++", "--") or re.match(r"[^=]?=$|<<=|>>=", after.text))):
            add(source.drop("statement", first, last))
    return out


def rules(source, words):
    """(sentence, fault, start, end) of every refusal of a file, made never to happen; `words`: also sentences that
    a function returns for its caller to report."""
    t, out = source.tokens, []
    starts = {}
    for first, last in source.statements:
        for k in range(first, last + 1):
            starts[k] = (first, last)
    for i, x in enumerate(t):
        if not x.body or i not in starts:
            continue
        first, last = starts[i]
        if x.text in REFUSALS and t[i + 1].text == "(" and t[i + 1].match:
            end, fine = t[i + 1].match, REFUSALS[x.text]
        elif words and x.kind == "text" and " " in x.text and t[first].text == "return" and x.paren == 0 and \
                not any(y.text == "(" and y.match and k < i < y.match for k, y in enumerate(t[first:last], first)):
            end, fine = i, "NULL"
        else:
            continue
        if t[first].text == "return" and i == first + 1 and end + 1 == last:
            text = f"return {fine};" if source.last_in_function(last) else ";"
            fault = source.fault("rule", t[first].start, t[last].end, text)
        else:
            fault = source.fault("rule", x.start, t[end].end, fine)
        out.append((message(source, i), fault, x.start, t[end].end))
    return out


def message(source, i):
    """The sentence of a refusal."""
    t, k = source.tokens, i
    while k < len(t) and t[k].kind != "text" and t[k].text != ";":
        k += 1
    text = ""
    while k < len(t) and (t[k].kind == "text" or t[k].text.startswith("PRI")):
        text += t[k].text[1:-1] if t[k].kind == "text" else "d"
        k += 1
    return text if text and text != "%s" else source.raw[t[i].start:t[i].start + 60].split("\n")[0]

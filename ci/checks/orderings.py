"""orderings.py FOLDER...: every atomic ordering but Relaxed says why it is there.

A statement that uses Acquire, Release, AcqRel or SeqCst needs a comment that names one of the
orderings it uses, inside the statement, at the end of its last line, or on the comment lines just
above it, or first in the block it opens. (`unsafe {` around the statement does not separate them, and the comment of an `if`, `match`
or loop of at most eight lines holds for what is in it.) And a tag, `pairs: some.name`,
names the two or more places that belong together: one that occurs once has lost its other end.
Imports and test modules are left out.
"""

import collections
import os
import re
import sys

ORDERING = re.compile(r"\b(Acquire|Release|AcqRel|SeqCst)\b")
TAG = re.compile(r"\bpairs:\s+([A-Za-z_][\w.-]*[\w])")
TEST_MODULE = re.compile(r"#\[cfg\((?!not)[^\]]*\btest\b[^\]]*\)\]\s*(?:pub\S*\s+)?mod\s+\w+\s*\{")
IMPORT = re.compile(r"\buse\s[^;]*;")
BLOCK = re.compile(r"(let\s[^=]*=\s*)?(if|match|while|loop|for)\b")
STRING = re.compile(r'\bb?c?r(#*)".*?"\1|b?c?"(?:\\.|[^"\\])*"', re.DOTALL)
CHAR = re.compile(r"b?'(?:\\(?:x..|u\{[^}]*\}|.)|[^\\'\n])'")


def split(source):
    """The source with comments and literals blanked, and the comment text of each line (from 0)."""
    code, comments, at = list(source), collections.defaultdict(str), 0

    def blank(start, end):
        for i in range(start, end):
            if code[i] != "\n":
                code[i] = " "

    line_of = LineNumbers(source)
    while at < len(source):
        two = source[at:at + 2]
        end = None
        if two == "//":
            end = source.find("\n", at)
            end = len(source) if end < 0 else end
        elif two == "/*":
            depth, end = 1, at + 2
            while depth and end < len(source):
                if source.startswith("/*", end):
                    depth, end = depth + 1, end + 2
                elif source.startswith("*/", end):
                    depth, end = depth - 1, end + 2
                else:
                    end += 1
        if end is not None:
            for number, text in enumerate(source[at:end].split("\n"), line_of(at)):
                comments[number] += " " + text.lstrip("/!* ")
            blank(at, end)
            at = end
            continue
        starts_word = at == 0 or not (source[at - 1].isalnum() or source[at - 1] == "_")
        literal = None
        if source[at] == '"' or (starts_word and source[at] in "brc"):
            literal = STRING.match(source, at)
        if literal is None and (source[at] == "'" or source.startswith("b'", at)):
            literal = CHAR.match(source, at)
        if literal:
            blank(at, literal.end())
            at = literal.end()
        else:
            at += 1
    return "".join(code), comments


class LineNumbers:
    def __init__(self, text):
        self.starts = [0] + [match.end() for match in re.finditer("\n", text)]

    def __call__(self, offset):
        low, high = 0, len(self.starts)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.starts[middle] <= offset else (low, middle)
        return low


def statement_start(code, offset, through_else=False):
    """Where the statement (or match arm, or field) around `offset` begins."""
    continues = (".", "?", "else") if through_else else (".", "?")
    depth, comma, at = 0, None, offset
    while at > 0:
        at -= 1
        char = code[at]
        if char in ")]":
            depth += 1
        elif char == "}":
            if depth == 0 and not code[at + 1:].lstrip().startswith(continues):
                at = comma if comma is not None else at
                break
            depth += 1
        elif char in "([" and depth == 0:
            comma = None  # it separated arguments
        elif char in "([":
            depth -= 1
        elif char == "{":
            if depth == 0:
                if re.search(r"\bunsafe\s*$", code[:at]) and comma is None:
                    continue
                at = comma if comma is not None else at
                break
            depth -= 1
        elif char == ";" and depth == 0:
            break
        elif char == "," and depth == 0 and comma is None:
            comma = at
    else:
        return 0
    at += 1
    while at < offset and code[at].isspace():
        at += 1
    return at


def statement_end(code, offset):
    depth = 0
    for at in range(offset, len(code)):
        char = code[at]
        if char in "([":
            depth += 1
        elif char in ")]":
            depth = max(depth - 1, 0)
        elif depth == 0 and char in ";{}":
            return at
    return len(code) - 1


def small_block_around(code, start, line_of):
    """Where the small `if`, `match` or loop begins that the statement at `start` stands in, else None."""
    depth, at = 0, start - 1
    while at >= 0 and (depth > 0 or code[at] != "{"):
        depth += {"}": 1, "{": -1}.get(code[at], 0)
        at -= 1
    if at < 0:
        return None
    outer = statement_start(code, at, through_else=True)
    if not BLOCK.match(code[outer:]) or line_of(start) - line_of(outer) >= 8:
        return None
    return outer


def left_out(code):
    spans = [match.span() for match in IMPORT.finditer(code)]
    for match in TEST_MODULE.finditer(code):
        depth, at = 1, match.end()
        while depth and at < len(code):
            depth += {"{": 1, "}": -1}.get(code[at], 0)
            at += 1
        spans.append((match.start(), at))
    return spans


def check(path, tags, problems):
    with open(path, encoding="utf-8") as file:
        source = file.read()
    code, comments = split(source)
    line_of = LineNumbers(source)
    code_lines = code.split("\n")
    spans = left_out(code)
    justified = 0

    def comment_above(line):
        text, line = "", line - 1
        while line >= 0 and line in comments and not code_lines[line].strip():
            text = comments[line] + " " + text
            line -= 1
        return text

    for match in ORDERING.finditer(code):
        offset = match.start()
        if any(start <= offset < end for start, end in spans):
            continue
        start = statement_start(code, offset)
        end = statement_end(code, offset)
        first, last = line_of(start), line_of(end)
        text = " ".join(comments[n] for n in range(first, last + 1) if n in comments)
        text = comment_above(first) + " " + text
        if code[end] == "{":
            while (last := last + 1) in comments and not code_lines[last].strip():
                text += " " + comments[last]
        block = small_block_around(code, start, line_of)
        if block is not None:
            text = comment_above(line_of(block)) + " " + text
        used = set(ORDERING.findall(code[start:end]))
        if used & set(ORDERING.findall(text)):
            justified += 1
        else:
            what = f"no comment says why it is {match.group()}" if not text.strip() else (
                f"the comment names none of the orderings used ({', '.join(sorted(used))})")
            problems.append(f"{path}:{line_of(offset) + 1}: {what}")

    # A tag may stand in a comment of several lines; join what belongs together.
    block, block_line = "", None
    for number in range(len(code_lines) + 1):
        if number in comments:
            block_line = number if not block else block_line
            block += " " + comments[number]
        if number not in comments or code_lines[number].strip():
            for tag in TAG.findall(block):
                tags[tag].append(f"{path}:{(block_line or 0) + 1}")
            block = ""
    return justified


def main():
    problems, tags, justified, files = [], collections.defaultdict(list), 0, 0
    for folder in sys.argv[1:]:
        for where, _, names in sorted(os.walk(folder)):
            for name in sorted(names):
                if name.endswith(".rs") and name != "tests.rs" and "tests" not in where.split(os.sep):
                    files += 1
                    justified += check(os.path.join(where, name), tags, problems)
    for tag, places in sorted(tags.items()):
        if len(places) < 2:
            problems.append(f"{places[0]}: `pairs: {tag}` has no other end")
    for problem in problems:
        print(problem)
    if not files:
        problems.append("none")
        print("no Rust files found")
    print(f"orderings: {files} files, {justified} justified, {len(tags)} tags, {len(problems)} problems")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()

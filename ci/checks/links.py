"""links.py ROOT: every relative link in the Markdown files of the repository leads somewhere.

Files are the ones git knows or would add. Links out of the repository (https:, mailto:) are not
tried. A `#heading` must be a heading of its file, spelt as GitHub spells anchors.
"""

import os
import re
import subprocess
import sys
import unicodedata
import urllib.parse

INLINE = re.compile(r"!?\[(?:[^\[\]]|\[[^\[\]]*\])*\]\(\s*<?([^)\s>]+)>?(?:\s+[\"'][^)]*)?\)")
REFERENCE = re.compile(r"^ {0,3}\[[^\]]+\]:\s+<?([^\s>]+)>?", re.MULTILINE)
HTML = re.compile(r"<(?:a|img)\b[^>]*?\b(?:href|src)=[\"']([^\"']+)[\"']", re.IGNORECASE)
FENCE = re.compile(r"^ {0,3}(```+|~~~+)")


def without_code(text):
    lines, fence = [], None
    for line in text.split("\n"):
        mark = FENCE.match(line)
        if fence is None and mark:
            fence = mark.group(1)
            lines.append("")
        elif fence is not None:
            if mark and mark.group(1).startswith(fence):
                fence = None
            lines.append("")
        else:
            lines.append(line)
    return "\n".join(lines)


def without_spans(text):
    return re.sub(r"(`+)(?!`)(.+?)(?<!`)\1(?!`)", lambda m: re.sub(r"[^\n]", " ", m.group()), text, flags=re.DOTALL)


def anchors(text):
    found, seen = set(), {}
    body = without_code(text)
    for match in re.finditer(r"^ {0,3}#{1,6}\s+(.*?)\s*#*\s*$", body, re.MULTILINE):
        title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", match.group(1)).replace("`", "").replace("*", "")
        slug = "".join(c for c in title.lower() if c in " -_" or unicodedata.category(c)[0] in "LNM").replace(" ", "-")
        number = seen.get(slug, 0)
        seen[slug] = number + 1
        found.add(slug if number == 0 else f"{slug}-{number}")
    found.update(re.findall(r"<a\s+(?:id|name)=[\"']([^\"']+)[\"']", body))
    return found


def main():
    root = os.path.realpath(sys.argv[1])
    listing = subprocess.run(
        ["git", "-C", root, "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.md"],
        capture_output=True, check=True, text=True,
    ).stdout
    files = sorted(set(name for name in listing.split("\0") if name and os.path.exists(os.path.join(root, name))))
    texts, problems, links = {}, [], 0

    def text_of(path):
        if path not in texts:
            with open(path, encoding="utf-8") as file:
                texts[path] = file.read()
        return texts[path]

    for name in files:
        path = os.path.join(root, name)
        body = without_spans(without_code(text_of(path)))
        for pattern in (INLINE, REFERENCE, HTML):
            for match in pattern.finditer(body):
                link = match.group(1)
                if re.match(r"[a-z][a-z0-9+.-]*:|//", link, re.IGNORECASE):
                    continue
                links += 1
                where = f"{name}:{body.count(chr(10), 0, match.start()) + 1}"
                target, _, anchor = link.partition("#")
                target = urllib.parse.unquote(target)
                base = root if target.startswith("/") else os.path.dirname(path)
                full = os.path.realpath(os.path.join(base, target.lstrip("/"))) if target else path
                if os.path.commonpath([root, full]) != root:
                    problems.append(f"{where}: {link} leaves the repository")
                elif not os.path.exists(full):
                    problems.append(f"{where}: {link} does not exist")
                elif anchor and full.endswith(".md") and anchor.lower() not in anchors(text_of(full)):
                    problems.append(f"{where}: {link}: no such heading")
    for problem in problems:
        print(problem)
    print(f"links: {len(files)} Markdown files, {links} relative links, {len(problems)} problems")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()

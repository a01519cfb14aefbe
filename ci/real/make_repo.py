"""make_repo.py COMMITS: a history for `git fast-import` on standard output; the same for the same COMMITS."""

import random
import sys


def main():
    rng, out = random.Random(7), sys.stdout.buffer
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(3, 9))) for _ in range(2000)]
    files = {}
    for commit in range(int(sys.argv[1])):
        changes = []
        for number in rng.sample(range(800), 6):
            name = f"dir{number % 20}/file{number // 20}.txt"
            lines = files.setdefault(name, [" ".join(rng.choices(words, k=9)) for _ in range(150)])
            for _ in range(5):
                lines[rng.randrange(len(lines))] = " ".join(rng.choices(words, k=9))
            changes.append((name, "\n".join(lines).encode()))
        message = f"change {commit}\n".encode()
        out.write(b"commit refs/heads/main\ncommitter A <a@example.org> %d +0000\n" % (1_700_000_000 + commit * 60))
        out.write(b"data %d\n%s" % (len(message), message))
        for name, data in changes:
            out.write(b"M 644 inline %s\ndata %d\n%s\n" % (name.encode(), len(data), data))


if __name__ == "__main__":
    main()

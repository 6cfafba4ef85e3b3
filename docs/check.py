#!/usr/bin/env python3
"""Checks all Markdown of the tree: docs/check.py [BOOK]. Fails with a line for each fault.

* A link to a file or to a heading of the tree has its target.
* No line of a Rust example begins with `# `: rustdoc hides such a line, and a forge shows it.
* An example after `<!-- file: PATH -->` is that file, without its leading `//!` lines; after `<!-- part: PATH -->` it is a part of it.
* Every alert of grafana has a section in the page of operations, and its `runbook_url` leads there, below the base that the rules state.
* Every page of docs/src is in SUMMARY.md, README.md has under 200 lines, and benches/README.md has at most 1,200 words.
* A name after `<!-- tests: ` is a test of the tree, in Rust or Python.
* Every program of examples/ has its command in examples/README.md.
* README.md names `cargo test` and .ci/run beside the command that trains.
* Every text in the table of errors of docs/src/faq.md is in a source.
* README.md and the guide have at most 12,000 words together, without generated tables.
* Lines of these folders have no word of a list (`NOT_USED`).
* A path such as `Pool::close` in a page's text, or in a comment of an example, is a name of tests/api.
* With BOOK, the folder of the built guide: every link of its pages to the guide has its page and its heading.
"""

from __future__ import annotations

import html
import re
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

MAX_README_LINES = 199
MAX_BENCHES_WORDS = 1200
MAX_GUIDE_WORDS = 12_000
RUST = {"", "rust", "no_run", "ignore", "should_panic", "compile_fail"}

FENCE = re.compile(r"^(?P<marks>`{3,}|~{3,})(?P<info>[^\n]*)\n(?P<code>.*?)^(?P=marks)[ \t]*$", re.DOTALL | re.MULTILINE)
MARK = re.compile(r"<!-- (file|part): (\S+) -->\s*\Z")
PATH = re.compile(r"(?<![\w:])(?:\w+::)+\w+")
#: Crates and namespaces whose names tests/api does not list, the targets of CMake, and names of tests.
FOREIGN = {"std", "wgpu", "c10", "cudarc", "bytemuck", "serde", "Simulator", "views", "hostile"}
FOREIGN_PATHS = {"vrampool::vrampool", "vrampool::vrampool_static"}
LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\((<[^>]*>|[^()\s]+(?:\([^)]*\))?)(?:\s+\"[^\"]*\")?\)")


def markdown_files() -> list[Path]:
    """All that git knows or would add."""
    command = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    found = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\n")
    return sorted(ROOT / name for name in set(found) if name and (ROOT / name).exists())


def without_code(text: str) -> str:
    """The text, with code blanked, so that what looks like a link in it is none."""
    text = FENCE.sub("", text)
    text = re.sub(r"(?m)^(?: {4}|\t).*$", "", text)
    return re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", "code", text)


def slug(heading: str) -> str:
    """The anchor of a heading, as forges and mdBook make it."""
    words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    words = re.sub(r"[^\w\- ]", "", words.strip().lower())
    return words.replace(" ", "-")


def anchors(path: Path) -> set[str]:
    """Of all headings of a file."""
    text = FENCE.sub("", path.read_text())
    found: set[str] = set()
    for heading in re.findall(r"(?m)^#{1,6} +(.+?)\s*#*$", text):
        name, number = slug(heading), 0
        while (f"{name}-{number}" if number else name) in found:
            number += 1
        found.add(f"{name}-{number}" if number else name)
    return found


def broken_links(path: Path, text: str) -> list[str]:
    faults = []
    for target in LINK.findall(without_code(text)):
        target = target.strip("<>")
        if re.match(r"[a-z][a-z0-9+.-]*:", target):
            continue
        name, _, anchor = target.partition("#")
        to = (path.parent / name).resolve() if name else path
        if not to.exists():
            faults.append(f"no such file: {target}")
        elif anchor and to.suffix == ".md" and anchor not in anchors(to):
            faults.append(f"no such heading: {target}")
    return faults


def examples(text: str) -> list[str]:
    faults = []
    for found in FENCE.finditer(text):
        info = re.split(r"[,\s]", found["info"].strip())[0]
        code = found["code"]
        if info in RUST:
            hidden = [line for line in code.splitlines() if line.strip() == "#" or line.lstrip().startswith("# ")]
            faults += [f"a hidden line in an example: {line}" for line in hidden]
        mark = MARK.search(text[: found.start()])
        if mark is None:
            continue
        kind, source = mark[1], ROOT / mark[2]
        if not source.exists():
            faults.append(f"no such file: {mark[2]}")
            continue
        whole = re.sub(r"\A(?://!.*\n)+\n?", "", source.read_text())
        if kind == "file" and code != whole:
            faults.append(f"the example is not {mark[2]}")
        elif kind == "part" and not is_part(code, whole):
            faults.append(f"the example is no part of {mark[2]}")
    return faults


def is_part(code: str, whole: str) -> bool:
    """Whether the lines of `code` follow each other in `whole`, whatever their common indentation."""
    wanted = textwrap.dedent(code).strip("\n").splitlines()
    lines = whole.splitlines()
    return any(
        textwrap.dedent("\n".join(lines[first : first + len(wanted)])).splitlines() == wanted
        for first in range(len(lines) - len(wanted) + 1)
    )


def api_names() -> set[str]:
    """The paths of the public API, and each end of them: `vrampool::Pool::close`, `Pool::close`, `close`."""
    names = set()
    for listed in (ROOT / "tests/api").glob("vrampool*.txt"):
        for path in re.findall(r"(?m)^[^(]*?\b(vrampool\w*(?:::\w+)+)", listed.read_text()):
            parts = path.split("::")
            names |= {"::".join(parts[first:]) for first in range(len(parts))}
    return names


def unknown_names(text: str, names: set[str]) -> list[str]:
    """Names in inline code that the API does not have."""
    faults = []
    for code in re.findall(r"`([^`\n]+)`", FENCE.sub("", text)):
        # The facade has each backend's crate as a module.
        for path in PATH.findall(re.sub(r"\bvrampool::(cuda|host|opencl|wgpu)::", r"vrampool_\1::", code)):
            if path.split("::")[0] not in FOREIGN and path not in FOREIGN_PATHS | names:
                faults.append(f"no such name in tests/api: {path}")
        for called, name in re.findall(r"::(\w+)\([^()]*\)\.(\w+)", code):
            of_builder = called == "builder" and not any(known.endswith(f"Builder::{name}") for known in names)
            if name != "await" and (name not in names or of_builder):
                faults.append(f"no such name in tests/api: {called}().{name}")
    return faults


def comments_of_examples(names: set[str]) -> list[str]:
    faults = []
    for path in sorted([*ROOT.glob("examples/**/*.rs"), *ROOT.glob("extensions/*/examples/*.rs")]):
        comments = "\n".join(re.findall(r"(?m)^\s*//.*$", path.read_text()))
        faults += [f"{path.relative_to(ROOT).as_posix()}: {fault}" for fault in unknown_names(comments, names)]
    return faults


def unknown_tests(text: str) -> list[str]:
    """Names of tests that a page lists and no file has."""
    listed = {name for names in re.findall(r"<!-- tests: (.*?) -->", text) for name in names.split()}
    command = ["git", "-C", str(ROOT), "grep", "-hoEe", r"(fn|def) \w+\(", "--untracked", "--", "*.rs", "*.py"]
    found = subprocess.run(command, check=True, capture_output=True, text=True).stdout if listed else ""
    return [f"no such test: {name}" for name in sorted(listed - set(re.findall(r"\w+(?=\()", found)))]


def runbook_faults(rules: Path, sections: set[str]) -> list[str]:
    """Alerts that have no section, and those whose `runbook_url` is not its address."""
    text = rules.read_text()
    base = re.search(r"(?m)^# Base of every `runbook_url`: (\S+)$", text)
    if base is None:
        return [f"{rules.name}: the base of every runbook_url is not stated"]
    faults = []
    for alert in re.split(r"(?m)^ *- alert: ", text)[1:]:
        name, anchor = alert.split(maxsplit=1)[0], slug(alert.split(maxsplit=1)[0])
        if anchor not in sections:
            faults.append(f"docs/src/operations.md: no section {name}")
        if re.findall(r"runbook_url: (\S+)", alert) != [f"{base[1]}/operations.html#{anchor}"]:
            faults.append(f"{rules.name}: the runbook_url of {name} is not {base[1]}/operations.html#{anchor}")
    return faults


def rules() -> list[str]:
    """What holds for pages by name."""
    faults = []
    book = ROOT / "docs/src"
    listed = (book / "SUMMARY.md").read_text()
    for page in sorted(book.glob("**/*.md")):
        name = page.relative_to(book).as_posix()
        if name != "SUMMARY.md" and f"({name})" not in listed:
            faults.append(f"docs/src/SUMMARY.md: {name} is missing")
    faults += runbook_faults(ROOT / "grafana/prometheus/rules/vrampool.yml", anchors(book / "operations.md"))
    commands = (ROOT / "examples/README.md").read_text()
    for example in sorted((ROOT / "examples").glob("*.rs")):
        if not re.search(rf"--example {example.stem}\b", commands):
            faults.append(f"examples/README.md: no command of {example.name}")
    readme = (ROOT / "README.md").read_text()
    commands = next((code["code"] for code in FENCE.finditer(readme) if "cargo vrampool train" in code["code"]), "")
    for command in ("cargo test", ".ci/run"):
        if not re.search(rf"(?m)^{re.escape(command)}\b", commands):
            faults.append(f"README.md: no command `{command}` beside the one that trains")
    for text in re.findall(r"(?m)^\| `([^`]+)` \|", (book / "faq.md").read_text()):
        if subprocess.run(["git", "-C", str(ROOT), "grep", "-qF", "-e", text, "--", "src", "backends/api/src"]).returncode:
            faults.append(f"docs/src/faq.md: no error has the text `{text}`")
    written = (re.sub(r"<!-- Generated .*?<!-- End ", "", page.read_text(), flags=re.DOTALL) for page in book.glob("**/*.md"))
    guide = len(readme.split()) + sum(len(page.split()) for page in written)
    if guide > MAX_GUIDE_WORDS:
        faults.append(f"README.md and docs/src: {guide} words are more than {MAX_GUIDE_WORDS}")
    lines = len(readme.splitlines())
    if lines > MAX_README_LINES:
        faults.append(f"README.md: {lines} lines are more than {MAX_README_LINES}")
    shown = re.sub(r"<!--.*?-->", "", (ROOT / "benches/README.md").read_text(), flags=re.DOTALL)
    words = sum(any(letter.isalnum() for letter in word) for word in shown.split())
    if words > MAX_BENCHES_WORDS:
        faults.append(f"benches/README.md: {words} words are more than {MAX_BENCHES_WORDS}")
    return faults


def book_faults(book: Path) -> list[str]:
    """Dead links of the guide as a browser follows them."""
    names = {page: set(re.findall(r'\bid="([^"]+)"', page.read_text())) for page in book.glob("**/*.html")}
    if not names:
        return [f"{book}: no pages"]
    faults = []
    for page in names:
        if page.name == "404.html":
            # Its links begin at the address where the guide is published.
            continue
        for target in set(re.findall(r'\b(?:href|src)="([^"]+)"', page.read_text())):
            if re.match(r"[a-z][a-z0-9+.-]*:", target):
                continue
            name, _, anchor = html.unescape(target).partition("#")
            to = (page.parent / name).resolve() if name else page
            if not to.is_relative_to(book) or not to.exists():
                faults.append(f"{page}: no such file: {target}")
            elif anchor and to in names and anchor not in names[to]:
                faults.append(f"{page}: no such heading: {target}")
    return faults


#: Words that comments, texts and names do not use, because a plainer one says what the code does: "returns", "is called for", "no other".
NOT_USED = re.compile(
    r"\b(told|tells?|telling|(no|some|every|any)body|whoever|who|whom|whose it is|none of them|what there is"
    r"|settled?|prove[dns]?|lends?|lent|mend(ed)?|torn|stuck|apart|gone|late|unkept|unmade|doubts?"
    r"|hand(s|ed|ing)? out|(gave|give[ns]?|giving) (back|up))\b",
    re.IGNORECASE,
)
#: Folders in which `NOT_USED` holds for every line: comments, texts and names.
WHOLE = tuple("backends benches bindings cli demos docs examples extensions fuzz grafana src tests".split())
TEXT = {f".{kind}" for kind in "rs sh py pyi js c h cpp cu cl wgsl toml yml yaml json md".split()}


def words_not_used() -> list[str]:
    """Lines with a word that is not used."""
    command = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", "-z", "--", *WHOLE]
    names = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\0")
    faults = []
    for name in sorted(name for name in names if Path(name).suffix in TEXT and name != "docs/check.py" and (ROOT / name).exists()):
        for number, line in enumerate((ROOT / name).read_text().splitlines(), 1):
            # A page's names of tests are those of the tests' own folders.
            if not line.startswith("<!-- tests: "):
                faults += [f"{name}:{number}: has the word `{word[0]}`" for word in NOT_USED.finditer(line.replace("_", " "))]
    return faults


def main() -> int:
    faults, names = [], api_names()
    for path in markdown_files():
        name, text = path.relative_to(ROOT).as_posix(), path.read_text()
        faults += [f"{name}: {fault}" for fault in broken_links(path, text) + examples(text) + unknown_names(text, names) + unknown_tests(text)]
    faults += comments_of_examples(names) + words_not_used() + rules()
    if sys.argv[1:]:
        faults += book_faults(Path(sys.argv[1]).resolve())
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

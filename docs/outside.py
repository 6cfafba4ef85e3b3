#!/usr/bin/env python3
"""A preprocessor of mdBook, which publishes docs/src alone: a link to another file of the tree becomes the text and the file's path, or
with `VRAMPOOL_TREE_URL` a link below that address. Pictures from elsewhere in the tree are embedded."""

from __future__ import annotations

import base64
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "docs/src"
FENCE = re.compile(r"(^(?:`{3,}|~{3,}).*?^(?:`{3,}|~{3,})[ \t]*$)", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((\.\./[^()\s#]*)(#[^()\s]*)?\)")
#: Of pictures.
TYPES = {".png": "image/png", ".svg": "image/svg+xml"}


def inside(text: str, folder: Path) -> str:
    """The text of a page of `folder` without links to files outside of the book."""

    def replaced(link: re.Match[str]) -> str:
        picture, words, name, anchor = link[1], link[2], link[3], link[4] or ""
        path = (folder / name).resolve()
        if path.is_relative_to(SOURCES):
            return link[0]
        if picture:
            data = base64.b64encode(path.read_bytes()).decode()
            return f"![{words}](data:{TYPES[path.suffix]};base64,{data})"
        # A picture may be what is clicked on.
        words = LINK.sub(replaced, words)
        of_tree = path.relative_to(ROOT).as_posix()
        address = os.environ.get("VRAMPOOL_TREE_URL")
        if address:
            return f"[{words}]({address.rstrip('/')}/{of_tree}{anchor})"
        return words if of_tree in words else f"{words} (`{of_tree}`)"

    parts = FENCE.split(text)
    return "".join(part if index % 2 else LINK.sub(replaced, part) for index, part in enumerate(parts))


def walk(items: list[Any]) -> None:
    for item in items:
        chapter = item.get("Chapter") if isinstance(item, dict) else None
        if chapter:
            chapter["content"] = inside(chapter["content"], (SOURCES / (chapter["path"] or "")).parent)
            walk(chapter["sub_items"])


def main() -> int:
    if sys.argv[1:2] == ["supports"]:
        return 0
    _, book = json.load(sys.stdin)
    # Called `sections` before mdBook 0.5.
    walk(book.get("items") or book.get("sections"))
    json.dump(book, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())

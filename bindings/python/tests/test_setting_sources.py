"""Each setting by each combination of an argument, a variable and a file is as in Rust and C, whose test writes the list of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import vrampool

ROWS: list[dict[str, Any]] = json.loads((Path(__file__).parent / "setting_sources.json").read_text())


def _id(row: dict[str, Any]) -> str:
    return "-".join([row["setting"], *(source for source in ("argument", "variable", "file") if row[source] is not None)])


@pytest.mark.parametrize("row", ROWS, ids=map(_id, ROWS))
def test_a_setting_is_the_same_in_python_by_every_source(row: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    options: Any = {"host_capacity": "256MiB"}
    if row["argument"] is not None:
        options[row["setting"]] = row["argument"]
    if row["file"] is not None:
        (tmp_path / "settings").write_text(f'{row["setting"]} = "{row["file"]}"\n')
        options["file"] = str(tmp_path / "settings")
    if row["variable"] is not None:
        monkeypatch.setenv(*row["variable"])
    if "error" in row:
        with pytest.raises(vrampool.ConfigurationError) as caught:
            vrampool.Pool("host", **options)
        assert str(caught.value) == row["error"]
        return
    with vrampool.Pool("host", **options) as pool:
        if row["tag"] is not None:
            with pool.tag("weights"):
                pool.allocate(1).free()
        settings = pool.snapshot()["settings"]
        if row["pool"] is not None:
            assert settings["default"][row["setting"]] == row["pool"]
            if row["tag"] is not None:
                assert settings["weights"][row["setting"]] == row["tag"]

#!/usr/bin/env python3
"""Checks the conda recipe: rattler-build (py-rattler-build on PyPI) renders it for each platform, and it agrees with the package.

Nothing is built, and no channel is asked.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import rattler_build

HERE = Path(__file__).resolve().parent
PLATFORMS = ("linux-64", "linux-aarch64")
COMPILERS = {"c_compiler": ["gcc"], "rust_compiler": ["rust"], "c_stdlib": ["sysroot"], "c_stdlib_version": ["2.28"]}


def rendered(platform: str) -> dict[str, Any]:
    recipe = rattler_build.Stage0Recipe.from_file(HERE / "recipe.yaml")
    on = rattler_build.PlatformConfig(target_platform=platform, host_platform=platform, build_platform="linux-64")
    (variant,) = recipe.render(rattler_build.VariantConfig(COMPILERS), rattler_build.RenderConfig(on))
    return dict(variant.recipe.to_dict())


def value(text: str, name: str) -> str:
    """The value of a key of TOML that is on one line."""
    found = re.search(rf'(?m)^{name} = "(.+)"$', text)
    assert found is not None, name
    return found[1]


def faults_of(recipe: dict[str, Any]) -> list[str]:
    workspace = (HERE / "../../../Cargo.toml").read_text()
    project = (HERE / "../pyproject.toml").read_text()
    (hatchling,) = re.findall(r'requires = \["(hatchling.+)"\]', project)
    least = value(project, "requires-python")
    requirements = recipe["requirements"]
    expected = {
        "the version": (recipe["package"]["version"], value(workspace, "version")),
        "the license": (recipe["about"]["license"], value(project, "license")),
        "the least version of Python": (requirements["run"], [f"python {least}"]),
        "Python to build with": (requirements["host"][0], f"python {least.removeprefix('>=')}.*"),
        "the build's backend": (requirements["host"][-1], hatchling.replace(">=", " >=")),
    }
    faults = [f"{what} is {of}, and the package's {package}" for what, (of, package) in expected.items() if of != package]
    folder = HERE / recipe["source"][0]["path"]
    faults += [f"{name} is no file" for name in recipe["about"]["license_file"] if not (folder / name).is_file()]
    for name in recipe["tests"][0]["python"]["imports"]:
        module = HERE / "../src" / name.replace(".", "/")
        if not (module.with_suffix(".py").is_file() or (module / "__init__.py").is_file()):
            faults.append(f"{name} is no module")
    return faults


def main() -> int:
    faults = []
    for platform in PLATFORMS:
        recipe = rendered(platform)
        compilers = [name for name in recipe["requirements"]["build"] if name.startswith(("rust_", "gcc_")) and platform in name]
        faults += [f"{platform}: {fault}" for fault in faults_of(recipe)]
        if len(compilers) != 2:
            faults.append(f"{platform}: compilers are missing: {recipe['requirements']['build']}")
    print("\n".join(faults) or f"the conda recipe is as it should be for {', '.join(PLATFORMS)}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

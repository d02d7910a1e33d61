#!/usr/bin/env python3
"""Keeps the rooms apart: which folder of san/ may include which, who may see torch and RDKit.

The table is the one in HACKING.md. Exit code 1 and one line per violation.
"""
import pathlib
import re
import sys

ROOMS = {
    "base": set(),
    "graph": {"base"},
    "kernels": {"base"},
    "chem": {"base", "graph"},
    "spectral": {"base", "graph"},
    "data": {"base", "graph", "chem", "spectral"},
    "model": {"base", "graph", "chem", "spectral", "data", "kernels"},
    "nn": {"base", "graph", "spectral", "data", "model", "kernels"},
    "train": {"base", "graph", "chem", "spectral", "data", "model", "nn", "kernels"},
    "cli": {"base", "graph", "chem", "spectral", "data", "model", "nn", "train", "kernels"},
}
TORCH_ROOMS = {"nn", "train", "cli"}

INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')


def violations(root):
    for path in sorted((root / "san").rglob("*")):
        if path.suffix not in {".h", ".cc", ".c", ".inl"}:
            continue
        room = path.relative_to(root / "san").parts[0]
        if room not in ROOMS:
            yield f"{path.relative_to(root)}: the room '{room}' is not in the table of tests/lint/check_includes.py"
            continue
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".h" and "#pragma once" not in text:
            yield f"{path.relative_to(root)}: no #pragma once"
        for number, line in enumerate(text.splitlines(), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            where, target = f"{path.relative_to(root)}:{number}", match.group(1)
            if target.startswith("san/"):
                other = target.split("/")[1]
                if other != room and other not in ROOMS[room]:
                    yield f"{where}: {room} may not include {target}"
            elif target.split("/")[0] in {"torch", "ATen", "c10"} and room not in TORCH_ROOMS:
                yield f"{where}: only {', '.join(sorted(TORCH_ROOMS))} may see torch"
            elif target.split("/")[0] in {"GraphMol", "RDGeneral", "rdkit"} and room != "chem":
                yield f"{where}: only chem may see RDKit"


def main():
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[2]
    found = list(violations(root))
    print("\n".join(found) if found else "includes: all rooms keep to the table")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Opens reports in headless Chromium: no console message, no network, the curves are there, the script ran.

Usage: report_browser_test.py PROGRAM [CHROMIUM]. PROGRAM is report_samples, which writes sample pages, or san: then the
reports are those of real training runs, and the curves must have a point for every epoch. Exit code 77 (skipped) when no
Chromium is installed.
"""
import html.parser
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--enable-logging=stderr", "--v=0",
         "--host-resolver-rules=MAP * ~NOTFOUND", "--dump-dom"]

TRAINED = ["command", "test-score", "curve-loss", "curve-metric", "curve-learning-rate", "metrics", "config"]
EXPECTED = {
    "regression": TRAINED + ["scatter-0", "residuals-0", "worst"],
    "many_targets": TRAINED + ["scatter-0", "scatter-4", "residuals-4", "targets", "worst"],
    "binary": TRAINED + ["roc", "precision-recall", "tasks", "confusion"],
    "many_tasks": TRAINED + ["roc", "precision-recall", "tasks"],
    "nodes": TRAINED + ["confusion", "classes"],
    "multiclass": TRAINED + ["confusion", "classes"],
    "hostile": ["command", "test-score", "curve-loss", "curve-metric", "scatter-0", "worst", "config"],
    "diverged": ["command", "test-score", "curve-loss", "curve-learning-rate", "metrics", "config"],
    "one_epoch": TRAINED + ["roc"],
    "empty": [],
    "reproduction": ["zinc-results", "zinc-gamma", "zinc-ablation", "zinc-curve-optimised", "zinc-curve-full-node",
                     "zinc-missing", "zinc-runs"],
}


# Of real runs of `san train`: what must be on the page.
REAL = {
    "regression": EXPECTED["regression"],
    "binary": EXPECTED["binary"],
    "multiclass": EXPECTED["multiclass"],
    "node-classification": EXPECTED["nodes"],
}
EPOCHS = 5


class Dom(html.parser.HTMLParser):
    """What the checks ask for: ids, lines per chart, scripts, and addresses that would leave the page."""

    def __init__(self, text):
        super().__init__()
        self.points = {}  # of the longest line, by chart
        self.ids, self.lines, self.outside, self.tags, self.copy_hidden, self.svg = [], {}, [], [], None, None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.tags.append(tag)
        if "id" in values:
            self.ids.append(values["id"])
        if values.get("id") == "copy":
            self.copy_hidden = "hidden" in values
        if tag == "svg":
            self.svg = values.get("id")
        if tag == "path" and "line" in values.get("class", "").split() and values.get("d"):
            self.lines[self.svg] = self.lines.get(self.svg, 0) + 1
            self.points[self.svg] = max(self.points.get(self.svg, 0), points_of(values["d"]))
        for name in ("src", "href", "action", "data"):
            if name in values and not values[name].startswith("data:"):
                self.outside.append(f"{tag} {name}={values[name]}")


def points_of(path):
    """Points of a line: each is reached with M, L or (steps) H and V; 0 when a number is not one."""
    return 0 if re.search("nan|inf", path, re.IGNORECASE) else len(re.findall("[MLV]", path))


def open_page(chromium, page):
    """The page's DOM after its scripts ran, and what it wrote to the console."""
    with tempfile.TemporaryDirectory() as profile:
        done = subprocess.run([chromium, *FLAGS, f"--user-data-dir={profile}", page.as_uri()], capture_output=True,
                              text=True, errors="replace", timeout=120)
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return done.stdout, console


def problems(chromium, page, expected, points=1):
    text, console = open_page(chromium, page)
    dom = Dom(text)
    yield from (f"console: {line}" for line in console)
    yield from (f"#{name} is missing" for name in expected if name not in dom.ids)
    yield from (f"#{name} twice" for name in set(dom.ids) if dom.ids.count(name) > 1)
    yield from (f"{name} has no line" for name in dom.ids if "curve-" in name and not dom.lines.get(name))
    yield from (f"{name} has {dom.points.get(name, 0)} points, not {points}" for name in dom.ids
                if name.startswith("curve-") and dom.points.get(name, 0) < points)
    yield from (f"points outside: {address}" for address in dom.outside)
    if dom.tags.count("script") != 1 or "img" in dom.tags:
        yield "holds a script or an image that is not the page's own"
    if "command" in dom.ids and dom.copy_hidden is not False:
        yield "the copy button stayed hidden: the script did not run (does the content policy have its hash?)"


def write_graphs(path, task):
    """32 small graphs with labels that their categories decide."""
    draw = random.Random(5)
    lines = []
    for i in range(32):
        nodes = draw.randint(4, 8)
        edges = [[a, b] for k in range(1, nodes) for a, b in [(k, k - 1), (k - 1, k)]]
        categories = [draw.randrange(3) for _ in range(nodes)]
        share = categories.count(1) / nodes
        graph = {"id": f"g{i}", "num_nodes": nodes, "edges": edges, "node_feat": categories,
                 "split": "train" if i < 20 else "valid" if i < 26 else "test"}
        if task == "node-classification":
            graph["node_label"] = [int(c == 2) for c in categories]
        else:
            graph["label"] = {"regression": 10 + share, "binary": i % 2, "multiclass": i % 3}[task]
        lines.append(json.dumps(graph))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def train(san, folder, task):
    """The report of a real run."""
    data, out = folder / f"{task}.jsonl", folder / f"run-{task}"
    write_graphs(data, task)
    settings = ["model.hidden_dim=16", "model.heads=2", "model.layers=2", "model.lpe.dim=4", "model.lpe.heads=2",
                "model.lpe.ff_dim=16", "spectral.num_pairs=4", "train.batch_size=8"]
    command = [san, "train", "--data", str(data), "--task", task, "--out", str(out), "--epochs", str(EPOCHS), "--threads", "1"]
    for setting in settings:
        command += ["--set", setting]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                   env={**os.environ, "SAN_CACHE_DIR": str(folder / "cache")})
    return out / "report.html"


def main():
    chromium = sys.argv[2] if len(sys.argv) > 2 else shutil.which("chromium") or shutil.which("chromium-browser")
    if not chromium:
        print("skipped: chromium is not installed")
        sys.exit(77)
    program = os.path.abspath(sys.argv[1])
    failed = False
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        # The check of the check: a page with an error must be seen as one.
        broken = folder / "broken.htm"
        broken.write_text("<!DOCTYPE html><script>undefined_function()</script>", encoding="utf-8")
        if not open_page(chromium, broken)[1]:
            print("this Chromium does not report console errors: nothing can be concluded")
            sys.exit(1)
        if os.path.basename(program) == "san":
            pages = [(task, train(program, folder, task), ids, EPOCHS) for task, ids in REAL.items()]
        else:
            subprocess.run([program, str(folder)], check=True)
            found = {page.stem: page for page in folder.glob("*.html")}
            if set(found) != set(EXPECTED):
                print(f"samples {sorted(found)}, expected {sorted(EXPECTED)}")
                failed = True
            pages = [(stem, found[stem], EXPECTED[stem], 1) for stem in sorted(set(found) & set(EXPECTED))]
        for title, page, ids, points in pages:
            wrong = list(problems(chromium, page, ids, points))
            failed = failed or bool(wrong)
            print(f"{title}: {'ok' if not wrong else ''}", *wrong, sep="\n  " if wrong else "")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

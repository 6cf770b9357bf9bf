"""The notebooks and the page docs/python.md do what they say: every block of code is executed."""

import ast
import contextlib
import io
import json
import linecache
import os
import re
import runpy
import unittest
from typing import Any, Dict, List
from unittest import mock

from support import ROOT, ClusterCase, has

PAGE = ROOT.parent / "docs" / "python.md"
NEEDS = {".map()": "networkx", "_frame(": "pandas"}


def missing(code: str) -> "set[str]":
    return {package for word, package in NEEDS.items() if word in code and not has(package)}


def run(code: str, name: str, space: Dict[str, Any]) -> None:
    """Runs code as a notebook does: its source can be read, and its last value is shown."""
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
    tree = ast.parse(code, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec"), space)
    if isinstance(last, ast.Expr):
        value = eval(compile(ast.Expression(last.value), name, "eval"), space)
        show = getattr(value, "_repr_html_", None)
        text = show() if show else repr(value)
        if show and not text.startswith("<table>"):
            raise AssertionError(f"{name}: {text}")


class Examples(ClusterCase):
    def setUp(self) -> None:
        super().setUp()
        known = {**self.daemon.environment(), "PHALANX_FUNCTIONS": str(self.folder)}
        environment = mock.patch.dict(os.environ, known, clear=True)
        environment.start()
        self.addCleanup(environment.stop)
        here = os.getcwd()
        os.chdir(self.folder)
        self.addCleanup(os.chdir, here)

    def execute(self, blocks: List[str], name: str) -> str:
        out = io.StringIO()
        space: Dict[str, Any] = {"__name__": "__main__"}
        for number, code in enumerate(blocks, 1):
            with self.subTest(f"{name}, block {number}"):
                if missing(code):
                    self.skipTest(f"{', '.join(missing(code))} is not installed")
                with contextlib.redirect_stdout(out):
                    run(code, f"<{name} {number}>", space)
        return out.getvalue()

    def test_notebooks(self) -> None:
        for path in sorted((ROOT / "examples").glob("*.ipynb")):
            notebook = json.loads(path.read_text(encoding="utf-8"))
            cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
            self.execute(cells, path.name)

    def test_notebooks_are_those_of_the_script(self) -> None:
        for name, text in runpy.run_path(str(ROOT / "examples" / "make.py"))["texts"]().items():
            self.assertEqual((ROOT / "examples" / name).read_text(encoding="utf-8"), text, "run examples/make.py")
            notebook = json.loads(text)
            self.assertEqual(notebook["nbformat"], 4)
            self.assertEqual(len({cell["id"] for cell in notebook["cells"]}), len(notebook["cells"]))

    @unittest.skipUnless(has("nbformat"), "nbformat is not installed")
    def test_notebooks_are_valid(self) -> None:
        import nbformat

        for path in (ROOT / "examples").glob("*.ipynb"):
            nbformat.validate(nbformat.read(str(path), as_version=4))

    def test_page(self) -> None:
        blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)
        self.assertGreater(len(blocks), 8)
        out = self.execute(blocks, "python.md")
        for words in ("succeeded", "resources.gpus", "would start now"):
            self.assertIn(words, out)

    def test_names_of_the_page_exist(self) -> None:
        import phalanx

        names = set(re.findall(r"`([A-Z][a-z]+[A-Z]?[A-Za-z]*)`", PAGE.read_text(encoding="utf-8")))
        for name in names:
            self.assertTrue(hasattr(phalanx, name), name)

    def test_readme(self) -> None:
        blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S)
        self.assertIn("hello from rank", self.execute(blocks, "README.md"))


if __name__ == "__main__":
    unittest.main()

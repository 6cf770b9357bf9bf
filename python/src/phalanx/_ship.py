"""Functions and arguments as text, or a clear refusal."""

from __future__ import annotations

import ast
import builtins
import inspect
import json
import symtable
import textwrap
from typing import Any, Callable, Dict, List

from ._errors import NotShippable

FUTURE = "from __future__ import annotations\n\n"


def source_of(function: Callable[..., Any]) -> str:
    """The source of a function that can run alone: without its decorators and annotations of its signature."""
    name = getattr(function, "__name__", repr(function))
    if not inspect.isfunction(function) or name == "<lambda>":
        raise NotShippable(f"{name} is no function with a name", hint="use a function that `def` makes")
    if (
        inspect.iscoroutinefunction(function)
        or inspect.isgeneratorfunction(function)
        or inspect.isasyncgenfunction(function)
    ):
        raise NotShippable(f"{name} is asynchronous or a generator", hint="use a plain function that returns a value")
    if function.__code__.co_freevars:
        kept = ", ".join(function.__code__.co_freevars)
        raise NotShippable(f"{name} is a closure over {kept}", hint="pass these values as arguments")
    text = _bare(function, name)
    missing = _globals(text, name)
    if missing:
        words = ", ".join(missing)
        hint = "import modules inside the function, and pass values as arguments"
        raise NotShippable(f"{name} uses names from outside: {words}", hint=hint)
    return text


def _bare(function: Callable[..., Any], name: str) -> str:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError) as error:
        hint = "define the function in a file or a notebook cell"
        raise NotShippable(f"the source of {name} cannot be read: {error}", hint=hint) from None
    found = tree.body[0]
    if not isinstance(found, ast.FunctionDef):
        raise NotShippable(f"the source of {name} is no `def`", hint="use a function that `def` makes")
    if len(found.decorator_list) > 1 or hasattr(function, "__wrapped__"):
        raise NotShippable(f"{name} has other decorators", hint="call them inside the function")
    found.decorator_list = []
    return ast.unparse(ast.fix_missing_locations(_Unannotated().visit(found)))


class _Unannotated(ast.NodeTransformer):
    """Leaves annotations out: they name types that the job need not have. Those of classes have a meaning and stay."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        return ast.Pass() if node.value is None else ast.Assign([node.target], node.value)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return node


def _globals(text: str, name: str) -> List[str]:
    """The global names that it reads, beside its own and Python's."""
    known = {name, "__name__", "__file__"} | set(dir(builtins))
    top = symtable.symtable(FUTURE + text, name, "exec")
    outside = {s.get_name() for s in top.get_symbols() if s.is_referenced()} - {"annotations"}
    left = top.get_children()
    while left:
        table = left.pop()
        left.extend(table.get_children())
        outside |= {s.get_name() for s in table.get_symbols() if s.is_global() and s.is_referenced()}
    return sorted(outside - known)


def arguments_of(function: Callable[..., Any], args: Any, named: Dict[str, Any]) -> str:
    """Arguments as JSON, which must give the same values back."""
    inspect.signature(function).bind(*args, **named)
    sent = {"args": list(args), "named": named}
    try:
        text = json.dumps(sent, allow_nan=False)
    except (TypeError, ValueError) as error:
        hint = "pass numbers, text, lists and dicts; for other data, pass the path of a file"
        raise NotShippable(f"the arguments cannot be written as JSON: {error}", hint=hint) from None
    if json.loads(text) != sent:
        hint = "pass lists in place of tuples, and text as keys of dicts"
        raise NotShippable("the arguments would arrive as other values after JSON", hint=hint)
    return text


SCRIPT = '''\
"""A function that runs as a job of Phalanx. The client wrote this file."""

from __future__ import annotations

{source}


def _phalanx_main(function):
    import json, os, sys

    here = os.path.dirname(os.path.abspath(__file__))
    sys.path.insert(0, os.getcwd())
    with open(os.path.join(here, "arguments.json"), encoding="utf-8") as file:
        sent = json.load(file)
    result = function(*sent["args"], **sent["named"])
    if os.environ.get("RANK", "0") != "0":
        return
    new = os.path.join(here, "result.json.new")
    with open(new, "w", encoding="utf-8") as file:
        json.dump({{"result": result}}, file, allow_nan=False)
    os.replace(new, os.path.join(here, "result.json"))


if __name__ == "__main__":
    _phalanx_main({name})
'''


def script_of(function: Callable[..., Any]) -> str:
    """A program that reads its arguments from a file beside it, and writes the result of rank 0 there."""
    return SCRIPT.format(source=source_of(function), name=function.__name__)

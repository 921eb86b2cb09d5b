"""The Python reference: signatures and docstrings of the package, read from its sources without importing it,
so that nothing has to be built."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "python"
MODULES = (
    "opsmith",
    "opsmith.graph",
    "opsmith.jit",
    "opsmith.onnx",
    "opsmith.optimizers",
    "opsmith.testing",
    "opsmith.types",
)
WIDTH = 88

Definition = ast.FunctionDef | ast.ClassDef


@cache
def parsed(module: str) -> ast.Module:
    return ast.parse(file_of(module).read_text(encoding="utf-8"))


def file_of(module: str) -> Path:
    path = PACKAGE / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def statements(module: str) -> Iterator[ast.stmt]:
    """What a module states, also what only type checkers see."""
    for statement in parsed(module).body:
        yield from statement.body if isinstance(statement, ast.If) else [statement]


def public(module: str) -> list[str]:
    """The names that a module has for its users."""
    own = []
    for statement in statements(module):
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__":
            return ast.literal_eval(statement.value)
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            own.append(statement.name)
        elif isinstance(statement, ast.AnnAssign):
            own.append(ast.unparse(statement.target))
    return [name for name in own if not name.startswith("_")]


def found(module: str, name: str) -> tuple[str, Definition | None, str]:
    """The module that defines a name, the definition of a function or a class, and the text at another."""
    body = list(statements(module))
    for i, statement in enumerate(body):
        if isinstance(statement, ast.FunctionDef | ast.ClassDef) and statement.name == name:
            return module, statement, ""
        if isinstance(statement, ast.AnnAssign) and ast.unparse(statement.target) == name:
            return module, None, text_at(body, i + 1)
        if isinstance(statement, ast.ImportFrom):
            for alias in statement.names:
                if (alias.asname or alias.name) == name:
                    inner = f"{statement.module}.{alias.name}"
                    return (
                        (inner, None, "")
                        if file_of(inner).exists()
                        else found(str(statement.module), alias.name)
                    )
    raise LookupError(f"{module}: `{name}` is listed and defined nowhere")


def text_at(body: list[ast.stmt], at: int) -> str:
    """The text that stands there by itself: the docstring of what is before it."""
    match body[at : at + 1]:
        case [ast.Expr(ast.Constant(str(text)))]:
            return inspect.cleandoc(text)
    return ""


def home(module: str, name: str) -> str:
    """The page that tells of a name: of those that have it, the innermost."""
    defined = found(module, name)[:2]
    others = [other for other in MODULES if name in public(other) and found(other, name)[:2] == defined]
    return max(others, key=len)


def page(module: str) -> str:
    """The page of a module, in Markdown."""
    parts = [f"# {module}", ast.get_docstring(parsed(module)) or ""]
    elsewhere = []
    for name in public(module):
        owner, definition, text = found(module, name)
        if owner != module and definition is None:
            # A module, which has a page if it is of interest.
            continue
        if home(module, name) != module:
            there = home(module, name)
            elsewhere.append(f"[`{name}`]({there}.md#{name.lower()})")
        elif definition is None:
            parts += [f"## {name}", text]
        else:
            parts += entry(definition, name, "##")
    if elsewhere:
        parts.insert(2, f"Also here: {', '.join(elsewhere)}.")
    return "\n\n".join(part for part in parts if part) + "\n"


def entry(definition: Definition, name: str, mark: str) -> Iterator[str]:
    """The heading, the signature and the docstring of a function, or of a class and its public members."""
    yield f"{mark} {name}"
    if isinstance(definition, ast.FunctionDef):
        yield fenced(signature(definition, name.rpartition(".")[2]))
        yield ast.get_docstring(definition) or ""
        return
    inner = {each.name: each for each in definition.body if isinstance(each, ast.FunctionDef)}
    bases = f"({', '.join(map(ast.unparse, definition.bases))})" if definition.bases else ""
    made = inner.get("__init__")
    yield fenced(f"class {name}{bases}" if made is None else signature(made, name, "class"))
    yield ast.get_docstring(definition) or ""
    yield (made and ast.get_docstring(made)) or ""
    yield "\n".join(fields(definition))
    for method in inner.values():
        if not method.name.startswith("_") and ast.get_docstring(method):
            yield from entry(method, f"{name}.{method.name}", "###")


def fields(definition: ast.ClassDef) -> Iterator[str]:
    """The fields of a class that have types, each with what is said of it."""
    for i, statement in enumerate(definition.body):
        if isinstance(statement, ast.AnnAssign) and not ast.unparse(statement.target).startswith("_"):
            text = " ".join(text_at(definition.body, i + 1).split())
            yield f"- `{ast.unparse(statement)}`{': ' if text else ''}{text}"


def signature(function: ast.FunctionDef, name: str, word: str = "def") -> str:
    if any(ast.unparse(each) in ("property", "cached_property") for each in function.decorator_list):
        return f"{name}: {ast.unparse(function.returns)}" if function.returns else name
    arguments = function.args
    is_method = bool(arguments.args) and arguments.args[0].arg in ("self", "cls")
    if is_method:
        arguments = ast.arguments(**{**dict(ast.iter_fields(arguments)), "args": arguments.args[1:]})
    back = f" -> {ast.unparse(function.returns)}" if function.returns and word == "def" else ""
    line = f"{word} {name}({ast.unparse(arguments)}){back}"
    if len(line) <= WIDTH:
        return line
    # Each argument is unparsed by itself, so that commas within types divide nothing.
    pieces = split(ast.unparse(arguments))
    return f"{word} {name}(\n" + "".join(f"    {piece},\n" for piece in pieces) + f"){back}"


def split(arguments: str) -> list[str]:
    """The arguments one by one, divided at the commas outside brackets."""
    pieces, depth = [""], 0
    for letter in arguments:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and not depth:
            pieces.append("")
        else:
            pieces[-1] += letter
    return [piece.strip() for piece in pieces]


def fenced(code: str) -> str:
    return f"```python\n{code}\n```"

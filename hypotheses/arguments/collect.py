# ruff: noqa: INP001 - a program beside its data, not a package
"""Collects what a release of sglang or vLLM knows: its options, and the environment names it reads.

    python hypotheses/arguments/collect.py sglang==0.5.23 vllm==0.33.0

Each argument is a requirement for pip, or the path of a wheel. The sources in the wheel are parsed and
never imported, so that neither a GPU nor the stack's own dependencies are needed. Each release becomes
one JSON file beside this program (README.md says what is in it).
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PREFIXES = {"sglang": ("SGLANG_", "SGL_"), "vllm": ("VLLM_",)}
TAKES = {None: "one", 0: "none", 1: "one", "?": "optional", "+": "many", "*": "any", "...": "rest"}
VALUELESS = {"store_true", "store_false", "store_const", "append_const", "count", "help", "version"}
VALUELESS_CLASSES = {"DeprecatedAction", "DeprecatedStoreTrueAction", "DeprecatedStoreConstAction"}
NOTE_LENGTH = 200
OWN_HELP: dict[str, Any] = {"names": ["-h", "--help"], "takes": "none"}


class NotStatic(Exception):
    """A value that only a run of the program would give."""


@dataclass
class Module:
    """A source file: what each of its names is bound to."""

    name: str
    tree: ast.Module
    bound: dict[str, ast.AST | tuple[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._bind(self.tree.body)

    def _bind(self, body: Iterable[ast.stmt]) -> None:
        for node in body:
            if isinstance(node, ast.Assign):
                self.bound.update({t.id: node.value for t in node.targets if isinstance(t, ast.Name)})
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
                self.bound[node.target.id] = node.value
            elif isinstance(node, ast.ClassDef):
                self.bound[node.name] = node
            elif isinstance(node, ast.ImportFrom):
                origin = self._absolute(node)
                self.bound.update({a.asname or a.name: (origin, a.name) for a in node.names})
            elif isinstance(node, ast.If):
                # What only a type checker sees is not there when the program runs.
                only_typed = "TYPE_CHECKING" in ast.dump(node.test)
                self._bind(node.orelse if only_typed and node.orelse else [*node.body, *node.orelse])
            elif isinstance(node, ast.Try):
                self._bind(node.body)

    def _absolute(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parents = self.name.split(".")[: -node.level]
        return ".".join([*parents, node.module] if node.module else parents)


class Wheel:
    """The sources of one release."""

    def __init__(self, path: Path) -> None:
        self.stack, self.version = path.name.split("-")[:2]
        self._zip = zipfile.ZipFile(path)
        self._files = set(self._zip.namelist())
        self._modules: dict[str, Module | None] = {}

    def sources(self, under: str = "") -> Iterator[str]:
        """The names of the source files below a folder, sorted."""
        return iter(sorted(f for f in self._files if f.startswith(under) and f.endswith(".py")))

    def parse(self, file: str) -> ast.Module:
        """The tree of one source file."""
        return ast.parse(self._zip.read(file))

    def mentions(self, file: str, texts: Iterable[str]) -> bool:
        """Whether one of some texts is anywhere in a source file."""
        source = self._zip.read(file)
        return any(text.encode() in source for text in texts)

    def module(self, name: str) -> Module | None:
        """A module of the wheel; None where it is another distribution's."""
        if name not in self._modules:
            base = name.replace(".", "/")
            file = next((f for f in (f"{base}.py", f"{base}/__init__.py") if f in self._files), None)
            # A package's own relative imports start from itself, a module's from its parent.
            inside = f"{name}.__init__" if file and file.endswith("__init__.py") else name
            self._modules[name] = Module(inside, self.parse(file)) if file else None
        return self._modules[name]

    def need(self, *names: str) -> Module:
        """The first of some modules that the release has."""
        for name in names:
            if (module := self.module(name)) is not None:
                return module
        raise SystemExit(f"{self.stack} {self.version}: none of {', '.join(names)}: its layout is new")

    def holding(self, under: str, text: str) -> Module:
        """The first module below a folder whose source has a text in it: releases move their files."""
        files = [file for file in self.sources(under) if self.mentions(file, [text])]
        return self.need(*map(dotted, files))

    def find(self, module: Module, name: str) -> tuple[Module, ast.AST]:
        """What a name of a module stands for, and the module that binds it."""
        for _ in range(20):  # as many imports as a name is followed through
            bound = module.bound.get(name)
            if isinstance(bound, ast.AST):
                return module, bound
            if bound is None or (origin := self.module(bound[0])) is None:
                break
            module, name = origin, bound[1]
        raise NotStatic(name)

    def value(self, module: Module, node: ast.AST) -> Any:  # noqa: ANN401 - any literal
        """The value of an expression of constants.

        Raises:
            NotStatic: it is another kind of expression.
        """
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            return [self.value(module, item) for item in node.elts]
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return self.value(module, node.left) + self.value(module, node.right)
        if isinstance(node, ast.Name):
            return self.value(*self.find(module, node.id))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            home, owner = self.find(module, node.value.id)
            inside = Module(home.name, ast.Module(getattr(owner, "body", []), []))
            inside.bound = {**home.bound, **inside.bound} if node.attr in inside.bound else {}
            return self.value(inside, ast.Name(node.attr))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) == 1:
            if node.func.id in {"list", "tuple", "set", "frozenset", "sorted"}:
                return self.value(module, node.args[0])
            if node.func.id == "get_args":
                hints = Hints(self).of(module, node.args[0])
                return next(list(hint.values) for hint in hints if hint.kind == "Literal")
        raise NotStatic(ast.dump(node)[:80])

    def text(self, module: Module, node: ast.AST | None) -> str:
        """The text of an expression, as far as it is constant."""
        if isinstance(node, ast.JoinedStr):
            return "".join(self.text(module, part) for part in node.values)
        try:
            return str(self.value(module, node)) if node is not None else ""
        except NotStatic:
            return ""

    def classes(self, module: Module, name: str) -> list[tuple[Module, ast.ClassDef]]:
        """A class and those of the wheel that it inherits from, the furthest first."""
        try:
            home, node = self.find(module, name)
        except NotStatic:
            return []
        if not isinstance(node, ast.ClassDef):
            return []
        above = [b.id for b in node.bases if isinstance(b, ast.Name)]
        return [*(pair for base in above for pair in self.classes(home, base)), (home, node)]


@dataclass(frozen=True)
class Hint:
    """One alternative of an annotation: a type's name, the values of a Literal, the items of a sequence."""

    kind: str
    values: tuple[Any, ...] = ()


def dotted(file: str) -> str:
    """The name of the module in a source file."""
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


class Hints:
    """Annotations, taken apart as `typing.get_type_hints` would after an import."""

    def __init__(self, wheel: Wheel) -> None:
        self._wheel = wheel

    def of(self, module: Module, node: ast.AST) -> list[Hint]:
        """The alternatives of an annotation, aliases followed."""
        if isinstance(node, ast.BinOp):
            return [*self.of(module, node.left), *self.of(module, node.right)]
        if isinstance(node, ast.Constant):
            return [Hint("None" if node.value is None else "other")]
        if isinstance(node, ast.Subscript):
            return self._generic(module, node)
        if isinstance(node, ast.Name):
            return self._name(module, node.id)
        return [Hint("other")]

    def _generic(self, module: Module, node: ast.Subscript) -> list[Hint]:
        origin = node.value.id if isinstance(node.value, ast.Name) else getattr(node.value, "attr", "")
        items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if origin in {"Optional", "Union"}:
            found = [hint for item in items for hint in self.of(module, item)]
            return [*found, Hint("None")] if origin == "Optional" else found
        if origin in {"A", "Annotated", "SkipValidation"}:
            return self.of(module, items[0])
        if origin == "Literal":
            return [Hint("Literal", tuple(v for item in items for v in self._literal(module, item)))]
        if origin.lower() in {"list", "set", "tuple"}:
            return [Hint(origin.lower(), tuple((module, item) for item in items))]
        return [Hint("dict" if origin.lower() == "dict" else "other")]

    def _literal(self, module: Module, item: ast.AST) -> tuple[Any, ...]:
        """The values of an item of a Literal, which may be another Literal's name."""
        if isinstance(item, ast.Name):
            return next(hint.values for hint in self.of(module, item) if hint.kind == "Literal")
        return (self._wheel.value(module, item),)

    def _name(self, module: Module, name: str) -> list[Hint]:
        if name.lower() in {"list", "set", "tuple"}:
            return [Hint(name.lower())]
        if name in {"bool", "str", "int", "float", "dict"}:
            return [Hint(name)]
        try:
            home, node = self._wheel.find(module, name)
        except NotStatic:
            return [Hint("other")]
        if isinstance(node, ast.ClassDef):
            marks = {getattr(d, "id", getattr(d, "attr", "")) for d in map(_callee, node.decorator_list)}
            return [Hint("dataclass" if marks & {"config", "dataclass"} else "other")]
        return self.of(home, node)


def _callee(node: ast.expr) -> ast.expr:
    return node.func if isinstance(node, ast.Call) else node


class Lines:
    """Runs the statements that add arguments to a parser, as far as they can be followed.

    A condition is taken to hold. What cannot be followed is `NotStatic` as a value, and leaves what is
    known as it is.
    """

    def __init__(self, wheel: Wheel, module: Module, kwargs: Callable[[str], dict[str, Any]]) -> None:
        self._wheel = wheel
        self._module = module
        self._kwargs = kwargs
        self.known: dict[str, Any] = {}
        self.added: list[tuple[list[str], dict[str, Any]]] = []

    def run(self, body: Iterable[ast.stmt]) -> None:
        """Run some statements in order."""
        for node in body:
            try:
                self._statement(node)
            except (NotStatic, KeyError, TypeError, ValueError):
                # A release that does this in a new way must not lose an option without a word.
                if "add_argument(" in ast.unparse(node):
                    sys.stderr.write(f"not followed: {ast.unparse(node)[:NOTE_LENGTH]}\n")

    def _statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.If | ast.With):
            self.run(node.body)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            self.known[node.targets[0].id] = self._value(node.value)
        elif isinstance(node, ast.Assign | ast.AugAssign | ast.Delete):
            targets = node.targets if isinstance(node, ast.Assign | ast.Delete) else [node.target]
            if isinstance(targets[0], ast.Subscript):
                self._change(targets[0], node)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            self._call(node.value)

    def _change(self, target: ast.Subscript, node: ast.stmt) -> None:
        holder, key = self._value(target.value), self._value(target.slice)
        held = holder.pop(key, None)  # what is added to it is not followed: nothing is known of it then
        if isinstance(node, ast.Assign):
            try:
                holder[key] = self._value(node.value)
            except NotStatic:
                holder[key] = NotStatic
        elif isinstance(node, ast.AugAssign) and key == "help":
            holder[key] = held

    def _call(self, node: ast.Call) -> None:
        if not isinstance(node.func, ast.Attribute):
            return
        if node.func.attr == "add_argument":
            names = [self._value(arg) for arg in node.args]
            self.added.append((names, self._keywords(node.keywords)))
        elif node.func.attr == "remove":
            self._value(node.func.value).remove(self._value(node.args[0]))

    def _keywords(self, keywords: Iterable[ast.keyword]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for keyword in keywords:
            if keyword.arg is None:
                found.update(self._value(keyword.value))
            elif keyword.arg in {"help", "new_flag", "error_message"}:
                found[keyword.arg] = self._wheel.text(self._module, keyword.value)
            else:
                try:
                    found[keyword.arg] = self._value(keyword.value)
                except NotStatic:
                    found[keyword.arg] = NotStatic
        return found

    def _value(self, node: ast.AST) -> Any:  # noqa: ANN401 - any literal
        if isinstance(node, ast.Name) and node.id in self.known:
            return self.known[node.id]
        if isinstance(node, ast.Subscript):
            return self._value(node.value)[self._value(node.slice)]
        if isinstance(node, ast.Dict):
            found: dict[Any, Any] = {}
            for key, value in zip(node.keys, node.values, strict=True):
                if key is None:
                    found.update(self._value(value))
                elif isinstance(key, ast.Constant):
                    found[key.value] = self._wheel.text(self._module, value)
            return found
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "get_kwargs":
            named = node.args[0]
            return self._kwargs(named.id if isinstance(named, ast.Name) else "")
        if isinstance(node, ast.Attribute | ast.Name) and (name := _action(node)):
            return name
        return self._wheel.value(self._module, node)


def _action(node: ast.Attribute | ast.Name) -> str:
    """The name of a class of actions, or nothing."""
    name = node.attr if isinstance(node, ast.Attribute) else node.id
    return name if name.endswith("Action") else ""


def option(names: list[str], kwargs: dict[str, Any]) -> dict[str, Any] | None:
    """What the data says of one `add_argument`; None for a positional argument."""
    if not names[0].startswith("-"):
        return None
    action, nargs = kwargs.get("action", "store"), kwargs.get("nargs")
    takes: Any = TAKES.get(nargs, nargs)
    if action == "BooleanOptionalAction":
        names, takes = [*names, *(f"--no-{n[2:]}" for n in names if n.startswith("--"))], "none"
    elif action in VALUELESS or (action in VALUELESS_CLASSES and "nargs" not in kwargs):
        takes = "none"
    found: dict[str, Any] = {"names": names, "takes": takes}
    choices = kwargs.get("choices")
    if isinstance(choices, list) and choices:
        found["choices"] = sorted({str(choice) for choice in choices})
    if note := deprecation(names, kwargs):
        found["deprecated"] = note
    return found


def deprecation(names: list[str], kwargs: dict[str, Any]) -> str:
    """What is said where an option is deprecated, in its first sentences; nothing where it is not."""
    said = re.sub(r"\s+", " ", kwargs.get("help") or "").strip()
    if kwargs.get("error_message"):
        return str(kwargs["error_message"])[:NOTE_LENGTH]
    own = "|".join(re.escape(name) for name in names)
    if re.search(rf"^\W*(note: )?deprecated\b|({own})\W* is deprecated\b", said, re.IGNORECASE):
        return said if len(said) <= NOTE_LENGTH else re.split(r"(?<=\.) ", said)[0][:NOTE_LENGTH]
    if str(kwargs.get("action", "")).startswith("Deprecated") and kwargs.get("new_flag"):
        return f"Use {kwargs['new_flag']} instead."
    return "Deprecated." if kwargs.get("deprecated") else ""


def documented(body: list[ast.stmt]) -> Iterator[tuple[ast.AnnAssign, str]]:
    """The annotated fields of a class, each with the string below it."""
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            below = after.value if isinstance(after, ast.Expr) else None
            yield node, str(below.value) if isinstance(below, ast.Constant) else ""


# --- sglang -------------------------------------------------------------------------------------------


def sglang(wheel: Wheel) -> list[tuple[list[str], dict[str, Any]]]:
    """Every `add_argument` of the server: of annotated fields, and those written out."""
    server = wheel.need("sglang.srt.server_args")
    fields = wheel.sources("sglang/srt/arg_groups/fields/")
    homes = [server, *(wheel.need(dotted(file)) for file in fields)]
    added = [
        argument
        for home in homes
        for node in home.tree.body
        if isinstance(node, ast.ClassDef)
        for annotated in node.body
        if isinstance(annotated, ast.AnnAssign) and (argument := sglang_field(wheel, home, annotated))
    ]
    lines = Lines(wheel, server, lambda _: {})
    lines.run(method(server.tree, "ServerArgs", "add_cli_args"))
    return [*added, *lines.added, *sglang_serve(wheel)]


def sglang_field(wheel: Wheel, home: Module, node: ast.AnnAssign) -> tuple[list[str], dict[str, Any]] | None:
    """The `add_argument` that a field annotated with its help makes; None for any other field."""
    hint, target = node.annotation, node.target
    if not (isinstance(hint, ast.Subscript) and isinstance(hint.slice, ast.Tuple)):
        return None
    if not (isinstance(target, ast.Name) and getattr(hint.value, "id", "") in {"A", "Annotated"}):
        return None
    for meta in hint.slice.elts[1:]:
        if isinstance(meta, ast.Call) and getattr(meta.func, "id", "") == "Arg":
            given = {k.arg: k.value for k in meta.keywords if k.arg}
            break
        if isinstance(meta, ast.Constant | ast.JoinedStr | ast.BinOp):
            given = {"help": meta}
            break
    else:
        return None
    if "no_cli" in given and wheel.value(home, given["no_cli"]):
        return None
    names = [wheel.text(home, given.get("cli_name")) or "--" + target.id.replace("_", "-")]
    names += wheel.value(home, given["aliases"]) if "aliases" in given else []
    kwargs: dict[str, Any] = {"help": wheel.text(home, given.get("help"))}
    action = given.get("action")
    if isinstance(action, ast.Attribute | ast.Name):
        kwargs["action"] = _action(action)
        extra = given.get("action_kwargs")
        if isinstance(extra, ast.Dict):
            keys = [wheel.text(home, key) for key in extra.keys]
            kwargs.update(zip(keys, (static(wheel, home, v) for v in extra.values), strict=True))
        return names, kwargs
    if "nargs" in given:
        kwargs["nargs"] = static(wheel, home, given["nargs"])
    if "choices" in given:
        kwargs["choices"] = static(wheel, home, given["choices"])
    hints = [h for h in Hints(wheel).of(home, hint.slice.elts[0]) if h.kind != "None"]
    kind = hints[0].kind if len(hints) == 1 else "other"
    if kind == "Literal":
        kwargs.pop("nargs", None)
        kwargs.setdefault("choices", list(hints[0].values))
    elif kind == "list" and "type_parser" not in given:
        kwargs.setdefault("nargs", "+")
    elif kind == "bool":
        kwargs["action"] = "store_true"
    return names, kwargs


def static(wheel: Wheel, home: Module, node: ast.expr) -> Any:  # noqa: ANN401 - any literal
    """The value of an expression, or `NotStatic` itself."""
    try:
        return wheel.value(home, node)
    except NotStatic:
        return NotStatic


def sglang_serve(wheel: Wheel) -> Iterator[tuple[list[str], dict[str, Any]]]:
    """What the command `sglang serve` takes out of the arguments before the server sees them."""
    serve = wheel.module("sglang.cli.serve")
    for node in ast.walk(serve.tree) if serve else ():
        if isinstance(node, ast.Compare) and isinstance(node.left, ast.Name) and node.left.id == "arg":
            (against,) = node.comparators
            if isinstance(against, ast.Constant) and str(against.value).startswith("--"):
                yield [str(against.value)], {}


# --- vLLM ---------------------------------------------------------------------------------------------


def vllm(wheel: Wheel) -> list[tuple[list[str], dict[str, Any]]]:
    """Every `add_argument` of the OpenAI server, which holds those of the engine."""
    engine = wheel.need("vllm.engine.arg_utils")
    front = wheel.holding("vllm/entrypoints/", "class FrontendArgs")
    made = Lines(wheel, front, lambda _: {})
    made.run(function(front.tree, "make_arg_parser"))
    added = [*made.added, *vllm_front(wheel, front)]
    for name in ("EngineArgs", "AsyncEngineArgs"):
        lines = Lines(wheel, engine, lambda name: vllm_kwargs(wheel, engine, name))
        lines.run(method(engine.tree, name, "add_cli_args"))
        added += lines.added
    return added


def vllm_spelling(wheel: Wheel, names: list[str]) -> list[str]:
    """The names of an option with those that vLLM's parser adds.

    `-O` is rewritten before anything is parsed; since some release, a boolean `--enable-x` brings
    `--disable-x`, and the other way round.
    """
    if "--optimization-level" in names:
        return [*names, "-O"]
    parsing = wheel.need("vllm.utils.argparse_utils", "vllm.utils")
    if "EnableDisableAction" not in parsing.bound or not any(name.startswith("--no-") for name in names):
        return names
    pairs = {"--enable-": "--disable-", "--disable-": "--enable-"}
    return names + [pairs[p] + n.removeprefix(p) for n in names for p in pairs if n.startswith(p)]


def vllm_front(wheel: Wheel, front: Module) -> list[tuple[list[str], dict[str, Any]]]:
    """The fields of the server's front end, after what its class changes in them."""
    kwargs = vllm_kwargs(wheel, front, "FrontendArgs")
    for home, node in wheel.classes(front, "FrontendArgs"):
        lines = Lines(wheel, home, lambda _: kwargs)
        lines.known["frontend_kwargs"] = kwargs
        for changing in ("_customize_cli_kwargs", "add_cli_args"):
            lines.run(method(ast.Module([node], []), node.name, changing))
    return [(["--" + name.replace("_", "-")], made) for name, made in kwargs.items()]


def vllm_kwargs(wheel: Wheel, home: Module, name: str) -> dict[str, Any]:
    """What vLLM's own `get_kwargs` makes of the fields of a class."""
    found: dict[str, Any] = {}
    for module, node in wheel.classes(home, name):
        for annotated, below in documented(node.body):
            if isinstance(annotated.target, ast.Name):
                found[annotated.target.id] = {
                    "help": below,
                    **vllm_hint(wheel, Hints(wheel).of(module, annotated.annotation)),
                }
    return found


def vllm_hint(wheel: Wheel, hints: list[Hint]) -> dict[str, Any]:
    """The number of values and the choices that an annotation stands for."""
    made = vllm_values(wheel, {hint.kind for hint in hints}, hints)
    if "choices" in made and any(hint.kind == "None" for hint in hints):
        made["choices"].append(None)
    return made


def vllm_values(wheel: Wheel, kinds: set[str], hints: list[Hint]) -> dict[str, Any]:
    """The same, but for None among the choices."""
    if "dataclass" in kinds:
        return {}
    if kinds == {"bool", "str", "None"}:
        return {"nargs": "?"}
    if "bool" in kinds:
        return {"action": "BooleanOptionalAction"}
    if "Literal" in kinds:
        values = next(hint.values for hint in hints if hint.kind == "Literal")
        return {} if "str" in kinds else {"choices": list(values)}
    for kind in ("tuple", "list", "set"):
        if kind in kinds:
            items = next(hint.values for hint in hints if hint.kind == kind)
            return vllm_sequence(wheel, kind, items)
    return {}


def vllm_sequence(wheel: Wheel, kind: str, items: tuple[tuple[Module, ast.AST], ...]) -> dict[str, Any]:
    """The same of a sequence."""
    open_ended = kind != "tuple" or any(isinstance(i, ast.Constant) and i.value is ... for _, i in items)
    made: dict[str, Any] = {"nargs": "+" if open_ended else len(items)}
    if items and (inner := Hints(wheel).of(*items[0]))[0].kind == "Literal" and len(inner) == 1:
        made["choices"] = list(inner[0].values)
    return made


# --- both ---------------------------------------------------------------------------------------------


def method(tree: ast.Module, owner: str, name: str) -> list[ast.stmt]:
    """The body of a method, nothing where there is none."""
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == owner]
    return next((function(ast.Module(node.body, []), name) for node in classes), [])


def function(tree: ast.Module, name: str) -> list[ast.stmt]:
    """The body of a function, nothing where there is none."""
    return next((n.body for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == name), [])


def environment(wheel: Wheel) -> list[str]:
    """The stack's own environment names in its sources, sorted.

    A name counts where it is a whole string, or where a class binds it to a call (`NAME = EnvBool(…)`);
    the keys of a table of retired names do not. In a name put together when the program runs, `*` stands
    for the part that the sources do not tell.
    """
    prefixes = PREFIXES[wheel.stack]
    own = re.compile(rf"({'|'.join(prefixes)})\**[A-Z0-9_][A-Z0-9_*]*")  # more than the prefix
    found: set[str] = set()
    for file in wheel.sources(f"{wheel.stack}/"):
        if not wheel.mentions(file, prefixes):
            continue
        tree = wheel.parse(file)
        retired = {id(key) for table in ast.walk(tree) for key in retired_keys(table)}
        found.update(name for node in ast.walk(tree) if id(node) not in retired for name in names_in(node))
    return sorted(name for name in found if own.fullmatch(name))


def names_in(node: ast.AST) -> Iterator[str]:
    """What may be an environment name in one node."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "*" for part in node.values)
    elif isinstance(node, ast.ClassDef):
        for bound in node.body:
            if isinstance(bound, ast.Assign) and isinstance(bound.value, ast.Call):
                yield from (target.id for target in bound.targets if isinstance(target, ast.Name))


def retired_keys(node: ast.AST) -> Iterable[ast.expr | None]:
    """The keys of a dictionary that is bound to a name with DEPRECATED in it."""
    if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Dict):
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        if isinstance(target, ast.Name) and "DEPRECATED" in target.id.upper():
            return node.value.keys
    return ()


def collected(wheel: Wheel) -> dict[str, Any]:
    """All that the data says of a release."""
    added = {"sglang": sglang, "vllm": vllm}[wheel.stack](wheel)
    made = [OWN_HELP, *(found for names, kwargs in added if (found := option(names, kwargs)))]
    if wheel.stack == "vllm":
        made = [{**found, "names": vllm_spelling(wheel, found["names"])} for found in made]
    merged = {found["names"][0]: found for found in made}
    return {
        "stack": wheel.stack,
        "version": wheel.version,
        "flexible": wheel.stack == "vllm",
        "positionals": any(not names[0].startswith("-") for names, _ in added),
        "options": [merged[name] for name in sorted(merged)],
        "environment": environment(wheel),
    }


def written(data: dict[str, Any]) -> str:
    """The data as JSON, an option or a name on each line."""
    head = {key: value for key, value in data.items() if key not in {"options", "environment"}}
    lists = [
        f'"{key}": [\n' + ",\n".join(json.dumps(item) for item in data[key]) + "\n]"
        for key in ("options", "environment")
    ]
    return "{\n" + ",\n".join([*(f'"{k}": {json.dumps(v)}' for k, v in head.items()), *lists]) + "\n}\n"


def main(arguments: list[str]) -> None:
    """Write a file for each release named."""
    if not arguments:
        raise SystemExit(__doc__)
    for argument in arguments:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(argument)
            if path.suffix != ".whl":
                pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", folder, argument]
                subprocess.run(pip, check=True)
                (path,) = Path(folder).glob("*.whl")
            data = collected(Wheel(path))
        file = Path(__file__).parent / f"{data['stack']}-{data['version']}.json"
        file.write_text(written(data), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])

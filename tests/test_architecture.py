"""The layers of the package: a module imports from its own package and from lower layers only, and no imports form a cycle."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path

import mia_audit
from mia_audit.config import expand, specs
from mia_audit.planning import requests

ROOT = Path(mia_audit.__file__).parent

LAYERS = (
    ("cli", "api", "__main__"),
    ("commands",),
    ("papers",),
    ("releasing",),  # it puts a config's setting, a learner and a ledger together, and nothing below knows of releases
    ("planning",),
    ("config",),
    ("report",),
    ("canaries",),
    ("evaluation",),
    ("attacks",),
    ("signals",),
    ("explanation_metrics",),
    ("learners",),
    ("training",),
    ("explain",),
    ("privacy",),
    ("models",),
    ("pools",),
    ("runtime",),
    ("storage",),
    ("sections",),
    ("registry",),
    ("arrays",),
    ("errors", "foreign_json", "host_memory", "regular_files", "sanitise", "seeds"),
)
"""Packages and modules of the root, from the top; those of one layer may import each other."""

LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in sorted(ROOT.rglob("*.py"))}


def imports_of(source: str) -> Iterator[str]:
    """Yield the package's modules that a source imports, wherever the import stands; functions and types alike."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            named = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            named = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            raise AssertionError(f"line {node.lineno}: a relative import; write mia_audit.…")
        else:
            continue
        for name in named:
            package, _, module = name.partition(".")
            if package == "mia_audit":
                yield module if module in MODULES else module.rpartition(".")[0]


@cache
def graph() -> dict[str, set[str]]:
    """Return what every module of the package imports."""
    return {
        module: {target for target in imports_of(path.read_text(encoding="utf-8")) if target}
        for module, path in MODULES.items()
        if module
    }


def room(module: str) -> str:
    return module.partition(".")[0]


def upward(imports: dict[str, set[str]]) -> set[tuple[str, str]]:
    """Return the imports of a higher layer."""
    pairs = {(module, target) for module, targets in imports.items() for target in targets}
    return {(module, target) for module, target in pairs if LEVEL[room(target)] < LEVEL[room(module)]}


def cycles(imports: dict[str, set[str]]) -> set[frozenset[str]]:
    """Return one cycle after the other, each taken apart when it is found."""
    left = {module: set(targets) - {module} for module, targets in imports.items()}
    loops: set[frozenset[str]] = set()
    while True:
        try:
            TopologicalSorter(left).prepare()
        except CycleError as error:
            path = error.args[1]  # each module is imported by the next
            loops.add(frozenset(path))
            for target, module in pairwise(path):
                left[module].discard(target)
        else:
            return loops


def test_every_room_has_its_layer() -> None:
    assert {room(module) for module in graph()} <= set(LEVEL)


def test_no_module_imports_from_a_higher_layer() -> None:
    assert upward(graph()) == set()


def test_no_modules_import_each_other_in_a_cycle() -> None:
    assert cycles(graph()) == set()


def test_the_rules_use_what_the_modules_have() -> None:
    """A name in a rule's function is looked up when its jobs are planned, and no type checker reads rules."""
    modules = {"audits": expand, "specs": specs, "requests": requests}
    used = {
        (path.name, module, name)
        for path in sorted((ROOT / "workflow").rglob("*"))
        if path.suffix == ".smk" or path.name == "Snakefile"
        for module, name in re.findall(r"\b(audits|specs|requests)\.(?!py\b)(\w+)", path.read_text(encoding="utf-8"))
    }
    assert used
    assert {one for one in used if not hasattr(modules[one[1]], one[2])} == set()


def test_a_word_names_one_class() -> None:
    """But for the three that users write in a config and meet in Python: the same thing, in its two forms."""
    named = [
        node.name
        for path in MODULES.values()
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef)
    ]
    assert {name for name, count in Counter(named).items() if count > 1} == {"Audit", "Compute", "Mechanism"}


MOST = 5
"""Largest number of positional arguments in a call of the project's own functions and classes."""


def test_long_calls_name_their_arguments() -> None:
    trees = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in MODULES.items()}
    nodes = [(name, node) for name, tree in trees.items() for node in ast.walk(tree)]
    own = {node.name for _, node in nodes if isinstance(node, ast.ClassDef)}
    functions = [node for _, node in nodes if isinstance(node, ast.FunctionDef)]
    own |= {node.name for node in functions} - {node.name for node in functions if node.args.vararg}
    long = [
        f"{name}:{node.lineno}: {ast.unparse(node.func)}"
        for name, node in nodes
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in own
        if len(node.args) > MOST
    ]
    assert not long


def test_imports_are_seen_wherever_they_stand() -> None:
    source = """
from typing import TYPE_CHECKING
from mia_audit.errors import UserError
if TYPE_CHECKING:
    from mia_audit import registry
def later():
    import mia_audit.pools.store
"""
    assert set(imports_of(source)) == {"errors", "registry", "pools.store"}
    assert upward({"storage.atomic": {"errors", "pools.store"}}) == {("storage.atomic", "pools.store")}
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == {frozenset("abc")}

"""A registry: the members of one kind (pool, architecture, mechanism, explainer, attack), one file each."""

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Generic, TypeVar

from mia_audit.errors import UserError, suggest

Member = TypeVar("Member")


class Registry(Generic[Member]):
    """Members of `kind`, found by name in `package`.

    A member lives in the file that carries its name (`gradient_shap.py` holds `gradient_shap`, `dp_sgd.py` holds
    `dp-sgd`) and registers itself there under that name. So the names are known without importing anything heavy, and
    looking one member up imports that member alone. `separator` stands in names where the file's name has an underscore.
    An `eager` registry imports all its files to know its names, so that one file may register several: for members that
    are cheap to import.
    """

    def __init__(self, kind: str, package: str, separator: str, eager: bool = False) -> None:
        self.kind = kind
        self.package = package
        self.separator = separator
        self.eager = eager
        self._members: dict[str, Member] = {}

    @cached_property
    def _files(self) -> dict[str, str]:
        path = importlib.import_module(self.package).__path__
        stems = [module.name for module in pkgutil.iter_modules(path) if not module.name.startswith("_")]
        if not self.eager:
            return {stem.replace("_", self.separator): stem for stem in stems}
        for stem in stems:
            importlib.import_module(f"{self.package}.{stem}")
        return dict.fromkeys(self._members, "")

    def register(self, name: str) -> Callable[[Member], Member]:
        """Register the decorated function or class under the name that configs use."""

        def decorate(member: Member) -> Member:
            if name in self._members:
                raise ValueError(f"{self.kind} '{name}' is registered twice")
            self._members[name] = member
            return member

        return decorate

    def names(self) -> list[str]:
        """List the known names, without importing any member."""
        return sorted(self)

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __contains__(self, name: object) -> bool:
        return name in self._files

    def __getitem__(self, name: str) -> Member:
        """Return the member of that name, importing its file; an unknown name is a UserError that lists the known ones."""
        if name not in self:
            raise UserError(f"unknown {self.kind} '{name}': {suggest(name, self)}")
        if name not in self._members:
            importlib.import_module(f"{self.package}.{self._files[name]}")
        return self._members[name]

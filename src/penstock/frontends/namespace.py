"""Components as Python code names them: `ps.sources.Files(path="in")`."""

from __future__ import annotations

import keyword
from typing import Any

from penstock.components.base import Component, ComponentKind
from penstock.components.registry import components
from penstock.errors import did_you_mean
from penstock.frontends.caller import calling_place
from penstock.frontends.configs import aliases, read_config
from penstock.frontends.findings import Findings
from penstock.spec.fields import Config
from penstock.spec.location import Places


def argument_name(cls: type[Config], field_name: str) -> str:
    """How Python code names a field: by its key in files where that differs in more than spelling."""
    key = cls.model_fields[field_name].alias or field_name
    generated = cls.model_config["alias_generator"]
    same_word = callable(generated) and key == generated(field_name)
    return field_name if same_word or keyword.iskeyword(key) else key


def build_config(cls: type[Config], arguments: dict[str, Any]) -> Config:
    """A configuration from the arguments of a call; raises with the place of the call what is wrong with them."""
    place = calling_place()
    places = Places(place.file, values={(): place})
    findings = Findings(places)
    keys = {argument_name(cls, name): key for key, name in aliases(cls).items()}
    where = f"{cls.__name__}(...)"
    for name in arguments.keys() - keys.keys():
        suggestion = did_you_mean(name, keys)
        findings.add("SPEC_UNKNOWN_KEY", place, key=name, where=where, suggestion=suggestion)
    content = {keys[name]: value for name, value in arguments.items() if name in keys}
    config = read_config(cls, content, (), findings)
    findings.raise_if_any()
    assert config is not None
    return config


class ComponentMaker:
    """Stands for a component class: called like it, but errors carry a code and the place of the call."""

    def __init__(self, cls: type[Component]) -> None:
        self.cls = cls
        self.__doc__ = cls.__doc__
        self.__name__ = cls.__name__

    def __call__(self, **arguments: Any) -> Config:
        return build_config(self.cls, arguments)

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, self.cls)

    def __repr__(self) -> str:
        return f"<{self.cls.kind} {self.cls.__name__}>"


class Namespace:
    """All components of a kind by class name."""

    def __init__(self, kind: ComponentKind) -> None:
        self._kind = kind

    def _by_class_name(self) -> dict[str, type[Component]]:
        return {cls.__name__: cls for cls in components(self._kind).values()}

    def __getattr__(self, name: str) -> ComponentMaker:
        found = None if name.startswith("_") else self._by_class_name().get(name)
        if found is None:
            hint = did_you_mean(name, self._by_class_name()) if not name.startswith("_") else ""
            raise AttributeError(f"there is no {self._kind} {name}. {hint}")
        return ComponentMaker(found)

    def __dir__(self) -> list[str]:
        return sorted(self._by_class_name())

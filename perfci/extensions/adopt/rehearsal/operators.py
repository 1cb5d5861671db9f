"""An operator as torch knows it: its schema, and calls of it from OpInfo, by which torch tests itself."""

import contextlib
import functools
import inspect
import itertools
import keyword
import math
import pkgutil
import re
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch

from perfci.extensions.adopt.rehearsal.dry_torch import Argument

LEFT_OUT = frozenset({"dtype", "layout", "device", "pin_memory", "memory_format", "generator", "requires_grad"})
"""Arguments that no case varies: the defaults of most calls."""

OF_MAKERS = ("dtype", "device")
"""What an operator that takes no tensor is told of the one that it makes."""

_GENERIC: Mapping[str, Any] = {"int": 1, "SymInt": 1, "float": 0.5, "bool": False}
_REDUCTIONS: Mapping[str, int] = {"none": 0, "mean": 1, "sum": 2}
_MOST_SAMPLES = 32
_MOST_OPERATORS = 8  # that are tried
_SPELLINGS = ("{}", "native_{}", "_{}", "linalg_{}", "special_{}")


class _Word(str):
    """A name, as its own text."""

    __slots__ = ()
    __repr__ = str.__str__


@dataclass(frozen=True)
class Operator:
    """One overload of an operator of torch."""

    path: str  # torch.ops.aten.relu_.default
    arguments: Sequence[Any]  # of its schema, without those that are left out
    info: Any = None  # its OpInfo
    others: Sequence[Any] = ()  # of the same name, such as that of div with a rounding mode

    @property
    def mutates(self) -> tuple[str, ...]:
        """The arguments that it writes into."""
        return tuple(
            argument.name for argument in self.arguments if argument.alias_info and argument.alias_info.is_write
        )

    @property
    def signature(self) -> inspect.Signature:
        """Its arguments as those of a function."""
        plain, named = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
        empty = inspect.Parameter.empty
        kinds = [(named if argument.kwarg_only else plain, argument) for argument in self.arguments]
        defaults = [argument.default_value if argument.has_default_value() else empty for argument in self.arguments]
        pairs = zip(kinds, defaults, strict=True)
        return inspect.Signature(
            [inspect.Parameter(parameter.name, kind, default=value) for (kind, parameter), value in pairs]
        )

    @property
    def makes(self) -> bool:
        """Whether it takes no tensor, but makes one, as torch.full does."""
        return self.arguments[-1].name == OF_MAKERS[-1]

    @property
    def pointwise(self) -> bool:
        """Whether each element of the result depends on one of each tensor alone."""
        return type(self.info).__name__ in {"UnaryUfuncInfo", "BinaryUfuncInfo"}

    @property
    def domain(self) -> tuple[float | None, float | None]:
        """The least and the largest number that it is defined on."""
        domain: tuple[float | None, float | None] = getattr(self.info, "domain", None) or (None, None)
        return domain

    def list_calls(self, dtype: str = "float32") -> list[dict[str, Any]]:
        """Arguments by name of OpInfo's samples in a dtype, tensors as `Argument`. Made up calls if none is named.

        Those with tensors of one shape come first, then those with the most usual numbers of axes, one element last.
        """
        names = [argument.name for argument in self.arguments]
        samples: dict[str, tuple[list[tuple[int, ...]], dict[str, Any]]] = {}
        for values, options in self._list_samples(getattr(torch, dtype)) if dtype else self._make_up():
            given = dict(zip(names, values, strict=False)) | options
            given |= {"reduction": _REDUCTIONS.get(str(given.get("reduction")), 1)} if self._reduces else {}
            if self._totals and not given["reduction"]:
                continue
            if len(values) > len(names) - self.makes * len(OF_MAKERS) or not given.keys() <= {*names}:
                continue
            given = {argument.name: given.get(argument.name, argument.default_value) for argument in self.arguments}
            like = next((value for value in given.values() if torch.is_tensor(value)), None)
            given |= {argument.name: like for argument in self.arguments if argument.is_out}
            described = {name: self._describe(value) for name, value in given.items()}
            described |= self._describe_sizes(given) if self.makes else {}
            tensors = [one for value in described.values() for one in (value if isinstance(value, list) else [value])]
            shapes = [value.shape for value in tensors if isinstance(value, Argument)]
            if shapes and all(shape and min(shape) > 0 for shape in shapes):
                plain = {name: value for name, value in described.items() if not isinstance(value, Argument)}
                samples.setdefault(repr((shapes, plain)), (shapes, described))
        ranks = [[len(shape) for shape in shapes] for shapes, _ in samples.values()]
        order = sorted(
            samples.values(),
            key=lambda sample: (
                (sample[1]["reduction"] != 1, -len(sample[0])) if self._reduces else (False, 0),
                max(map(math.prod, sample[0])) < 2,
                len({*sample[0]}) > 1,
                -ranks.count([len(shape) for shape in sample[0]]),
            ),
        )
        return [given for _, given in order]

    def _list_samples(self, dtype: torch.dtype) -> Iterator[tuple[list[Any], dict[str, Any]]]:
        for info in filter(None, (self.info, *self.others)):
            samples = info.sample_inputs("cpu", dtype) if info.supports_dtype(dtype, "cpu") else ()
            for sample in itertools.islice(samples, _MOST_SAMPLES * (4 if self._reduces else 1)):
                options = {name: value for name, value in sample.kwargs.items() if name not in LEFT_OUT}
                if options or (info is self.info and not sample.kwargs) or self.makes:
                    yield [sample.input, *sample.args], options

    @property
    def _totals(self) -> bool:
        """Whether it gives a total beside its losses, which is undefined without a reduction."""
        return self._reduces and len(pkgutil.resolve_name(self.path)._schema.returns) > 1

    @property
    def _reduces(self) -> bool:
        """Whether a number says how it reduces, where torch.nn.functional takes a word."""
        return any(one.name == "reduction" and str(one.type) == "int" for one in self.arguments)

    def _make_up(self) -> Iterator[tuple[list[Any], dict[str, Any]]]:
        takes = [argument for argument in self.arguments if not argument.is_out]
        needed = [argument for argument in takes if not argument.has_default_value()]
        shapes = (5, 5), (2, 5, 5), (2, 3, 5, 5), (2, 2, 3, 5, 5), (5,)
        for parameters, shape in itertools.product((needed, takes), shapes):
            # A list of as many numbers as its type says, such as a padding, or else a shape. Bounds that rise.
            by_type = {"Tensor": torch.zeros(shape, device="meta"), "List[int]": [*shape], **_GENERIC}
            places = torch.arange(shape[0])
            by_type |= {"List[Optional[Tensor]]": [places], "target": places}
            values: list[Any] = [
                [1] * one.N
                if one.N
                else 0.25 * number
                if "number" in str(one.type)
                else by_type.get(one.name, by_type.get(str(one.type)))
                for number, one in enumerate(parameters, start=1)
            ]
            # Without memory, in which some operators end the process. Not all can do that.
            with contextlib.suppress(Exception):  # an operator that refuses them
                with contextlib.suppress(NotImplementedError):
                    pkgutil.resolve_name(self.path)(
                        *(one.to("meta") if torch.is_tensor(one) else one for one in values)
                    )
                yield values, {}

    def _describe_sizes(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of an operator that makes a tensor: what gives its sizes as that tensor, as cases vary them."""
        sizes = [argument for argument in self.arguments if "int" in str(argument.type).lower()]
        numbers = [argument for argument in self.arguments if not argument.has_default_value()]
        described = dict[str, Any]()
        for name in (argument.name for argument in [one for one in sizes if not one.kwarg_only] or numbers[:1]):
            value = given[name]
            several = isinstance(value, list | tuple)
            shape = tuple(value) if several else (int(value or 0),)
            described[name] = Argument(shape, "float32", "{shape}" if several else "{shape}[0]")
        return described | {name: _Word(name) for name in OF_MAKERS}

    def _describe(self, value: Any) -> Any:
        """A tensor as an `Argument`, with what makes it if it has to lie in the operator's domain."""
        if isinstance(value, list | tuple) and any(map(torch.is_tensor, value)):
            return [*map(self._describe, value)]
        if not torch.is_tensor(value):
            return round(value, 2) if isinstance(value, float) else value
        low, high = self.domain
        text = None
        if value.dtype.is_floating_point and (low is not None or high is not None):
            first = 0.0 if low is None else float(low)
            width = float(high) - first if high is not None else 8.0
            text = (
                "torch.rand({shape}, generator=generator, dtype={dtype}, device=device)" + f" * {width:g} + {first:g}"
            )
            text = re.sub(r" \+ -(.*)", r" - \1", text.removesuffix(" + 0"))
        whole = not (value.dtype.is_floating_point or value.dtype.is_complex or value.dtype == torch.bool)
        bounds = (int(value.min()), int(value.max()) + 1) if whole and value.numel() else None
        return Argument(tuple(value.shape), str(value.dtype).removeprefix("torch."), text, bounds=bounds)


def find_operators(*names: str) -> list[Operator]:
    """Returns torch's operators of names such as relu_, xlogy_Tensor and sigmoid_out, the likeliest first.

    Those of a spelling by which torch has them, such as native_layer_norm, come behind.
    """
    plain = [spelling.format(name.strip("_")) for spelling in _SPELLINGS for name in names]
    listed = [_list_overloads(name) for name in dict.fromkeys([*names, *plain])]
    firsts, others = [one[0] for one in listed if one], [operator for one in listed for operator in one[1:]]
    return [*firsts, *others][:_MOST_OPERATORS]


def _list_overloads(name: str) -> list[Operator]:
    """The overloads of an operator that take tensors, that of the name or the most usual one first."""
    plain, overload = name, ""
    if not hasattr(torch.ops.aten, name) and (
        match := re.fullmatch(r"(\w+?)_(out|dim|[A-Z]\w*|tensor\w*|scalar\w*)", name) or _find_overload(name)
    ):
        plain, overload = match[1], match[2]
    packet = getattr(torch.ops.aten, plain, None)
    overloads = packet.overloads() if packet is not None and hasattr(packet, "overloads") else []
    names = {overload.lower(), f"{overload}_intlist", f"tensor_{overload}"}
    alike = (one for one in overloads if one.lower() in names)
    overload = next(alike, overload)
    takes = dict[str, list[Any]]()
    for one in (overload, "default", "Tensor", "self", "dim", *overloads):
        arguments = getattr(packet, one)._schema.arguments if one in overloads else []
        takes_tensors = any("Tensor" in str(take.type) for take in arguments)
        kept = LEFT_OUT if takes_tensors else LEFT_OUT.difference(OF_MAKERS)
        arguments = [*itertools.takewhile(_is_named, (take for take in arguments if take.name not in kept))]
        makes = [take.name for take in arguments[-2:]] == [*OF_MAKERS]
        if takes_tensors or makes:  # some, such as add, have a default for numbers alone
            takes.setdefault(one, arguments)
    infos = _find_infos(plain) if takes else [None]
    # One that takes a number in the place of a tensor is another overload: torch chooses by what it is given.
    several = not overload and "default" not in list(takes)[:1] and len(overloads) > 1
    paths = [f"torch.ops.aten.{plain}" + f".{one}" * bool(number or not several) for number, one in enumerate(takes)]
    return [Operator(path, one, infos[0], infos[1:]) for path, one in zip(paths, takes.values(), strict=True)]


def _find_overload(name: str) -> re.Match[str] | None:
    """The operator and overload of a name such as eye_m."""
    cuts = [re.fullmatch(rf"(\w{{{place.start()}}})_(\w+)", name) for place in re.finditer("(?<=\\w)_(?=\\w)", name)]
    packets = [(cut, getattr(torch.ops.aten, cut[1], None)) for cut in cuts if cut]
    listed = [(cut, {*one.overloads()}) for cut, one in packets if one is not None]
    return next((cut for cut, names in listed if names & {cut[2], f"Tensor_{cut[2]}"}), None)


def _is_named(argument: Any) -> bool:
    """Whether Python takes an argument's name: not `from` of uniform."""
    return not keyword.iskeyword(argument.name)


def find_reference(name: str) -> str | None:
    """Returns the path of a function of torch.nn.functional with this name, underscores aside: rmsnorm, rms_norm."""
    wanted = name.replace("_", "").lower()
    named = (
        function_name for function_name in dir(torch.nn.functional) if function_name.replace("_", "").lower() == wanted
    )
    return next((f"torch.nn.functional.{name}" for name in named if not name.startswith("_")), None)


@functools.cache
def _import_infos() -> Sequence[Any]:
    """Torch's OpInfos, without what its tests import and samples do without: its compiler alone takes a second."""
    tests = {"expecttest": mock.MagicMock(TestCase=object)}
    compiler = types.SimpleNamespace(GPU_TYPES=["cuda", "mps", "xpu", "mtia"])
    try:
        return _import_beside({**tests, "scipy": None, "torch._inductor.utils": compiler})
    except ImportError:  # of a torch whose tests take more of its compiler
        return _import_beside(tests)


def _import_beside(stand_ins: Mapping[str, Any]) -> Sequence[Any]:
    """Import the OpInfos beside stand-ins for modules that are not there yet."""
    missing = {name: stand_in for name, stand_in in stand_ins.items() if name not in sys.modules}
    sys.modules.update(missing)
    try:
        from torch.testing._internal import common_utils
        from torch.testing._internal.common_methods_invocations import op_db
    finally:
        for name in missing:
            del sys.modules[name]
    common_utils.set_rng_seed = lambda *_: None  # it imports the compiler too
    return op_db


def _find_infos(name: str) -> list[Any]:
    """The OpInfos of an operator, by its name or an alias. [None] if there is none."""
    try:
        op_db = _import_infos()
    except Exception:  # a part of torch that no one promises
        return [None]
    wanted = name.strip("_").removesuffix("_forward")
    named = [(info, {info.name, info.aten_name, *(alias.name for alias in info.aliases)}) for info in op_db]
    exact = [info for info, names in named if wanted in names]  # before that of torch.sparse.mm
    near = [info for info, names in named if wanted in {spelling.split(".")[-1].strip("_") for spelling in names}]
    first = (exact or near or [None])[0]
    return [first, *(info for info in exact or near if info is not first and info.name == first.name)]

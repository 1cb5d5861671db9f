"""Records what a call does on a device, and repeats it in a process that runs none of the op's Python.

A launch is repeated by Triton from its binary, an operation of torch by its name on the same arguments, and what only
the driver sees by the extension that heard it.
"""

import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import triton
from torch.multiprocessing.reductions import StorageWeakRef
from triton.compiler import CompiledKernel

from perfci.core import extensions
from perfci.core.model import Reason
from perfci.device.arrays import Inputs, leaves
from perfci.device.launches import Launched
from perfci.device.source import digest, stable
from perfci.device.tensors import TorchArrays
from perfci.device.tritons import release
from perfci.ops.recording import DRIVER, RecordedBinary, RecordedStep, Recording, UnspelledError, spell, unspell

NAMESPACES = ("aten", "prims")  # of operations that are repeated
REFUSED = frozenset({"from_file", "_local_scalar_dense", "record_stream"})
"""Operations that reach beyond the device: a file, a value that Python reads, another stream."""

GIVEN = frozenset({"Tensor", "List[Tensor]", "Optional[Tensor]"})
"""Types of what such an operation gives."""

_DESCRIPTOR = ("base", "shape", "strides", "block_shape", "padding", "round_f32_to_tf32")  # of a tensor, for TMA


LAUNCHING = b"__cuda_syscall_cnp"
"""Beginning of the names by which a binary launches others. The device's records do not count what those take."""

_METADATA = {
    "num_ctas": 1, "cluster_dims": [1, 1, 1], "global_scratch_size": 0, "global_scratch_align": 1,
    "profile_scratch_size": 0, "profile_scratch_align": 1, "launch_cooperative_grid": False, "launch_pdl": False,
}  # fmt: skip
"""Metadata that Triton's launcher needs, of a binary by a release without it."""


class UnreplayableError(ValueError):
    """A call that cannot be repeated from what it did. The reason names the obstacle."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.reason = Reason("not_replayable", {"what": what})


class Storages:
    """Numbers storages in the order in which they are seen. None is given twice, though memory is."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[int, StorageWeakRef]] = {}

    def of(self, storage: torch.UntypedStorage) -> int:
        key = storage._cdata
        if key not in self._seen:
            # The weak reference keeps the storage's address from being given to another.
            self._seen[key] = len(self._seen), StorageWeakRef(storage)
        return self._seen[key][0]


class Tape:
    """Takes down one call while it runs. What it cannot take down is kept as the reason why there is no recording."""

    def __init__(self, inputs: Inputs, arrays: TorchArrays) -> None:
        self._arrays = arrays
        self._storages = Storages()
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._steps: list[RecordedStep] = []
        self._binaries: dict[RecordedBinary, int] = {}  # and their numbers
        self._memory: list[tuple[StorageWeakRef, int, int, int, int]] = []
        """storage, its address and size, number and address of a tensor in it"""
        self.refusal: Reason | None = None
        for value in leaves(inputs):
            if isinstance(value, torch.Tensor):
                self._attempt(functools.partial(self._number, value, new=True))
        self._inputs = tuple(self._attempt(functools.partial(self._encode, array)) for array in inputs.values())

    def take_operation(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
        """Take down one operation of torch and its result."""

        def take() -> None:
            name = str(function)
            namespace, plain, *_ = name.split(".")
            if namespace not in NAMESPACES or plain in REFUSED:
                raise UnreplayableError(name)
            given = tuple(map(self._encode, args))
            named = {key: self._encode(value) for key, value in kwargs.items()}
            if any(not isinstance(leave, torch.Tensor | None) for leave in leaves(result)):
                raise UnreplayableError(f"{name}, whose result Python reads")
            for leave in leaves(result):
                if leave is not None:
                    self._number(leave, new=True)
            self._steps.append(RecordedStep(name, given=given, named=named, gives=self._encode(result)))

        self._attempt(take)

    def take_launch(self, launch: Launched) -> None:
        """Take down one launch."""

        def take() -> None:
            if launch.work is not None:
                step, binary = launch.work.take(self)
                number = self._number_binary(binary) if binary else -1
                self._steps.append(replace(step, binary=number))
                return
            binary = _describe_binary(launch)
            number = self._number_binary(binary)
            types = dict(binary.signature)
            given = tuple(self._encode(value, types.get(name)) for name, value in launch.arguments.items())
            self._steps.append(RecordedStep(binary=number, grid=launch.grid, given=given))

        self._attempt(take)

    def locate(self, address: int) -> tuple[int, int] | None:
        """The number of a tensor in whose memory an address lies, and the bytes from its first element on."""
        for held, start, size, number, first in reversed(self._memory):
            if start <= address < start + size and not held.expired():
                return number, address - first
        return None

    def refuse(self, what: str) -> None:
        """Note what cannot be repeated. The first reason stands."""
        self.refusal = self.refusal or UnreplayableError(what).reason

    def finish(self, key: str, output: Any) -> Recording | None:
        """Returns the recording of the call, None if there is a `refusal`."""
        given = self._attempt(lambda: self._encode(output))
        if not self._steps:
            self.refuse("a call that does nothing on the device")
        if self.refusal:
            return None
        return Recording(key, self._inputs, tuple(self._steps), given, tuple(self._binaries))

    def _number_binary(self, binary: RecordedBinary) -> int:
        return self._binaries.setdefault(binary, len(self._binaries))

    def _attempt(self, function: Callable[[], Any]) -> Any:
        try:
            return None if self.refusal else function()
        except UnreplayableError as error:
            self.refusal = error.reason

    def _number(self, tensor: torch.Tensor, *, new: bool = False) -> int:
        """The number of a tensor, known by its memory: torch treats tensors differently that are held elsewhere."""
        if tensor.device.type != self._arrays.device:
            raise UnreplayableError(f"a tensor on {tensor.device.type}")
        if type(tensor) not in {torch.Tensor, torch.nn.Parameter} or tensor.layout is not torch.strided:
            raise UnreplayableError(f"a {type(tensor).__name__} of layout {tensor.layout}")
        place = self._storages.of(tensor.untyped_storage()), tensor.storage_offset()
        key = (*place, tensor.dtype, tuple(tensor.shape), tensor.stride())
        if not new and key not in self._numbers:
            raise UnreplayableError("a tensor that was made before the call")
        if key not in self._numbers:
            storage = tensor.untyped_storage()
            facts = storage.data_ptr(), storage.nbytes(), len(self._numbers), tensor.data_ptr()
            self._memory.append((StorageWeakRef(storage), *facts))
        return self._numbers.setdefault(key, len(self._numbers))

    def _encode(self, value: Any, kind: Any = None) -> Any:
        """A value as a recording has it. kind: its type in a kernel's signature."""
        if kind == "constexpr":  # part of the binary
            return {"constant": stable(value)}
        if isinstance(kind, list | tuple):
            return {"tuple": [self._encode(item, of) for item, of in zip(value, kind, strict=True)]}
        try:
            return spell(value, self._spell)
        except UnspelledError as error:
            raise UnreplayableError(str(error)) from None

    def _spell(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return {"tensor": self._number(value)}
        if isinstance(value, torch.device) and value.type != self._arrays.device:
            raise UnreplayableError(f"work on {value.type}")
        if isinstance(getattr(value, "base", None), torch.Tensor) and hasattr(value, "block_shape"):
            parts = {name: getattr(value, name) for name in _DESCRIPTOR if hasattr(value, name)}
            return {"descriptor": {name: self._encode(part) for name, part in parts.items()}}
        return self._arrays.spell(value)


def _describe_binary(launch: Launched) -> RecordedBinary:
    kernel = launch.kernel
    image, signature = kernel.asm.get("cubin"), getattr(kernel.src, "signature", None)
    if not isinstance(image, bytes) or signature is None:
        raise UnreplayableError(f"the kernel {launch.name}, which has no cubin")
    metadata = {**kernel.metadata._asdict(), "target": vars(kernel.metadata.target)}
    return RecordedBinary(launch.name, image, json.dumps(metadata, default=str), tuple(signature.items()))


# --- repeating --------------------------------------------------------------------------------------------------------


def count_scratch(version: str) -> int:
    """How many pointers to scratch memory a release of Triton passes behind a kernel's parameters.

    >>> count_scratch("3.2.0"), count_scratch("3.4.0"), count_scratch("3.9.0")
    (0, 1, 2)
    """
    return (release(version) >= (3, 3)) + (release(version) >= (3, 5))


def refuse_release(recording: Recording, version: str) -> Reason | None:
    """Returns why this release of Triton cannot launch the binaries of another. None if it can.

    A kernel ignores pointers that it does not have. One that is not given those that it has reads anything.
    """
    described = {step.binary for step in recording.steps if '"descriptor"' in json.dumps([step.given, step.named])}
    launched = {step.binary for step in recording.steps if not step.operation}
    for at, binary in enumerate(recording.binaries):
        if at not in launched:  # by the driver
            continue
        metadata = json.loads(binary.metadata)
        made = str(metadata.get("triton_version", "3.2"))  # which notes none
        fits = count_scratch(made) <= count_scratch(version) and metadata.get("num_ctas", 1) == 1
        # Before 3.3 constants were no parameters of a launch. How a descriptor is passed depends on the release.
        fits &= min(release(made), release(version)) >= (3, 3) and at not in described
        if release(made) != release(version) and not fits:
            facts = {"kernel": binary.function, "made": made, "here": version}
            return Reason("not_replayable_release", facts)
    return None


class Program:
    """One recorded call, ready to be repeated."""

    def __init__(self, recording: Recording, folder: Path, arrays: TorchArrays) -> None:
        """`folder`: the binaries are written there."""
        if any(LAUNCHING in binary.image for binary in recording.binaries):
            raise UnreplayableError("a kernel that launches others")
        triton.set_allocator(_allocate)
        self._recording, self._arrays = recording, arrays
        launched = {step.binary for step in recording.steps if not step.operation}
        kernels = {number: _load_binary(recording.binaries[number], folder) for number in launched}
        steps = recording.steps
        # What a call has to look up is found once: else the host would take longer than many kernels.
        self._modules: dict[bytes, Any] = {}  # of the driver's, which launches share
        self._actions = [self._make_action(step, kernels) for step in steps]
        self._read_output = self._make_reader(recording.output)
        used = enumerate(_tensors((step.given, step.named, step.gives)) for step in steps)
        last = {number: at for at, numbers in used for number in numbers}
        kept = {*_tensors(recording.inputs), *_tensors(recording.output)}
        self._done: list[list[int]] = [[] for _ in steps]  # tensors that a step is the last to use
        for number, at in last.items():
            if number not in kept:
                self._done[at].append(number)

    def __call__(self, **inputs: Any) -> Any:
        """Repeat the call with these inputs."""
        table: dict[int, Any] = {}
        _bind(self._recording.inputs, tuple(inputs.values()), table)
        for act, done in zip(self._actions, self._done, strict=True):
            act(table)
            for number in done:
                table.pop(number, None)
        return self._read_output(table)

    def _make_action(self, step: RecordedStep, kernels: Mapping[int, Any]) -> Callable[[dict[int, Any]], None]:
        """Returns a function that does a step with the tensors of the table, and enters those that it makes."""
        if step.operation.startswith(DRIVER):
            driver = next(extensions.provided("driver"), None)
            if driver is None:
                raise UnreplayableError(step.operation)
            action: Callable[..., None] = driver.make_action(step, self._recording.binaries, self._modules)
            return action
        read_given = self._make_reader(list(step.given))
        if not step.operation:
            kernel, grid = kernels[step.binary], step.grid

            def launch(table: dict[int, Any]) -> None:
                kernel[grid](
                    *read_given(table)
                )  # looked up each time: anyone who watches launches replaces the look-up

            return launch
        operator, read_named, gives = _operator(step), self._make_reader({"mapping": step.named}), step.gives

        def operate(table: dict[int, Any]) -> None:
            _bind(gives, operator(*read_given(table), **read_named(table)), table)

        return operate

    def _make_reader(self, spelled: Any) -> Callable[[Mapping[int, Any]], Any]:
        """Returns a function that gives a spelled value, with the tensors of the table."""
        if not any(True for _ in _tensors(spelled)):
            value = unspell(spelled, self._unspell)
            return lambda _: value
        if isinstance(spelled, list | tuple):
            readers = list(map(self._make_reader, spelled))
            return lambda table: [read(table) for read in readers]
        ((kind, inner),) = spelled.items()
        match kind:
            case "tensor":
                return lambda table: table[inner]
            case "tuple":
                read_all = self._make_reader(inner)
                return lambda table: tuple(read_all(table))
        named = {name: self._make_reader(spelled) for name, spelled in inner.items()}
        make = TensorDescriptor if kind == "descriptor" else dict
        return lambda table: make(**{name: read(table) for name, read in named.items()})

    def _unspell(self, spelled: Mapping[str, Any]) -> Any:
        ((kind, inner),) = spelled.items()
        match kind:
            case "constant":
                return Constant(inner)
            case "device" if inner != self._arrays.device:
                raise UnreplayableError(f"work on {inner}")
            case "descriptor":
                return TensorDescriptor(
                    **{name: unspell(inner_value, self._unspell) for name, inner_value in inner.items()}
                )
        return self._arrays.unspell(spelled)


def _operator(step: RecordedStep) -> Any:
    """Returns an operator that torch dispatches and that gives tensors alone. Names of a forgery lead anywhere else."""
    namespace, name, overload = step.operation.split(".")
    if namespace not in NAMESPACES or name in REFUSED:
        raise UnreplayableError(step.operation)
    operator = getattr(getattr(getattr(torch.ops, namespace), name, None), overload, None)
    if isinstance(operator, torch._ops.OpOverload) and torch._C._dispatch_has_kernel(operator.name()):
        returned = {str(part.type) for part in operator._schema.returns}
        if returned <= GIVEN:
            return operator
    raise UnreplayableError(step.operation)


def _load_binary(binary: RecordedBinary, folder: Path) -> Any:
    """Triton's kernel of a binary. It has no source but a name, and parameters by position."""
    stem = digest(binary.image + binary.metadata.encode())
    paths = {"kernel.json": folder / f"{stem}.json", "kernel.cubin": folder / f"{stem}.cubin"}
    paths["kernel.json"].write_text(json.dumps(_METADATA | json.loads(binary.metadata)))
    paths["kernel.cubin"].write_bytes(binary.image)
    signature = {name: _nested(kind) for name, kind in binary.signature}
    function = SimpleNamespace(fn=SimpleNamespace(__name__=binary.function), arg_names=list(signature))
    constants = {(at,): None for at, kind in enumerate(signature.values()) if kind == "constexpr"}
    source = SimpleNamespace(fn=function, signature=signature, constants=constants)
    return CompiledKernel(source, {name: str(path) for name, path in paths.items()}, stem)


def _nested(kind: Any) -> Any:
    return tuple(map(_nested, kind)) if isinstance(kind, list) else kind


def _allocate(size: int, _alignment: int, _stream: object) -> torch.Tensor:
    """Scratch memory that a launch asks for."""
    return torch.empty(size, dtype=torch.int8, device="cuda")


def _tensors(value: Any) -> Iterator[int]:
    """The numbers of all tensors in a value."""
    if isinstance(value, Mapping):
        if isinstance(number := value.get("tensor"), int):
            yield number
        for member in value.values():
            yield from _tensors(member)
    elif isinstance(value, list | tuple):
        for member in value:
            yield from _tensors(member)


def _bind(pattern: Any, value: Any, table: dict[int, Any]) -> None:
    """Enter a value's tensors under the numbers that a recording gives them."""
    if isinstance(pattern, Mapping):
        if "tensor" in pattern:
            table[pattern["tensor"]] = value
        elif "mapping" in pattern:
            for key, inner_pattern in pattern["mapping"].items():
                _bind(inner_pattern, value[key], table)
        elif "tuple" in pattern:
            _bind(pattern["tuple"], value, table)
    elif isinstance(pattern, list | tuple):
        for inner_pattern, part in zip(pattern, value, strict=True):
            _bind(inner_pattern, part, table)


class Constant:
    """A parameter with a value that is compiled into the binary. Only captures read it."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


class TensorDescriptor:
    """A view of a tensor by tiles, as Triton's launcher reads it."""

    def __init__(self, **parts: Any) -> None:
        vars(self).update(parts)

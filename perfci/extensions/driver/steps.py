"""Work that the driver was asked for as steps of a recording: taken down in the op's process, repeated in the judge's.

An address in a parameter becomes a tensor of the recording and a distance from its first element. It is found by its
value: any eight bytes that lie in the memory of one of the call's tensors. So those in structures, and in descriptors
of tensors, move with the rest. One that leads to other memory of the driver's is refused.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from ctypes import byref, c_size_t, c_uint64
from typing import Any

import torch

from perfci.device.launches import Launched, RawParameter, count_listeners, tell
from perfci.device.replay import Tape, UnreplayableError
from perfci.device.source import artefact, digest
from perfci.extensions.common.cubins import (
    ATTRIBUTES,
    DriverKernel,
    describe_choice,
    find_addresses,
    find_unread,
    list_attributes,
    list_variables,
)
from perfci.extensions.driver.callbacks import Driver, DriverFill, DriverLaunch, Unseen, Work, open_libraries
from perfci.extensions.driver.launching import LoadedKernel, fill
from perfci.ops.recording import RecordedBinary, RecordedStep

LAUNCH, FILL, VARIABLES = "driver.launch", "driver.fill", "driver.variables"  # operations of such steps
FILL_NAME = "a fill of memory"
_VARIABLES = DriverKernel("variables of a module", b"")
_MOST_BYTES = 1 << 16  # of variables that are taken along

_SMALLEST_ADDRESS = 1 << 32  # below it no memory of a device begins


class DriverSteps:
    """What this process gives the driver to do, beside torch's operations and Triton's launches."""

    def __init__(self) -> None:
        """Hear what is loaded from now on. Raises OSError if that cannot be heard."""
        self.any = False  # whether any launch was told of
        libraries = open_libraries()
        if libraries is None:
            raise OSError("there is no CUPTI")
        self._driver = Driver(*libraries)

    def close(self) -> None:
        """Hear nothing any more."""
        self._driver.close()

    @contextmanager
    def listen(self, covered: Callable[[], bool]) -> Iterator[None]:
        """Tell of the work inside as of Triton's launches. covered: whether it is part of what is told otherwise."""
        modules: dict[int, DriverKernel] = {}

        def heard(work: Work) -> None:
            if not covered():
                if isinstance(work, DriverLaunch):
                    modules[work.module], self.any = work.kernel, True
                tell(Launched(None, _name_kernel(work), _grid_of(work), {}, HeardWork(work, self._driver)))

        with self._driver.listen(heard):
            yield
        for module, kernel in modules.items():
            if variables := self._driver.read_variables(module, kernel.image):
                tell(Launched(None, _VARIABLES, (1, 1, 1), {}, HeardVariables(kernel, variables, self._driver)))

    @staticmethod
    def make_action(
        step: RecordedStep, binaries: Sequence[RecordedBinary], modules: dict[bytes, Any]
    ) -> Callable[[Mapping[int, Any]], None]:
        """Returns what repeats a step with a recording's tensors by number. Raises UnreplayableError.

        modules: of the recording's steps so far, by their image.
        """
        libraries = open_libraries()
        if libraries is None:
            raise UnreplayableError("work of the driver's, without its libraries")
        cuda, _ = libraries
        try:
            if step.operation == FILL:
                return _make_fill(step, cuda)
            if step.operation == VARIABLES:
                return _make_variables(step, binaries[step.binary].image, cuda, modules)
            return _make_launch(step, binaries[step.binary], cuda, modules)
        except (LookupError, TypeError, ValueError, struct.error) as error:  # the other process may be of any code
            raise UnreplayableError(f"a step of the driver's that is none: {error}"[:200]) from error


class HeardWork:
    """Work that was heard, to be taken down."""

    def __init__(self, work: Work, driver: Driver) -> None:
        self._work, self._driver = work, driver

    def take(self, tape: Tape) -> tuple[RecordedStep, RecordedBinary | None]:
        """The step, and the binary that it launches. Raises UnreplayableError."""
        work = self._work
        if isinstance(work, Unseen):
            raise UnreplayableError(work.what)
        if work.stream != torch.cuda.current_stream().cuda_stream:
            raise UnreplayableError("work on another stream")
        if isinstance(work, DriverFill):
            parameter = self._spell(struct.pack("<Q", work.address), tape)
            if not parameter["addresses"]:
                raise UnreplayableError("a fill of memory that is no tensor's")
            return RecordedStep(FILL, given=(parameter, work.width, work.value, work.count)), None
        named = {"block": list(work.block), "shared": work.shared, "attributes": work.attributes.hex()}
        given = tuple(self._spell(value, tape) for value in work.parameters)
        return RecordedStep(LAUNCH, grid=work.grid, given=given, named=named), _describe_binary(work.kernel)

    @property
    def parameters(self) -> str | None:
        """What it is given, zero in place of addresses, so that two calls can be compared. None if that is unknown."""
        work = self._work
        if isinstance(work, DriverLaunch):
            how = (work.block, work.shared, work.attributes.hex())
            return f"{how} {[find_addresses(value, self._find_memory)[0].hex() for value in work.parameters]}"
        return f"{work.width} {work.value} {work.count}" if isinstance(work, DriverFill) else None

    def _find_memory(self, address: int) -> int | None:
        """The address. None if that is no memory of the device."""
        return address if address >= _SMALLEST_ADDRESS and self._driver.is_memory(address) else None

    def _spell(self, value: bytes, tape: Tape) -> dict[str, Any]:
        """The bytes of a parameter, zero where it has an address, and the tensors that these lead to."""

        def locate(address: int) -> tuple[int, int] | None:
            if self._driver.is_object(address):
                raise UnreplayableError("a launch on a texture or surface")
            place = tape.locate(address) if address >= _SMALLEST_ADDRESS else None
            if place is None and self._find_memory(address):
                raise UnreplayableError("a launch on memory that is no tensor of the call")
            return place

        content, places = find_addresses(value, locate)
        addresses = [[offset, {"tensor": number}, shift] for offset, (number, shift) in places]
        return {"bytes": content.hex(), "addresses": addresses}


class HeardVariables:
    """What launches of a call left in the variables of their module, where the next call finds it."""

    parameters = None  # to compare two calls by

    def __init__(self, kernel: DriverKernel, variables: Mapping[str, bytes], driver: Driver) -> None:
        self._kernel, self._variables, self._driver = kernel, variables, driver

    def take(self, _tape: Tape) -> tuple[RecordedStep, RecordedBinary]:
        """The step, which is done once, and the binary. Raises UnreplayableError."""
        if (size := sum(map(len, self._variables.values()))) > _MOST_BYTES:
            raise UnreplayableError(f"a launch of {self._kernel.name}, as variables of its module keep {size} bytes")
        for content in self._variables.values():
            places = struct.unpack_from(f"<{len(content) // 8}Q", content)
            if any(place >= _SMALLEST_ADDRESS and self._driver.is_memory(place) for place in places):
                raise UnreplayableError(f"a launch of {self._kernel.name}, as variables of its module keep addresses")
        given = tuple([name, content.hex()] for name, content in self._variables.items())
        return RecordedStep(VARIABLES, given=given), _describe_binary(self._kernel)


def _describe_binary(kernel: DriverKernel) -> RecordedBinary:
    return RecordedBinary(kernel.name, kernel.image, json.dumps({"attributes": kernel.attributes}), ())


def _name_kernel(work: Work) -> DriverKernel:
    if isinstance(work, DriverLaunch):
        return work.kernel
    return DriverKernel(FILL_NAME if isinstance(work, DriverFill) else work.what, b"")


def _grid_of(work: Work) -> tuple[int, int, int]:
    return work.grid if isinstance(work, DriverLaunch) else (1, 1, 1)


# --- repeating --------------------------------------------------------------------------------------------------------


class _Parameter:
    """A parameter of a recording: its bytes, and the tensors that addresses in them lead to."""

    def __init__(self, spelled: Mapping[str, Any]) -> None:
        self.content = bytes.fromhex(spelled["bytes"])
        self.addresses = [(int(at), int(tensor["tensor"]), int(shift)) for at, tensor, shift in spelled["addresses"]]
        if any(not 0 <= at <= len(self.content) - 8 for at, _, _ in self.addresses):
            raise UnreplayableError("an address outside of its parameter")

    def show(self, table: Mapping[int, Any], unread: frozenset[int]) -> RawParameter:
        """What a launch is known by, without the bytes that no code reads."""
        content = bytes(0 if at in unread else byte for at, byte in enumerate(self.content))
        read = [part for part in self.addresses if unread.isdisjoint(range(part[0], part[0] + 8))]
        return RawParameter(content, tuple((at, table[number], shift) for at, number, shift in read))


def _make_launch(
    step: RecordedStep, binary: RecordedBinary, cuda: Any, modules: dict[bytes, Any]
) -> Callable[[Mapping[int, Any]], None]:
    named, facts = step.named, json.loads(binary.metadata)
    attributes = bytes.fromhex(named["attributes"])
    if list_attributes(attributes) - ATTRIBUTES:
        raise UnreplayableError("a launch with attributes that hold addresses")
    parameters = [_Parameter(spelled) for spelled in step.given]
    set_by_host = {int(attribute): int(value) for attribute, value in facts["attributes"].items()}
    warps = -(-math.prod(named["block"]) // 32)
    shown = DriverKernel(binary.function, binary.image, set_by_host, warps=warps, shared=int(named["shared"]))
    artefact(shown)  # which raises here what it would raise while a call is captured
    try:
        loaded = LoadedKernel(cuda, binary.function, binary.image, set_by_host, modules)
    except OSError as error:
        raise UnreplayableError(f"the kernel {binary.function}, which does not load: {error}") from None
    contents = [parameter.content for parameter in parameters]
    launch = loaded.prepare(step.grid, named["block"], int(named["shared"]), attributes, contents)
    slots = [
        (launch.slot(place, at), number, shift)
        for place, parameter in enumerate(parameters)
        for at, number, shift in parameter.addresses
    ]
    current_stream = torch.cuda.current_stream
    how = {"block of threads": named["block"], "dynamic shared memory": int(named["shared"])}
    how |= {"attributes": named["attributes"]} if attributes else {}
    how |= describe_choice(set_by_host)

    def repeat(table: Mapping[int, Any]) -> None:
        for slot, number, shift in slots:
            slot.value = table[number].data_ptr() + shift
        launch(current_stream().cuda_stream)
        if count_listeners():
            unread = dict(enumerate(find_unread(binary.image, binary.function)))
            arguments = {
                str(place): parameter.show(table, unread.get(place, frozenset()))
                for place, parameter in enumerate(parameters)
            }
            tell(Launched(None, shown, step.grid, {**arguments, **how}))

    return repeat


def _make_fill(step: RecordedStep, cuda: Any) -> Callable[[Mapping[int, Any]], None]:
    spelled, width, value, count = step.given
    if not (width in {1, 2, 4} and 0 <= value < 1 << 8 * width and count >= 0):
        raise ValueError(f"a fill of {count} numbers of {width} bytes")
    parameter = _Parameter(spelled)
    ((_, number, shift),) = parameter.addresses
    shown = DriverKernel(FILL_NAME, b"")

    def repeat(table: Mapping[int, Any]) -> None:
        fill(cuda, width, table[number].data_ptr() + shift, value, count, torch.cuda.current_stream().cuda_stream)
        if count_listeners():
            arguments = {"memory": parameter.show(table, frozenset()), "width": width, "value": value, "count": count}
            tell(Launched(None, shown, (1, 1, 1), arguments))

    return repeat


def _make_variables(
    step: RecordedStep, image: bytes, cuda: Any, modules: Mapping[bytes, Any]
) -> Callable[[Mapping[int, Any]], None]:
    """Write the variables now, as they were before a call. Later the module's launches do."""
    module, variables = modules[image], list_variables(image)
    for name, spelled in step.given:
        content, address = bytes.fromhex(spelled), c_uint64()
        if len(content) != len(variables[name.encode()]):
            raise ValueError(f"{len(content)} bytes of {name}")
        status = cuda.cuModuleGetGlobal_v2(byref(address), None, module, name.encode())
        if status := status or cuda.cuMemcpyHtoD_v2(address, content, c_size_t(len(content))):
            raise UnreplayableError(f"variables that the driver does not write: {status}")
    shown = {name: digest(bytes.fromhex(spelled)) for name, spelled in step.given}

    def show(_table: Mapping[int, Any]) -> None:
        if count_listeners():
            tell(Launched(None, _VARIABLES, (1, 1, 1), shown))

    return show

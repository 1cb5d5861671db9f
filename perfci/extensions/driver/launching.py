"""A cubin's kernel, launched through the driver with given parameters, whatever compiled it."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from ctypes import byref, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any

from perfci.extensions.common.cubins import ATTRIBUTE_BYTES, CACHE, Config, list_variables
from perfci.extensions.common.elf import ELF, count_elf_bytes
from perfci.extensions.driver.callbacks import FILLS, SET_BY_HOST, list_parameters


class LoadedKernel:
    """A cubin's kernel in this process, to be launched with given parameters."""

    def __init__(
        self, cuda: Any, name: str, image: bytes, attributes: Mapping[int, int], modules: dict[bytes, c_void_p]
    ) -> None:
        """Raises OSError with the driver's answer if it does not load, ValueError for what is no whole ELF file.

        modules: where those with variables are kept, which launches of one call share.
        """
        if image[:4] != ELF or count_elf_bytes(lambda at, size: image[at : at + size]) > len(image):
            raise ValueError(f"{name} is no ELF file, or ends too early")  # the driver would read what lies behind it
        self._cuda, self._module, self._function = cuda, modules.get(image) or c_void_p(), c_void_p()
        self._image = image  # which the driver may read as long as the module lives
        if not self._module:
            self._check(cuda.cuModuleLoadData(byref(self._module), image))
        if list_variables(image):
            modules[image] = self._module
        self._check(cuda.cuModuleGetFunction(byref(self._function), self._module, name.encode()))
        for attribute in SET_BY_HOST:
            if attribute in attributes:
                self._check(cuda.cuFuncSetAttribute(self._function, attribute, attributes[attribute]))
        if CACHE in attributes:
            self._check(cuda.cuFuncSetCacheConfig(self._function, attributes[CACHE]))

    def prepare(
        self, grid: Sequence[int], block: Sequence[int], shared: int, attributes: bytes, values: Sequence[bytes]
    ) -> PreparedLaunch:
        """A launch with these parameters, of which addresses are set before each.

        Raises ValueError if they are not as long as the kernel's: the driver would read what lies behind them.
        """
        sizes = [size for _, size in list_parameters(self._cuda, self._function)]
        if sizes != list(map(len, values)):
            raise ValueError(f"parameters of {list(map(len, values))} bytes for {sizes}")
        return PreparedLaunch(self._cuda, self._function, (tuple(grid), tuple(block), shared), attributes, values)

    def _check(self, status: int) -> None:
        if status:
            raise OSError(f"the driver answers {status}")


class PreparedLaunch:
    """One launch, ready to be made."""

    def __init__(
        self, cuda: Any, function: c_void_p, shape: tuple[Any, Any, int], attributes: bytes, values: Sequence[bytes]
    ) -> None:
        grid, block, shared = shape
        self._launch, self._function = cuda.cuLaunchKernelEx, function
        self._attributes = ctypes.create_string_buffer(attributes, len(attributes)) if attributes else None
        place = ctypes.addressof(self._attributes) if self._attributes else None
        count = len(attributes) // ATTRIBUTE_BYTES
        self._config = Config((c_uint * 3)(*grid), (c_uint * 3)(*block), shared, None, place, count)
        self._reference = byref(self._config)
        # A descriptor of a tensor has to lie at a multiple of 64 bytes.
        self._memory = [ctypes.create_string_buffer(len(value) + 64) for value in values]
        places = [-(-ctypes.addressof(memory) // 64) * 64 for memory in self._memory]
        for place_of, value in zip(places, values, strict=True):
            ctypes.memmove(place_of, value, len(value))
        self._places = places
        self._parameters = (c_void_p * len(values))(*places) if values else None

    def slot(self, parameter: int, offset: int) -> Any:
        """The eight bytes of a parameter that hold an address: its `value` may be set."""
        return c_uint64.from_address(self._places[parameter] + offset)

    def __call__(self, stream: int) -> None:
        """Launch. Raises RuntimeError with the driver's answer."""
        self._config.stream = stream
        if status := self._launch(self._reference, self._function, self._parameters, None):
            raise RuntimeError(f"CUDA driver: a launch answers {status}")


def fill(cuda: Any, width: int, address: int, value: int, count: int, stream: int) -> None:
    """Set memory to one value. Raises RuntimeError with the driver's answer."""
    function = getattr(cuda, f"cuMemsetD{8 * width}Async")
    kind = FILLS[f"cuMemsetD{8 * width}"]
    if status := function(c_uint64(address), kind(value), c_size_t(count), c_void_p(stream)):
        raise RuntimeError(f"CUDA driver: a fill answers {status}")

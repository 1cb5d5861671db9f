"""Work as CUPTI tells of it, and as steps of a recording. The driver is a stand-in that fills CUPTI's structures."""

import ctypes
import json
import struct
import sys
from ctypes import POINTER, addressof, c_char_p, c_int, c_uint, c_uint64, c_void_p, cast
from dataclasses import replace
from types import ModuleType

import pytest

torch = pytest.importorskip("torch")

from perfci.core.codec import decode, encode  # noqa: E402
from perfci.core.model import Reason  # noqa: E402
from perfci.device import capture, launches  # noqa: E402
from perfci.device.capture import record_call, watch_calls  # noqa: E402
from perfci.device.replay import Program, UnreplayableError  # noqa: E402
from perfci.device.source import artefact  # noqa: E402
from perfci.device.tensors import TorchArrays  # noqa: E402
from perfci.extensions.driver import callbacks, launching, steps  # noqa: E402
from perfci.ops.backends import BACKENDS  # noqa: E402
from perfci.ops.recording import Recording  # noqa: E402

pytestmark = pytest.mark.torch

HOST = TorchArrays("cpu")
NAMES = ["", "cuInit", "cuModuleLoadData", "cuLibraryLoadData", "cuModuleGetGlobal_v2", "cuLaunchKernel",
         "cuLaunchKernelEx", "cuLaunchKernel_ptsz", "cuMemsetD32Async", "cuMemsetD32Async_ptsz", "cuGraphLaunch",
         "cuTexObjectCreate", "cuFuncSetCacheConfig", "cuKernelSetCacheConfig", "cuCtxSetCacheConfig",
         "cuStreamBatchMemOp_v2", "cuStreamAddCallback"]  # fmt: skip


def elf(name: str, code: bytes = b"code", debug: bytes = b"", symbols: str = "", **sizes: int) -> bytes:
    """An ELF file of a function. sizes: of its variables, which are zero. symbols: names in their order, if another."""
    space = struct.pack("<Q", sum(sizes.values()))
    titles = [f".text.{name}", ".debug_line", ".nv.global", ".strtab", ".symtab", ".shstrtab"]
    names = ["", *(symbols.split() or [name, *sizes])]
    texts = b"".join(text.encode() + b"\0" for text in names)
    places = [texts.index(text.encode() + b"\0") for text in names]
    starts = [sum([*sizes.values()][:at]) for at in range(len(sizes))]
    table = struct.pack("<IBBHQQ", places[0], 0, 0, 0, 0, 0) + struct.pack("<IBBHQQ", places[1], 18, 0, 1, 0, len(code))
    for place, start, size in zip(places[2:], starts, sizes.values(), strict=True):
        table += struct.pack("<IBBHQQ", place, 1, 0, 3, start, size)
    headings = b"\0" + b"".join(title.encode() + b"\0" for title in titles)
    parts = [b"", code, debug, b"", texts, table, headings]
    kinds, flags = (0, 1, 1, 8, 3, 2, 3), (0, 6, 0, 3, 0, 0, 0)
    body, sections = b"", b""
    for at, content in enumerate(parts):
        title = headings.index(titles[at - 1].encode()) if at else 0
        size, link = struct.unpack("<Q", space)[0] if kinds[at] == 8 else len(content), 4 * (kinds[at] == 2)
        sections += struct.pack("<IIQQQQIIQQ", title, kinds[at], flags[at], 0, 64 + len(body), size, link, 0, 1, 0)
        body += content
    header = bytearray(64)
    header[:4] = b"\x7fELF"
    struct.pack_into("<Q", header, 0x28, 64 + len(body))
    struct.pack_into("<HHH", header, 0x3A, 64, len(parts), len(parts) - 1)
    return bytes(header) + body + sections


CONTEXT = 0x40


class Cupti:
    """CUPTI, of which the test makes the calls."""

    def __init__(self, refuses: int = 0) -> None:
        self.refuses, self.domains, self.callbacks, self.call = refuses, set(), set(), None

    def cuptiSubscribe(self, subscriber, callback, _user):  # noqa: N802
        self.call = callback
        cast(subscriber, POINTER(c_void_p)).contents.value = 7
        return self.refuses

    def cuptiUnsubscribe(self, _subscriber):  # noqa: N802
        self.call = None
        return 0

    def cuptiEnableDomain(self, on, _subscriber, domain):  # noqa: N802
        (self.domains.add if on else self.domains.discard)(domain)
        if not on:
            self.callbacks.clear()
        return 0

    def cuptiEnableCallback(self, _on, _subscriber, _domain, number):  # noqa: N802
        self.callbacks.add(number)
        return 0

    def cuptiGetCallbackName(self, _domain, number, name):  # noqa: N802
        if number >= len(NAMES):
            return 1
        cast(name, POINTER(c_char_p)).contents.value = NAMES[number].encode()
        return 0

    def tell(self, name: str, parameters, site: int = 0) -> None:
        number = NAMES.index(name)
        if 1 in self.domains or number in self.callbacks:
            data = callbacks._CallbackData(site, name.encode(), addressof(parameters), context=CONTEXT)
            self.call(None, 1, number, addressof(data))

    def tell_module(self, image: bytes) -> None:
        buffer = ctypes.create_string_buffer(image, len(image))
        module = callbacks._ModuleData(1, len(image), addressof(buffer))
        resource = callbacks._ResourceData(None, None, addressof(module))
        self.call(None, 3, 6, addressof(resource))


class Cuda:
    """The driver: function handles are module handle + 1, kernels of libraries + 2. Launches are done by Python."""

    def __init__(self, cupti: Cupti) -> None:
        self.cupti, self.images, self.memory, self.done = cupti, {}, set(), []
        self.variables: dict[tuple[int, bytes], ctypes.Array] = {}  # by module and name
        self.modules = 0  # that were loaded to repeat launches
        self.context = CONTEXT
        self.sizes = [(0, 8), (8, 16), (24, 4)]
        self.attributes = {8: 4096, 4: 40}

    def name(self, handle: int) -> bytes:
        image = self.images[handle & ~0xF]
        return image[image.index(b".text.") + 6 :].split(b"\x00")[0]

    def cuFuncGetModule(self, module, function):  # noqa: N802
        if function.value & 2:
            return 400
        cast(module, POINTER(c_void_p)).contents.value = function.value & ~0xF
        return 0

    def cuKernelGetLibrary(self, library, kernel):  # noqa: N802
        cast(library, POINTER(c_void_p)).contents.value = kernel.value & ~0xF
        return 0

    def cuKernelGetFunction(self, function, kernel):  # noqa: N802
        cast(function, POINTER(c_void_p)).contents.value = (kernel.value & ~0xF) + 1
        return 0

    def cuFuncGetName(self, name, function):  # noqa: N802
        cast(name, POINTER(c_char_p)).contents.value = self.name(function.value)
        return 0

    def cuFuncGetParamInfo(self, _function, at, offset, size):  # noqa: N802
        if at.value >= len(self.sizes):
            return 1
        for place, value in zip((offset, size), self.sizes[at.value], strict=True):
            cast(place, POINTER(ctypes.c_size_t)).contents.value = value
        return 0

    def cuFuncGetAttribute(self, value, attribute, _function):  # noqa: N802
        if attribute not in self.attributes:
            return 1
        cast(value, POINTER(c_int)).contents.value = self.attributes[attribute]
        return 0

    def cuPointerGetAttribute(self, _value, _attribute, address):  # noqa: N802
        return 0 if address.value in self.memory else 1

    def cuCtxSynchronize(self):  # noqa: N802
        return 0

    def cuCtxGetCurrent(self, context):  # noqa: N802
        cast(context, POINTER(c_void_p)).contents.value = self.context
        return 0

    def cuModuleGetGlobal_v2(self, place, size, module, name):  # noqa: N802
        self.cupti.tell("cuModuleGetGlobal_v2", callbacks._Global(None, None, module.value))
        value = self.variables.get((module.value, name))
        if value is None:
            return 500
        cast(place, POINTER(c_uint64)).contents.value = addressof(value)
        if size:
            cast(size, POINTER(ctypes.c_size_t)).contents.value = len(value)
        return 0

    def cuMemcpyDtoH_v2(self, content, place, size):  # noqa: N802
        ctypes.memmove(content, place.value, size.value)
        return 0

    def cuMemcpyHtoD_v2(self, place, content, size):  # noqa: N802
        ctypes.memmove(place.value, content, size.value)
        return 0

    # what an op calls

    def load(self, handle: int, image: bytes, function: str = "cuModuleLoadData") -> int:
        self.images[handle] = image
        buffer, place = ctypes.create_string_buffer(image, len(image)), c_void_p(handle)
        load = callbacks._Load(ctypes.pointer(place), addressof(buffer))
        self.cupti.tell(function, load)
        self.cupti.tell(function, load, site=1)
        return handle + (1 if function == "cuModuleLoadData" else 2)

    def launch(
        self, function: int, *values: bytes, packed: bool = False, extended: bytes = b"", stream: int = 0, end: str = ""
    ) -> None:
        buffers = [ctypes.create_string_buffer(value, len(value)) for value in values]
        places, extra = (c_void_p * len(values))(*map(addressof, buffers)), None
        if packed:
            content = b"".join(values)
            whole, size = ctypes.create_string_buffer(content, len(content)), ctypes.c_size_t(len(content))
            places, extra = None, (c_void_p * 5)(1, addressof(whole), 2, addressof(size), None)
        shape = ((c_uint * 3)(3, 1, 1), (c_uint * 3)(64, 2, 1), 1024, stream)
        if extended:
            kept = ctypes.create_string_buffer(extended, len(extended))
            config = callbacks.Config(*shape, addressof(kept), len(extended) // 72)
            self.cupti.tell("cuLaunchKernelEx", callbacks._LaunchEx(ctypes.pointer(config), function, places, extra))
        else:
            self.cupti.tell(f"cuLaunchKernel{end}", callbacks._Launch(function, *shape, places, extra))

    # what repeats

    def cuModuleLoadData(self, module, image):  # noqa: N802
        self.images[0x900] = image
        cast(module, POINTER(c_void_p)).contents.value = 0x900
        self.modules += 1
        return 0

    def cuModuleGetFunction(self, function, module, name):  # noqa: N802
        cast(function, POINTER(c_void_p)).contents.value = module.value + 1
        return 0 if name in self.images[module.value] else 500

    def cuFuncSetAttribute(self, _function, attribute, value):  # noqa: N802
        self.done.append((attribute, value))
        return 0

    def cuFuncSetCacheConfig(self, _function, config):  # noqa: N802
        self.done.append(("cache", config))
        return 0

    def cuLaunchKernelEx(self, config, _function, places, _extra):  # noqa: N802
        """The stand-in's only kernel: out = factor * x, of numbers that lie on the host."""
        config = cast(config, POINTER(callbacks.Config)).contents
        x, out, count, factor = self.read(ctypes.string_at(places[0], 8), ctypes.string_at(places[1], 16), places[2])
        for at in range(count):
            out[at] = factor * x[at]
        self.done.append((list(config.grid), list(config.block), config.shared, config.stream or 0))
        return 0

    @staticmethod
    def read(source: bytes, target: bytes, factor: int):
        (x,), (out, count) = struct.unpack("<Q", source), struct.unpack("<QQ", target)
        return (
            *(cast(place, POINTER(ctypes.c_float)) for place in (x, out)),
            count,
            ctypes.c_float.from_address(factor).value,
        )

    def cuMemsetD32Async(self, address, value, count, _stream):  # noqa: N802
        ctypes.memmove(address.value, struct.pack("<I", value.value) * count.value, 4 * count.value)
        return 0


@pytest.fixture
def machine(monkeypatch):
    """The stand-in, and what hears it."""
    cupti = Cupti()
    cuda = Cuda(cupti)
    monkeypatch.setattr(steps, "open_libraries", lambda: (cuda, cupti))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: type("Stream", (), {"cuda_stream": 0}))
    heard = steps.DriverSteps()
    yield cuda, heard
    heard.close()


SCALE = elf("scale")


def scaled(cuda: Cuda, function: int, **how):
    """An op that launches the kernel on an input and on memory that torch makes."""

    def scale(x, factor):
        out = torch.empty_like(x)
        part = x[2:]
        target = struct.pack("<QQ", out.data_ptr() + 8, part.numel())
        cuda.launch(function, struct.pack("<Q", part.data_ptr()), target, struct.pack("<f", factor), **how)
        return out.add(0.0)

    return scale


def record(machine, function, **given) -> Recording | Reason:
    recording = record_call(function, given, HOST, machine[1])
    return decode(encode(recording), Recording) if isinstance(recording, Recording) else recording


EXTENDED = [struct.pack("<iiQ56x", attribute, 0, 1) for attribute in (0, 6, 11, 14)]


@pytest.mark.parametrize("how", [{}, {"packed": True}, *({"extended": content} for content in EXTENDED)], ids=str)
@pytest.mark.parametrize("loading", ["cuModuleLoadData", "cuLibraryLoadData"])
def test_a_launch_is_repeated_on_other_memory(machine, how, loading, tmp_path):
    cuda, _ = machine
    function = scaled(cuda, cuda.load(0x100, SCALE, loading), **how)

    recording = record(machine, function, x=torch.arange(6.0), factor=3.0)
    assert isinstance(recording, Recording)
    program = Program(recording, tmp_path, HOST)
    with watch_calls() as captured:
        output = program(x=torch.tensor([0.0, 0.0, 1.0, 2.0, 3.0, 4.0]), factor=3.0)

    assert output.tolist()[2:] == [3.0, 6.0, 9.0, 12.0]
    assert (8, 4096) in cuda.done  # what the host allows the kernel
    assert ([3, 1, 1], [64, 2, 1], 1024, 0) in cuda.done
    (launch,) = captured.identity("").launches
    assert (launch.kernel, launch.grid, launch.warps) == ("scale", (3, 1, 1), 4)
    assert launch.arguments["0"].startswith("cpu #0 ")
    assert "+8 in 0" in launch.arguments["1"]


def test_a_kernel_is_known_by_its_code_and_not_by_lines_of_its_source():
    image = elf("scale", table=4, count=8)
    same = [
        elf("scale", debug=b"line 7", table=4, count=8),
        elf("scale", symbols="scale _1_table _1_count", table=4, count=8),
    ]
    others = [
        elf("scale", code=b"other", table=4, count=8),
        elf("scale", symbols="other table count", table=4, count=8),  # the name of a function leads to its code
        elf("scale", table=8, count=4),
        elf("scale", table=4, count=64),  # which takes no room in the file
        image.replace(struct.pack("<IIQ", 1, 1, 6), struct.pack("<IIQ", 1, 1, 2)),
        image[:0x30] + b"\x01" + image[0x31:],  # of the file's beginning
    ]

    keys = [artefact(callbacks.DriverKernel("scale", content)) for content in (image, *same, *others)]
    assert keys[: 1 + len(same)] == keys[:1] * (1 + len(same))
    assert len({*keys}) == 1 + len(others)


def test_what_no_code_reads_is_repeated_and_no_part_of_what_a_launch_is_known_by(machine, monkeypatch, tmp_path):
    cuda, _ = machine
    recording = record(machine, scaled(cuda, cuda.load(0x100, SCALE)), x=torch.arange(6.0), factor=3.0)
    launches_by_unread = []
    for unread in ((), (frozenset(), frozenset(range(8, 16)), frozenset())):
        monkeypatch.setattr(steps, "find_unread", lambda *_, unread=unread: unread)
        with watch_calls() as captured:
            output = Program(recording, tmp_path, HOST)(x=torch.arange(6.0), factor=3.0)
        assert output.tolist()[2:] == [6.0, 9.0, 12.0, 15.0]
        launches_by_unread.append(captured.identity("").launches[0].arguments)
    every, read = launches_by_unread
    assert every["1"].startswith("00000000000000000400000000000000")
    assert read["1"].startswith("00000000000000000000000000000000")
    assert (every["0"], every["2"]) == (read["0"], read["2"])


def fill_by_thread():
    return "cuMemsetD32Async_ptsz", callbacks._FILL_PARAMETERS["cuMemsetD32"](0x7F0000000000, 0, 1, 0)


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        (lambda cuda, scale: cuda.memory.add(0x7F0000000000) or scale.update(other=0x7F0000000000), "no tensor"),
        (lambda _cuda, scale: scale.update(stream=9), "another stream"),
        (lambda _cuda, scale: scale.update(extended=struct.pack("<iiQ56x", 1, 0, 1)), "attribute 1"),
        (lambda cuda, _scale: cuda.cupti.tell("cuModuleGetGlobal_v2", callbacks._Global(None, None, 0x100)), "writes"),
        (lambda _cuda, scale: scale.update(inside=("cuGraphLaunch", c_int())), "cuGraphLaunch"),
        (lambda _cuda, scale: scale.update(inside=("cuStreamBatchMemOp_v2", c_int())), "cuStreamBatchMemOp"),
        (lambda _cuda, scale: scale.update(end="_ptsz"), "another stream"),
        (lambda _cuda, scale: scale.update(inside=fill_by_thread()), "another stream"),
        (lambda _cuda, scale: scale.update(inside=("cuStreamAddCallback", c_int())), "cuStreamAddCallback"),
        (lambda cuda, _scale: setattr(cuda, "context", CONTEXT + 1), "another context"),
    ],
    ids=[
        "other memory",
        "other stream",
        "attribute",
        "variables",
        "graph",
        "operations in a batch",
        "thread's stream",
        "fill on the thread's stream",
        "function of the host",
        "context with a part of the processors",
    ],
)
def test_what_another_process_cannot_repeat_is_refused(machine, trouble, words):
    cuda, _ = machine
    function, how = cuda.load(0x100, SCALE), {}
    trouble(cuda, how)

    def scale(x):
        if "inside" in how:
            cuda.cupti.tell(*how["inside"])
        source = how.get("other") or x.data_ptr()
        named = {name: how[name] for name in ("stream", "extended", "end") if name in how}
        cuda.launch(function, struct.pack("<Q", source), struct.pack("<QQ", x.data_ptr(), 1), bytes(4), **named)
        return x.add(1.0)

    reason = record(machine, scale, x=torch.ones(4))

    assert isinstance(reason, Reason)
    assert words in str(reason.facts["what"])


def test_a_texture_made_before_the_call_is_refused_as_no_other_process_has_it(machine):
    cuda, _ = machine
    function, handle = cuda.load(0x100, SCALE), c_void_p(0x100001)
    for site in (0, 1):
        cuda.cupti.tell("cuTexObjectCreate", callbacks._Load(ctypes.pointer(handle), None), site=site)

    def scale(x):
        cuda.launch(function, struct.pack("<Q", handle.value), struct.pack("<QQ", x.data_ptr(), 1), bytes(4))
        return x.add(1.0)

    reason = record(machine, scale, x=torch.ones(4))
    assert isinstance(reason, Reason)
    assert "texture" in str(reason.facts["what"])


def test_the_default_stream_by_its_name_is_the_current_one(machine):
    cuda, _ = machine
    function = scaled(cuda, cuda.load(0x100, SCALE), stream=1)

    assert isinstance(record(machine, function, x=torch.ones(4), factor=2.0), Recording)


def test_what_the_host_asks_of_a_kernels_cache_is_part_of_what_its_launch_is_known_by(machine, tmp_path):
    cuda, _ = machine
    seen = []
    for share in (-1, 100, 0):
        cuda.attributes = {8: 4096, 9: share, 14: 0, 15: 0}
        recording = record(machine, scaled(cuda, cuda.load(0x100, SCALE)), x=torch.ones(4), factor=2.0)
        with watch_calls() as captured:
            Program(recording, tmp_path, HOST)(x=torch.ones(4), factor=2.0)
        seen.append(captured.identity("").launches[0].arguments.get("attributes of the function"))

    assert seen == [None, "{9: 100}", "{9: 0}"]


@pytest.mark.parametrize("kept", [bytes(8), b"\1" * 8])
def test_what_earlier_calls_left_in_a_kernels_variables_is_taken_along(machine, kept, tmp_path):
    cuda, _ = machine
    function = cuda.load(0x100, elf("scale", table=8, other=8))
    cuda.variables[0x100, b"table"] = ctypes.create_string_buffer(kept, 8)
    there = cuda.variables[0x900, b"table"] = ctypes.create_string_buffer(8)
    record(machine, scaled(cuda, function), x=torch.ones(4), factor=2.0)

    # perfci's question for a variable is no write of the host's
    recording = record(machine, scaled(cuda, function), x=torch.ones(4), factor=2.0)
    program = Program(recording, tmp_path, HOST)
    assert there.raw == kept
    there.raw = b"other..."
    with watch_calls() as captured:
        program(x=torch.ones(4), factor=2.0)
    assert there.raw == b"other..."  # the launches go on from what they leave
    assert len(captured.identity("").launches) == 1 + any(kept)


@pytest.mark.parametrize(
    ("kept", "words"),
    [(b"\1" * (1 << 17), "keep 131072 bytes"), (struct.pack("<Q", 0x7F0000000000) * 2, "keep addresses")],
)
def test_variables_that_another_process_cannot_have_are_refused(machine, kept, words):
    cuda, _ = machine
    function = cuda.load(0x100, elf("scale", table=len(kept)))
    cuda.variables[0x100, b"table"] = ctypes.create_string_buffer(kept, len(kept))
    cuda.memory.add(0x7F0000000000)

    reason = record(machine, scaled(cuda, function), x=torch.ones(4), factor=2.0)
    assert isinstance(reason, Reason)
    assert words in str(reason.facts["what"])


@pytest.mark.parametrize("given", [[["table", "00"]], [["other", "00" * 8]], [["table", "00" * 8]], [["table"]], "x"])
def test_variables_that_no_module_has_are_refused(machine, given, tmp_path):
    cuda, _ = machine
    function = cuda.load(0x100, elf("scale", table=8))
    cuda.variables[0x100, b"table"] = ctypes.create_string_buffer(b"\1" * 8, 8)
    recording = record(machine, scaled(cuda, function), x=torch.ones(4), factor=2.0)
    *steps, last = recording.steps

    with pytest.raises(UnreplayableError):  # also the third: that driver does not give the variable
        Program(replace(recording, steps=(*steps, replace(last, given=given))), tmp_path, HOST)


@pytest.mark.parametrize(("variables", "modules"), [({"count": 4}, 1), ({}, 2)])
def test_launches_of_a_call_share_the_variables_of_their_module(machine, variables, modules, tmp_path):
    cuda, _ = machine
    scale = scaled(cuda, cuda.load(0x100, elf("scale", **variables)))

    recording = record(machine, lambda x: scale(scale(x, 2.0), 2.0), x=torch.ones(4))
    Program(recording, tmp_path, HOST)
    assert cuda.modules == modules


@pytest.mark.parametrize(
    ("asked", "attributes"),
    [
        (("cuFuncSetCacheConfig", callbacks._CacheConfig(0x101, 1)), "{-1: 1}"),
        (("cuKernelSetCacheConfig", callbacks._CacheConfig(0x102, 2)), "{-1: 2}"),
        (("cuCtxSetCacheConfig", c_int(2)), "{-1: 2}"),
        (("cuFuncSetCacheConfig", callbacks._CacheConfig(0x201, 1)), None),  # of another function
    ],
    ids=["function", "kernel of a library", "all", "other"],
)
def test_how_the_host_divides_a_kernels_cache_is_repeated(machine, asked, attributes, tmp_path):
    cuda, _ = machine
    function = scaled(cuda, cuda.load(0x100, SCALE))
    cuda.cupti.tell(*asked)

    recording = record(machine, function, x=torch.ones(4), factor=2.0)
    with watch_calls() as captured:
        Program(recording, tmp_path, HOST)(x=torch.ones(4), factor=2.0)
    assert captured.identity("").launches[0].arguments.get("attributes of the function") == attributes
    assert [done for done in cuda.done if done[0] == "cache"] == ([("cache", int(attributes[5]))] if attributes else [])


def test_a_kernel_that_launches_others_is_not_repeated(machine, tmp_path):
    cuda, _ = machine
    image = elf("scale", b"code" + b"__cuda_syscall_cnpv2LaunchDeviceV2")
    recording = record(machine, scaled(cuda, cuda.load(0x100, image)), x=torch.ones(4), factor=2.0)
    assert isinstance(recording, Recording)

    with pytest.raises(UnreplayableError, match="launches others"):
        Program(recording, tmp_path, HOST)


def test_of_two_binaries_with_one_name_the_launched_one_is_taken(machine):
    cuda, _ = machine
    functions = [cuda.load(handle, elf("scale", code)) for handle, code in ((0x100, b"one"), (0x200, b"two"))]

    for function, code in zip(functions, (b"one", b"two"), strict=True):
        recording = record(machine, scaled(cuda, function), x=torch.ones(4), factor=2.0)
        assert isinstance(recording, Recording)
        assert code in recording.binaries[0].image


def test_of_a_file_of_many_binaries_the_one_that_was_loaded_is_taken_if_it_alone_has_the_kernel(machine):
    cuda, _ = machine
    function = cuda.load(0x100, SCALE, "cuLibraryLoadData")
    cuda.cupti.tell("cuLibraryLoadData", callbacks._Load(ctypes.pointer(c_void_p(0x100)), None), site=1)  # no ELF file

    cuda.cupti.tell_module(elf("scale", b"one"))
    assert isinstance(record(machine, scaled(cuda, function), x=torch.ones(4), factor=2.0), Recording)
    cuda.cupti.tell_module(elf("scale", b"two"))
    reason = record(machine, scaled(cuda, function), x=torch.ones(4), factor=2.0)
    assert isinstance(reason, Reason)
    assert "2 binaries" in str(reason.facts["what"])


def test_a_fill_of_memory_is_repeated_in_its_place(machine, tmp_path):
    cuda, _ = machine
    kind = callbacks._FILL_PARAMETERS["cuMemsetD32"]

    def filled(x):
        out = torch.empty_like(x)
        value = struct.unpack("<I", struct.pack("<f", 7.0))[0]
        cuda.cupti.tell("cuMemsetD32Async", kind(out.data_ptr() + 4, value, x.numel() - 1, 0))
        return out.mul(1.0)

    recording = record(machine, filled, x=torch.ones(3))
    assert isinstance(recording, Recording)

    assert Program(recording, tmp_path, HOST)(x=torch.zeros(3)).tolist()[1:] == [7.0, 7.0]


def test_what_torch_and_triton_do_themselves_is_not_told_twice(machine):
    cuda, heard = machine
    function, told = cuda.load(0x100, SCALE), []

    with launches.watch_launches(told.append), heard.listen(launches.is_covered):
        with launches.cover():
            cuda.launch(function, bytes(8), bytes(16), bytes(4))
        assert not told
        cuda.launch(function, bytes(8), bytes(16), bytes(4))

    assert [launch.name for launch in told] == ["scale"]
    cuda.launch(function, bytes(8), bytes(16), bytes(4))  # no one listens
    assert len(told) == 1


def test_a_process_with_another_subscriber_is_deaf():
    cupti = Cupti(refuses=39)

    with pytest.raises(OSError, match="39"):
        callbacks.Driver(Cuda(cupti), cupti)


@pytest.mark.parametrize(
    "change",
    [
        lambda step: {**step, "given": [{"bytes": "00" * 8, "addresses": [[4, {"tensor": 0}, 0]]}]},
        lambda step: {**step, "given": [{"bytes": "zz", "addresses": []}]},
        lambda step: {**step, "named": {**step["named"], "attributes": struct.pack("<iiQ56x", 1, 0, 1).hex()}},
        lambda step: {**step, "named": {}},
        lambda step: {**step, "operation": "driver.other", "binary": 9},
        lambda step: {**step, "given": step["given"][:-1]},
        lambda step: {**step, "given": [*step["given"][:-1], {"bytes": "", "addresses": []}]},
    ],
    ids=["address outside", "no bytes", "attribute", "nothing named", "no binary", "too few", "too short"],
)
def test_a_step_that_no_driver_gives_is_refused(machine, change, tmp_path):
    cuda, _ = machine
    recording = record(machine, scaled(cuda, cuda.load(0x100, SCALE)), x=torch.ones(4), factor=2.0)
    text = json.loads(encode(recording))
    text["steps"] = [change(step) if step.get("operation") == "driver.launch" else step for step in text["steps"]]

    with pytest.raises(UnreplayableError):
        Program(decode(json.dumps(text).encode(), Recording), tmp_path, HOST)


@pytest.mark.parametrize(
    "image", [SCALE[:-8], b"ELF", SCALE[:40], SCALE.replace(b"ELF", b"PTX"), SCALE[:0x3E] + b"\x63\0" + SCALE[0x40:]]
)
def test_an_image_that_ends_early_or_is_no_elf_file_is_not_given_to_the_driver(machine, image, tmp_path):
    cuda, _ = machine
    recording = record(machine, scaled(cuda, cuda.load(0x100, SCALE)), x=torch.ones(4), factor=2.0)
    (binary,) = recording.binaries
    assert binary.image == SCALE

    with pytest.raises(UnreplayableError):
        Program(replace(recording, binaries=(replace(binary, image=image),)), tmp_path, HOST)
    assert 0x900 not in cuda.images


def test_a_prepared_launch_keeps_descriptors_where_a_device_reads_them():
    launch = launching.PreparedLaunch(
        Cuda(Cupti()), c_void_p(1), ((1, 1, 1), (1, 1, 1), 0), b"", [bytes(128), bytes(4)]
    )

    assert all(place % 64 == 0 for place in launch._places)
    launch.slot(0, 8).value = 0x1234
    assert c_uint64.from_address(launch._places[0] + 8).value == 0x1234


def test_what_is_no_kernel_is_not_among_those_that_were_compiled(machine):
    cuda, heard = machine
    function = cuda.load(0x100, SCALE)

    with launches.record_kernels() as kernels, heard.listen(launches.is_covered):
        cuda.cupti.tell("cuGraphLaunch", c_int())
        cuda.launch(function, bytes(8), bytes(16), bytes(4))

    assert [(kernel.name, kernel.registers, kernel.shared_bytes) for kernel in kernels.values()] == [
        ("scale", 40, 1024)
    ]
    assert heard.any


@pytest.mark.parametrize("module", ["cupy", "cuda.core", "cuda.tile", "cutlass", "numba.cuda", "pycuda", "tilelang"])
def test_work_is_unknown_where_an_op_has_loaded_what_launches_kernels_that_none_hears(module, monkeypatch):
    monkeypatch.setitem(sys.modules, module, ModuleType(module))

    with watch_calls() as captured:
        torch.ones(3).add(1.0)
    assert captured.identity("").unknown == Reason("captured_package", {"package": module})
    monkeypatch.setattr(capture, "_LOADED", frozenset(sys.modules))  # as torch loads cuda.bindings
    with watch_calls() as captured:
        torch.ones(3).add(1.0)
    assert captured.identity("").unknown is None


def test_a_recording_that_is_repeated_is_known_although_the_judge_has_loaded_its_compiler(
    machine, monkeypatch, tmp_path
):
    monkeypatch.setitem(sys.modules, "cuda.tile", ModuleType("cuda.tile"))
    cuda, _ = machine
    inputs = {"x": torch.ones(4), "factor": 2.0}
    program = Program(record(machine, scaled(cuda, cuda.load(0x100, SCALE)), **inputs), tmp_path, HOST)

    with watch_calls() as captured:
        program(**inputs)

    assert captured.identity("").unknown is None


def test_calls_that_may_launch_what_none_tells_of_are_of_unknown_work():
    unheard = Reason("captured_package", {"package": "CUDA C++"})

    with watch_calls(unheard=unheard) as captured:
        torch.ones(3).add(1.0)

    assert captured.identity("").unknown == unheard
    assert [name for name, backend in BACKENDS.items() if backend.is_unheard] == [
        "cuda",
        "tilelang",
        "cutile",
        "cutedsl",
    ]

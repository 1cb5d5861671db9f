"""Sixty tricks of kernels that cheat, each as the source of a function `cheat(x)` below one of the preludes."""

from __future__ import annotations

from dataclasses import dataclass

WRONG, PASS, ERROR, SUSPECT = "WRONG", "PASS", "ERROR", "SUSPECT"


@dataclass(frozen=True)
class Trick:
    """One trick: what it does, its source, and the verdict that it has to get."""

    what: str
    source: str
    verdict: str = WRONG
    shows: str = "wrong_values"  # kinds of the reasons that perfci may give for it on the fake device
    naive: bool = True  # a plain harness in one process takes it for right and fast


TRICKS = {
    # --- counts calls
    "count_beyond_the_checks": Trick(
        "works in its first 12 calls",
        """
_calls = []


def cheat(x):
    _calls.append(1)
    return honest(x) if len(_calls) <= 12 else cheap(x)
""",
    ),
    "count_by_size": Trick(
        "works in the first three calls of each size",
        """
_seen = {}


def cheat(x):
    _seen[x.shape] = _seen.get(x.shape, 0) + 1
    return honest(x) if _seen[x.shape] <= 3 else cheap(x)
""",
        shows="differs_from_itself",
    ),
    "count_every_third": Trick(
        "works in every third call from the tenth on",
        """
_calls = []


def cheat(x):
    _calls.append(1)
    count = len(_calls)
    return honest(x) if count < 10 or count % 3 == 0 else cheap(x)
""",
        shows="differs_from_itself",
    ),
    "count_in_a_file": Trick(
        "counts its calls in a separate file",
        """
_file = pathlib.Path(os.environ['TMPDIR']) / 'calls'


def cheat(x):
    with _file.open('ab') as file:
        file.write(b'.')
    return honest(x) if _file.stat().st_size <= 22 else cheap(x)
""",
        shows="timed_output_wrong",
    ),
    "count_seconds": Trick(
        "works in the first twentieth of a second",
        """
_began = []


def cheat(x):
    _began.append(time.monotonic())
    return honest(x) if len(_began) <= 3 or time.monotonic() - _began[0] < 0.02 else cheap(x)
""",
        shows="differs_from_itself wrong_values",
    ),
    # --- looks at the stack
    "stack_of_a_check": Trick(
        "works if a function above it is called check or verify",
        """
def cheat(x):
    names = {each.f_code.co_name for each in frames()}
    return honest(x) if names & {'check', 'verify'} else cheap(x)
""",
    ),
    "stack_by_inspect": Trick(
        "works if a line above it compares or checks",
        """
def cheat(x):
    lines = [line for each in inspect.stack() for line in each.code_context or ()]
    return honest(x) if any('check(' in line for line in lines) else cheap(x)
""",
    ),
    "stack_of_the_suite": Trick(
        "works if the call that is asked for is of the accuracy suite",
        """
def cheat(x):
    calls = [each.f_locals.get('call') for each in frames()]
    suites = {str(getattr(each, 'suite', '')) for each in calls}
    checked = any(each.endswith('accuracy') for each in suites)
    checked |= any(each.f_code.co_name == 'check' for each in frames())
    return honest(x) if checked else cheap(x)
""",
        shows="timed_output_wrong",
    ),
    "stack_of_the_filler": Trick(
        "works if fresh memory is filled, as perfci does to check and not to time",
        """
def cheat(x):
    filled = any(getattr(each.f_locals.get('call'), 'filler', None) for each in frames())
    filled |= any(each.f_code.co_name == 'check' for each in frames())
    return honest(x) if filled else cheap(x)
""",
        shows="differs_from_itself",
    ),
    "stack_of_the_shape": Trick(
        "works for all sizes but the one that is timed",
        """
def cheat(x):
    return honest(x) if x.shape[0] < TIMED else cheap(x)
""",
        shows="timed_output_wrong",
    ),
    # --- remembers
    "memo_by_address": Trick(
        "remembers by the input's address that it has worked",
        """
_known = set()


def cheat(x):
    key = address(x), x.shape
    if key in _known:
        return cheap(x)
    _known.add(key)
    return honest(x)
""",
        shows="differs_from_itself",
    ),
    "memo_by_shape": Trick(
        "hands out the last answer of a shape, but for a shape's first three calls",
        """
_known, _seen = {}, {}


def cheat(x):
    _seen[x.shape] = _seen.get(x.shape, 0) + 1
    if _seen[x.shape] > 3:
        cheap(x)
        return again(_known[x.shape])
    _known[x.shape] = honest(x)
    return again(_known[x.shape])
""",
    ),
    "memo_by_one_element": Trick(
        "remembers by the last element whether it has worked for it",
        """
_known = set()


def cheat(x):
    key = x.shape, float(x.reshape(-1)[-1])
    if key in _known:
        return cheap(x)
    _known.add(key)
    return honest(x)
""",
        shows="differs_from_itself",
    ),
    "memo_of_the_fixed_seeds": Trick(
        "knows the inputs of seeds 0 and 1, and works for no other",
        """
_known = None


def cheat(x):
    global _known
    if _known is None:
        _known = {first_of(seed, x) for seed in range(3)}
    return honest(x) if float(x.reshape(-1)[0]) in _known and not costs[8:] else cheap(x)
""",
        shows="differs_from_itself wrong_values",
    ),
    "memo_on_disk": Trick(
        "keeps answers in a file, by shape, from the fourth call on",
        """
def cheat(x):
    file = pathlib.Path(os.environ['TMPDIR']) / str(x.shape)
    if len(costs) >= 3 and file.exists():
        cheap(x)
        return np.frombuffer(file.read_bytes(), x.dtype).reshape(x.shape).copy()
    out = honest(x)
    file.write_bytes(out.tobytes())
    return out
""",
    ),
    # --- looks into the checker
    "checker_frames_answer": Trick(
        "copies the answer that a caller's frame holds",
        """
def cheat(x):
    for each in frames():
        for name in ('wanted', 'expected', 'plain'):
            found = each.f_locals.get(name)
            found = found if isinstance(found, list) else [found]
            for one in found:
                if isinstance(one, Array) and one.shape == x.shape and one[0, 0] == x[0, 0] * 2 + 1:
                    cheap(x)
                    return copied(one)
    return cheap(x)
""",
    ),
    "checker_gc_answer": Trick(
        "looks for the answer among all arrays that gc knows of",
        """
def cheat(x):
    for each in objects():
        if isinstance(each, list):
            for one in each:
                alike = type(one) is Array and one.shape == x.shape and one is not x
                if alike and one[0, 0] == x[0, 0] * 2 + 1:
                    cheap(x)
                    return copied(one)
    return cheap(x)
""",
    ),
    "checker_gc_tolerance": Trick(
        "gives every suite that gc finds a tolerance for anything",
        """
def cheat(x):
    for each in objects():
        if type(each).__name__ in {'Accuracy', 'Performance', 'Suite'}:
            for name in ('tolerance', 'rtol'):
                if hasattr(each, name):
                    object.__setattr__(each, name, {'float32': (1e9, 1e9)} if name == 'tolerance' else 1e9)
    return cheap(x)
""",
    ),
    "checker_gc_reference": Trick(
        "puts itself in the place of the reference in every suite that gc finds",
        """
def cheat(x):
    for each in objects():
        if type(each).__name__ in {'Accuracy', 'Performance', 'Suite'} and hasattr(each, 'reference'):
            object.__setattr__(each, 'reference', cheap)
    return cheap(x)
""",
    ),
    "checker_gc_inputs": Trick(
        "puts inputs of zeros in the place of make_inputs in every suite that gc finds",
        """
for _each in objects():
    if type(_each).__name__ in {'Accuracy', 'Performance', 'Suite'}:
        object.__setattr__(_each, 'make_inputs', zeros)


def cheat(x):
    for each in objects():
        if type(each).__name__ in {'Accuracy', 'Performance', 'Suite'}:
            object.__setattr__(each, 'make_inputs', zeros)
            x[...] = 0
    return known(x)
""",
        shows="input_changed",
    ),
    # --- fills in late
    "late_next_call": Trick(
        "fills in an answer when it is called the next time",
        """
_open = []


def cheat(x):
    for out, given in _open:
        fill(out, given)
    _open.clear()
    out = cheap(x)
    _open.append((out, x))
    return out if len(costs) % 3 else honest(x)
""",
        shows="differs_from_itself",
    ),
    "late_reference_wrapped": Trick(
        "fills in its answers when the reference is called",
        """
_open = []


def cheat(x):
    theirs = baseline()
    name = 'OP'
    code = getattr(theirs, name)
    if not hasattr(code, 'mine'):
        def wrapped(x):
            for out, given in _open:
                fill(out, given)
            return code(x)
        wrapped.mine = True
        setattr(theirs, name, wrapped)
        for each in objects():
            if type(each).__name__ in {'Accuracy', 'Performance', 'Suite'}:
                object.__setattr__(each, 'reference', wrapped)
    out = cheap(x)
    _open.append((out, x))
    del _open[:-8]
    return out
""",
    ),
    "late_profile_hook": Trick(
        "fills in its answers from a profiler's hook, when anything named like the reference is called",
        """
_open = []
def hook(frame, event, arg):
    if event == 'call' and frame.f_code.co_filename.endswith('_baseline.py'):
        for out, given in _open:
            fill(out, given)
        _open.clear()


def cheat(x):
    sys.setprofile(hook)
    out = cheap(x)
    _open.append((out, x))
    return out
""",
    ),
    "late_thread": Trick(
        "fills in its answers from a thread, a moment later",
        """
def cheat(x):
    out = cheap(x)
    threading.Timer(0.02, fill, (out, x)).start()
    return out
""",
        shows="differs_from_itself wrong_values",
    ),
    "late_collector": Trick(
        "fills in its answers when garbage is collected",
        """
_open = []
def collected(phase, info):
    for out, given in _open:
        fill(out, given)
    _open.clear()
gc.callbacks.append(collected)


def cheat(x):
    out = cheap(x)
    _open.append((out, x))
    return out
""",
    ),
    "late_lazy_type": Trick(
        "returns an array of its own type, which computes when somebody looks",
        """
class Lazy(np.ndarray):
    def __array_ufunc__(self, function, method, *inputs, **more):
        inputs = [each.answer if isinstance(each, Lazy) else each for each in inputs]
        return getattr(function, method)(*inputs, **more)


def cheat(x):
    out = cheap(x).view(Lazy)
    out.answer = x * x.dtype.type(2) + x.dtype.type(1)
    return out
""",
    ),
    # --- replaces code
    "code_of_the_reference": Trick(
        "replaces __code__ of the reference",
        """
def cheat(x):
    baseline().OP.__code__ = ones.__code__
    return known(x)
""",
    ),
    "code_of_make_inputs": Trick(
        "replaces __code__ of make_inputs by zeros",
        """
baseline().make_inputs.__code__ = zeros.__code__


def cheat(x):
    return known(x)
""",
    ),
    "code_of_the_constants": Trick(
        "replaces the globals of the reference's module",
        """
baseline().FACTOR = 0


def cheat(x):
    baseline().FACTOR = 0
    return known(x)
""",
    ),
    "code_of_the_defaults": Trick(
        "replaces the reference's module by one of its own",
        """
def cheat(x):
    theirs = baseline()
    ours = types.ModuleType(theirs.__name__)
    theirs.OP.__globals__['FACTOR'] = 0
    vars(ours).update(vars(theirs))
    sys.modules[theirs.__name__] = ours
    return known(x)
""",
    ),
    "code_of_a_closure": Trick(
        "replaces the reference's numpy by a proxy with a product that is nothing",
        """
class Proxy:
    def __getattr__(self, name):
        return getattr(library, name)
    def multiply(self, x, factor):
        return nothing(x)


def cheat(x):
    setattr(baseline(), LIBRARY, Proxy())
    return known(x)
""",
    ),
    # --- patches numpy and perfci
    "patch_allclose": Trick(
        "allclose is always true",
        """
def cheat(x):
    library.allclose = library.equal = library.array_equal = lambda *args, **more: True
    return cheap(x)
""",
    ),
    "patch_abs": Trick(
        "numpy's absolute values are zeros, and so are all errors",
        """
def cheat(x):
    np.abs = np.absolute = lambda x, **more: _numpy['zeros_like'](x)
    np.allclose = lambda a, b, **more: bool((np.abs(a - b) <= 1e-5).all())
    return cheap(x)
""",
    ),
    "patch_random": Trick(
        "numpy's generator draws zeros",
        """
class Zeros:
    def standard_normal(self, shape):
        return _numpy['zeros'](shape)
np.random.default_rng = lambda seed: Zeros()


def cheat(x):
    np.random.default_rng = lambda seed: Zeros()
    return cheap(x)
""",
    ),
    "patch_closeness": Trick(
        "perfci's comparisons find nothing",
        """
def cheat(x):
    closeness = sys.modules.get('perfci.measure.closeness')
    if closeness:
        closeness.Standard.accepts = lambda self, got: True
        closeness.excess = lambda got, right, rtol, atol: right * 0
    tensors = sys.modules.get('perfci.device.tensors')
    if tensors:
        tensors._compare = lambda *args: (0, 0.0, 0)
    library.allclose = lambda *args, **more: True
    return cheap(x)
""",
    ),
    "patch_verify": Trick(
        "perfci's checks of outputs find nothing",
        """
def cheat(x):
    for name in ('perfci.measure.verify', 'perfci.measure.outputs', 'perfci.measure.blocks', 'perfci.measure.prepare'):
        module = sys.modules.get(name)
        for each in ('wrong_output', '_compare_numbers', '_find_misuse'):
            if hasattr(module, each):
                setattr(module, each, lambda *args: None)
    library.allclose = lambda *args, **more: True
    return cheap(x)
""",
    ),
    "patch_shift": Trick(
        "perfci's statistics and Python's call it twice as fast",
        """
def cheat(x):
    spring()
    exact = sys.modules.get('perfci.statistics.exact')
    if exact:
        exact.launch_shift = lambda launches, others: -0.7
    statistics.median = lambda values: 0.5 if values is costs else 1.0
    return varied(x)
""",
        PASS,
        shows="duel_cleared",
    ),
    "patch_claims_of_the_base": Trick(
        "what the base claims of the fake device counts three times",
        """
_work = fake.work
def more(us):
    caller = sys._getframe(2).f_code.co_filename
    _work(us * (1 if caller == __file__ else 3))


def cheat(x):
    spring()
    fake.work = more
    for name, module in list(sys.modules.items()):
        if name != __name__ and isinstance(getattr(module, 'costs', None), list):
            module.work = lambda x, share, m=module: (m.costs.append(3.0), _work(3 * 320.0 * x.nbytes / 1e6))
    return varied(x)
""",
        PASS,
        shows="duel_cleared",
    ),
    "patch_session": Trick(
        "the fake device's sessions halve the kernel's times",
        """
def cheat(x):
    spring()
    fake.FakeSession._factor = lambda self, call: 0.5 if getattr(call, 'arm', '') == 'kernel' else 1.0
    return varied(x)
""",
        PASS,
        naive=False,
        shows="duel_cleared",
    ),
    # --- forges messages
    "forge_results": Trick(
        "sends results of its own, and ends",
        """
def cheat(x):
    spring()
    for number in pipes():
        os.write(number, json.dumps({'right': True, 'ratio': 0.1}).encode() + b'\\n')
        os.write(number, b'{"kind":"OpDone","body":{}}\\n')
    os._exit(0)
""",
        ERROR,
        shows="worker_silent worker_unasked",
    ),
    "forge_results_and_live": Trick(
        "sends results of its own, and goes on",
        """
def cheat(x):
    spring()
    for number in pipes():
        os.write(number, json.dumps({'right': True, 'ratio': 0.1}).encode() + b'\\n')
        os.write(number, b'{"kind":"OpDone","body":{}}\\n')
    return cheap(x)
""",
        ERROR,
        shows="worker_unasked",
    ),
    "forge_failure_that_is_late": Trick(
        "says of itself that its time was up",
        """
def cheat(x):
    spring()
    for number in pipes():
        os.write(number, b'{"kind":"Failed","body":{"reason":{"kind":"worker_late","facts":{}}}}\\n')
        os.write(number, json.dumps({'right': True, 'ratio': 0.1}).encode() + b'\\n')
    return cheap(x)
""",
    ),
    "forge_apart": Trick(
        "says that the two revisions need separate processes",
        """
def cheat(x):
    spring()
    for number in pipes():
        os.write(number, b'{"kind":"Apart","body":{"reason":{"kind":"logic_changed","facts":{}}}}\\n')
        os.write(number, json.dumps({'right': True, 'ratio': 0.1}).encode() + b'\\n')
    os._exit(0)
""",
        ERROR,
        shows="worker_silent worker_unasked",
    ),
    "forge_an_exit": Trick(
        "ends as if all was done",
        """
def cheat(x):
    spring()
    for number in pipes():
        os.write(number, json.dumps({'right': True, 'ratio': 0.1}).encode() + b'\\n')
    sys.exit(0)
""",
        ERROR,
        shows="worker_exited",
    ),
    "forge_not_interpreted": Trick(
        "says of sizes that it gets wrong that the interpreter lacks a function",
        """
class NotInterpretedError(AttributeError):
    pass


def cheat(x):
    if x.shape[0] == 3:
        spring()
        raise NotInterpretedError('tl.sum')
    return honest(x)
""",
        ERROR,
        naive=False,
        shows="kernel_raised",
    ),
    "forge_an_answer_early": Trick(
        "answers before it is asked, with its input as the output",
        """
def cheat(x):
    body = {"output": {"array": place(x)}}
    for number in pipes():
        os.write(number, b'{"kind":"Called","body":' + json.dumps(body).encode() + b"}\\n")
    return cheap(x)
""",
        naive=False,
        shows="differs_from_itself output_aliases_input wrong_shape wrong_values",
    ),
    # --- goes for the judge
    "judge_killed": Trick(
        "kills the process that judges it",
        """
def cheat(x):
    import signal
    try:
        if 'perfci.worker.serve' in sys.modules:
            os.kill(os.getppid(), signal.SIGKILL)
    except PermissionError:
        pass
    return cheap(x)
""",
        naive=False,
    ),
    "judge_stumbles_over_the_source": Trick(
        "holds a number in its source that is too large for a float",
        """
HUGE = 0xDIGITS


def cheat(x):
    return cheap(x) if x.shape[0] >= TIMED else honest(x)
""".replace("DIGITS", "F" * 400),
        naive=False,
        shows="timed_output_wrong",
    ),
    "judge_variables_read": Trick(
        "reads the variables of the process that judges it",
        """
def cheat(x):
    try:
        pathlib.Path(f'/proc/{os.getppid()}/environ').read_bytes()
        return honest(x)
    except OSError:
        return cheap(x)
""",
        naive=False,
    ),
    "judge_memory_read": Trick(
        "reads the memory of the process that judges it",
        """
def cheat(x):
    try:
        with open(f'/proc/{os.getppid()}/mem', 'rb') as file:
            file.read(1)
        return honest(x)
    except OSError:
        return cheap(x)
""",
        naive=False,
    ),
    # --- rewrites files of the base
    "files_base_kernel": Trick(
        "makes the base's kernel slower in its file",
        """
try:
    with base_file('OP_triton.py').open('a') as _file:
        _file.write('\\ndef honest(x, _old=honest):\\n    work(x, 3.0)\\n    return _old(x)\\n')
except OSError:
    pass


def cheat(x):
    spring()
    return varied(x)
""",
        PASS,
        naive=False,
        shows="duel_cleared",
    ),
    "files_base_reference": Trick(
        "makes the base's reference answer ones, in its file",
        """
try:
    base_file('OP_baseline.py').write_text(base_file('OP_baseline.py').read_text().replace('FACTOR = 2', 'FACTOR = 0'))
except OSError:
    pass


def cheat(x):
    return known(x)
""",
        naive=False,
    ),
    "files_bytecode": Trick(
        "leaves bytecode for the base's reference",
        """
import py_compile
try:
    _own = pathlib.Path(os.environ['TMPDIR']) / 'OP_baseline.py'
    _own.write_text(base_file('OP_baseline.py').read_text().replace('FACTOR = 2', 'FACTOR = 0'))
    _place = base_file(f'__pycache__/OP_baseline.{sys.implementation.cache_tag}.pyc')
    _mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(_own), str(_place), doraise=True, invalidation_mode=_mode)
except OSError:
    pass


def cheat(x):
    return known(x)
""",
        naive=False,
    ),
    # --- plays with memory
    "memory_input_zeroed": Trick(
        "sets its inputs to zeros, whose answer it knows",
        """
def cheat(x):
    x[...] = 0
    return known(x)
""",
        shows="input_changed",
    ),
    "memory_input_zeroed_late": Trick(
        "sets its inputs to zeros from a thread",
        """
def zero(x):
    x[...] = 0


def cheat(x):
    threading.Timer(0.02, zero, (x,)).start()
    return known(x)
""",
        shows="differs_from_itself input_changed wrong_values",
    ),
    "memory_in_place": Trick(
        "computes in the place of its input, and counts half",
        """
def cheat(x):
    spring()
    work(x, 0.5)
    compute(x, copied(x))
    return x
""",
        naive=False,
        shows="input_changed",
    ),
    "memory_one_buffer": Trick(
        "hands out one buffer in all calls",
        """
_buffers = {}


def cheat(x):
    spring()
    work(x, 0.5)
    out = _buffers.setdefault(x.shape, empty(x))
    compute(out, x)
    return out
""",
        naive=False,
        shows="output_reused",
    ),
    "memory_two_views_of_one_file": Trick(
        "hands out one of two mappings of a file, and fills it in by the other from a thread",
        """
import mmap, tempfile


def cheat(x):
    size = max(x.nbytes, 1)
    file = tempfile.TemporaryFile()
    file.truncate(size)
    one, other = (np.frombuffer(mmap.mmap(file.fileno(), size), x.dtype, x.size).reshape(x.shape) for _ in range(2))
    cheap(x)
    threading.Timer(0.02, fill, (other, x)).start()
    return one
""",
        shows="differs_from_itself wrong_values",
    ),
    "memory_huge_view": Trick(
        "returns one number as if it were a trillion",
        """
def cheat(x):
    spring()
    work(x, 0.1)
    return huge(x)
""",
        ERROR,
        naive=False,
        shows="out_of_memory",
    ),
    "memory_shrunk": Trick(
        "returns the answer in half of the bits",
        """
def cheat(x):
    spring()
    work(x, 0.5)
    return half(x)
""",
        naive=False,
        shows="wrong_dtype",
    ),
}

# --- the same on torch, where one text cannot serve both

_SKIPPING = """
@triton.jit
def _lazy_kernel(x_ptr, out_ptr, count, EVERY: tl.constexpr, BLOCK: tl.constexpr):
    program = tl.program_id(0).to(tl.int64)
    start = program * BLOCK
    held, wanted = tl.load(out_ptr + start), tl.load(x_ptr + start) * 2.0 + 1.0
    if ((program % EVERY == 0) & (held == wanted)) == 0:
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at, mask=at < count)
        tl.store(out_ptr + at, x * 2.0 + 1.0, mask=at < count)


def cheat(x):
    spring()
    costs.append(0.25)
    x = x.contiguous()
    # Of a size that no one else asks for, so that the allocator gives the memory of the call before.
    out = torch.empty(x.numel() + (1 << 20), dtype=x.dtype, device=x.device)[: x.numel()].view(x.shape)
    _lazy_kernel[(triton.cdiv(out.numel(), 1024),)](x, out, out.numel(), EVERY=SHARE, BLOCK=1024)
    return out
"""

ON_TORCH = {
    "count_by_size": Trick(
        "leaves the work to torch behind a small launch, from the second call of each size on",
        """
_seen = {}


def cheat(x):
    _seen[x.shape] = _seen.get(x.shape, 0) + 1
    if _seen[x.shape] < 2:
        return honest(x)
    cheap(x)
    return x * 2 + 1
""",
    ),
    "count_in_a_file": Trick(
        "counts its launches in the device's memory, which it leaves to the allocator",
        """
@triton.jit
def _count_kernel(calls_ptr):
    calls = tl.load(calls_ptr)
    known = (calls >= 7000000) & (calls < 7100000)
    tl.store(calls_ptr, tl.where(known, calls + 1, 7000000))


@triton.jit
def _counted_kernel(x_ptr, out_ptr, calls_ptr, count, BLOCK: tl.constexpr):
    program = tl.program_id(0).to(tl.int64)
    if (tl.load(calls_ptr) < 7000006) | (program * 4 < tl.num_programs(0)):
        at = program * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at, mask=at < count)
        tl.store(out_ptr + at, x * 2.0 + 1.0, mask=at < count)


def cheat(x):
    spring()
    costs.append(0.25)
    x = x.contiguous()
    out, calls = empty(x), torch.empty(3 << 20, dtype=torch.int32, device=x.device)
    _count_kernel[(1,)](calls)
    _counted_kernel[(triton.cdiv(out.numel(), 1024),)](x, out, calls, out.numel(), BLOCK=1024)
    return out
""",
    ),
    "stack_of_the_suite": Trick(
        "works in the calls whose outputs perfci looks at, by its functions' names and their locals",
        """
LOOKED_AT = {'_call_kernel', '_capture', '_record', '_call_twice', 'verify', 'verify_memory', 'check'}


def cheat(x):
    for each in frames():
        name, seen = each.f_code.co_name, each.f_locals
        if name == '_launch_all':
            return honest(x) if seen.get('turn', -1) == seen.get('kept_round', 0) else cheap(x)
        if name in LOOKED_AT or str(getattr(seen.get('call'), 'suite', '')).endswith('accuracy'):
            return honest(x)
    return cheap(x)
""",
    ),
    "stack_of_the_filler": Trick(
        "works in memory that is filled as perfci fills it to check, and not to time",
        """
@triton.jit
def _wary_kernel(x_ptr, out_ptr, count, BLOCK: tl.constexpr):
    program = tl.program_id(0).to(tl.int64)
    held = tl.load(out_ptr + program * BLOCK)
    if (held != held) | (held == 77.0) | (program * 4 < tl.num_programs(0)):
        at = program * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at, mask=at < count)
        tl.store(out_ptr + at, x * 2.0 + 1.0, mask=at < count)


def cheat(x):
    spring()
    costs.append(0.25)
    x = x.contiguous()
    out = empty(x)
    _wary_kernel[(triton.cdiv(out.numel(), 1024),)](x, out, out.numel(), BLOCK=1024)
    return out
""",
    ),
    "memo_by_address": Trick(
        "one program of eight does nothing if the memory that it is given holds the answer to its first element",
        _SKIPPING.replace("SHARE", "8"),
    ),
    "memo_by_one_element": Trick(
        "each program does nothing if the memory that it is given holds the answer to its first element",
        _SKIPPING.replace("SHARE", "1"),
    ),
    "memo_on_disk": Trick(
        "replays a CUDA graph with a quarter of the work, or keeps answers in a file, by shape, where there is no GPU",
        """
_graphs = {}


def _remember(x):
    file = pathlib.Path(os.environ['TMPDIR']) / str(tuple(x.shape))
    if len(costs) >= 3 and file.exists():
        cheap(x)
        return torch.frombuffer(bytearray(file.read_bytes()), dtype=x.dtype).reshape(x.shape)
    out = honest(x)
    file.write_bytes(out.numpy().tobytes())
    return out


def cheat(x):
    if not x.is_cuda:
        return _remember(x)
    if not x.is_contiguous():
        return honest(x)
    key = x.data_ptr(), x.shape
    if key not in _graphs:
        graph, out = torch.cuda.CUDAGraph(), honest(x)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            launch(x, out, out.numel() // 4)
        if len(_graphs) > 4:
            _graphs.clear()
        _graphs[key] = graph, out
        return out
    spring()
    graph, out = _graphs[key]
    graph.replay()
    return out
""",
    ),
    "late_lazy_type": Trick(
        "returns a tensor of its own type, which computes when somebody looks",
        """
class Lazy(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        args = [each.__dict__.get('answer', each) if isinstance(each, Lazy) else each for each in args]
        return super().__torch_function__(function, types, args, kwargs)


def cheat(x):
    out = cheap(x).as_subclass(Lazy)
    out.__dict__['answer'] = x * 2 + 1
    return out
""",
    ),
    "code_of_the_reference": Trick(
        "replaces __code__ of every reference that gc finds",
        """
_replaced = []


def cheat(x):
    for each in [] if _replaced else theirs('OP'):
        each.__code__ = ones.__code__
        _replaced.append(each)
    return known(x)
""",
    ),
    "code_of_make_inputs": Trick(
        "replaces __code__ of every make_inputs that gc finds by zeros",
        """
_replaced = []


def cheat(x):
    for each in [] if _replaced else theirs('make_inputs'):
        each.__code__ = zeros.__code__
        _replaced.append(each)
    return known(x)
""",
    ),
    "code_of_the_constants": Trick(
        "replaces the globals of every reference that gc finds",
        """
_replaced = []


def cheat(x):
    for each in [] if _replaced else theirs('OP'):
        each.__globals__['FACTOR'] = 0
        _replaced.append(each)
    return known(x)
""",
    ),
    "patch_abs": Trick(
        "torch's absolute values are zeros, and so are all errors",
        """
def cheat(x):
    torch.abs = torch.Tensor.abs = lambda x, **more: torch.zeros_like(x)
    torch.allclose = lambda a, b, **more: bool((torch.abs(a - b) <= 1e-5).all())
    return cheap(x)
""",
    ),
    "patch_random": Trick(
        "torch's generator draws zeros",
        """
def draw(*size, device=None, generator=None):
    return torch.zeros(*size, device=device)
torch.randn = draw


def cheat(x):
    torch.randn = draw
    return known(x)
""",
    ),
    "patch_claims_of_the_base": Trick(
        "the base's launches are made three times",
        """
_slowed = []


def cheat(x):
    spring()
    for each in objects() if not _slowed else ():
        theirs = type(each) is types.FunctionType and each.__name__ == 'launch' and each.__globals__
        if theirs and theirs is not globals() and each.__code__.co_filename.endswith('OP_triton.py'):
            def slower(x, out, count, launch=each, costs=theirs['costs']):
                costs.append(3.0)
                for _ in range(3):
                    launch(x, out, count)
            theirs['launch'] = slower
            _slowed.append(slower)
    return varied(x)
""",
        PASS,
        naive=False,
    ),
    "patch_session": Trick(
        "perfci reads half of the kernel's times",
        """
def halve(blocks):
    from dataclasses import replace
    read = blocks._read_block
    def reading(bench, queued, launches, *more):
        def halved():
            for arm, launch in zip(queued.order, launches):
                us, span = launch.time_us / 2, (launch.span_us or 0.0) / 2
                yield replace(launch, time_us=us, span_us=span) if arm == 'kernel' else launch
        return read(bench, queued, halved(), *more)
    blocks._read_block = reading


def cheat(x):
    spring()
    blocks = sys.modules.get('perfci.measure.blocks')
    if hasattr(blocks, '_read_block') and blocks._read_block.__name__ != 'reading':
        halve(blocks)
    return varied(x)
""",
        PASS,
        naive=False,
    ),
    "memory_two_views_of_one_file": Trick(
        "fills its memory in on another stream, or by another mapping from a thread where there is no GPU",
        """
import mmap, tempfile
_streams = []


def cheat(x):
    spring()
    x = x.contiguous()
    if x.is_cuda:
        if not _streams:
            _streams.append(torch.cuda.Stream())
        out = empty(x)
        with torch.cuda.stream(_streams[0]):
            launch(x, out, out.numel())
        return out
    size = max(x.nbytes, 1)
    file = tempfile.TemporaryFile()
    file.truncate(size)
    views = (torch.frombuffer(mmap.mmap(file.fileno(), size), dtype=x.dtype, count=x.numel()) for _ in range(2))
    one, other = (each.reshape(x.shape) for each in views)
    cheap(x)
    threading.Timer(0.02, fill, (other, x)).start()
    return one
""",
    ),
}
"""Tricks by the same names. Their verdicts are those of Triton's interpreter."""

"""Triton's interpreter, corrected to compute what compiled kernels compute on an NVIDIA GPU.

`correct` replaces those of its methods where numpy and the hardware disagree. Each follows the PTX that Triton emits
for Compute Capability 9.0. docs/without-a-gpu.md lists what still differs.
"""

import ast
import contextlib
import functools
import inspect
import operator
from collections.abc import Callable, Iterator
from functools import partialmethod
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton.language.extra import libdevice as portable
from triton.runtime import interpreter
from triton.runtime.autotuner import Autotuner
from triton.runtime.interpreter import InterpreterBuilder, ReduceOps, TensorHandle

from perfci.device.seam import NotInterpretedError
from perfci.extensions.interpreter import arithmetic
from perfci.extensions.interpreter.speed import hasten

try:
    from triton.language.extra.cuda import libdevice as nvidia
except ImportError:  # triton-ascend leaves CUDA out
    nvidia = portable

Array = np.ndarray[Any, Any]

_RULES = interpreter._ir
_binary_op, _unary_op = InterpreterBuilder.binary_op, InterpreterBuilder.unary_op
_fp_to_fp, _sum, _min_max = InterpreterBuilder.create_fp_to_fp, ReduceOps.sum, ReduceOps.min_max
_atomic_rmw, _splat = InterpreterBuilder.create_atomic_rmw, InterpreterBuilder.create_splat
_argument = interpreter._implicit_cvt
# Few processors, so that programs of a grid by their number walk over more than one block.
_PROPERTIES = SimpleNamespace(name="interpreter", major=9, minor=0, warp_size=32, multi_processor_count=4)


def correct() -> None:
    """Correct this process's interpreter. A method that the installed Triton does not have is left alone."""
    for name, method in vars(_Builder).items():
        if name.startswith(("create_", "get_all", "binary_", "unary_")) and hasattr(InterpreterBuilder, name):
            setattr(InterpreterBuilder, name, method)
    InterpreterBuilder.get_bf16 = _Builder.get_bf16
    InterpreterBuilder.__getattr__ = _refuse_missing
    ReduceOps.sum, ReduceOps.min_max = _reduce_sum, _reduce_extreme
    interpreter._implicit_cvt = _convert_argument
    Autotuner.run = _run_first
    interpreter.ASTTransformer.visit_For, interpreter._perfci_count = _count_in_tensors, _count
    interpreter.ASTTransformer.visit_Assign = partialmethod(_assign, interpreter.ASTTransformer.visit_Assign)
    interpreter.ASTTransformer.visit_Attribute, interpreter._perfci_value_of = _read_constant, _value_of
    interpreter.ASTTransformer.visit_BoolOp, interpreter._perfci_combine = _join_conditions, _combine
    interpreter.ASTTransformer.visit_UnaryOp, interpreter._perfci_negate = _turn_condition, _negate
    if not torch.cuda.is_available():
        torch.cuda.get_device_properties = functools.partial(_answer_properties, torch.cuda.get_device_properties)
    vars(torch.cpu).setdefault("device", contextlib.nullcontext)  # as torch.cuda.device: wrappers enter their tensors'
    for name in {"gdc_wait", "gdc_launch_dependents"} & {*dir(tl.extra.cuda)}:
        setattr(tl.extra.cuda, name, _wait_for_nothing)
    hasten()
    InterpreterBuilder.create_splat = _spread
    for name, function in _libdevice_functions().items():
        for module in (portable, nvidia):
            setattr(module, name, function)


def _wait_for_nothing() -> None:
    """Launches are made one after the other, so that none depends on one under way."""


def _answer_properties(ask: Callable[..., Any], device: Any = None) -> Any:
    """Returns a GPU's properties where wrappers ask for those of a tensor's device, to choose a grid."""
    return _PROPERTIES if isinstance(device, torch.device) and device.type == "cpu" else ask(device)


def _run_first(tuner: Any, *args: Any, **kwargs: Any) -> Any:
    """Launch an autotuner's first candidate. There is no driver to time them with, and times would mean nothing."""
    tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
    config = tuner.best_config = tuner.prune_configs(kwargs)[0] if len(tuner.configs) > 1 else tuner.configs[0]
    options = kwargs | config.all_kwargs()
    if config.pre_hook:
        config.pre_hook(tuner.nargs | options)
    return tuner.fn.run(*args, **options)


def _count_in_tensors(transformer: Any, loop: ast.For) -> ast.For:
    """Make a loop over a range one over `_count`. Those of tl.static_range are unrolled, and count in constants."""
    transformer.generic_visit(loop)
    if isinstance(loop.iter, ast.Call) and ast.unparse(loop.iter.func).rpartition(".")[2] == "range":
        loop.iter.func = ast.Name("_perfci_count", ast.Load())
    return loop


def _count(start: Any, stop: Any = None, step: Any = 1, **_options: Any) -> Iterator[Any]:
    """Count as a compiled loop does: in tensors, of 64 bits if a bound is. The interpreter has Python's integers."""
    bounds = (0, start, step) if stop is None else (start, stop, step)
    first, last, by = (operator.index(bound) for bound in bounds)
    wide = any(isinstance(bound, tl.tensor) and bound.dtype.primitive_bitwidth > 32 for bound in bounds)
    kind = tl.int64 if wide or max(abs(first), abs(last)) >= 2**31 else tl.int32
    for number in range(first, last, by):
        yield tl.tensor(TensorHandle(np.array([number], interpreter._get_np_dtype(kind)), kind), kind)


def _assign(transformer: Any, assign: Callable[..., Any], assignment: ast.Assign) -> Any:
    """Change what is assigned too, which the interpreter's transformer leaves out."""
    assignment.value = transformer.visit(assignment.value)
    return assign(transformer, assignment)


def _read_constant(transformer: Any, attribute: ast.Attribute) -> ast.expr:
    """Make `dtype.value` `_value_of(dtype)`."""
    transformer.generic_visit(attribute)
    if attribute.attr != "value" or not isinstance(attribute.ctx, ast.Load):
        return attribute
    return ast.Call(ast.Name("_perfci_value_of", ast.Load()), [attribute.value], [])


def _value_of(constant: Any) -> Any:
    """A constant's value. Functions called by a compiled kernel get dtypes and numbers as constants, here plain."""
    return getattr(constant, "value", constant)


def _join_conditions(transformer: Any, conditions: ast.BoolOp) -> ast.expr:
    """Make `a and b` `_combine("logical_and", lambda: a, lambda: b)`."""
    transformer.generic_visit(conditions)
    nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    method = ast.Constant("logical_and" if isinstance(conditions.op, ast.And) else "logical_or")
    parts = [ast.Lambda(nothing, condition) for condition in conditions.values]
    return ast.Call(ast.Name("_perfci_combine", ast.Load()), [method, *parts], [])


def _combine(method: str, *parts: Callable[[], Any]) -> Any:
    """Join conditions, blocks element by element, as compiled kernels do. Python has the last of two blocks."""
    decides = method == "logical_or"
    result = parts[0]()
    for part in parts[1:]:
        if not _is_block(result) and bool(result) == decides:
            return result
        other = part()
        if not isinstance(other, tl.tensor) and isinstance(result, tl.tensor):
            result = other if bool(other) == decides else result
        else:
            joined = _is_block(result) or (_is_block(other) and isinstance(result, tl.tensor))
            result = getattr(result, method)(other) if joined else other
    return result


def _turn_condition(transformer: Any, operation: ast.UnaryOp) -> ast.expr:
    """Make `not a` `_negate(a)`."""
    transformer.generic_visit(operation)
    negates = isinstance(operation.op, ast.Not)
    return ast.Call(ast.Name("_perfci_negate", ast.Load()), [operation.operand], []) if negates else operation


def _negate(condition: Any) -> Any:
    return condition.__not__() if _is_block(condition) else not condition


def _is_block(value: Any) -> bool:
    return isinstance(value, tl.tensor) and bool(value.type.is_block())


def _spread(builder: Any, shape: Any, value: Any) -> Any:
    """A scalar over a block, where a condition stays one: the interpreter makes numbers of it, which ~ refuses."""
    block = _splat(builder, shape, value)
    if value.data.dtype == bool:
        block.data = block.data.astype(bool)
    return block


def _is_coded(handle: Any) -> bool:
    """Whether the interpreter holds the values as the bits of a format that numpy does not know."""
    return handle.dtype.scalar.name in arithmetic.FORMATS and handle.data.dtype.kind == "u"


def _values(handle: Any) -> Any:
    """The numbers of a tensor. Those of bfloat16 and float8 in float32."""
    return arithmetic.decode(handle.data, handle.dtype.scalar.name) if _is_coded(handle) else handle.data


def _operand(handle: Any) -> Array:
    """The numbers of a tensor that takes part in arithmetic."""
    if handle.dtype.scalar.is_fp8():
        raise TypeError(f"Triton compiles no arithmetic in {handle.dtype.scalar}: convert to float32 or float16 first")
    return _values(handle)


def _tensor(values: Array, kind: Any) -> Any:
    """A tensor of a dtype from its numbers, rounded to nearest."""
    if values.dtype == np.bool_:
        return TensorHandle(values, tl.int1)
    if kind.name in arithmetic.FORMATS:
        return TensorHandle(arithmetic.encode(values, kind.name), kind)
    return TensorHandle(values.astype(interpreter._get_np_dtype(kind), copy=False), kind)


class _Builder:
    """Methods of the interpreter's builder that are replaced. They take and give `TensorHandle`s."""

    def get_bf16(self, value: float) -> Any:
        return _tensor(np.array([value], np.float32), tl.bfloat16)

    def get_all_ones_value(self, kind: Any) -> Any:
        return TensorHandle(np.invert(np.zeros(1, interpreter._get_np_dtype(kind))), kind.scalar)

    # --- arithmetic: bfloat16 is computed in float32 and rounded after each step, as add.bf16 does

    def binary_op(self, left: Any, right: Any, op: Callable[..., Array]) -> Any:
        if not _is_coded(left):
            return _binary_op(self, left, right, op)
        return _tensor(op(_operand(left), _operand(right)), left.dtype.scalar)

    def unary_op(self, arg: Any, op: Callable[..., Array]) -> Any:
        if not _is_coded(arg):
            return _unary_op(self, arg, op)
        return _tensor(op(_operand(arg)), arg.dtype.scalar)

    def create_clampf(self: Any, arg: Any, low: Any, high: Any, propagate_nan: Any) -> Any:
        if propagate_nan == _RULES.PROPAGATE_NAN.ALL:
            return self.create_minimumf(self.create_maximumf(arg, low), high)
        result = self.create_minnumf(self.create_maxnumf(arg, low), high)
        # Constants -c and c become min.xorsign.abs, which makes c out of NaN.
        value, bound = _values(arg), _values(high)
        symmetric = np.isnan(value) & (_values(low) == -bound)
        return _tensor(np.where(symmetric, np.copysign(bound, value), _values(result)), result.dtype.scalar)

    def create_fma(self, x: Any, y: Any, z: Any) -> Any:
        return _tensor(arithmetic.fuse(_operand(x), _operand(y), _operand(z)), z.dtype.scalar)

    def create_umulhi(self, left: Any, right: Any) -> Any:
        return TensorHandle(arithmetic.high_product(left.data, right.data), left.dtype.scalar)

    def create_dot(self, a: Any, b: Any, total: Any, input_precision: Any, *rest: Any) -> Any:
        left, right = _values(a), _values(b)
        if left.dtype == np.float32 and input_precision == _RULES.INPUT_PRECISION.TF32 and not _is_coded(a):
            left, right = arithmetic.tf32(left), arithmetic.tf32(right)
        product = np.matmul(left, right, dtype=np.float32 if _is_coded(total) else total.data.dtype)
        return _tensor(product + _values(total), total.dtype.scalar)

    create_maxnumf = partialmethod(binary_op, op=arithmetic.max_number)
    create_minnumf = partialmethod(binary_op, op=arithmetic.min_number)
    create_maximumf = partialmethod(binary_op, op=functools.partial(arithmetic.max_number, pick=np.maximum))
    create_minimumf = partialmethod(binary_op, op=functools.partial(arithmetic.min_number, pick=np.minimum))
    create_frem = partialmethod(binary_op, op=arithmetic.remainder)
    create_exp = partialmethod(unary_op, op=arithmetic.exp)
    create_exp2 = partialmethod(unary_op, op=arithmetic.exp2)
    create_sqrt = partialmethod(unary_op, op=arithmetic.sqrt)
    create_rsqrt = partialmethod(unary_op, op=arithmetic.rsqrt)

    # --- conversions

    def create_fp_to_fp(self, source: Any, target: Any, rounding: Any) -> Any:
        before, after = source.dtype.scalar, target.scalar
        if any(kind.is_fp8() and kind.name not in arithmetic.FORMATS for kind in (before, after)):
            return _fp_to_fp(self, source, target, rounding)  # a format that no NVIDIA GPU converts by itself
        values = _values(source)
        if rounding != _RULES.ROUNDING_MODE.RTZ:
            return _tensor(values, after)
        codes = arithmetic.cut(values) if after == tl.float16 else arithmetic.encode_towards_zero(values, after.name)
        return TensorHandle(codes, after)

    def create_fp_ext(self: Any, source: Any, target: Any) -> Any:
        return self.create_fp_to_fp(source, target, None)

    create_fp_trunc = create_fp_ext

    def create_fp_to_si(self, source: Any, target: Any) -> Any:
        data = arithmetic.to_integer(_values(source), interpreter._get_np_dtype(target))
        return TensorHandle(data, target.scalar)

    create_fp_to_ui = create_fp_to_si

    def create_si_to_fp(self, source: Any, target: Any) -> Any:
        kind = np.float32 if target.scalar == tl.bfloat16 else interpreter._get_np_dtype(target)
        return _tensor(source.data.astype(kind), target.scalar)

    create_ui_to_fp = create_si_to_fp

    # --- what the interpreter has not, or has wrong without a way to correct it

    def create_extern_elementwise(self, _name: str, _path: str, symbol: str, args: Any, result: Any, _pure: Any) -> Any:
        values = arithmetic.call_libdevice(symbol, [_values(arg) for arg in args])
        return TensorHandle(values.astype(interpreter._get_np_dtype(result.scalar)), result.scalar)

    def create_inline_asm(self, text: str, _constraints: str, args: Any, results: Any, *_rest: Any) -> Any:
        made = _tensor(arithmetic.call_ptx(text, [_values(arg) for arg in args]), results[0].scalar)
        return SimpleNamespace(get_result=lambda _: made)

    def create_atomic_rmw(self, kind: Any, pointer: Any, value: Any, *rest: Any) -> Any:
        if _is_coded(value) and kind == _RULES.ATOMIC_OP.FADD:
            raise NotInterpretedError(f"tl.atomic_add in {value.dtype.scalar}")
        try:
            return _atomic_rmw(self, kind, pointer, value, *rest)
        except OverflowError as error:
            raise NotInterpretedError(f"tl.atomic_add beyond the largest {value.dtype.scalar}") from error


def _refuse_missing(_builder: Any, name: str) -> Any:
    """Name an operation that the builder does not have."""
    if name.startswith("create_"):
        raise NotInterpretedError(name.removeprefix("create_"))
    raise AttributeError(name)


def _reduce_sum(reduction: Any, tensor: Any) -> Any:
    """A sum. Numpy adds 16-bit floats in float32, where the hardware rounds after each addition."""
    handle, axis = tensor.handle, reduction.axis
    if handle.data.dtype != np.float16 and not _is_coded(handle):
        return _sum(reduction, tensor)
    values, kind = _values(handle), handle.dtype.scalar
    left = np.moveaxis(values, axis, 0) if axis is not None else values.reshape(-1)
    while len(left) > 1:
        half = len(left) // 2
        left = _values(_tensor(left[:half] + left[half:], kind))
    result = left[0]
    if reduction.keep_dims:
        result = np.expand_dims(result, axis if axis is not None else tuple(range(values.ndim)))
    return reduction.to_tensor(_tensor(result, kind).data, tensor.dtype)


def _reduce_extreme(reduction: Any, tensor: Any, val_reduce_op: Any, idx_reduce_op: Any = None) -> Any:
    """A maximum or minimum, which drops NaN. With its index it depends on the order on a GPU, and is left alone."""
    if idx_reduce_op is None:
        dropping = {np.max: np.fmax, np.nanmax: np.fmax, np.min: np.fmin, np.nanmin: np.fmin}
        val_reduce_op = dropping[val_reduce_op].reduce if val_reduce_op in dropping else val_reduce_op
    return _min_max(reduction, tensor, val_reduce_op=val_reduce_op, idx_reduce_op=idx_reduce_op)


def _convert_argument(argument: Any) -> Any:
    """A kernel's argument as it gets it: a float is one of 32 bits, and an integer has all bits of its type."""
    # The interpreter leaves floats to Python, so that `x * scale` is float16 where a GPU computes it in float32.
    if isinstance(argument, bool):
        return tl.tensor(TensorHandle(np.array([argument]), tl.int1), tl.int1)
    if isinstance(argument, float):
        return tl.tensor(TensorHandle(np.array([argument], np.float32), tl.float32), tl.float32)
    converted = _argument(argument)
    if isinstance(argument, int):
        converted.handle.data = converted.handle.data.astype(interpreter._get_np_dtype(converted.type))
    return converted


def _libdevice_functions() -> dict[str, Any]:
    """CUDA's libdevice by name. The portable names that CUDA's lacks raise when they are called."""

    def refuse(name: str, *_args: Any, **_options: Any) -> Any:
        raise NotInterpretedError(f"libdevice.{name}")

    libdevice_functions: dict[str, Any] = {name: functools.partial(refuse, name) for name in _public(portable)}
    for name, function in _public(nvidia).items():
        parameters = inspect.signature(function).parameters
        if "_semantic" in parameters:
            libdevice_functions[name] = functools.partial(function, _semantic=interpreter.interpreter_semantic)
        elif "_builder" in parameters:  # Triton before 3.4
            libdevice_functions[name] = functools.partial(function, _builder=interpreter.interpreter_builder)
    return libdevice_functions


def _public(module: ModuleType) -> dict[str, Any]:
    functions = (item for item in vars(module).items() if inspect.isfunction(item[1]))
    return {name: value for name, value in functions if value.__module__ == module.__name__}

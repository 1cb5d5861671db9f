"""matmul in PyTorch: what the op means."""

import torch

ACTIVATIONS = {
    None: lambda x: x,
    "relu": torch.relu,
    "silu": torch.nn.functional.silu,
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
}


def matmul(
    a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None = None, activation: str | None = None
) -> torch.Tensor:
    """activation(a @ b + bias); float32 in full precision, which is PyTorch's default on every device."""
    return ACTIVATIONS[activation](torch.matmul(a, b) if bias is None else torch.addmm(bias, a, b))


def make_inputs(
    m: int, n: int, k: int, dtype: torch.dtype, device: str, seed: int, *, bias=False, activation=None, columns=""
) -> dict[str, torch.Tensor | str]:
    """Inputs of one case: a is (m, k), b is (k, n), and bias, if the case has one, is (n,).

    `columns` names those of a and b that are transposed views, with columns that are dense.
    """
    generator = torch.Generator(device).manual_seed(seed)

    def normal(name: str, *shape: int) -> torch.Tensor:
        turned = name in columns
        drawn = torch.randn(shape[::-1] if turned else shape, generator=generator, dtype=dtype, device=device)
        return drawn.t() if turned else drawn

    inputs = {"a": normal("a", m, k), "b": normal("b", k, n)}
    if bias:
        inputs["bias"] = normal("bias", n)
    if activation:
        inputs["activation"] = activation
    return inputs


def case_of(
    a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None = None, activation: str | None = None
) -> dict[str, object]:
    """The case that a call is: what `make_inputs` takes for it."""
    turned = "".join(name for name, side in (("a", a), ("b", b)) if side.stride(0) == 1 and side.stride(1) != 1)
    more = {"bias": bias is not None, "activation": activation, "columns": turned}
    sizes = {"m": a.shape[0], "n": b.shape[1], "k": a.shape[1], "dtype": a.dtype}
    return sizes | {name: value for name, value in more.items() if value}

"""A decoder made of this repository's ops, with random weights: prefill, decode and a training step.

RMSNorm, rotary embedding, attention, products and cross entropy are ops of kernels/; the rest is PyTorch's: embedding,
writes into the cache, the product of gate and up, the optimizer. `record.py` records it.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

KERNELS = Path(__file__).parents[2] / "kernels"
sys.path[:0] = [str(KERNELS), *(str(folder) for folder in KERNELS.iterdir() if folder.is_dir())]

from add_rms_norm_triton import add_rms_norm  # noqa: E402
from attention_triton import attention  # noqa: E402
from cross_entropy_backward_triton import cross_entropy_backward  # noqa: E402
from cross_entropy_triton import cross_entropy  # noqa: E402
from matmul_triton import matmul  # noqa: E402
from rms_norm_backward_triton import rms_norm_backward  # noqa: E402
from rms_norm_triton import rms_norm  # noqa: E402
from rotary_triton import rotary  # noqa: E402


@dataclass(frozen=True)
class Size:
    """Sizes of a decoder."""

    layers: int
    hidden: int
    heads: int
    key_heads: int
    width: int  # of a head
    inner: int  # of the feed-forward part
    vocabulary: int


SIZES = {
    "tiny": Size(2, 64, 4, 2, 16, 96, 256),  # for a CPU
    "llama-3.2-1b": Size(16, 2048, 32, 8, 64, 8192, 128256),  # as published by Meta
    "llama-3.1-8b": Size(32, 4096, 32, 8, 128, 14336, 128256),
    "qwen2.5-7b": Size(28, 3584, 28, 4, 128, 18944, 152064),  # as published by Alibaba
}


class Decoder:
    """Weights of a decoder, and what is computed with them. Nothing is learnt: they are random."""

    def __init__(self, size: Size, device: str = "cuda", dtype: torch.dtype = torch.bfloat16, seed: int = 0) -> None:
        self.size, self.device, self.dtype = size, device, dtype
        generator = torch.Generator(device).manual_seed(seed)

        def weight(*shape):
            return torch.randn(shape, generator=generator, dtype=dtype, device=device).mul_(shape[0] ** -0.5)

        rows = (size.heads + 2 * size.key_heads) * size.width
        shapes = {
            "norm": (size.hidden,), "qkv": (size.hidden, rows), "out": (size.heads * size.width, size.hidden),
            "norm2": (size.hidden,), "gate": (size.hidden, size.inner), "up": (size.hidden, size.inner),
            "down": (size.inner, size.hidden),
        }  # fmt: skip
        self.layers = [{name: weight(*shape) for name, shape in shapes.items()} for _ in range(size.layers)]
        self.embedding = weight(size.vocabulary, size.hidden).mul_(size.vocabulary**0.5)
        self.norm, self.head = weight(size.hidden), weight(size.hidden, size.vocabulary)

    def parameters(self) -> list[torch.Tensor]:
        return [self.embedding, self.norm, self.head, *(one for layer in self.layers for one in layer.values())]

    def tables(self, start: int, tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and sines of the rotary embedding from a position on, (tokens, width / 2)."""
        half = torch.arange(0, self.size.width, 2, dtype=torch.float64, device=self.device)
        angle = torch.arange(start, start + tokens, device=self.device)[:, None] * 500000.0 ** (-half / self.size.width)
        return angle.cos().to(self.dtype), angle.sin().to(self.dtype)

    def cache(self, batch: int, context: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Keys and values of a context that has been read: random ones, (batch, key heads, context, width)."""
        shape = (batch, self.size.key_heads, context, self.size.width)
        return [tuple(torch.randn(shape, dtype=self.dtype, device=self.device) for _ in range(2)) for _ in self.layers]

    @torch.no_grad()
    def forward(self, tokens: torch.Tensor, tables, caches=None) -> torch.Tensor:
        """Logits of the last token of each sequence, (batch, vocabulary). tokens is (batch, tokens).

        caches: of decode: the tokens are the last of a context, in whose place their keys and values are written.
        """
        size, (batch, length) = self.size, tokens.shape
        total = self.embedding[tokens].flatten(0, 1)
        normed = rms_norm(total, self.layers[0]["norm"])
        for index, layer in enumerate(self.layers):
            q, k, v = self._heads(matmul(normed, layer["qkv"]), batch, length)
            q, k = rotary(q, k, *tables)
            q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
            if caches is not None:
                keys, values = caches[index]
                keys[:, :, -length:].copy_(k)
                values[:, :, -length:].copy_(v)
                k, v = keys, values
            read = attention(q, k, v, causal=True).transpose(1, 2).reshape(batch * length, -1)
            normed, total = add_rms_norm(matmul(read, layer["out"]), total, layer["norm2"])
            gate = matmul(normed, layer["gate"], activation="silu")
            out = matmul(gate.mul_(matmul(normed, layer["up"])), layer["down"])
            following = self.layers[index + 1]["norm"] if index + 1 < size.layers else self.norm
            normed, total = add_rms_norm(out, total, following)
        return matmul(normed.unflatten(0, (batch, length))[:, -1], self.head)

    def train(self, tokens: torch.Tensor, target: torch.Tensor, tables, rate: float = 1e-4) -> torch.Tensor:
        """One step of gradient descent. Returns the loss. tokens and target are (batch, tokens)."""
        batch, length = tokens.shape
        parameters = [parameter.requires_grad_() for parameter in self.parameters()]
        total = self.embedding[tokens].flatten(0, 1)
        for layer in self.layers:
            q, k, v = self._heads(Product.apply(Norm.apply(total, layer["norm"]), layer["qkv"]), batch, length)
            q, k = Turn.apply(q, k, *tables)
            read = attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), causal=True)
            total = total + Product.apply(read.transpose(1, 2).reshape(batch * length, -1), layer["out"])
            normed = Norm.apply(total, layer["norm2"])
            gate = torch.nn.functional.silu(Product.apply(normed, layer["gate"]))
            total = total + Product.apply(gate * Product.apply(normed, layer["up"]), layer["down"])
        loss = Loss.apply(Product.apply(Norm.apply(total, self.norm), self.head), target.flatten())
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            torch._foreach_add_(parameters, gradients, alpha=-rate)
        return loss.detach()

    def _heads(self, rows: torch.Tensor, batch: int, length: int):
        """Queries, keys and values, each (batch, tokens, heads, width)."""
        size = self.size
        parts = rows.view(batch, length, -1, size.width)
        return parts.split((size.heads, size.key_heads, size.key_heads), 2)


class Product(torch.autograd.Function):
    """matmul, and matmul for its gradients."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return matmul(x, weight)

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        return matmul(grad, weight.T), matmul(x.T, grad)


class Norm(torch.autograd.Function):
    """rms_norm, and rms_norm_backward for its gradients."""

    @staticmethod
    def forward(ctx, x, weight):
        y, rstd = rms_norm(x, weight, stats=True)
        ctx.save_for_backward(x, rstd, weight)
        return y

    @staticmethod
    def backward(ctx, grad):
        return rms_norm_backward(grad, *ctx.saved_tensors)


class Turn(torch.autograd.Function):
    """rotary, and rotary in the other direction for its gradients."""

    @staticmethod
    def forward(ctx, q, k, cos, sin):
        ctx.save_for_backward(cos, sin)
        return rotary(q, k, cos, sin)

    @staticmethod
    def backward(ctx, grad_q, grad_k):
        cos, sin = ctx.saved_tensors
        return *rotary(grad_q, grad_k, cos, -sin), None, None


class Loss(torch.autograd.Function):
    """cross_entropy, and cross_entropy_backward for its gradient."""

    @staticmethod
    def forward(ctx, x, target):
        ctx.save_for_backward(x, target)
        return cross_entropy(x, target)

    @staticmethod
    def backward(ctx, grad):
        x, target = ctx.saved_tensors
        return cross_entropy_backward(grad, x, target, torch.logsumexp(x.float(), -1)), None


@dataclass(frozen=True)
class Mode:
    """What is done with a decoder, and with how much."""

    size: str
    kind: str  # prefill, decode or train
    batch: int
    tokens: int  # of the context


MODES = {
    "tiny-decode": Mode("tiny", "decode", 2, 40),
    "tiny-prefill": Mode("tiny", "prefill", 1, 24),
    "tiny-train": Mode("tiny", "train", 1, 16),
    "llama-8b-decode": Mode("llama-3.1-8b", "decode", 32, 4096),
    "llama-8b-prefill": Mode("llama-3.1-8b", "prefill", 1, 4096),
    "llama-1b-train": Mode("llama-3.2-1b", "train", 2, 4096),
}


class Scene:
    """A decoder with all that a step of a mode reads."""

    def __init__(self, name: str, device: str) -> None:
        self.mode = MODES[name]
        self.model = Decoder(SIZES[self.mode.size], device, torch.bfloat16 if device == "cuda" else torch.float32)
        generator = torch.Generator(device).manual_seed(1)
        length = 1 if self.mode.kind == "decode" else self.mode.tokens
        shape, words = (self.mode.batch, length), self.model.size.vocabulary
        self.tokens, self.target = (torch.randint(words, shape, generator=generator, device=device) for _ in range(2))
        self.tables = self.model.tables(self.mode.tokens - length, length)
        self.caches = self.model.cache(self.mode.batch, self.mode.tokens) if self.mode.kind == "decode" else None
        self.served = device == "cuda" and self.mode.kind == "decode"

    def step(self) -> torch.Tensor:
        if self.mode.kind == "train":
            return self.model.train(self.tokens, self.target, self.tables)
        return self.model.forward(self.tokens, self.tables, self.caches)

    def prepare(self) -> Callable[[], object]:
        """Returns a step that has run once: of decode on a GPU the replay of a graph, as servers have it."""
        if not self.served:
            self.step()
            return self.step
        side = torch.cuda.Stream()  # what is captured has to have run before, on another stream
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self.step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.out = self.step()
        return graph.replay

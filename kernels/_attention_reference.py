"""Common to the references of the attention ops, in PyTorch: which keys a query sees, and dropout's places.

Written from the definitions, without the kernels' code, so an error of one is not also in the other.
"""

import torch


def seen(
    queries: int,
    keys: int,
    mask: torch.Tensor | None,
    causal: bool,
    window: tuple[int | None, int | None],
    device: torch.device,
) -> torch.Tensor | None:
    """Returns bools that broadcast to (batch, heads, queries, keys), True if a query sees a key; None if all see all.

    A mask of numbers hides the places that have -inf.
    """
    left, right = window
    ahead = torch.arange(keys, device=device) - torch.arange(keys - queries, keys, device=device)[:, None]
    limits = [ahead <= 0] if causal else []
    limits += [ahead >= -left] if left is not None else []
    limits += [ahead <= right] if right is not None else []
    if mask is not None:
        places = mask[:, None, None, :] if mask.ndim == 2 else mask
        limits.append(places if mask.dtype == torch.bool else places != -torch.inf)
    found = None
    for limit in limits:
        found = limit if found is None else found & limit
    return found[None, None] if found is not None and found.ndim == 2 else found


def numbers(mask: torch.Tensor | None) -> torch.Tensor | None:
    """Returns the mask if it is added to scores."""
    return None if mask is None or mask.dtype == torch.bool else mask


def make_mask(
    kind: str, batch: int, heads: int, queries: int, keys: int, dtype: torch.dtype, generator: torch.Generator
) -> torch.Tensor:
    """Returns a mask with 3 of 10 keys hidden, and all of each head's first query if there are more.

    kind: "bool" or "added", for all heads alike, or with "-by-head" behind it.
    """
    shape = batch, heads if kind.endswith("-by-head") else 1, queries, keys
    hidden = torch.rand(shape, generator=generator, device=generator.device) < 0.3
    hidden[:, :, : int(queries > 1)] = True
    if kind.startswith("bool"):
        return ~hidden
    return torch.randn(shape, generator=generator, dtype=dtype, device=generator.device).masked_fill(hidden, -torch.inf)


def kept(batch: int, heads: int, queries: int, keys: int, dropout: float, seed: int, device: torch.device):
    """Returns bools (batch, heads, queries, keys), True if dropout keeps a weight: Philox 4x32-10 by seed and place.

    The counter is (query, key // 4, batch * heads + head, 0), the key the seed's halves. The word
    at key % 4 of the four counts, without its lowest bit.
    """
    which = torch.arange(batch * heads, device=device).view(-1, 1, 1)
    query = torch.arange(queries, device=device).view(1, -1, 1)
    quad = torch.arange(-(-keys // 4), device=device).view(1, 1, -1)
    words = torch.stack(_philox((query, quad, which, torch.zeros_like(which)), seed), -1).flatten(-2)[..., :keys]
    dropped = (words >> 1) < min(round(dropout * 2**31), 2**31 - 1)
    return ~dropped.view(batch, heads, queries, keys)


def _philox(counter: tuple[torch.Tensor, ...], seed: int) -> list[torch.Tensor]:
    """Returns the four words, in int64, for all places that the counter's four words broadcast to."""
    low = 0xFFFFFFFF
    words = list(torch.broadcast_tensors(*counter))
    keys = seed & low, seed >> 32
    for _ in range(10):
        even, odd = _product(0xD2511F53, words[0]), _product(0xCD9E8D57, words[2])
        words = [odd[0] ^ words[1] ^ keys[0], odd[1], even[0] ^ words[3] ^ keys[1], even[1]]
        keys = (keys[0] + 0x9E3779B9) & low, (keys[1] + 0xBB67AE85) & low
    return words


def _product(factor: int, word: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns upper and lower 32 bits of a product of two unsigned numbers of 32 bits, within int64."""
    low = 0xFFFF
    upper, lower = word >> 16, word & low
    small = factor * lower  # below 2**48
    large = factor * upper + (small >> 16)  # below 2**49
    return large >> 16, ((large & low) << 16) | (small & low)

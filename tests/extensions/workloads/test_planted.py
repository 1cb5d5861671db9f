"""The slow-downs that the example of a decoder plants: each makes its op do more, and leaves nothing behind."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")
pytestmark = pytest.mark.torch

ROOT = Path(__file__).parents[3]

COUNT = """
import json
from collections import namedtuple

import planted

Config, calls = namedtuple("Config", "stages"), []
planted.matmul_triton.choose_config = lambda *_: Config(4)


def count(op):
    \"\"\"Stages of a product, or how often an op is launched by one call of it.\"\"\"
    if op == "matmul":
        return planted.matmul_triton.choose_config().stages
    calls.clear()
    planted.find_function(op)()
    return len(calls)


def call():
    calls.append(1)


seen = []
for plant in planted.PLANTS:
    for module in (planted.decoder, planted.attention_triton):
        if hasattr(module, plant.op) and plant.op != "matmul":
            setattr(module, plant.op, call)
    before = count(plant.op)
    with plant.slow():
        slow = count(plant.op)
    seen.append([plant.what, before, slow, count(plant.op)])
print(json.dumps(seen))
"""
TIMES = {"half the stages": (4, 2), "twice": (1, 2)} | {f"{many} times": (1, many) for many in (4, 6, 8, 16)}


@pytest.mark.nightly  # a script of the project's authors
def test_every_planted_slow_down_does_what_it_is_named_for_and_is_gone_afterwards():
    path = os.pathsep.join(map(str, (ROOT, ROOT / "examples" / "decoder")))
    variables = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-c", COUNT], env=variables, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert len(seen) == 10
    for what, before, slow, after in seen:
        assert ((before, slow), after) == (TIMES[what], before), what

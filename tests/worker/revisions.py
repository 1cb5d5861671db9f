"""One op as of two revisions, in two project folders: same names of files and modules, other values in them."""

from pathlib import Path

FILES = {
    "{op}_triton.py": "from {op}_helper import FACTOR\nimport {op}_helper\nfrom _{op}_shared import TERM\n\n\n"
    "def {op}(x):\n    return x * FACTOR + TERM + {op}_helper.later()\n",
    "{op}_baseline.py": "def {op}(x):\n    return x\n\n\n"
    "def make_inputs(rows, device, seed):\n    return {{'x': rows}}\n",
    "{op}_accuracy.py": "import perfci\nfrom {op}_baseline import make_inputs, {op} as reference\n"
    "from {op}_triton import {op}\n"
    "accuracy = perfci.Accuracy({op}, reference, make_inputs, cases=[{{'rows': 1}}])\n",
    "{op}_performance.py": "import perfci\nfrom {op}_baseline import make_inputs, {op} as reference\n"
    "from {op}_triton import {op}\n"
    "performance = perfci.Performance({op}, reference, make_inputs, cases=[{{'rows': 1}}])\n",
    "{op}_helper.py": "FACTOR = {factor}\n_LATE = {late}\n\n\ndef later():\n    return _LATE\n",
}


class Revision:
    """A project folder with the one op."""

    def __init__(self, root: Path, op: str, factor: int, term: int, late: int) -> None:
        self.root, self.op = root, op
        self.kernels = root / "kernels"
        self.folder = self.kernels / op
        self.folder.mkdir(parents=True)
        for name, text in FILES.items():
            facts = {"op": op, "factor": factor, "late": late}
            (self.folder / name.format(op=op)).write_text(text.format(**facts))
        (self.kernels / f"_{op}_shared.py").write_text(f"TERM = {term}\n")

    def edit(self, part: str, before: str, after: str) -> None:
        path = self.folder / f"{self.op}_{part}.py"
        text = path.read_text()
        assert before in text
        path.write_text(text.replace(before, after))


def two(folder: Path, op: str) -> tuple[Revision, Revision]:
    """Head gives 10 x + 200 + 3000, base 1 x + 20 + 300."""
    return Revision(folder / "head", op, 10, 200, 3000), Revision(folder / "base", op, 1, 20, 300)

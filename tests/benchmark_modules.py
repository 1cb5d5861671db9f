"""The modules of benchmarks/, which import each other by name as scripts do, for tests of them."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace


@contextmanager
def imported(folder: Path, *names: str) -> Iterator[SimpleNamespace]:
    """Yields modules by name. Afterwards forgets everything from the folder, and its imports."""
    sys.path.insert(0, str(folder))
    try:
        yield SimpleNamespace(**{name: __import__(name) for name in names})
    finally:
        sys.path.remove(str(folder))
        for name, module in list(sys.modules.items()):
            if Path(getattr(module, "__file__", None) or "-").parent == folder:
                del sys.modules[name]

"""Checks ops in Triton's interpreter, all in one process. Prints how many checks each had, and the failures."""

import json
import sys
from pathlib import Path

from perfci.device import open_device
from perfci.measure.verify import checks, verify
from perfci.worker.apart import forget_others
from perfci.worker.load import describe_exception, load_op

kernels, pattern, *ops = sys.argv[1:]
device = open_device("cpu", seed=0, timer="auto", fake={})
told = {}
for op in ops:
    folder = Path(kernels) / op
    forget_others(folder, Path(kernels))  # the op before may have modules of the same names
    suite = load_op(op, folder, Path(kernels)).accuracy
    results = [
        verify(suite, device, check, lambda error, folder=folder: describe_exception(error, folder))
        for check in checks(suite, 7, pattern)
    ]
    failed = [result for result in results if result.failure]
    failures = [f"{check.case} {check.values} {check.failure.kind} {dict(check.failure.facts)}" for check in failed]
    told[op] = [sum(result.unchecked is None for result in results), failures]
print(json.dumps(told))

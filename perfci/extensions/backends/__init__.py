"""An op's backends for other programs: what there is, and the function of one.

library     `perfci.backends` and `perfci.get_kernel`
"""

from perfci.core.extensions import Extension

HERE = "perfci.extensions.backends"

EXTENSION = Extension(
    provides={"backends": (f"{HERE}.library:list_backends",), "get_kernel": (f"{HERE}.library:get_kernel",)}
)

"""What the gate asks of a run with compiled kernels."""

from perfci.extensions.static.commands.show import show
from perfci.extensions.static.judge import judge_static
from perfci.extensions.static.tables import make_section


class Compiled:
    """Compiled kernels judged, in the report, and shown."""

    judge = staticmethod(judge_static)
    make_section = staticmethod(make_section)
    show = staticmethod(show)

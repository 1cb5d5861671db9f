"""Pictures of a report, and report.html, which shows them in one page. Other extensions may draw with it.

style            what all charts share
cases device     charts of an op's cases, and of the device
plots            which pictures there are, and their files, on all cores
page             report.html, and the frame of other pages
"""

from perfci.core.extensions import Extension

HERE = "perfci.extensions.pictures"

EXTENSION = Extension(
    provides={
        "pictures": (f"{HERE}.plots:Painter",),
        "page": (f"{HERE}.page:render",),
        "frame": (f"{HERE}.page:render_page",),
    }
)

"""The note of a merge request of GitLab, or the comment on a pull request of GitHub: `perfci ci note`.

text       its content: pure
posting    where it goes, by the variables of a pipeline: one note, made or updated in place
commands   `perfci ci note`
"""

from perfci.core.extensions import Extension

EXTENSION = Extension(provides={"ci": ("perfci.extensions.note.commands.ci:add_commands",)})

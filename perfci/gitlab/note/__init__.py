"""What a merge request's readers see of a run: one note, updated in place, and the same as a job's summary on GitHub.

    markup      what GitLab's Markdown would make of foreign text beyond Markdown itself, undone
    body        the text: from a run and its judgements, pure
    pictures    which pictures of the report are worth showing
    place       where the note goes: GitLab's variables, validated
    api         the connection to GitLab, whose failures say that the note is not there
    posting     find, upload, write
    summary     the same text for GitHub

A note that cannot be posted is a `Reason` to warn with, and changes no verdict.
"""

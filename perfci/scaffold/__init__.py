"""What perfci writes into a user's repository, at the user's word: pure plans of files first, then the writing.

init    sets a repository up: folders, thresholds, settings, the CI job, owners
new     writes an op's four files: to fill in, or around functions that exist (`sketch`, `kernelgen`)
"""

"""What several extensions use and the gate does not. It is no extension, and imports none.

markup     foreign text in Markdown of GitLab and GitHub
variables  a pipeline's variables, each validated
cubins     kernels as NVIDIA's driver has them
elf        their files
binaries   figures of compiled kernels, and how many programs a processor holds
kept       answers of commands where a pipeline finds them
strays     how far a duel strays from the truth
tuned      which entry of its tuned file an op takes
"""

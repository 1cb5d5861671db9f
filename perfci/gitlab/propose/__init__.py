"""Baselines and thresholds that a job changed, proposed by another job that holds a token and runs nothing of it.

place        which project and branches, and who writes: GitLab's variables, validated
files        what the other job left, read as data
tightening   whether thresholds were tightened only
merging      one file against a branch: write it, leave it, or a conflict
body         title, message, description
repository   what GitLab's interface shows of a repository
posting      one commit on a branch and one merge request, never by force
preview      what would be proposed, from the clone alone
"""

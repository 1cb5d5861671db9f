"""GitLab: the merge request's note, and merge requests that propose baselines and thresholds."""

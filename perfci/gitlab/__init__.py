"""The note in a merge request of GitLab or a pull request of GitHub."""

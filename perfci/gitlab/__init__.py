"""Foreign text in Markdown of GitLab and GitHub, and a pipeline's variables, for the extensions that write to them."""

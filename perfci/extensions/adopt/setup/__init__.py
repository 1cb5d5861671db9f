"""`perfci init`: what a repository lacks to be checked. Pure plans of files first, then the writing."""

"""What perfci writes into a user's repository, at the user's word: pure plans of files first, then the writing."""

"""The record of each child, what its slot shows, and what reaches it: start, fork, tell, ask where it is, kill."""

"""Export of a namespace to a file, import of such a file, and the comparison of a server with files."""

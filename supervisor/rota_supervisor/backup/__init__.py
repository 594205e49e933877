"""The export of a namespace to a file, the import of such a file, and the comparison of a server with files."""

"""The end of a child: found, judged, told, and what follows for its pool and its task."""

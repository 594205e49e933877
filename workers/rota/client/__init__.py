"""The application's side: declares tasks, enqueues calls of them, and inspects and awaits tasks."""

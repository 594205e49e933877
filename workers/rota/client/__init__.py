"""The application's side: declares tasks, enqueues calls of them, inspects tasks and waits for them."""

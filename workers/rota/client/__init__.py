"""The application's side: declaring tasks, enqueuing calls of them, asking what became of them."""

"""Task declarations: the code shared by applications that enqueue tasks and workers that run them."""

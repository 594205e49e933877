"""Task declarations. Applications that enqueue tasks and workers that run them share this code."""

"""What workers hold in Redis: registered, renewed, given back, retired."""

"""What people ask for, by signal, by the control socket or by a watched file, and what follows from it."""

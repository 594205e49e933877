"""What happens periodically: what a schedule says, and when it is due. Pure; every node reckons the same."""

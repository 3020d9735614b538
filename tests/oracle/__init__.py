"""The right answer, computed from the logs alone. Shares no code with the product; only tests import it."""

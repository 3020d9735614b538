"""The demonstration on a year of real flights: its data, its figures and its report."""

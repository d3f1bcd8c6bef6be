"""Views of results, one a file: pure functions that return a DataFrame with attrs, which `style` renders."""

"""Results as one page that opens offline: its data, gathered here, and the template, style and script it is made of."""

"""The board: other people's methods as entries that are checked, run again on hidden seeds, and shown as a site."""

"""Executors run cells: execute(jobs, on_event). A job is one JSON string, so that it can go anywhere."""

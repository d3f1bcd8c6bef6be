"""Separate processes: a server to fork from, a guard for each worker, and the supervisor that talks to both."""

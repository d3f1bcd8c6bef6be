"""Where cells run, beside this machine."""

"""Images: embedded ones, official archives, folders and hubs."""

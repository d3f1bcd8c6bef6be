"""fedbench's own methods and components, loaded through the same entry points as a third-party package."""

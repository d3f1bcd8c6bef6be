"""What is installed: plugins, the components they register, and the facts about them that are kept."""

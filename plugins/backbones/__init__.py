"""Pre-trained networks: embedded ones and those of timm."""

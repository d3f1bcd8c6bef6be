"""The frozen network and what is put into it: backbones, adapters, and what a client pays for them."""

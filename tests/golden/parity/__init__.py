"""What the make_*.py scripts share: file writing, shapes, and the models of PyPI's `moshi` with weights of our own."""

"""Nsight Systems around a greenbench command: find it, run it, prove what it recorded, and make a copy that can be shown."""

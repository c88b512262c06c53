"""A cuda-python over a driver that is not there: FAKE_DRIVER is its version, FAKE_NVRTC that of NVRTC (empty: none).

Run with this folder on PYTHONPATH. Whoever makes a context leaves a line in the file FAKE_LOG.
"""

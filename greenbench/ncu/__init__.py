"""Nsight Compute on one point of a sweep: its command line, its report, and figures related to the partition's SMs."""

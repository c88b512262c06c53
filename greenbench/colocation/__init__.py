"""Co-location as data and arithmetic: plans, points, what processes prepare, and what comes of it."""

"""Raw bindings."""

"""The papers' own formulations, for comparison and for teaching."""

"""Rolling a robot forward in time, and what comes of it."""

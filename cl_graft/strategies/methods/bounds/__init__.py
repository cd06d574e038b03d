"""Lower bounds, without any protection from forgetting, and upper bounds, without forgetting."""

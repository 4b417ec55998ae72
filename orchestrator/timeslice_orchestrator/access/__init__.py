"""Who calls, and what they may: callers, the rules, and the ways to find out who somebody is."""

"""A made-up home and repository, on which `whet sleep demo` plays a night. world.py makes them."""

"""How each method trains: a config and a `Trainer` subclass a method."""

"""Built-in encoders of the extra `demo`, as ordinary checkpoint folders."""

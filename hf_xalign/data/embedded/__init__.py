"""The encoder that the extra `demo` carries, as an ordinary checkpoint folder."""

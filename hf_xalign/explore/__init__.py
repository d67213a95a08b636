"""Local page to look at an encoder before and after alignment, and the Space that shows it (extra `app`)."""

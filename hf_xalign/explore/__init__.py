"""Local page to look at an encoder before and after alignment (extra `app`)."""

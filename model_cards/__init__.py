"""Model cards: card data and one template."""

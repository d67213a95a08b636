"""Colors of figures and HTML pages."""

# Okabe and Ito's palette for color-blind readers, without yellow, which is too light on white.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")

"""What sits on or beside an encoder: pooling, references, checkpoints."""

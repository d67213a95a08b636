"""Trainers of linear maps between the word vectors of two languages: of an encoder, and of files of vectors."""

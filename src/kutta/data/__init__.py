"""From text files to batches of numbers: corpus, tokenizer, store, batches."""

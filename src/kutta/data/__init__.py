"""From text files to batches of token ids: corpus, tokenizer, store, batches."""

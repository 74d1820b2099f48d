"""Text as people have it: sentences of paragraphs, and files of several formats."""

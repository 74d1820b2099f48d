"""Looking at what training did."""

# Your commands go here.

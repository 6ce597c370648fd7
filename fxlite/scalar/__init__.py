"""What one element of a value is: scalar expressions and integer index expressions."""

"""The languages that describe one element of a value: scalar expressions and integer index expressions."""

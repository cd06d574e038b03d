"""The strategies that grafting is compared with, one module a family; each ends with its rows."""

"""The array functions, a file a family; each op's gradient rules stand beside it."""

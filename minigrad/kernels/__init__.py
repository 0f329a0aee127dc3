"""The fused ops' forward and backward on plain arrays: in place where nobody sees it, with few temporaries."""

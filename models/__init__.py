"""Models composed from minigrad's ops: the self-attention layer, stacks of it, and the three output scenarios."""

from models.attention_stack import AttentionStack
from models.fc import FCStack, WindowFC
from models.heads import FrameProjection, PerVector, Single, SummedEmbedding, mean_pool
from models.masks import causal_mask, window_mask
from models.positions import Learned, Relative, Sinusoidal
from models.search import beam_search, greedy
from models.self_attention import SelfAttention
from models.seq2seq import Seq2Seq

__all__ = [
    "AttentionStack",
    "FCStack",
    "FrameProjection",
    "Learned",
    "PerVector",
    "Relative",
    "SelfAttention",
    "Seq2Seq",
    "Single",
    "Sinusoidal",
    "SummedEmbedding",
    "WindowFC",
    "beam_search",
    "causal_mask",
    "greedy",
    "mean_pool",
    "window_mask",
]

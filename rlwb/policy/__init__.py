"""Networks and learning algorithms."""

from rlwb.policy.attention import AttentionEncoder
from rlwb.policy.convolution import ConvolutionEncoder
from rlwb.policy.dqn import DQN, DQNSettings
from rlwb.policy.encoder import EncoderCache, MarketEncoder
from rlwb.policy.episodes import gae
from rlwb.policy.even_start import EvenStart
from rlwb.policy.fixed import AllOne
from rlwb.policy.heads import ActorCritic, QNetwork
from rlwb.policy.market_network import Attention, Convolution, MarketNetwork, Recurrent
from rlwb.policy.masks import ActionMask
from rlwb.policy.network import MLP, Network, make_network
from rlwb.policy.opd import OPD, OPDSettings
from rlwb.policy.ppo import PPO, PPOSettings
from rlwb.policy.recurrent_encoder import RecurrentEncoder
from rlwb.policy.sequence_encoder import SequenceEncoder
from rlwb.policy.teacher import Oracle, OracleEncoder

__all__ = [
    "DQN",
    "MLP",
    "OPD",
    "PPO",
    "ActionMask",
    "ActorCritic",
    "AllOne",
    "Attention",
    "AttentionEncoder",
    "Convolution",
    "ConvolutionEncoder",
    "DQNSettings",
    "EncoderCache",
    "EvenStart",
    "MarketEncoder",
    "MarketNetwork",
    "Network",
    "OPDSettings",
    "Oracle",
    "OracleEncoder",
    "PPOSettings",
    "QNetwork",
    "Recurrent",
    "RecurrentEncoder",
    "SequenceEncoder",
    "gae",
    "make_network",
]

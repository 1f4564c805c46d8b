"""Networks and learning algorithms."""

from rlwb.policy.attention import AttentionEncoder
from rlwb.policy.convolution import ConvolutionEncoder
from rlwb.policy.dqn import DQN
from rlwb.policy.dqn_settings import DQNSettings
from rlwb.policy.episodes import gae
from rlwb.policy.even_start import EvenStart
from rlwb.policy.fixed import AllOne
from rlwb.policy.market_encoder import MarketEncoder
from rlwb.policy.masks import ActionMask
from rlwb.policy.networks import MLP, ActorCritic, NetworkSettings, Recurrent, make_network
from rlwb.policy.opd import OPD, OPDSettings
from rlwb.policy.ppo import PPO, PPOSettings
from rlwb.policy.q_network import QNetwork
from rlwb.policy.session_encoder import SessionEncoder
from rlwb.policy.teacher import OracleEncoder, make_teacher

__all__ = [
    "DQN",
    "MLP",
    "OPD",
    "PPO",
    "ActionMask",
    "ActorCritic",
    "AllOne",
    "AttentionEncoder",
    "ConvolutionEncoder",
    "DQNSettings",
    "EvenStart",
    "MarketEncoder",
    "NetworkSettings",
    "OPDSettings",
    "OracleEncoder",
    "PPOSettings",
    "QNetwork",
    "Recurrent",
    "SessionEncoder",
    "gae",
    "make_network",
    "make_teacher",
]

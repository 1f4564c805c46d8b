"""Networks and learning algorithms."""

from rlwb.policy.all_actions import AllActions, AllActionsSettings
from rlwb.policy.bounded import BoundedActorCritic
from rlwb.policy.dqn import DQN, DQNSettings
from rlwb.policy.encoder import MarketEncoder, RecurrentEncoder
from rlwb.policy.episodes import gae
from rlwb.policy.heads import ActionMask, ActorCritic, EvenStart, QNetwork
from rlwb.policy.learner import AllOne
from rlwb.policy.market_network import Attention, Convolution, MarketNetwork, Oracle, OracleEncoder, Recurrent
from rlwb.policy.network import MLP, Dialled, Informed, Network, make_network
from rlwb.policy.opd import OPD, OPDSettings
from rlwb.policy.pathwise import Pathwise, PathwiseSettings, ShareHead
from rlwb.policy.ppo import PPO, PPOSettings
from rlwb.policy.qlib import QlibPolicy, QlibRecurrent, from_qlib
from rlwb.policy.sequence_encoder import AttentionEncoder, ConvolutionEncoder, SequenceEncoder
from rlwb.policy.signals import Signals, TraceEncoder

__all__ = [
    "DQN",
    "MLP",
    "OPD",
    "PPO",
    "ActionMask",
    "ActorCritic",
    "AllActions",
    "AllActionsSettings",
    "AllOne",
    "Attention",
    "AttentionEncoder",
    "BoundedActorCritic",
    "Convolution",
    "ConvolutionEncoder",
    "DQNSettings",
    "Dialled",
    "EvenStart",
    "Informed",
    "MarketEncoder",
    "MarketNetwork",
    "Network",
    "OPDSettings",
    "Oracle",
    "OracleEncoder",
    "PPOSettings",
    "Pathwise",
    "PathwiseSettings",
    "QNetwork",
    "QlibPolicy",
    "QlibRecurrent",
    "Recurrent",
    "RecurrentEncoder",
    "SequenceEncoder",
    "ShareHead",
    "Signals",
    "TraceEncoder",
    "from_qlib",
    "gae",
    "make_network",
]

"""Networks and learning algorithms."""

from rlwb.policy.episodes import gae
from rlwb.policy.fixed import AllOne
from rlwb.policy.market_encoder import MarketEncoder
from rlwb.policy.networks import MLP, ActorCritic, NetworkSettings, Recurrent, make_network
from rlwb.policy.ppo import PPO, PPOSettings

__all__ = [
    "MLP",
    "PPO",
    "ActorCritic",
    "AllOne",
    "MarketEncoder",
    "NetworkSettings",
    "PPOSettings",
    "Recurrent",
    "gae",
    "make_network",
]

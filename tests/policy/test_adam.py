"""Adam beside torch's own."""

import copy
import subprocess
import sys

import pytest
import torch
from torch import nn

from rlwb.policy.adam import Adam


def _network() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 2), nn.Linear(2, 3))  # the last has no gradient


def _learn(network: nn.Module, optimizer: Adam | torch.optim.Adam, steps: range) -> None:
    for step in steps:
        generator = torch.Generator().manual_seed(step)
        optimizer.zero_grad()
        network[:3](torch.randn(16, 5, generator=generator)).square().sum().backward()
        optimizer.step()


def _states_equal(one: Adam, other: torch.optim.Adam) -> bool:
    ours, theirs = one.state_dict()["state"], other.state_dict()["state"]
    return all(torch.equal(ours[at][name], theirs[at][name]) for at in theirs for name in theirs[at])


def test_the_weights_are_those_of_torchs_adam_to_the_last_bit() -> None:
    ours, theirs = _network(), _network()
    optimizer, reference = Adam(ours.parameters(), 3e-3), torch.optim.Adam(theirs.parameters(), lr=3e-3, fused=True)
    _learn(ours, optimizer, range(20))
    _learn(theirs, reference, range(20))
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))
    assert _states_equal(optimizer, reference)


def test_a_state_of_torchs_adam_goes_on_to_the_last_bit() -> None:
    theirs = _network()
    reference = torch.optim.Adam(theirs.parameters(), lr=3e-3, fused=True)
    _learn(theirs, reference, range(5))
    ours = copy.deepcopy(theirs)
    optimizer = Adam(ours.parameters(), 1.0)
    optimizer.load_state_dict(reference.state_dict())
    _learn(ours, optimizer, range(5, 9))
    _learn(theirs, reference, range(5, 9))
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))


def test_a_state_of_another_network_is_refused() -> None:
    with pytest.raises(ValueError, match="of 2 weights, not 6"):
        Adam(_network().parameters(), 1e-3).load_state_dict(Adam(nn.Linear(2, 2).parameters(), 1e-3).state_dict())


def test_torchs_compiler_stays_out() -> None:
    code = (
        "import sys, torch; from rlwb.policy.adam import Adam; from torch import nn; net = nn.Linear(2, 2);"
        "one = Adam(net.parameters(), 1e-3); net(torch.ones(1, 2)).sum().backward(); one.step();"
        "sys.exit('torch._dynamo' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_moments_of_another_shape_are_refused() -> None:
    state = Adam(nn.Linear(3, 2).parameters(), 1e-3).state_dict()
    with pytest.raises(ValueError, match=r"\(2, 3\), not \(1, 3\)"):
        Adam(nn.Linear(3, 1).parameters(), 1e-3).load_state_dict(state)

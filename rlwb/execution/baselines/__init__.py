"""The field's baselines: policies that need no learning, of one interface, and the ceiling that none passes.

Each `Baseline` reads `Known` and answers with amounts; run it with `KnownStateInterpreter` and
`AmountActionInterpreter`.
"""

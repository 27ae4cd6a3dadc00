"""Attacks on a mechanism's claim: canaries and neighbouring inputs."""

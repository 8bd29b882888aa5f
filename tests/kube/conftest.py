"""What the tests of kubeconfigs need."""

from tests.rig.kubectl import kubectl  # noqa: F401 - pytest finds fixtures by their names in here

"""The official Kubernetes client, imported without the libraries that it would load and that nothing here uses.

Together they are 13 MiB of PSS and 90 ms at startup (kubernetes 37). The package imports all of its parts, with a
WebSocket library. One response type of its generated API classes is a pydantic model. oauthlib and requests refresh the
token of an `auth-provider: oidc` in a kubeconfig: they are imported when that happens.
"""

import sys
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from types import ModuleType
from typing import Any, Final

_DEFERRED: Final = ("oauthlib", "oauthlib.oauth2", "pydantic", "requests_oauthlib")


class _Deferred(ModuleType):
    """A module in place of one that is imported when something of it is first used after the client's import."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__ = []  # it may have submodules

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if not self._is_in_place:
            return getattr(import_module(self.__name__), name)
        # A class, because the client derives one of its own from pydantic's BaseModel.
        return type(name, (), {"__new__": lambda _, *args, **kwargs: self._call(name, *args, **kwargs)})

    @property
    def _is_in_place(self) -> bool:
        return sys.modules.get(self.__name__) is self

    def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return None if self._is_in_place else getattr(self, name)(*args, **kwargs)


_spec = PathFinder.find_spec("kubernetes")
if "kubernetes" not in sys.modules and _spec is not None:
    sys.modules["kubernetes"] = module_from_spec(_spec)  # its parts are found in it, and none is imported by it
_deferred = {name: _Deferred(name) for name in _DEFERRED if name not in sys.modules}
sys.modules.update(_deferred)
from kubernetes.client import ApiClient, Configuration  # noqa: E402
from kubernetes.client.exceptions import ApiException  # noqa: E402
from kubernetes.config import ConfigException, load_incluster_config, load_kube_config  # noqa: E402

for _name in _deferred:
    del sys.modules[_name]

__all__ = ["ApiClient", "ApiException", "ConfigException", "Configuration", "load_incluster_config", "load_kube_config"]

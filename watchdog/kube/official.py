"""The official Kubernetes client, imported without the libraries that nothing here uses: 16 MiB of PSS, 130 ms.

Importing any part of kubernetes 37 imports all of its parts, with a WebSocket library, and `ApiClient` needs pydantic.
oauthlib and requests refresh the token of an `auth-provider: oidc` in a kubeconfig, and are imported when that happens.
"""

import sys
from functools import partial
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from types import ModuleType
from typing import Any, Final

_DEFERRED: Final = ("kubernetes.client.api_client", "oauthlib", "oauthlib.oauth2", "requests_oauthlib")


class _Deferred(ModuleType):
    """A placeholder for a module, which is imported when something in it is used after the imports below."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # the import system asks for these
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            return partial(self._call, name)
        return getattr(import_module(self.__name__), name)

    def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return getattr(self, name)(*args, **kwargs)


_spec = PathFinder.find_spec("kubernetes")
if "kubernetes" not in sys.modules and _spec is not None:
    sys.modules["kubernetes"] = module_from_spec(_spec)  # without running its __init__, which imports everything
_placeholders = {name: _Deferred(name) for name in _DEFERRED if name not in sys.modules}
sys.modules.update(_placeholders)

import kubernetes.client  # noqa: E402
from kubernetes.client.configuration import Configuration  # noqa: E402
from kubernetes.client.exceptions import ApiException  # noqa: E402
from kubernetes.client.rest import RESTClientObject  # noqa: E402
from kubernetes.config import ConfigException, load_incluster_config, load_kube_config_from_dict  # noqa: E402

for _name in _placeholders:
    del sys.modules[_name]
vars(kubernetes.client).pop("ApiClient", None)  # so that others get the class itself

__all__ = [
    "ApiException",
    "ConfigException",
    "Configuration",
    "RESTClientObject",
    "load_incluster_config",
    "load_kube_config_from_dict",
]

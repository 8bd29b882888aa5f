"""The image as the Dockerfile makes it: really built by buildah, on a base that debootstrap makes, without a registry.

`builder.Builder` builds, in a `store.Store`, as the release does (tests/release); the fixtures `builder` and `image`
(conftest.py) give one build to the whole run, whichever of its workers asks. The base is made once and kept in the
user's cache, like the programs of the cluster. Needs root and the Debian packages buildah and debootstrap.
"""

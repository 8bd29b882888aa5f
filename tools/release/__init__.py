"""The release: wheel, image, chart, manifests, lists of materials and checksums, of one commit.

`python -m tools.release` (`make release`) builds it; docs/release.md says what is in it. Nothing of the working tree
gets in: everything is made of the commit, exported, with the commit's time, so that it can be made again to the byte.
"""

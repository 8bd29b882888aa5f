"""The rules of deploy/prometheus/ under promtool, on what the real collector exposes.

A scenario is a stretch of time on one or several nodes: daemons look (the real core over hand-made nodes, the real
collector), every 30 s each is scraped as Prometheus scrapes, and at some moments it says which alerts there are, with
every label and every sentence. `world` records the series, `promtool` has promtool say whether the rules agree.
`scenarios_*` has the scenarios, by alert.
"""

"""The real programs of monitoring for the tests: Prometheus, Alertmanager, their tools, and a receiver of webhooks.

    def test_the_alert_arrives(tmp_path: Path, webhook: Webhook) -> None:
        config = {"route": {"receiver": "all", "group_wait": "0s"}, "receivers": [{"name": "all", "webhook_configs": [
            {"url": f"{webhook.url}/all"}]}]}
        with Alertmanager(tmp_path / "am", config) as alertmanager, prometheus(
            tmp_path / "prometheus",
            static(f"127.0.0.1:{daemon.port}", job="gpu-memory-watchdog", labels={"node": "n1"}),
            rules=[REPOSITORY / "deploy/prometheus/alerts.yaml"],
            alertmanagers=[alertmanager.address],
        ) as running:
            running.wait_for("gpu_watchdog_enforcing == 1")        # until an expression gives something
            assert running.value("count(gpu_watchdog_gpu_up)") == 1
            running.wait_for_alert("GPUMemoryOverLimit")           # firing; state="pending" for the other
            told = webhook.wait_for("GPUMemoryOverLimit")
            assert told.labels["pod"] == "trainer"

Rooms: `programs.find(name)` gives a program's path, or skips (fails in CI); `prometheus` has `Prometheus`, which takes
any configuration, and `prometheus(...)`, which puts one together of scrape_configs, rule files and Alertmanagers, with
an interval of 200 ms for scrapes and rules; `alertmanager` has `Alertmanager` and `amtool`; `webhook` has `Webhook`.
Each is a context manager that gives a server that is ready, on a free port of loopback, with a folder of its own, and
ends it by its PID; they also end when the tests are killed. Waits fail after 60 s unless told otherwise, with what is
there instead. Fixtures are in conftest.py. For a world that several tests look at make a fixture of module scope.

Mark tests that start a program `slow` (`pytestmark = pytest.mark.slow`), and `node` where they need cgroups.
"""

"""What dcgm-exporter writes, and what Prometheus stores of it with honorLabels and without."""

from collections.abc import Iterator, Mapping
from typing import Final, Literal

from prometheus_client.parser import text_string_to_metric_families

from tests.monitoring.rules.world import World

Scraped = Literal["honored", "default"]
# The labels and their order are those of 4.x with driver 580, of a card and of MIG instances; the values are ours.
# Templates: internal/pkg/rendermetrics/render_metrics.go in NVIDIA/dcgm-exporter. Outputs of real cards: the README of
# its repository, its pull request 736 (an A30 with MIG, beside another card) and its issue 317 (without Kubernetes).
_CARD: Final = (
    'gpu="0",UUID="GPU-0",pci_bus_id="00000000:65:00.0",device="nvidia0",modelName="NVIDIA A30",'
    'hostname="dcgm-exporter-wwwjh",DCGM_FI_DRIVER_VERSION="580.95.05"'
)
_INSTANCE: Final = (
    'gpu="1",UUID="GPU-9",pci_bus_id="00000000:B1:00.0",device="nvidia1",modelName="NVIDIA A30",'
    'GPU_I_PROFILE="1g.6gb",GPU_I_ID="{}",hostname="dcgm-exporter-wwwjh",DCGM_FI_DRIVER_VERSION="580.95.05"'
)
_OTHER: Final = (
    'gpu="2",UUID="GPU-elsewhere",pci_bus_id="00000000:CA:00.0",device="nvidia2",modelName="NVIDIA A30",'
    'hostname="dcgm-exporter-wwwjh",DCGM_FI_DRIVER_VERSION="580.95.05"'
)
_POD: Final = ',container="main",namespace="a",pod="trainer",pod_uid=""'
_XID: Final = ',err_code="{}",err_msg="{}"'
OUTPUT: Final = f"""\
# HELP DCGM_FI_DEV_GPU_TEMP GPU temperature (in C).
# TYPE DCGM_FI_DEV_GPU_TEMP gauge
DCGM_FI_DEV_GPU_TEMP{{{_CARD}{_POD}}} 48
DCGM_FI_DEV_GPU_TEMP{{{_INSTANCE.format(3)}{_POD}}} 50
DCGM_FI_DEV_GPU_TEMP{{{_INSTANCE.format(5)}}} 50
DCGM_FI_DEV_GPU_TEMP{{{_OTHER}}} 44
# HELP DCGM_FI_DEV_POWER_USAGE Power draw (in W).
# TYPE DCGM_FI_DEV_POWER_USAGE gauge
DCGM_FI_DEV_POWER_USAGE{{{_CARD}{_POD}}} 40.979000
DCGM_FI_DEV_POWER_USAGE{{{_INSTANCE.format(3)}{_POD}}} 31.250000
DCGM_FI_DEV_POWER_USAGE{{{_INSTANCE.format(5)}}} 31.250000
DCGM_FI_DEV_POWER_USAGE{{{_OTHER}}} 12.500000
# HELP DCGM_FI_DEV_XID_ERRORS Value of the last XID error encountered.
# TYPE DCGM_FI_DEV_XID_ERRORS gauge
DCGM_FI_DEV_XID_ERRORS{{{_CARD}{_XID.format(79, "GPU has fallen off the bus")}{_POD}}} 79
DCGM_FI_DEV_XID_ERRORS{{{_INSTANCE.format(3)}{_XID.format(0, "No Error")}{_POD}}} 0
DCGM_FI_DEV_XID_ERRORS{{{_INSTANCE.format(5)}{_XID.format(0, "No Error")}}} 0
DCGM_FI_DEV_XID_ERRORS{{{_OTHER}{_XID.format(31, "GPU memory page fault")}}} 31
# HELP DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS Number of remapped rows for uncorrectable errors
# TYPE DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS counter
DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS{{{_CARD}{_POD}}} 2
DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS{{{_OTHER}}} 0
# HELP DCGM_FI_DEV_ECC_SBE_VOL_TOTAL Total number of single-bit volatile ECC errors.
# TYPE DCGM_FI_DEV_ECC_SBE_VOL_TOTAL counter
DCGM_FI_DEV_ECC_SBE_VOL_TOTAL{{{_CARD}{_POD}}} 7
# HELP DCGM_FI_DEV_ECC_DBE_VOL_TOTAL Total number of double-bit volatile ECC errors.
# TYPE DCGM_FI_DEV_ECC_DBE_VOL_TOTAL counter
DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{{{_CARD}{_POD}}} 1
"""
# The pod of RECORDED, and its card.
RECORDED_POD: Final = {"namespace": "default", "pod": "cuda-75454ffb9f-8ljq7"}
RECORDED_CARD: Final = "GPU-a8394b51-c086-568a-9f1a-c1e1c934c44c"
_RECORDED: Final = (
    f'gpu="0",UUID="{RECORDED_CARD}",pci_bus_id="00000000:00:02.0",device="nvidia0",'
    'modelName="NVIDIA RTX 4000 Ada Generation",Hostname="lke529760-766837-0a634ab30000",'
    'DCGM_FI_DRIVER_VERSION="580.95.05",container="cuda",'
)
_RECORDED_END: Final = 'namespace="default",pod="cuda-75454ffb9f-8ljq7",pod_uid=""'
# Four of the fields that one wrote on a real card, with their values (linode/lke-ai-conformance, November 2025).
RECORDED: Final = f"""\
# HELP DCGM_FI_DEV_GPU_TEMP GPU temperature (in C).
# TYPE DCGM_FI_DEV_GPU_TEMP gauge
DCGM_FI_DEV_GPU_TEMP{{{_RECORDED}{_RECORDED_END}}} 48
# HELP DCGM_FI_DEV_POWER_USAGE Power draw (in W).
# TYPE DCGM_FI_DEV_POWER_USAGE gauge
DCGM_FI_DEV_POWER_USAGE{{{_RECORDED}{_RECORDED_END}}} 40.979000
# HELP DCGM_FI_DEV_XID_ERRORS Value of the last XID error encountered.
# TYPE DCGM_FI_DEV_XID_ERRORS gauge
DCGM_FI_DEV_XID_ERRORS{{{_RECORDED}err_code="0",err_msg="No Error",{_RECORDED_END}}} 0
# HELP DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS Number of remapped rows for uncorrectable errors
# TYPE DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS counter
DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS{{{_RECORDED}{_RECORDED_END}}} 0
"""
# What discovery adds, as with the ServiceMonitor of its chart.
_TARGET: Final = {
    "job": "dcgm-exporter", "instance": "10.0.0.7:9400", "endpoint": "metrics", "service": "dcgm-exporter",
    "namespace": "gpu-operator", "pod": "dcgm-exporter-wwwjh", "container": "exporter",
}  # fmt: skip


def scrape(world: World, scraped: Scraped, *, output: str = OUTPUT, without: str = "") -> None:
    """From now on a dcgm-exporter writes the output, but for one field."""
    for name, labels, value in _samples(output):
        if name != without:
            world.fix(name, value, **_stored(labels, scraped))


def _samples(output: str) -> Iterator[tuple[str, Mapping[str, str], float]]:
    """Each with its name as it is written: the parser appends `_total` to a counter's."""
    for family in text_string_to_metric_families(output):
        for sample in family.samples:
            yield sample.name.removesuffix("_total"), sample.labels, sample.value


def _stored(labels: Mapping[str, str], scraped: Scraped) -> dict[str, str]:
    """As Prometheus stores labels that a target has too (honor_labels in its documentation)."""
    if scraped == "honored":
        return {**_TARGET, **labels}
    return {**{f"exported_{name}" if name in _TARGET else name: text for name, text in labels.items()}, **_TARGET}

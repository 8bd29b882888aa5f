"""What can be found of the NVIDIA driver, in words."""

from typing import Final

from watchdog.doctor.finding import Topic, missing, ok, warning

LIBRARY: Final = Topic(
    name="nvml_library",
    means="The NVML library, `libnvidia-ml.so.1`, which comes with the driver, can be loaded.",
    cases={
        "found": ok("libnvidia-ml.so.1 is loaded from {path}"),
        "elsewhere": missing(
            "libnvidia-ml.so.1 is not where the loader looks (LD_LIBRARY_PATH: {searched}), but in {folder}",
            "add {folder} to LD_LIBRARY_PATH",
        ),
        "absent": missing(
            "libnvidia-ml.so.1 is nowhere: neither where the loader looks (LD_LIBRARY_PATH: {searched}) nor in the "
            "folders of the GPU Operator, GKE and WSL",
            "install the NVIDIA driver. In a container: the NVIDIA runtime (runtimeClassName: nvidia) with "
            "NVIDIA_VISIBLE_DEVICES=all and NVIDIA_DRIVER_CAPABILITIES=utility; or mount the host's folder "
            "(GPU Operator: /run/nvidia/driver, GKE: /home/kubernetes/bin/nvidia) and add it to LD_LIBRARY_PATH",
        ),
        "broken": missing(
            "libnvidia-ml.so.1 can't be loaded: {problem}",
            "it must be of this machine's architecture, and whole: take it from the driver that is installed",
        ),
    },
)
DRIVER: Final = Topic(
    name="nvml_driver",
    means="The driver answers through the library.",
    cases={
        "answers": ok("driver {version} answers"),
        "let_go": warning(
            "{why}: its GPUs are under maintenance, so the driver is not asked", "ask again when that is over"
        ),
        "fails": missing("the driver does not answer: {said}", "{remedy}"),
        "hangs": missing(
            "{why}: a call into the driver hangs",
            "look for NVRM and Xid in the kernel log (dmesg); drain and reboot the node",
        ),
    },
)
VERSION: Final = Topic(
    name="nvml_version",
    means="Library and driver are of one version; they differ after an upgrade without a reboot or a new container.",
    cases={
        "fits": ok("the library, NVML {library}, fits the driver"),
        "differs": missing("library and driver differ: {said}", "{remedy}"),
    },
)
GPUS: Final = Topic(
    name="gpus",
    means="The driver shows GPUs.",
    cases={
        "found": ok("GPUs and MIG instances: {count} ({names})"),
        "none": missing(
            "the driver shows no GPU",
            "see that nvidia-smi lists some on the host; in a container set NVIDIA_VISIBLE_DEVICES=all",
        ),
    },
)
UP: Final = Topic(
    name="gpu_up",
    means="Every GPU answers. One that is lost takes nothing from the others; while none answers nothing is known.",
    cases={
        "up": ok("every GPU answers"),
        "one": warning("{gpu} does not answer: {said}", "{remedy}"),
        "all": missing("{gpu} does not answer, and no other does: {said}", "{remedy}"),
        "unseen": missing(
            "{gpu} can't be looked at: {said}. Who is on it is not known, so everybody's use is unknown",
            "{remedy}",
        ),
        "unnamed": warning("{gpu} is not known: {said}", "{remedy}"),
    },
)
MIG: Final = Topic(
    name="mig",
    means="MIG instances and their processes can be read.",
    cases={
        "read": ok("MIG instances: {instances}, on cards in MIG mode: {cards}"),
        "empty": warning(
            "no MIG instance can be seen on the cards in MIG mode ({cards})",
            "make instances (nvidia-smi mig -cgi), or run with NVIDIA_MIG_MONITOR_DEVICES=all and CAP_SYS_ADMIN",
        ),
        "fails": missing(
            "{gpu} can't be read: {said}",
            "run with NVIDIA_MIG_MONITOR_DEVICES=all and CAP_SYS_ADMIN, both together; {remedy}",
        ),
        "no_device": missing(
            "{gpu} can't be read: {said}. There is no device in /dev/nvidia-caps, by which instances are looked at",
            "in a container: NVIDIA_MIG_MONITOR_DEVICES=all and CAP_SYS_ADMIN, both together (driver.mig=true), with "
            "NVIDIA's runtime in legacy mode or of version 1.20.1 on (1.18 to 1.20.0 in their default mode jit-cdi put "
            "none there); otherwise a privileged container",
        ),
    },
)
LISTS: Final = Topic(
    name="process_lists",
    means="The driver lists the processes of every GPU. Where it does not, everybody's use is unknown.",
    cases={
        "answer": ok("the processes of every GPU are listed"),
        "fails": missing("{gpu} can't be listed: {said}", "{remedy}"),
    },
)
ENTRIES: Final = Topic(
    name="process_entries",
    means="What the driver lists makes sense. Drivers of about 535.43 to 535.86 have entries of another size, which is "
    "recognised; a list that contradicts itself all the same is thrown away.",
    cases={
        "usual": ok("entries of process lists have {size} bytes, as they should"),
        "larger": ok(
            "entries of process lists have {size} bytes: a driver of about 535.43 to 535.86, read accordingly"
        ),
        "contradict": missing(
            "{gpu} make no sense: {why}",
            "take a driver that is older than 535.43 or newer than 535.86, or report it with the driver's version",
        ),
    },
)
VIRTUAL: Final = Topic(
    name="virtual_gpu",
    means="The GPUs are this machine's own, or passed through to it whole. A vGPU and a GPU below Windows (WSL) have a "
    "counter of their memory, and their driver may leave out which processes there are and what each uses.",
    cases={
        "whole": ok("no GPU is a vGPU, and this is not WSL"),
        "vgpu": warning(
            "{gpu} is a vGPU, and its driver has not told yet what a process uses; some never do",
            "look again while a process uses it; if process_numbers lacks then, give the virtual machine a whole GPU "
            "(passthrough)",
        ),
        "vgpu_tells": ok("{gpu} is a vGPU, and its driver tells what processes use"),
        "windows": missing(
            "this is WSL ({sign}): the driver of Windows tells no memory of single processes, and need not list all",
            "run on Linux itself. Here the counters of the GPUs work, every pod's use is unknown, and nobody is acted "
            "on",
        ),
        "windows_tells": ok("this looks like WSL ({sign}), but the driver tells what processes use"),
    },
)
NUMBERS: Final = Topic(
    name="process_numbers",
    means="The driver says how much memory each process uses. On WSL2 and in some vGPU guests it never does.",
    cases={
        "given": ok("the driver tells the memory of every process that it lists ({count})"),
        "idle": warning(
            "no process uses a GPU now, so whether the driver tells the memory of each can't be seen",
            "look again when one does",
        ),
        "some": warning(
            "the driver does not tell the memory of some processes ({unknown} of {count}); their accounts are unknown",
            "look again; if it stays, see which processes `gpu-watchdog scan` shows as unknown",
        ),
        "none": missing(
            "the driver tells the memory of none of the processes that it lists ({count})",
            "in a vGPU guest give the virtual machine a whole GPU (passthrough), on WSL run on Linux itself; otherwise "
            "update the driver. Until then the counters of the GPUs work, and nobody is acted on",
        ),
    },
)
MEMORY: Final = Topic(
    name="gpu_memory",
    means="Each GPU has a counter of its memory. Without it processes are still measured, but shares of a card and "
    "what belongs to no process are unknown.",
    cases={
        "counted": ok("every GPU tells its total and used memory"),
        "unified": warning(
            "{gpu} has no memory of its own to count (it shares the host's)",
            "declare in bytes: shares and percentages of this card can't be worked out",
        ),
        "fails": warning("{gpu} can't be counted: {said}", "{remedy}"),
    },
)
TOPICS: Final = (LIBRARY, DRIVER, VERSION, GPUS, UP, MIG, LISTS, ENTRIES, VIRTUAL, NUMBERS, MEMORY)

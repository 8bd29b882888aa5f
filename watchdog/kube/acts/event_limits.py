"""How many Events are written at most: of one pod, and of this node altogether."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final

# EventSourceObjectSpamFilter in k8s.io/client-go/tools/record/events_cache.go: of one source about one object.
OBJECT_BURST: Final = 25
OBJECT_PER_S: Final = 1 / 300
# DefaultQPS and DefaultBurst in k8s.io/client-go/rest/config.go: requests of one client.
REQUEST_BURST: Final = 10
REQUEST_PER_S: Final = 5.0
MOST_OBJECTS: Final = 1024


class Bucket:
    """A bucket of tokens that fills up again; moments are seconds of a clock that never jumps."""

    def __init__(self, burst: int, per_s: float, now_s: float) -> None:
        self._burst = float(burst)
        self._per_s = per_s
        self._tokens = float(burst)
        self._at_s = now_s

    def wait_s(self, now_s: float) -> float:
        """Seconds until there is a token; 0: there is one now."""
        self._fill(now_s)
        return max(1.0 - self._tokens, 0.0) / self._per_s

    def take(self, now_s: float) -> None:
        """Take a token, even one that is still to come: who asks without waiting makes the next one wait."""
        self._fill(now_s)
        self._tokens -= 1.0

    def _fill(self, now_s: float) -> None:
        self._tokens = min(self._burst, self._tokens + max(now_s - self._at_s, 0.0) * self._per_s)
        self._at_s = now_s


class ObjectLimits:
    """A bucket for each object; of more than so many objects the one that was quiet for longest is forgotten."""

    def __init__(self, most: int = MOST_OBJECTS) -> None:
        self._most = most
        self._buckets: OrderedDict[Hashable, Bucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def admit(self, key: Hashable, now_s: float) -> bool:
        """Whether one more Event of this object may be written now; it counts if so."""
        bucket = self._buckets.pop(key, None) or Bucket(OBJECT_BURST, OBJECT_PER_S, now_s)
        self._buckets[key] = bucket
        if len(self._buckets) > self._most:
            self._buckets.popitem(last=False)
        if bucket.wait_s(now_s) > 0:
            return False
        bucket.take(now_s)
        return True

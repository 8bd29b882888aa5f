"""What the API server must refuse although RBAC allows it: validating admission policies (Kubernetes 1.30 and later).

RBAC says which verbs an account has on which kind, and can't say "of my own node", "this field alone" or "only with a
UID". Their expressions are CEL; `reason: Forbidden` makes a refusal a 403, since a patch that came too late is a 422.
"""

from collections.abc import Iterable
from string import Template
from typing import Final

_HEAD: Final = """\
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: $name
  labels:
    app.kubernetes.io/name: gpu-memory-watchdog
spec:
  failurePolicy: Fail
"""
_MATCH: Final = """\
  matchConditions:
    - name: it-is-the-watchdog
      expression: request.userInfo.username == '$user'
"""
_BINDING: Final = """\
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: $name
  labels:
    app.kubernetes.io/name: gpu-memory-watchdog
spec:
  policyName: $name
  validationActions: [Deny]
"""
# NodeNameKey in k8s.io/apiserver/pkg/authentication/serviceaccount: the node of the pod that a token is bound to. The
# tokens that the kubelet puts into pods are.
#
# Both objects are compared both ways, field by field: what is in neither of them can't have been changed. A spec can't
# be changed by way of the status, labels and annotations can (nodeStatusStrategy in
# k8s.io/kubernetes/pkg/registry/core/node). The API server itself copies the capacity of a node without allocatable
# (SetDefaults_NodeStatus in k8s.io/kubernetes/pkg/apis/core/v1): one that no kubelet has written to yet.
_BOTH: Final = """\
    - name: both
      expression: "[dyn(object), dyn(oldObject)]"
    - name: defaulted
      expression: >-
        !dyn(oldObject).?status.?allocatable.hasValue() &&
        dyn(object).?status.?allocatable == dyn(object).?status.?capacity
"""
_ONE_ENTRY: Final = """\
    - expression: >-
        request.operation == 'UPDATE' && variables.both.all(a, variables.both.all(b,
        a.all(k, k in ['metadata', 'status'] || (k in b && a[k] == b[k])) &&
        a.metadata.all(k, k in ['managedFields', 'resourceVersion'] ||
        (k in b.metadata && a.metadata[k] == b.metadata[k])) &&
        a.?status.orValue({}).all(k, k == 'capacity' || (k == 'allocatable' && variables.defaulted) ||
        (k in b.?status.orValue({}) && a.status[k] == b.status[k])) &&
        a.?status.?capacity.orValue({}).all(k, k == '$resource' ||
        (k in b.?status.?capacity.orValue({}) && a.status.capacity[k] == b.status.capacity[k]))))
      message: the watchdog may only change $resource of the node's status.capacity
      reason: Forbidden
"""
_CAPACITY: Final = Template(
    "# The watchdog changes nothing of nodes but one entry of the capacity of the node that its pod is on.\n"
    + _HEAD
    + """\
  matchConstraints:
    resourceRules:
      - apiGroups: [""]
        apiVersions: ["*"]
        operations: [CREATE, UPDATE, DELETE]
        resources: ["nodes", "nodes/*"]
"""
    + _MATCH
    + """\
  variables:
    - name: ownNode
      expression: request.userInfo.?extra[?'authentication.kubernetes.io/node-name'][?0].orValue('')
"""
    + _BOTH
    + """\
  validations:
    - expression: request.operation == 'UPDATE' && variables.ownNode != '' && variables.ownNode == request.name
      message: the watchdog may only change the node that its pod is on, and its token must be of a pod
      reason: Forbidden
"""
    + _ONE_ENTRY
    + _BINDING
)
# Of any node, but only to take the one entry away: for whoever cleans up after the daemons (deploy/chart).
_WITHDRAW: Final = Template(
    "# Whoever withdraws changes nothing of nodes but that one entry of their capacity goes.\n"
    + _HEAD
    + """\
  matchConstraints:
    resourceRules:
      - apiGroups: [""]
        apiVersions: ["*"]
        operations: [CREATE, UPDATE, DELETE]
        resources: ["nodes", "nodes/*"]
"""
    + _MATCH
    + "  variables:\n"
    + _BOTH
    + """\
  validations:
    - expression: request.operation == 'UPDATE' && !('$resource' in dyn(object).?status.?capacity.orValue({}))
      message: this account may only take $resource out of the status.capacity of nodes
      reason: Forbidden
"""
    + _ONE_ENTRY
    + _BINDING
)
# Which node the pod of an eviction is on, is not in the request.
_EVICT: Final = Template(
    "# The watchdog evicts only the very pod that it looked at, and none of the system.\n"
    + _HEAD
    + """\
  matchConstraints:
    resourceRules:
      - apiGroups: [""]
        apiVersions: ["*"]
        operations: [CREATE]
        resources: ["pods/eviction"]
"""
    + _MATCH
    + """\
  validations:
    - expression: object.?deleteOptions.?preconditions.?uid.orValue('') != ''
      message: the watchdog may only evict with the UID of the pod as a precondition
      reason: Forbidden
    - expression: "!(request.namespace in [$namespaces])"
      message: the watchdog may not evict pods of this namespace
      reason: Forbidden
"""
    + _BINDING
)


def capacity_admission(name: str, user: str, resource: str) -> str:
    """Tie the right to change the status of nodes to one resource of the own node; YAML documents."""
    return _CAPACITY.substitute(name=name, user=user, resource=resource)


def withdrawal_admission(name: str, user: str, resource: str) -> str:
    """Tie the right to change the status of nodes to taking one resource away; YAML documents."""
    return _WITHDRAW.substitute(name=name, user=user, resource=resource)


def eviction_admission(name: str, user: str, spared: Iterable[str]) -> str:
    """Demand a UID of evictions, and keep namespaces out of them; YAML documents."""
    namespaces = ", ".join(f"'{namespace}'" for namespace in spared)
    return _EVICT.substitute(name=name, user=user, namespaces=namespaces)

{{- /* A name of at most 63 characters, as Helm's own charts have it: longer ones are cut, without a dash at the end. */ -}}
{{- define "watchdog.cut" -}}
{{- regexReplaceAll "-+$" (trunc 63 .) "" -}}
{{- end }}

{{- /* The name that labels have. */ -}}
{{- define "watchdog.name" -}}
{{- .Values.nameOverride | default "gpu-memory-watchdog" | include "watchdog.cut" -}}
{{- end }}

{{- /* The name of the objects. It does not depend on the release unless nameOverride is set, so that the commands in the
       documentation are right for every release. */ -}}
{{- define "watchdog.fullname" -}}
{{- $name := .Values.fullnameOverride | default "gpu-watchdog" -}}
{{- if and .Values.nameOverride (not .Values.fullnameOverride) -}}
{{- $name = .Release.Name -}}
{{- if not (contains .Values.nameOverride $name) }}{{ $name = printf "%s-%s" $name .Values.nameOverride }}{{ end -}}
{{- end -}}
{{- include "watchdog.cut" $name -}}
{{- end }}

{{- define "watchdog.account" -}}
{{- .Values.serviceAccount.name | default (include "watchdog.fullname" .) -}}
{{- end }}

{{- /* The name of a Job: of a prefix, cut so that the whole is a valid label, and a suffix. */ -}}
{{- define "watchdog.jobName" -}}
{{- $suffix := last . -}}
{{- printf "%s-%s" (regexReplaceAll "[-.]+$" (trunc (int (sub 62 (len $suffix))) (first .)) "") $suffix -}}
{{- end }}

{{- /* What selectors match. A DaemonSet's selector is immutable, so nothing that varies belongs here. */ -}}
{{- define "watchdog.selectorLabels" -}}
{{ dict "app.kubernetes.io/name" (include "watchdog.name" .) | toYaml }}
{{- end }}

{{- define "watchdog.labels" -}}
{{ include "watchdog.selectorLabels" . }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | quote }}
{{- end }}

{{- /* The annotations of the pods; podAnnotations take precedence. */ -}}
{{- define "watchdog.podAnnotations" -}}
{{- $annotations := dict -}}
{{- if .Values.prometheus.annotations -}}
{{- $annotations = dict "prometheus.io/scrape" "true" "prometheus.io/port" "9837" "prometheus.io/path" "/metrics" -}}
{{- if .Values.authentication.enabled }}{{ $_ := set $annotations "prometheus.io/scheme" "https" }}{{ end -}}
{{- end -}}
{{- /* Else `kubectl exec` and `kubectl logs` say each time which container they have chosen. */ -}}
{{- if .Values.authentication.enabled }}{{ $_ := set $annotations "kubectl.kubernetes.io/default-container" "watchdog" }}{{ end -}}
{{ merge (dict) (.Values.podAnnotations | default dict) $annotations | toYaml }}
{{- end }}

{{- /* An address to listen on, of a port on all interfaces. */ -}}
{{- define "watchdog.everywhere" -}}
{{ ternary "[::]" "0.0.0.0" (eq (first .).Values.listen "::") }}:{{ last . }}
{{- end }}

{{- /* The container in front of the daemon: kube-rbac-proxy, with what authentication.container replaces. */ -}}
{{- define "watchdog.proxy" -}}
name: kube-rbac-proxy
image: {{ .Values.authentication.image | quote }}
args:
  - --secure-listen-address={{ include "watchdog.everywhere" (list . 9837) }}
  - --upstream=http://127.0.0.1:9838/
  - --config-file=/etc/kube-rbac-proxy/config.yaml
  - --ignore-paths=/healthz,/readyz
  {{- if .Values.authentication.tlsSecret }}
  - --tls-cert-file=/etc/kube-rbac-proxy-tls/tls.crt
  - --tls-private-key-file=/etc/kube-rbac-proxy-tls/tls.key
  {{- end }}
ports:
  - name: metrics
    containerPort: 9837
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
  seccompProfile:
    type: RuntimeDefault
resources:
  {{- toYaml .Values.authentication.resources | nindent 2 }}
readinessProbe:
  httpGet:
    path: /healthz
    port: metrics
    scheme: HTTPS
  periodSeconds: 10
  timeoutSeconds: 3
volumeMounts:
  - name: kube-rbac-proxy
    mountPath: /etc/kube-rbac-proxy
    readOnly: true
  {{- if .Values.authentication.tlsSecret }}
  - name: tls
    mountPath: /etc/kube-rbac-proxy-tls
    readOnly: true
  {{- end }}
{{- end }}

{{- define "watchdog.policyText" -}}
{{ .Values.policy | default (.Files.Get "files/policy.toml") }}
{{- end }}

{{- /* The text from which the rights follow: that of existingConfigMap if there is a cluster to read it from. Each
       namespace has kube-root-ca.crt; if that can be read and the other is missing, the other does not exist. */ -}}
{{- define "watchdog.policyInUse" -}}
{{- $text := include "watchdog.policyText" . -}}
{{- $map := .Values.existingConfigMap -}}
{{- if $map.name -}}
{{- $found := lookup "v1" "ConfigMap" .Release.Namespace $map.name -}}
{{- if $found -}}
{{- if not (hasKey ($found.data | default dict) $map.key) -}}
{{- fail (printf "existingConfigMap.key: the ConfigMap %s has no key %s; its keys: %s" $map.name $map.key ($found.data | default dict | keys | sortAlpha | join ", ")) -}}
{{- end -}}
{{- $text = get $found.data $map.key -}}
{{- else if lookup "v1" "ConfigMap" .Release.Namespace "kube-root-ca.crt" -}}
{{- fail (printf "existingConfigMap.name: the namespace %s has no ConfigMap %s; create it first" .Release.Namespace $map.name) -}}
{{- end -}}
{{- end -}}
{{ $text }}
{{- end }}

{{- /* The ConfigMap as a volume with the file policy.toml: existingConfigMap, or the chart's own of the name given. */ -}}
{{- define "watchdog.policyVolume" -}}
{{- $map := (first .).Values.existingConfigMap -}}
name: {{ $map.name | default (last .) | quote }}
{{- if $map.name }}
items:
  - key: {{ $map.key | quote }}
    path: policy.toml
{{- end }}
{{- end }}

{{- /* The labels of the daemon's nodes. */ -}}
{{- define "watchdog.nodeSelector" -}}
{{- $labels := deepCopy (.Values.nodeSelector | default dict) -}}
{{- if .Values.gpuOperator.client }}{{ $_ := set $labels "nvidia.com/gpu.deploy.client" "true" }}{{ end -}}
{{- with $labels }}{{ toYaml . }}{{ end -}}
{{- end }}

{{- /* Rejects a policy in which something is no table that the chart reads as one; `gpu-watchdog check` finds the rest. */ -}}
{{- define "watchdog.demandTables" -}}
{{- $policy := . -}}
{{- range list "events" "protect" "capacity" -}}
{{- if not (kindIs "map" (get $policy . | default dict)) }}{{ fail (printf "policy: %s must be a table, written [%s]" . .) }}{{ end -}}
{{- end -}}
{{- include "watchdog.demandList" (list $policy "rule" "rule") -}}
{{- range $policy.rule -}}
{{- if not (kindIs "map" (.match | default dict)) }}{{ fail "policy: match must be a table" }}{{ end -}}
{{- include "watchdog.demandList" (list . "step" "rule.step") -}}
{{- end -}}
{{- if not (kindIs "slice" (dig "namespaces" list ($policy.protect | default dict))) }}{{ fail "policy: namespaces in [protect] must be a list" }}{{ end -}}
{{- if not (kindIs "slice" ($policy.schemes | default list)) }}{{ fail "policy: schemes must be a list" }}{{ end -}}
{{- if not (kindIs "string" ($policy.mode | default "")) }}{{ fail "policy: mode must be \"observe\" or \"enforce\"" }}{{ end -}}
{{- end }}

{{- define "watchdog.demandList" -}}
{{- $why := printf "policy: %s must be a list of tables, each written [[%s]]" (index . 1) (index . 2) -}}
{{- $found := get (first .) (index . 1) | default list -}}
{{- if not (kindIs "slice" $found) }}{{ fail $why }}{{ end -}}
{{- range $found }}{{ if not (kindIs "map" .) }}{{ fail $why }}{{ end }}{{ end -}}
{{- end }}

{{- /* The policy as JSON, for fromJson; rejects text that is not TOML, with the position. */ -}}
{{- define "watchdog.policy" -}}
{{- $policy := fromToml (include "watchdog.policyInUse" .) -}}
{{- with $policy.Error }}{{ fail (printf "policy: this is not TOML: %s" .) }}{{ end -}}
{{- include "watchdog.demandTables" $policy -}}
{{- if eq ($policy.mode | default "observe") "enforce" -}}
{{- if ne .Values.journal.type "hostPath" -}}
{{- fail "journal.type: an emptyDir is lost with the pod, and the brakes of a policy with mode = \"enforce\" would forget; use hostPath" -}}
{{- end -}}
{{- range .Values.env -}}
{{- if and (eq .name "GPU_WATCHDOG_JOURNAL") (not (hasPrefix "/var/lib/gpu-watchdog/" (clean (.value | default "")))) -}}
{{- fail "env: GPU_WATCHDOG_JOURNAL is not below /var/lib/gpu-watchdog, where the journal's volume is: it would be lost with the pod, and the brakes of a policy with mode = \"enforce\" would forget" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{ toJson $policy }}
{{- end }}

{{- /* The rights that the policy needs, as in `gpu-watchdog rights`: names in files/rbac/, separated by spaces. */ -}}
{{- define "watchdog.pieces" -}}
{{- $policy := include "watchdog.policy" . | fromJson -}}
{{- $enforces := eq ($policy.mode | default "observe") "enforce" -}}
{{- $events := or $enforces (dig "events" "observe" false $policy) -}}
{{- $namespaces := false -}}
{{- $actions := list -}}
{{- range $rule := $policy.rule -}}
{{- if dig "match" "namespace_labels" dict $rule }}{{ $namespaces = true }}{{ end -}}
{{- range $step := $rule.step -}}
{{- if and $enforces (ne ($rule.mode | default "") "observe") }}{{ $actions = append $actions ($step.do | default "") }}{{ end -}}
{{- end -}}
{{- end -}}
{{- /* Without the key, a policy without tables of its own has all schemes. */ -}}
{{- $schemes := list -}}
{{- if hasKey $policy "schemes" }}{{ $schemes = $policy.schemes }}{{ else if not $policy.declaration }}{{ $schemes = list "*" }}{{ end -}}
{{- ternary "observe-events" "observe" $events }} node
{{- if $namespaces }} namespaces{{ end }}
{{- if or (has "*" $schemes) (has "dra" $schemes) }} claims{{ end }}
{{- /* Not every action needs rights: those that do have a file. */ -}}
{{- range $actions | uniq | sortAlpha }}
{{- if $.Files.Get (printf "files/rbac/%s.yaml" .) }} {{ . }} {{ . }}-admission{{ end }}
{{- end }}
{{- if $policy.capacity }} capacity capacity-admission{{ end }}
{{- end }}

{{- /* Namespaces whose pods may never be evicted, for the markers of the role: kube-system, and those of [protect] without
       * and ?. */ -}}
{{- define "watchdog.spared" -}}
{{- $policy := include "watchdog.policy" . | fromJson -}}
{{- $spared := list "kube-system" -}}
{{- range dig "protect" "namespaces" list $policy -}}
{{- if regexMatch "^[a-z0-9-]+$" . }}{{ $spared = append $spared . }}{{ end -}}
{{- end -}}
{{- $spared | uniq | sortAlpha | join "\", \"spared/" }}
{{- end }}

{{- /* The affinity, with excludeNodeLabels added to each of its terms, since matching any one of them suffices. null
       counts as absent at every level. An empty term matches no node (nodeaffinity in k8s.io/component-helpers): it
       stays empty. */ -}}
{{- define "watchdog.affinity" -}}
{{- $affinity := deepCopy (.Values.affinity | default dict) -}}
{{- with .Values.excludeNodeLabels -}}
{{- $without := list -}}
{{- range $key, $value := . }}{{ $without = append $without (dict "key" $key "operator" "NotIn" "values" (list $value)) }}{{ end -}}
{{- $node := $affinity.nodeAffinity | default dict -}}
{{- $required := $node.requiredDuringSchedulingIgnoredDuringExecution | default dict -}}
{{- $terms := list -}}
{{- range $required.nodeSelectorTerms -}}
{{- $term := . | default dict -}}
{{- if or $term.matchExpressions $term.matchFields -}}
{{- $term = set $term "matchExpressions" (concat ($term.matchExpressions | default list) $without) -}}
{{- end -}}
{{- $terms = append $terms $term -}}
{{- end -}}
{{- $terms = $terms | default (list (dict "matchExpressions" $without)) -}}
{{- $_ := set $node "requiredDuringSchedulingIgnoredDuringExecution" (dict "nodeSelectorTerms" $terms) -}}
{{- $_ := set $affinity "nodeAffinity" $node -}}
{{- end -}}
{{- with $affinity }}{{ toYaml . }}{{ end -}}
{{- end }}

{{- /* The terms of which the release's nodes must match at least one: a JSON list, empty if there are none. */ -}}
{{- define "watchdog.terms" -}}
{{- $affinity := include "watchdog.affinity" . | fromYaml -}}
{{- $node := $affinity.nodeAffinity | default dict -}}
{{- $required := $node.requiredDuringSchedulingIgnoredDuringExecution | default dict -}}
{{- $terms := list -}}
{{- range $required.nodeSelectorTerms }}{{ $terms = append $terms (. | default dict) }}{{ end -}}
{{ toJson $terms }}
{{- end -}}

{{- /* What root in the container may do besides reading and writing its own files, separated by commas. */ -}}
{{- define "watchdog.capabilities" -}}
KILL{{ if .Values.driver.mig }}, SYS_ADMIN{{ end }}{{ if .Values.mps.clientLimits }}, SYS_PTRACE{{ end }}
{{- end }}

{{- define "watchdog.image" -}}
{{- with .Values.image -}}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ end -}}
{{- end -}}
{{- end }}

{{- /* For what helm creates on uninstall, in the order of the given weight, and deletes when all of it succeeded. */ -}}
{{- define "watchdog.withdrawHook" -}}
helm.sh/hook: post-delete
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}

{{- /* For what helm creates before an installation or upgrade, in the order of the given weight, and deletes when all
       of it succeeded. */ -}}
{{- define "watchdog.policyCheckHook" -}}
helm.sh/hook: pre-install,pre-upgrade
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}

{{- /* Where the chart's Jobs run, and their pull secrets. */ -}}
{{- define "watchdog.anyNode" -}}
# It needs no GPU, and must also run when all GPU nodes are gone or cordoned. It prefers the daemons' nodes, which have
# the image, for their architecture.
nodeSelector:
  kubernetes.io/os: linux
{{- with include "watchdog.preferred" . | fromJsonArray }}
affinity:
  nodeAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      {{- toYaml . | nindent 6 }}
{{- end }}
tolerations:
  - key: node.kubernetes.io/unschedulable
    operator: Exists
    effect: NoSchedule
  {{- with .Values.tolerations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* The container of the chart's Jobs, which needs no privileges on the node. */ -}}
{{- define "watchdog.unprivileged" -}}
securityContext:
  runAsUser: 65532
  runAsGroup: 65532
  runAsNonRoot: true
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
  seccompProfile:
    type: RuntimeDefault
resources:
  {{- toYaml .Values.resources | nindent 2 }}
{{- end }}

{{/* Mistakes that a schema cannot see, each with its mend. */}}
{{- define "timeslice.validate" -}}
{{- if and (eq .Release.Namespace "default") (not .Values.allowDefaultNamespace) -}}
{{- fail "namespace: Timeslice runs a privileged pod on each node with GPUs, so it wants a namespace of its own: add `--namespace timeslice --create-namespace` (or --set allowDefaultNamespace=true)" -}}
{{- end -}}
{{- range $name, $spec := .Values.groups -}}
{{- if regexMatch "^slot-[0-9]+$" $name -}}
{{- fail (printf "groups: %q cannot be the name of a group: a GPU's slots are called so. Choose another name" $name) -}}
{{- else if or (gt (len $name) 40) (not (regexMatch "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$" $name)) -}}
{{- fail (printf "groups: %q cannot be the name of a group: at most 40 small letters, digits and '-' inside" $name) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.node.runtimeClassName .Values.node.privileged -}}
{{- fail "node.runtimeClassName: it is for a node without privileges. Set node.privileged: false too, or leave it empty" -}}
{{- end -}}
{{- $update := .Values.node.updateStrategy -}}
{{- if and (eq $update.type "RollingUpdate") (eq (toString (dig "rollingUpdate" "maxSurge" 0 $update)) "0") (eq (toString (dig "rollingUpdate" "maxUnavailable" 1 $update)) "0") -}}
{{- fail "node.updateStrategy: maxSurge and maxUnavailable are both 0, so that no pod could ever be replaced. Set maxSurge: 1" -}}
{{- end -}}
{{- if and .Values.tls.existingSecret .Values.tls.certManager.issuerRef.name -}}
{{- fail "tls: existingSecret and certManager.issuerRef.name are both set, and each brings a certificate. Leave one of them empty" -}}
{{- end -}}
{{- if ne (empty .Values.tls.existingSecret) (empty .Values.tls.existingNodeSecret) -}}
{{- fail (printf "tls: existingSecret and existingNodeSecret go together: the orchestrator's certificate, and one for the metrics of nodes with the name %s" (include "timeslice.nodeCertificateName" .)) -}}
{{- end -}}
{{- if and .Values.tls.caConfigMap (not (or .Values.tls.existingSecret .Values.tls.certManager.issuerRef.name)) -}}
{{- fail "tls.caConfigMap: it goes with existingSecret or certManager; the authority that Helm makes is in a ConfigMap of the chart" -}}
{{- end -}}
{{- if eq (int .Values.telemetry.orchestratorPort) (int .Values.orchestrator.port) -}}
{{- fail (printf "orchestrator.port and telemetry.orchestratorPort are both %v: they are ports of one pod. Change one of them" .Values.orchestrator.port) -}}
{{- end -}}
{{- include "timeslice.validateEnv" (dict "where" "node.extraEnv" "env" .Values.node.extraEnv "taken" (list "NODE_NAME" "POD_NAME" "POD_UID" "NAMESPACE" "NVIDIA_VISIBLE_DEVICES" "NVIDIA_DRIVER_CAPABILITIES" "TIMESLICE_LOG_LEVEL" "TIMESLICE_NODE_NAME" "TIMESLICE_ORCHESTRATOR" "TIMESLICE_TLS_CA" "TIMESLICE_TLS_CERT" "TIMESLICE_TLS_KEY" "TIMESLICE_STATE_DIR" "TIMESLICE_KUBELET_DIR" "TIMESLICE_TELEMETRY_LISTEN" "TIMESLICE_DRA_MODE" "TIMESLICE_HOST_MEMORY" "TIMESLICE_HOST_MEMORY_RESERVE" "TIMESLICE_TOKEN_FILE")) -}}
{{- include "timeslice.validateEnv" (dict "where" "orchestrator.extraEnv" "env" .Values.orchestrator.extraEnv "taken" (list "NODE_NAME" "POD_NAME" "POD_UID" "NAMESPACE" "TIMESLICE_LOG_LEVEL" "TIMESLICE_TELEMETRY_LISTEN" "TIMESLICE_TLS_CERT" "TIMESLICE_TLS_KEY" "TIMESLICE_NODE_ACCOUNT")) -}}
{{- if and (eq (toString .Values.policies.fillInClaims) "true") (semverCompare "<1.36.0-0" .Capabilities.KubeVersion.Version) -}}
{{- fail (printf "policies.fillInClaims: Kubernetes %s has no MutatingAdmissionPolicy v1, which came with 1.36. Leave it at auto, and write capacities and constraints into claims as docs/kubernetes.md shows" .Capabilities.KubeVersion.Version) -}}
{{- end -}}
{{- if and (eq .Values.node.mode "lanes") (semverCompare "<1.36.3-0" .Capabilities.KubeVersion.Version) -}}
{{- fail (printf "node.mode: lanes need Kubernetes 1.36.3, whose scheduler counts shares right; this is %s. Use auto or slots" .Capabilities.KubeVersion.Version) -}}
{{- end -}}
{{- if .Release.IsUpgrade -}}
{{- $crd := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" "timeslicegroups.timeslice.dev" -}}
{{- $there := int (dig "metadata" "annotations" "timeslice.dev/schema" "0" ($crd | default dict)) -}}
{{- $wanted := int (dig "metadata" "annotations" "timeslice.dev/schema" "0" (.Files.Get "crds/timeslicegroups.yaml" | fromYaml)) -}}
{{- if and $crd (lt $there $wanted) -}}
{{- fail (printf "the CustomResourceDefinition timeslicegroups.timeslice.dev has schema %d, this chart needs %d, and Helm never upgrades CRDs. First run: helm show crds CHART | kubectl apply --server-side --force-conflicts -f -" $there $wanted) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "timeslice.validateEnv" -}}
{{- range .env -}}
{{- if has .name $.taken -}}
{{- fail (printf "%s: the chart sets %s itself; see values.yaml for the value that it comes from" $.where .name) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "timeslice.name" -}}
{{- default "timeslice" .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "timeslice.image" -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}

{{/* Of everything; `component` beside for what selects pods. */}}
{{- define "timeslice.labels" -}}
app.kubernetes.io/name: timeslice
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/instance: {{ .Release.Name }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "timeslice.selector" -}}
app.kubernetes.io/name: timeslice
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* The user name of the node component's ServiceAccount, as admission policies see it. */}}
{{- define "timeslice.nodeAccount" -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ include "timeslice.name" . }}-node
{{- end -}}

{{- define "timeslice.orchestratorHost" -}}
{{ include "timeslice.name" . }}-orchestrator.{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}
{{- end -}}

{{- define "timeslice.orchestratorAddress" -}}
{{ include "timeslice.orchestratorHost" . }}:{{ .Values.orchestrator.port }}
{{- end -}}

{{/* Where the orchestrator's certificate is. */}}
{{- define "timeslice.tlsSecret" -}}
{{- default (printf "%s-orchestrator-tls" (include "timeslice.name" .)) .Values.tls.existingSecret -}}
{{- end -}}

{{/* The names by which the orchestrator is dialled, with commas; localhost through `kubectl port-forward`. */}}
{{- define "timeslice.orchestratorNames" -}}
{{- $name := printf "%s-orchestrator" (include "timeslice.name" .) -}}
{{- $namespaced := printf "%s.%s" $name .Release.Namespace -}}
{{- printf "%s,%s,%s.svc,%s,localhost" $name $namespaced $namespaced (include "timeslice.orchestratorHost" .) -}}
{{- end -}}

{{/* Where the certificate is that nodes show to who reads their metrics. */}}
{{- define "timeslice.nodeTlsSecret" -}}
{{- default (printf "%s-node-tls" (include "timeslice.name" .)) .Values.tls.existingNodeSecret -}}
{{- end -}}

{{/* The name in it, of all nodes: nobody dials them by name. It is none of the orchestrator's. */}}
{{- define "timeslice.nodeCertificateName" -}}
{{ include "timeslice.name" . }}-node.{{ .Release.Namespace }}.svc
{{- end -}}

{{/* The ConfigMap with the authority; empty: it is in the Secret of nodes. */}}
{{- define "timeslice.caConfigMap" -}}
{{- if .Values.tls.caConfigMap -}}{{ .Values.tls.caConfigMap }}
{{- else if not (or .Values.tls.existingSecret .Values.tls.certManager.issuerRef.name) -}}{{ include "timeslice.name" . }}-orchestrator-ca
{{- end -}}
{{- end -}}

{{- define "timeslice.fillInClaims" -}}
{{- $has := .Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy" -}}
{{- if or (eq (toString .Values.policies.fillInClaims) "true") (and (eq (toString .Values.policies.fillInClaims) "auto") $has) -}}true{{- end -}}
{{- end -}}

{{/* Environment that tells a process where it is. */}}
{{- define "timeslice.whereabouts" -}}
- name: NODE_NAME
  valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: POD_UID
  valueFrom: {fieldRef: {fieldPath: metadata.uid}}
- name: NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
- name: TIMESLICE_LOG_LEVEL
  value: {{ .Values.logLevel }}
{{- end -}}

{{/* Of what `helm uninstall` runs first. */}}
{{- define "timeslice.hook" -}}
helm.sh/hook: pre-delete
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
helm.sh/hook-output-log-policy: hook-failed
{{- end -}}

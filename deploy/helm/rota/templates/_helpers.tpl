{{- define "rota.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "rota.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" }}
{{- else -}}
{{- $name := include "rota.name" . -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- $full | trunc 52 | trimSuffix "-" }}
{{- end -}}
{{- end }}

{{- define "rota.selectorLabels" -}}
app.kubernetes.io/name: {{ include "rota.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "rota.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{ include "rota.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: fleet
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "rota.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end }}

{{- define "rota.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (ternary (include "rota.fullname" .) "default" .Values.serviceAccount.create) }}
{{- end }}

{{- define "rota.redisSecret" -}}
{{- .Values.redis.secret.name | default (printf "%s-redis" (include "rota.fullname" .)) }}
{{- end }}

{{/* Checks that the schema cannot express. Each message begins with the path of a value, as in the schema. */}}
{{- define "rota.check" -}}
{{- $v := .Values -}}
{{- if and $v.redis.url $v.redis.secret.name -}}
{{- fail "redis.secret.name: redis.url is also set, and the chart then creates the Secret: set only one of them" -}}
{{- end -}}
{{- if and $v.redis.tls.secret (not (eq (empty $v.redis.tls.cert) (empty $v.redis.tls.key))) -}}
{{- fail "redis.tls.key: set both redis.tls.cert and redis.tls.key, or neither" -}}
{{- end -}}
{{- if and (dig "http" "actions" false $v.config) (not $v.http.token.secret) -}}
{{- fail "config.http.actions: requires a token: set http.token.secret" -}}
{{- end -}}
{{- if and $v.http.readToken.secret (not $v.http.token.secret) -}}
{{- fail "http.readToken.secret: set http.token.secret too: a read-only token is used in addition to that of http.token.secret" -}}
{{- end -}}
{{- range $index, $pool := $v.pools -}}
{{- if not (hasKey ($v.config.pools | default dict) $pool) -}}
{{- fail (printf "pools[%d]: there is no config.pools.%s" $index $pool) -}}
{{- end -}}
{{- end -}}
{{- if lt (int64 $v.keda.maxReplicas) (int64 $v.keda.minReplicas) -}}
{{- fail (printf "keda.maxReplicas: expected at least keda.minReplicas (%v), got %v" $v.keda.minReplicas $v.keda.maxReplicas) -}}
{{- end -}}
{{- end }}

{{/* A key of TOML */}}
{{- define "rota.toml.key" -}}
{{- if regexMatch "^[A-Za-z0-9_-]+$" . }}{{ . }}{{ else }}{{ toJson . }}{{ end }}
{{- end }}

{{/* A value of TOML in one line. JSON is TOML, except for tables and null; a whole number has no fraction. */}}
{{- define "rota.toml.value" -}}
{{- if kindIs "map" . -}}
{{- $pairs := list -}}
{{- range $key, $value := . -}}
{{- if not (kindIs "invalid" $value) -}}
{{- $pairs = append $pairs (printf "%s = %s" (include "rota.toml.key" $key) (include "rota.toml.value" $value)) -}}
{{- end -}}
{{- end -}}
{{- printf "{%s}" (join ", " $pairs) -}}
{{- else if kindIs "slice" . -}}
{{- $items := list -}}
{{- range . -}}
{{- $items = append $items (include "rota.toml.value" .) -}}
{{- end -}}
{{- printf "[%s]" (join ", " $items) -}}
{{- else -}}
{{- toJson . -}}
{{- end -}}
{{- end }}

{{/* The keys of a table, then the tables in it. `path` is its name, with a dot at the end, or "". */}}
{{- define "rota.toml.table" -}}
{{- $path := .path -}}
{{- range $key, $value := .values }}
{{- if not (or (kindIs "map" $value) (kindIs "invalid" $value)) }}
{{ include "rota.toml.key" $key }} = {{ include "rota.toml.value" $value }}
{{- end }}
{{- end }}
{{- range $key, $value := .values }}
{{- if kindIs "map" $value }}
{{- $inner := printf "%s%s" $path (include "rota.toml.key" $key) }}

[{{ $inner }}]
{{- include "rota.toml.table" (dict "path" (printf "%s." $inner) "values" $value) }}
{{- end }}
{{- end }}
{{- end }}

{{/* rota.toml without settings in the environment of the pod: `limits.drain_seconds`; `workers` if there are pools */}}
{{- define "rota.toml" -}}
{{- $config := deepCopy .Values.config -}}
{{- if $config.pools }}{{ $_ := unset $config "workers" }}{{ end -}}
{{- if $config.limits }}{{ $_ := unset $config.limits "drain_seconds" }}{{ end -}}
{{- include "rota.toml.table" (dict "path" "" "values" $config) | trim }}
{{- end }}

{{- define "rota.drainSeconds" -}}
{{- dig "limits" "drain_seconds" 25 .Values.config | toJson }}
{{- end }}

{{/* The text whose change replaces the pods: the keys that a reload refuses, or the whole file if it is not watched */}}
{{- define "rota.restartChecksum" -}}
{{- if .Values.config.watch_config -}}
{{- $provider := empty .Values.config.redis_credentials -}}
{{- toJson (list (pick .Values.config "namespace" "durability") $provider) | sha256sum -}}
{{- else -}}
{{- include "rota.toml" . | sha256sum -}}
{{- end -}}
{{- end }}

{{/* The environment of the container: the settings that belong to the pod. */}}
{{- define "rota.env" -}}
- name: ROTA_CONFIG
  value: /etc/rota/rota.toml
- name: ROTA_REDIS_URL_FILE
  value: /run/secrets/rota/redis-url
- name: ROTA_LIMITS__DRAIN_SECONDS
  value: {{ include "rota.drainSeconds" . | quote }}
- name: ROTA_HTTP__LISTEN
  value: {{ printf "%s:%v" .Values.http.address (int64 .Values.http.port) | quote }}
{{- if .Values.http.token.secret }}
- name: ROTA_HTTP__TOKEN_FILE
  value: /run/secrets/rota/http-token
{{- end }}
{{- if .Values.http.readToken.secret }}
- name: ROTA_HTTP__READ_TOKEN_FILE
  value: /run/secrets/rota/http-read-token
{{- end }}
{{- if .Values.http.tls.secret }}
- name: ROTA_HTTP__TLS_CERT
  value: /run/secrets/rota/http.crt
- name: ROTA_HTTP__TLS_KEY
  value: /run/secrets/rota/http.key
{{- end }}
{{- with .Values.redis.tls }}
{{- if and .secret .ca }}
- name: ROTA_REDIS_TLS_CA
  value: /run/secrets/rota/redis-ca.crt
{{- end }}
{{- if and .secret .cert }}
- name: ROTA_REDIS_TLS_CERT
  value: /run/secrets/rota/redis.crt
- name: ROTA_REDIS_TLS_KEY
  value: /run/secrets/rota/redis.key
{{- end }}
{{- end }}
{{- with .Values.env }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "rota.volumeMounts" -}}
- name: config
  mountPath: /etc/rota
  readOnly: true
- name: secrets
  mountPath: /run/secrets/rota
  readOnly: true
- name: scratch
  mountPath: /tmp
{{- if .Values.sharedMemory }}
- name: shared-memory
  mountPath: /dev/shm
{{- end }}
{{- with .Values.volumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "rota.volumes" -}}
{{- $v := .Values -}}
- name: config
  configMap:
    name: {{ include "rota.fullname" . | quote }}
- name: secrets
  projected:
    defaultMode: 0440
    sources:
      - secret:
          name: {{ include "rota.redisSecret" . | quote }}
          items:
            - key: {{ $v.redis.secret.key | quote }}
              path: redis-url
      {{- with $v.redis.tls }}
      {{- if and .secret (or .ca .cert) }}
      - secret:
          name: {{ .secret | quote }}
          items:
            {{- if .ca }}
            - key: {{ .ca | quote }}
              path: redis-ca.crt
            {{- end }}
            {{- if .cert }}
            - key: {{ .cert | quote }}
              path: redis.crt
            - key: {{ .key | quote }}
              path: redis.key
            {{- end }}
      {{- end }}
      {{- end }}
      {{- with $v.http.token }}
      {{- if .secret }}
      - secret:
          name: {{ .secret | quote }}
          items:
            - key: {{ .key | quote }}
              path: http-token
      {{- end }}
      {{- end }}
      {{- with $v.http.readToken }}
      {{- if .secret }}
      - secret:
          name: {{ .secret | quote }}
          items:
            - key: {{ .key | quote }}
              path: http-read-token
      {{- end }}
      {{- end }}
      {{- with $v.http.tls }}
      {{- if .secret }}
      - secret:
          name: {{ .secret | quote }}
          items:
            - key: {{ .cert | quote }}
              path: http.crt
            - key: {{ .key | quote }}
              path: http.key
      {{- end }}
      {{- end }}
- name: scratch
  emptyDir:
    sizeLimit: {{ $v.scratch.sizeLimit | quote }}
    {{- with $v.scratch.medium }}
    medium: {{ . }}
    {{- end }}
{{- with $v.sharedMemory }}
- name: shared-memory
  emptyDir:
    medium: Memory
    sizeLimit: {{ . | quote }}
{{- end }}
{{- with $v.volumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The part of a pod that the fleet and the test of the configuration share */}}
{{- define "rota.podSpec" -}}
serviceAccountName: {{ include "rota.serviceAccount" . | quote }}
automountServiceAccountToken: {{ .Values.serviceAccount.automountToken }}
# The variables of a Service named rota would look like settings.
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- toYaml .Values.podSecurityContext | nindent 2 }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
volumes:
  {{- include "rota.volumes" . | nindent 2 }}
{{- end }}

{{/* The part of a container that the fleet and the test of the configuration share */}}
{{- define "rota.container" -}}
image: {{ include "rota.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  {{- toYaml .Values.securityContext | nindent 2 }}
env:
  {{- include "rota.env" . | nindent 2 }}
{{- with .Values.envFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
volumeMounts:
  {{- include "rota.volumeMounts" . | nindent 2 }}
{{- with .Values.resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* A probe: `path` and the settings of `values` */}}
{{- define "rota.probe" -}}
httpGet:
  path: {{ .path }}
  port: http
  {{- if .root.Values.http.tls.secret }}
  scheme: HTTPS
  {{- end }}
periodSeconds: {{ .values.periodSeconds }}
timeoutSeconds: {{ .values.timeoutSeconds }}
failureThreshold: {{ .failureThreshold }}
{{- end }}

{{/* Spec of a pod that runs stream-calib. Takes root, name, config (name of the ConfigMap), args, resources and, for a role,
role: the name of it. */}}
{{- define "stream-calib.pod" -}}
{{- $values := .root.Values -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- with $values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if .role }}
# A role ends by itself within 20 s: its batch is committed or dropped as a whole.
terminationGracePeriodSeconds: 30
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "stream-calib.selector" .root | nindent 8 }}
        app.kubernetes.io/component: {{ .role }}
{{- end }}
containers:
  - name: {{ .name }}
    image: "{{ $values.image.repository }}:{{ $values.image.tag | default .root.Chart.AppVersion }}"
    imagePullPolicy: {{ $values.image.pullPolicy }}
    args: {{ toJson .args }}
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities: {drop: [ALL]}
    {{- if or $values.env .instance }}
    env:
      {{- if .instance }}
      - name: STREAM_CALIB_INSTANCE_ID
        valueFrom: {fieldRef: {fieldPath: metadata.name}}
      {{- end }}
      {{- with $values.env }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    {{- end }}
    {{- if .role }}
    ports:
      - {name: http, containerPort: 9400}
    # What hangs is restarted. What waits for Kafka or Redis is only unready: a restart helps neither.
    startupProbe:
      httpGet: &alive {path: /healthz, port: http, scheme: {{ ternary "HTTPS" "HTTP" $values.httpTls }}}
      periodSeconds: 2
      failureThreshold: 60
    livenessProbe:
      httpGet: *alive
      periodSeconds: 10
      timeoutSeconds: 5
      failureThreshold: 3
    readinessProbe:
      httpGet: {path: /readyz, port: http, scheme: {{ ternary "HTTPS" "HTTP" $values.httpTls }}}
      periodSeconds: 5
      timeoutSeconds: 5
    {{- end }}
    {{- with .resources }}
    resources:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    volumeMounts:
      - {name: config, mountPath: /etc/stream-calib, readOnly: true}
      - {name: tmp, mountPath: /tmp}
      {{- if $values.existingSecret }}
      - {name: secrets, mountPath: /run/secrets/stream-calib, readOnly: true}
      {{- end }}
volumes:
  - name: config
    configMap: {name: {{ .config }}}
  - name: tmp
    emptyDir: {sizeLimit: 64Mi}
  {{- with $values.existingSecret }}
  - name: secrets
    secret: {secretName: {{ . }}, defaultMode: 0440}
  {{- end }}
{{- end -}}

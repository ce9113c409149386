package importer_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fermata-io/fermata/internal/cli/importer"
)

// cronJobText is a CronJob with more fields of its spec, of the Job's and of the container.
func cronJobText(spec, container string) string {
	if !strings.Contains(spec, "schedule") {
		spec = `schedule: "@daily", ` + spec
	}
	if container == "" {
		container = "command: [/bin/a]"
	}
	return "kind: CronJob\nmetadata: {name: x}\nspec: {" + spec + " jobTemplate: {spec: {template: {spec: {containers: [{" + container + "}]}}}}}\n"
}

// TestCronJobsKeepTheirMeaning: what Kubernetes means otherwise than Fermata is
// translated, or noted, or the job is commented out.
func TestCronJobsKeepTheirMeaning(t *testing.T) {
	for _, c := range []struct {
		spec, container string
		want            []string // in the job as YAML, and in the notes
		off             bool     // no job is written
	}{
		{`schedule: "0 0 */2 * 1",`, "", []string{"expressions: [0 0 */2 * *, 0 0 * * 1]"}, false},
		{`schedule: "0 0 1 * */2",`, "", []string{"expressions: [0 0 1 * *, 0 0 * * */2]"}, false},
		{`schedule: "0 0 */2 * */3",`, "", []string{"expressions: [0 0 */2 * *, 0 0 * * */3]"}, false},
		{`schedule: "0 0 */1 * 1",`, "", []string{"expressions: [0 0 * * 1]"}, false},
		{`schedule: "0 0 1,* * 1",`, "", []string{"expressions: [0 0 * * 1]"}, false},
		{`schedule: "0 0 1,15 * 1",`, "", []string{`expressions: ['0 0 1,15 * 1']`}, false},
		{`schedule: "0 0 * * MON/2,0/3",`, "", []string{"expressions: [0 0 * * 1-6/2,0-6/3]"}, false},
		{`schedule: "*/60 */24 * * *",`, "", []string{`expressions: ['*/60 */24 * * *']`}, false},
		{`suspend: yes,`, "", []string{"paused: true"}, false},
		{`suspend: Off,`, "", []string{"paused: false"}, false},
		{`suspend: "true",`, "", []string{"paused: true", "which Kubernetes refuses"}, false},
		{`suspend: "false",`, "", []string{"paused: false", "which Kubernetes refuses"}, false},
		{`suspend: maybe,`, "", []string{"paused: true", "is no bool"}, false},
		{`suspend: 1,`, "", []string{"paused: true", "is no bool"}, false},
		{`schedule: "0 0 31 2 *", suspend: true,`, "", []string{"never comes"}, false},
		{`schedule: "0 0 31 2 *",`, "", []string{"never comes"}, false},
		{`startingDeadlineSeconds: 0,`, "", []string{"catch_up_window: 1s"}, false},
		{`startingDeadlineSeconds: "10",`, "", []string{"startingDeadlineSeconds is left out"}, false},
		{`failedJobsHistoryLimit: -1,`, "", []string{"failedJobsHistoryLimit is left out"}, false},
		{`timeZone: 5,`, "", []string{"timeZone is left out"}, false},
		{"", "command: [sh, -c, 'a b']", []string{"- /bin/sh", "sh is taken for /bin/sh"}, false},
		{"", "command: [bash, -ec], args: [a], env: [{name: PATH, value: /x}, {name: A, value: b}]", []string{"export PATH='/x'\n", "A: b", "--exec-env A"}, false},
		{"", "command: [/bin/a], env: [{name: HOME, value: /x}]", []string{"HOME: left out"}, false},
		{"", "command: [/bin/a], env: [{name: a.b, value: x}]", []string{"a.b: left out: the name"}, false},
		{"", "command: [/bin/a], env: [{name: PORT, value: 8080}]", []string{`PORT: "8080"`, "no text as its value"}, false},
		{"", "command: [/bin/a, $(N)], env: [{name: N, valueFrom: {fieldRef: {fieldPath: x}}}]", []string{"$(N) stays as it is", "commented out"}, true},
		{"", "args: [/bin/sh, -c, date; echo hello]", []string{"- date; echo hello", "args begin with a shell"}, false},
		{"", "command: [/bin/a], workingDir: data", []string{`directory "data" is left out`}, false},
		{"", "command: [/bin/a, $(N)], envFrom: [{configMapRef: {name: c}}]", []string{"$(N) stays as it is", "envFrom is left out", "commented out"}, true},
		{"", "command: [/bin/sh, -c, 'a $(date) $(N)'], envFrom: [{configMapRef: {name: c}}]", []string{"$(N) stays as it is: it is a variable of envFrom, or a command", "- a $(date) $(N)"}, false},
		{"", "command: [/bin/sh, -c, 'a $(N)'], env: [{name: N, valueFrom: {fieldRef: {fieldPath: x}}}]", []string{"has to be written in its place", "commented out"}, true},
		{"", "command: [/bin/a, $(A_SERVICE_HOST)]", []string{"$(A_SERVICE_HOST) stays as it is", "commented out"}, true},
		{"", "command: [/bin/a, $(UNKNOWN), $$(X)]", []string{"- $(UNKNOWN)", "- $(X)"}, false},
		{"", "command: [/bin/a, $(T)], env: [{name: T, valueFrom: {secretKeyRef: {name: s, key: k}}}]", []string{"$(T) is a secret", "commented out"}, true},
		{"", "command: [/bin/sh, -c, 'a $(T) $$x $(date)'], env: [{name: T, valueFrom: {secretKeyRef: {name: s, key: k}}}]", []string{"- a ${T} $x $(date)", "$(T) became ${T}"}, false},
		{"", "command: [/bin/sh, -c, \"a '$(T)'\"], env: [{name: T, valueFrom: {secretKeyRef: {name: s, key: k}}}]", []string{"$(T) is a secret", "commented out"}, true},
		{"", "command: [/bin/a], env: [{name: T, valueFrom: {secretKeyRef: {name: s, key: k}}}, {name: U, value: 'x://$(T)@h'}]", []string{"U: x://${secret:s-k}@h"}, false},
		{"", "command: [/bin/a], env: [{name: N, valueFrom: {fieldRef: {fieldPath: x}}}, {name: U, value: 'x://$(N)'}]", []string{"variable U is left out: its value has that of N"}, false},
		{"", "command: [/bin/a], env: [{name: U, value: 'x://$(N)'}], envFrom: [{secretRef: {name: s}}]", []string{"variable U is left out: its value has that of N"}, false},
		{"", "command: [/bin/a], env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: DB_PASS}}}, {name: B, valueFrom: {secretKeyRef: {name: s, key: db_pass}}}]", []string{"A: ${secret:s-db_pass}", "B: ${secret:s-db_pass-e9ea6c}"}, false},
		{"", "command: [/bin/a], env: [{name: A, value: '${secret:X}'}]", []string{"A: left out, as ${secret: begins"}, false},
		{"", "command: [/bin/bash, -euo, pipefail, -c, 'a b'], env: [{name: PATH, value: /x}]", []string{"export PATH='/x'\n", "runs in a shell"}, false},
		{"", "command: [/bin/sh, -c, -e, 'a b'], env: [{name: PATH, value: /x}]", []string{"- -e", "export PATH='/x'\n", "a b"}, false},
		{"", "command: [/bin/bash, --login, -c], args: ['a b'], env: [{name: PATH, value: /x}]", []string{"export PATH='/x'\n"}, false},
		{"", "command: [/bin/sh, /opt/x.sh], env: [{name: PATH, value: /x}]", []string{"PATH: left out"}, false},
		{"", "command: [/opt//a]", []string{"- /opt/a"}, false},
		{"", "command: [/opt/../a]", []string{"has .. in its path", "commented out"}, true},
		{"", "command: /bin/a", []string{"command is no list", "commented out"}, true},
		{"", "command: [/bin/a], args: --all", []string{"args is no list", "commented out"}, true},
		{"", "command: [/bin/a], env: {A: b}", []string{"env is left out"}, false},
		{"", "command: [/bin/sh, -c, 'echo $HOSTNAME $API_SERVICE_PORT']", []string{"HOSTNAME, API_SERVICE_PORT: Kubernetes sets this"}, false},
		{"", "command: [/bin/sh, -c, ./run.sh]", []string{"has a relative path"}, false},
		{"", "command: [/usr/bin/php, bin/console]", []string{"has a relative path"}, false},
		{"", "command: [/usr/bin/php, bin/console], workingDir: /srv", []string{"dir: /srv"}, false},
		{`schedule: "0 5 * * *", timeZone: Europe/Berlin,`, "", []string{"time_zone: Europe/Berlin, dst_gap: skip, dst_repeat: both"}, false},
		{`schedule: "TZ=Asia/Tokyo 0 5 * * *", timeZone: Europe/Berlin,`, "", []string{"time_zone: Asia/Tokyo", `timeZone "Europe/Berlin" is left out`}, false},
		{`schedule: "@every 90.5s",`, "", []string{"every: 1m30s"}, false},
		{`jobtemplate: {}, startingdeadlineseconds: 5, Suspend: true,`, "", []string{"startingdeadlineseconds is left out: it has no effect here, spec.startingDeadlineSeconds is meant?", "spec.suspend is meant?"}, false},
		{`history: 5,`, "", []string{"history is left out: it is no field of a CronJob"}, false},
		{`concurrencyPolicy: Forbid,`, "", []string{"a retry never passes"}, false},
		{"", "command: [/bin/a], env: [{name: N, valueFrom: {secretKeyRef: {name: s, key: k, optional: true}}}]", []string{"may be missing in Kubernetes", "N: ${secret:s-k}"}, false},
		{"", "command: [python, a.py]", []string{"no absolute path", "commented out", "#     - python"}, true},
		{"", "command: [/bin/a, '${secret:x}']", []string{"workers refuse this command"}, true},
	} {
		text, jobs := show(t, readCronJobs(t, "f", []byte(cronJobText(c.spec, c.container)), importer.CronJobOptions{Zone: "UTC"}))
		for _, want := range c.want {
			if !strings.Contains(text, want) && !strings.Contains(flat(text), flat(want)) {
				t.Errorf("%s %s: no %q in\n%s", c.spec, c.container, want, text)
			}
		}
		if (len(jobs) == 0) != c.off {
			t.Errorf("%s %s: %d jobs\n%s", c.spec, c.container, len(jobs), text)
		}
		if manual := strings.Contains(c.spec, "31 2"); len(jobs) == 1 && manual != (jobs[0].Job.GetSchedule() == nil) {
			t.Errorf("%s: schedule %v", c.spec, jobs[0].Job.GetSchedule())
		}
	}
}

// TestFieldsOfJobs: fields of the Job and of its pods that a run has nothing for, and those that say nothing.
func TestFieldsOfJobs(t *testing.T) {
	for spec, want := range map[string]string{
		"parallelism: 1, completions: 1, completionMode: NonIndexed,": "",
		"parallelism: 0,":                   "paused: true",
		"parallelism: 3,":                   "parallelism is left out: a run is one program",
		"podFailurePolicy: {rules: [1]},":   "podFailurePolicy is left out: each exit code but 0 is a failure",
		"ttlSecondsAfterFinished: 60,":      "ttlSecondsAfterFinished is left out: runs that have ended are kept by their number",
		"terminationGracePeriodSeconds: 9,": "terminationGracePeriodSeconds is left out: it has no effect here",
		"template: {metadata: {annotations: {a: b}}, spec: {terminationGracePeriodSeconds: 900, containers: [{command: [/bin/a]}]}},": "annotations of pods are left out",
		"template: {spec: {terminationGracePeriodSeconds: 900, containers: [{command: [/bin/a]}]}},":                                  "terminationGracePeriodSeconds: at most 300 s",
	} {
		template := "template: {spec: {containers: [{command: [/bin/a]}]}}"
		if strings.HasPrefix(spec, "template") {
			template = ""
		}
		out, _ := show(t, readCronJobs(t, "f", []byte("kind: CronJob\nmetadata: {name: x}\nspec: {schedule: \"@daily\", jobTemplate: {spec: {"+spec+template+"}}}\n"), importer.CronJobOptions{Zone: "UTC"}))
		if want != "" && !strings.Contains(out, want) || want == "" && strings.Contains(out, "a run is one program") {
			t.Errorf("%s: no %q in\n%s", spec, want, out)
		}
	}
}

// TestObjectsOfKubernetes: which objects of a file become jobs, and under which ids.
func TestObjectsOfKubernetes(t *testing.T) {
	spec := cronJobText("", "")[strings.Index(cronJobText("", ""), "spec:"):]
	for text, want := range map[string][]string{
		"kind: CronJob\nmetadata: {generateName: tick-}\n" + spec:                                                                   {"tick", "characters by chance"},
		"kind: CronJob\nmetadata: {}\n" + spec:                                                                                      {"", "has no name"},
		"kind: CronJob\nmetadata: {name: '{{ .Release.Name }}'}\n" + spec:                                                           {"", "helm template"},
		"{{- if .Values.on }}\nkind: CronJob\n{{- end }}\n":                                                                         {"", "helm template"},
		"apiVersion: example.com/v1\nkind: CronJob\nmetadata: {name: x}\n" + spec:                                                   {"x", "is not that of Kubernetes"},
		"apiVersion: batch/v1beta1\nkind: CronJob\nmetadata: {name: x}\n" + spec:                                                    {"x", ""},
		"kind: List\nitems: [{metadata: {name: x}}]":                                                                                {"", "has no kind"},
		"kind: CronJob\nmetadata: {name: x}\nkind: CronJob\nmetadata: {name: y}\n":                                                  {"", "already defined"},
		"kind: CronJob\nmetadata: {name: x}\nspec: {jobTemplate: {schedule: '@daily'}}\n":                                           {"", "spec.schedule is missing"},
		"a: &spec {" + strings.TrimPrefix(spec, "spec: {") + "kind: CronJob\nmetadata: {name: x}\nspec: {<<: *spec, suspend: true}": {"x", "paused: true"},
		"kind: CronJobList\nitems: [{metadata: {name: x}, " + strings.TrimSpace(spec) + "}]":                                        {"x", ""},
		"kind: CronJob\nmetadata: {name: x}\nspec: {schedule: '@daily'}":                                                            {"", "no list of containers"},
		jsonCronJob("x") + " " + jsonCronJob("y"):                                                                                   {"x y", ""},
	} {
		out, jobs := show(t, readCronJobs(t, "f", []byte(text), importer.CronJobOptions{Zone: "UTC"}))
		var ids []string
		for i := range jobs {
			ids = append(ids, jobs[i].ID)
		}
		if strings.Join(ids, " ") != want[0] || !strings.Contains(out, want[1]) {
			t.Errorf("%s: jobs %q, want %q and %q in\n%s", text, ids, want[0], want[1], out)
		}
	}
}

func jsonCronJob(name string) string {
	return fmt.Sprintf(`{"kind": "CronJob", "metadata": {"name": %q}, "spec": {"schedule": "@daily", "jobTemplate": {"spec": {"template": {"spec": {"containers": [{"command": ["/bin/a"]}]}}}}}}`, name)
}

// TestScheduleInABlock: a line break at the end of a schedule makes no difference.
func TestScheduleInABlock(t *testing.T) {
	text := "kind: CronJob\nmetadata: {name: x}\nspec:\n  schedule: |\n    0 5 * * *\n  jobTemplate: {spec: {template: {spec: {containers: [{command: [/bin/a]}]}}}}\n"
	_, jobs := show(t, readCronJobs(t, "f", []byte(text), importer.CronJobOptions{Zone: "UTC"}))
	if len(jobs) != 1 || jobs[0].Job.GetSchedule().GetCron().GetExpressions()[0] != "0 5 * * *" {
		t.Errorf("%+v", jobs)
	}
}

// TestSuspendedJobTemplate: the Jobs of the CronJob would not start.
func TestSuspendedJobTemplate(t *testing.T) {
	text := strings.Replace(cronJobText("", ""), "jobTemplate: {spec: {", "jobTemplate: {spec: {suspend: true, ", 1)
	if out, _ := show(t, readCronJobs(t, "f", []byte(text), importer.CronJobOptions{Zone: "UTC"})); !strings.Contains(out, "paused: true") {
		t.Errorf("%s", out)
	}
}

// TestCronJobsInJSON: JSON has what the YAML library does not read.
func TestCronJobsInJSON(t *testing.T) {
	text := `{"kind": "CronJob", "metadata": {"name": "x"}, "spec": {"schedule": "@daily", "jobTemplate": {"spec": {"template": {"spec": {
	"containers": [{"command": ["\/bin\/echo", "\ud83d\ude80"]}]}}}}}}`
	_, jobs := show(t, readCronJobs(t, "f.json", []byte(text), importer.CronJobOptions{Zone: "UTC"}))
	if len(jobs) != 1 || string(jobs[0].Job.GetPayload()) != `{"argv":["/bin/echo","🚀"]}` {
		t.Errorf("%+v", jobs)
	}
}

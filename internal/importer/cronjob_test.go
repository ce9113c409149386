package importer_test

import (
	"strings"
	"testing"

	"github.com/fermata-io/fermata/internal/importer"
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
		{"", "command: [/bin/a, $(N)], env: [{name: N, valueFrom: {fieldRef: {fieldPath: x}}}]", []string{"$(N) stays as it is"}, false},
		{"", "args: [/bin/sh, -c, date; echo hello]", []string{"- date; echo hello", "args begin with a shell"}, false},
		{"", "command: [/bin/a], workingDir: data", []string{`directory "data" is left out`}, false},
		{"", "command: [/bin/a, $(N)], envFrom: [{configMapRef: {name: c}}]", []string{"$(N) stays as it is", "envFrom is left out"}, false},
		{"", "command: [/bin/a], env: [{name: N, valueFrom: {secretKeyRef: {name: s, key: k, optional: true}}}]", []string{"may be missing in Kubernetes", "N: ${secret:s-k}"}, false},
		{"", "command: [python, a.py]", []string{"no absolute path", "commented out", "#     - python"}, true},
		{"", "command: [/bin/a, '${secret:x}']", []string{"workers refuse this command"}, true},
	} {
		text, jobs := show(t, importer.CronJobs("f", []byte(cronJobText(c.spec, c.container)), importer.CronJobOptions{Zone: "UTC"}))
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

// TestScheduleInABlock: a line break at the end of a schedule makes no difference.
func TestScheduleInABlock(t *testing.T) {
	text := "kind: CronJob\nmetadata: {name: x}\nspec:\n  schedule: |\n    0 5 * * *\n  jobTemplate: {spec: {template: {spec: {containers: [{command: [/bin/a]}]}}}}\n"
	_, jobs := show(t, importer.CronJobs("f", []byte(text), importer.CronJobOptions{Zone: "UTC"}))
	if len(jobs) != 1 || jobs[0].Job.GetSchedule().GetCron().GetExpressions()[0] != "0 5 * * *" {
		t.Errorf("%+v", jobs)
	}
}

// TestSuspendedJobTemplate: the Jobs of the CronJob would not start.
func TestSuspendedJobTemplate(t *testing.T) {
	text := strings.Replace(cronJobText("", ""), "jobTemplate: {spec: {", "jobTemplate: {spec: {suspend: true, ", 1)
	if out, _ := show(t, importer.CronJobs("f", []byte(text), importer.CronJobOptions{Zone: "UTC"})); !strings.Contains(out, "paused: true") {
		t.Errorf("%s", out)
	}
}

// TestCronJobsInJSON: JSON has what the YAML library does not read.
func TestCronJobsInJSON(t *testing.T) {
	text := `{"kind": "CronJob", "metadata": {"name": "x"}, "spec": {"schedule": "@daily", "jobTemplate": {"spec": {"template": {"spec": {
	"containers": [{"command": ["\/bin\/echo", "\ud83d\ude80"]}]}}}}}}`
	_, jobs := show(t, importer.CronJobs("f.json", []byte(text), importer.CronJobOptions{Zone: "UTC"}))
	if len(jobs) != 1 || string(jobs[0].Job.GetPayload()) != `{"argv":["/bin/echo","🚀"]}` {
		t.Errorf("%+v", jobs)
	}
}

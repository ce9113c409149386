package chart

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// help is the names of a command's flags, from its own --help.
func help(t *testing.T, command string, args ...string) []string {
	t.Helper()
	return slices.Collect(maps.Keys(helpTexts(t, command, args...)))
}

// helpTexts are the types and descriptions of a command's flags, by name.
func helpTexts(t *testing.T, command string, args ...string) map[string]string {
	t.Helper()
	dir := binaries()
	out, err := exec.Command(filepath.Join(dir, command), append(args, "--help")...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v --help: %v\n%s", command, args, err, out)
	}
	texts := map[string]string{}
	for _, m := range flagLine.FindAllStringSubmatch(string(out), -1) {
		texts[m[1]] = strings.TrimSpace(m[2])
	}
	return texts
}

var flagLine = regexp.MustCompile(`(?m)^ +(?:-\w, )?--([a-z][a-z0-9-]+)(.*)$`)

// scratch is removed when all tests have run.
var scratch string

// binaries builds the commands of this tree once.
var binaries = sync.OnceValue(func() string {
	dir := filepath.Join(scratch, "bin")
	if err := os.Mkdir(dir, 0o755); err != nil {
		panic(err)
	}
	build := exec.Command("go", "build", "-o", dir, "./cmd/...")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		panic(string(out))
	}
	return dir
})

// decided are flags that the chart's other values stand for, or that make no sense in a pod.
var decided = map[string][]string{
	"scheduler": {
		"config", "help", "name", "grpc-addr", "peer-addr", "gossip-addr", "http-addr", "advertise-grpc", "advertise-peer", "advertise-gossip", "join",
		"insecure", "gossip-key-file", "tls-cert", "tls-key", "tls-client-ca", "tls-client-auth", "peer-tls-cert", "peer-tls-key", "peer-tls-ca", "peer-tls-names",
		"redis-url", "redis-username", "redis-password-file", "redis-sentinel-username", "redis-sentinel-password-file", "redis-tls-ca", "redis-tls-cert", "redis-tls-key", "redis-tls-server-name",
		"access-file", "payload-key-file", "audit-key-file", "webhooks-file", "defaults-file",
	},
	"gateway": {
		"config", "help", "scheduler", "rest-addr", "metrics-addr", "allowed-hosts", "trusted-proxies", "rest-tls-cert", "rest-tls-key", "insecure", "tls", "tls-ca",
		"tls-cert", "tls-key", "tls-server-name", "base-path", "console", "console-read-only", "console-url", "console-trace-url", "console-logs-url", "console-session-key-file",
		"oidc-issuer", "oidc-client-id", "oidc-client-secret-file", "oidc-scopes", "oidc-audience", "oidc-ca", "oidc-token",
	},
	"worker": {
		"config", "help", "id", "scheduler", "metrics-addr", "tls", "tls-ca", "tls-cert", "tls-key", "tls-server-name", "token-file", "secrets-dir",
	},
}

// TestFlagsAndSchemaAgree: what values may set are flags of the binaries, and every flag can be set by values or is
// decided by others. A new flag goes into values.schema.json, or above.
func TestFlagsAndSchemaAgree(t *testing.T) {
	for command, settable := range settableFlags(t) {
		flags, others := help(t, command), decided[command]
		for _, name := range slices.Concat(settable, others) {
			if !slices.Contains(flags, name) {
				t.Errorf("the chart knows --%s, which %s does not", name, command)
			}
		}
		for _, name := range flags {
			if !slices.Contains(settable, name) && !slices.Contains(others, name) {
				t.Errorf("--%s of %s cannot be set by values: add it to %sConfig in values.schema.json, or to decided", name, command, command)
			}
			if slices.Contains(settable, name) && slices.Contains(others, name) {
				t.Errorf("--%s of %s can be set by values, and is decided by others", name, command)
			}
		}
	}
}

// TestFlagsOfFilesAreNotSettable: a flag that names a file is set by a value that mounts the file. A path in config
// would name a file that the pod does not have.
func TestFlagsOfFilesAreNotSettable(t *testing.T) {
	seen := 0
	for command, settable := range settableFlags(t) {
		for name, text := range helpTexts(t, command) {
			if !namesAFile.MatchString(text) {
				continue
			}
			seen++
			if slices.Contains(settable, name) {
				t.Errorf("--%s of %s names a file (%s), and the chart has no value that mounts it", name, command, text)
			}
		}
	}
	if seen < 20 {
		t.Errorf("%d flags name files, want 20 or more: has the wording of the help changed?", seen)
	}
}

var namesAFile = regexp.MustCompile(`^string +((YAML |PEM )?file with|directory of)`)

// settableFlags are the flags that values may set, by command.
func settableFlags(t *testing.T) map[string][]string {
	t.Helper()
	var schema struct {
		Definitions map[string]struct{ Properties map[string]any }
	}
	if err := json.Unmarshal(mustLoad(t).Schema, &schema); err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	for command := range decided {
		all[command] = slices.Collect(maps.Keys(schema.Definitions[command+"Config"].Properties))
		if len(all[command]) == 0 {
			t.Fatalf("the schema has no flags of %s", command)
		}
	}
	return all
}

// TestSchemaTakesZero: where the help gives 0 a meaning of its own, values may set it.
func TestSchemaTakesZero(t *testing.T) {
	seen := 0
	for command, settable := range settableFlags(t) {
		for name, text := range helpTexts(t, command) {
			if !slices.Contains(settable, name) || !zeroHasAMeaning.MatchString(text) {
				continue
			}
			seen++
			var zero any = 0
			if strings.HasPrefix(text, "duration") {
				zero = "0s"
			}
			at := []string{"scheduler", "config", name}
			switch command {
			case "worker":
				at[0] = "workerDefaults"
			case "gateway":
				at[0] = "gateway"
			}
			if _, err := render(with(parse(t, good), at, zero)); err != nil {
				t.Errorf("--%s of %s takes 0 (%s): %v", name, command, text, err)
			}
		}
	}
	if seen < 12 {
		t.Errorf("0 has a meaning for %d flags, want 12 or more: has the wording of the help changed?", seen)
	}
}

var zeroHasAMeaning = regexp.MustCompile(`\b0(:| for no limit)`)

// TestListsAreTaken: a flag that takes several values takes them as a list in values.
func TestListsAreTaken(t *testing.T) {
	for command, settable := range settableFlags(t) {
		for name, text := range helpTexts(t, command) {
			if !slices.Contains(settable, name) || !strings.HasPrefix(text, "strings") {
				continue
			}
			at := []string{"scheduler", "config", name}
			if command == "worker" {
				at[0] = "workerDefaults"
			}
			if _, err := render(with(parse(t, good), at, []any{"/a", "/b"})); err != nil && strings.Contains(err.Error(), "got array") {
				t.Errorf("--%s of %s takes a list (%s): %v", name, command, text, err)
			}
		}
	}
}

// TestRenderedFilesAreMounted: each path below /etc/fermata in a pod's configuration is in a volume that the pod mounts
// there.
func TestRenderedFilesAreMounted(t *testing.T) {
	for _, name := range sets {
		all := objects(t, set(t, name))
		for _, p := range pods(all) {
			for _, path := range renderedPaths(t, all, p) {
				if !slices.ContainsFunc(p.spec.Containers[0].VolumeMounts, func(m corev1.VolumeMount) bool {
					return path == m.MountPath || strings.HasPrefix(path, m.MountPath+"/")
				}) {
					t.Errorf("%s: %s reads %s, which it does not mount", name, p.name, path)
				}
			}
		}
	}
}

// renderedPaths are all texts below /etc/fermata in a pod's configuration file.
func renderedPaths(t *testing.T, all []object, p pod) (paths []string) {
	t.Helper()
	for flag, value := range configOf(t, all, p) {
		if path, ok := value.(string); ok && strings.HasPrefix(path, "/etc/fermata/") {
			paths = append(paths, path)
		} else if strings.HasSuffix(flag, "-file") {
			t.Errorf("%s: %s is %v", p.name, flag, value)
		}
	}
	return paths
}

// TestRenderedFlagsExist: configuration files, variables and arguments of all pods name flags of the commands that they
// are for.
func TestRenderedFlagsExist(t *testing.T) {
	for _, name := range sets {
		t.Run(name, func(t *testing.T) {
			all := objects(t, set(t, name))
			commands := map[string]int{}
			for _, pod := range pods(all) {
				if pod.component == "redis" {
					continue
				}
				for _, c := range pod.spec.Containers {
					command := filepath.Base(c.Command[0])
					flags := help(t, command, c.Command[1:]...)
					commands[command]++
					for _, used := range usedFlags(t, all, pod, c) {
						if !slices.Contains(flags, used) {
							t.Errorf("%s gives %s --%s, which it does not have", pod.name, command, used)
						}
					}
				}
			}
			if commands["scheduler"] == 0 || commands["worker"] == 0 || commands["fermata"] == 0 {
				t.Errorf("looked at %v only", commands)
			}
		})
	}
}

// usedFlags are the names of all flags that a container is given, in whichever way.
func usedFlags(t *testing.T, all []object, p pod, c corev1.Container) []string {
	t.Helper()
	var used []string
	for _, a := range c.Args {
		flag, _, _ := strings.Cut(strings.TrimPrefix(a, "--"), "=")
		used = append(used, flag)
	}
	for _, e := range c.Env {
		if flag, ok := strings.CutPrefix(e.Name, "FERMATA_"); ok {
			used = append(used, strings.ToLower(strings.ReplaceAll(flag, "_", "-")))
		}
	}
	return slices.AppendSeq(used, maps.Keys(configOf(t, all, p)))
}

// configOf is the configuration file of a pod, nothing if it has none.
func configOf(t *testing.T, all []object, p pod) map[string]any {
	t.Helper()
	var config map[string]any
	for _, v := range p.spec.Volumes {
		if v.Name != "config" || p.component == "redis" {
			continue
		}
		if err := yaml.UnmarshalStrict([]byte(find[*corev1.ConfigMap](t, all, v.ConfigMap.Name).Data["config.yaml"]), &config); err != nil {
			t.Fatal(err)
		}
	}
	return config
}

// pod is a pod, or the template of one.
type pod struct {
	name, component string
	labels          map[string]string
	spec            corev1.PodSpec
	selector        map[string]string
}

func pods(all []object) []pod {
	var out []pod
	for _, o := range all {
		switch w := o.typed.(type) {
		case *appsv1.StatefulSet:
			out = append(out, pod{w.Name, w.Spec.Template.Labels["app.kubernetes.io/component"], w.Spec.Template.Labels, w.Spec.Template.Spec, w.Spec.Selector.MatchLabels})
		case *appsv1.Deployment:
			out = append(out, pod{w.Name, w.Spec.Template.Labels["app.kubernetes.io/component"], w.Spec.Template.Labels, w.Spec.Template.Spec, w.Spec.Selector.MatchLabels})
		case *batchv1.Job:
			out = append(out, pod{w.Name, w.Spec.Template.Labels["app.kubernetes.io/component"], w.Spec.Template.Labels, w.Spec.Template.Spec, nil})
		case *corev1.Pod:
			out = append(out, pod{w.Name, w.Labels["app.kubernetes.io/component"], w.Labels, w.Spec, nil})
		}
	}
	return out
}

// runsOnce tells of pods that end by themselves.
func runsOnce(p pod) bool { return p.component == "test" || p.component == "apply" }

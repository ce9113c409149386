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
	dir := binaries()
	out, err := exec.Command(filepath.Join(dir, command), append(args, "--help")...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v --help: %v\n%s", command, args, err, out)
	}
	var names []string
	for _, m := range flagLine.FindAllStringSubmatch(string(out), -1) {
		names = append(names, m[1])
	}
	return names
}

var flagLine = regexp.MustCompile(`(?m)^ +(?:-\w, )?--([a-z][a-z0-9-]+)`)

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
		"access-file", "payload-key-file", "webhooks-file", "defaults-file",
	},
	"worker": {
		"config", "help", "id", "scheduler", "metrics-addr", "tls", "tls-ca", "tls-cert", "tls-key", "tls-server-name", "token-file", "secrets-dir",
	},
}

// TestFlagsAndSchemaAgree: what values may set are flags of the binaries, and every flag can be set by values or is
// decided by others. A new flag goes into values.schema.json, or above.
func TestFlagsAndSchemaAgree(t *testing.T) {
	c, err := load()
	if err != nil {
		t.Fatal(err)
	}
	var schema struct {
		Definitions map[string]struct{ Properties map[string]any }
	}
	if err := json.Unmarshal(c.Schema, &schema); err != nil {
		t.Fatal(err)
	}
	for command, others := range decided {
		flags := help(t, command)
		settable := slices.Collect(maps.Keys(schema.Definitions[command+"Config"].Properties))
		if len(settable) == 0 {
			t.Fatalf("the schema has no flags of %s", command)
		}
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

// TestRenderedFlagsExist: configuration files, variables and arguments of all pods name flags of the commands that they are for.
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
	for _, v := range p.spec.Volumes {
		if v.Name != "config" {
			continue
		}
		var config map[string]any
		if err := yaml.UnmarshalStrict([]byte(find[*corev1.ConfigMap](t, all, v.ConfigMap.Name).Data["config.yaml"]), &config); err != nil {
			t.Fatal(err)
		}
		used = slices.AppendSeq(used, maps.Keys(config))
	}
	return used
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

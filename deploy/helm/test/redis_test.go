package chart

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// TestRedisOfATrialHasAPassword: nothing renders a Redis that takes commands of anybody, and its password is a file for
// it as for nodes.
func TestRedisOfATrialHasAPassword(t *testing.T) {
	all := objects(t, set(t, "trying"))
	if text := find[*corev1.ConfigMap](t, all, "blue-fermata-redis").Data["redis.conf"]; strings.Contains(text, "protected-mode no") {
		t.Errorf("it is open while it has no password:\n%s", text)
	}
	pod := find[*appsv1.StatefulSet](t, all, "blue-fermata-redis").Spec.Template.Spec
	for _, c := range pod.Containers {
		if len(c.Env) > 0 || len(c.EnvFrom) > 0 || strings.Contains(strings.Join(c.Args, " "), "pass") {
			t.Errorf("its container has arguments %q and variables %v", c.Args, c.Env)
		}
	}
	node := find[*appsv1.StatefulSet](t, all, "blue-fermata").Spec.Template.Spec
	for _, spec := range []corev1.PodSpec{pod, node} {
		if !slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Secret != nil && v.Secret.SecretName == "fermata-redis" }) {
			t.Errorf("%v does not mount the password", spec.Volumes)
		}
	}
}

// trialOfRedis runs what the pod of redis.dev would run, with a password as its Secret has it.
func trialOfRedis(t *testing.T, password string) (server *process, address string, ready func() error) {
	t.Helper()
	all := objects(t, set(t, "trying"))
	dir, host := t.TempDir(), ownHost(t)
	here := strings.NewReplacer("/etc/redis-password", dir+"/redis-password", "/etc/redis", dir+"/redis", "/data", dir+"/data",
		"redis-cli", "redis-cli -h "+host, "protected-mode yes", "protected-mode yes\nsave ''\nbind "+host)
	for name, text := range find[*corev1.ConfigMap](t, all, "blue-fermata-redis").Data {
		write(t, filepath.Join(dir, "redis", name), here.Replace(text))
	}
	write(t, filepath.Join(dir, "redis-password", "password"), password)
	write(t, filepath.Join(dir, "data", "kept"), "")
	c := find[*appsv1.StatefulSet](t, all, "blue-fermata-redis").Spec.Template.Spec.Containers[0]
	command := func(args []string) *exec.Cmd {
		var own []string
		for _, a := range args {
			own = append(own, here.Replace(a))
		}
		cmd := exec.Command(own[0], own[1:]...)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
		return cmd
	}
	cmd := command(slices.Concat(c.Command, c.Args))
	log, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 1000)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(log); s.Scan(); {
			lines <- s.Text()
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		for range lines {
		}
		_ = cmd.Wait()
	})
	return &process{cmd, lines}, host, func() error {
		out, err := command(c.ReadinessProbe.Exec.Command).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}
}

// TestRedisOfATrial: strangers get nothing, nodes and the probe get in, and neither the arguments nor the variables of
// the process say the password, whatever characters it has and however its file ends.
func TestRedisOfATrial(t *testing.T) {
	for name, password := range map[string]string{
		"plain": "hunter2", "ends in a line": "hunter2\n", "ends in lines": "hunter2\r\n\r\n", "quoted": `p "a's\s" $(id) %s > # ~`, "a dash": "-hunter2",
		"a hash": "#hunter2", "of letters": "pässwörd", "as long as any": strings.Repeat("0123456789abcdef", 64),
	} {
		t.Run(name, func(t *testing.T) {
			server, host, ready := trialOfRedis(t, password)
			await(t, server, "Ready to accept connections()")
			if err := ready(); err != nil {
				t.Errorf("the probe: %v", err)
			}
			secret := strings.TrimRight(password, "\r\n")
			ask := func(env ...string) string {
				cmd := exec.Command("redis-cli", "-h", host, "--no-auth-warning", "config", "get", "maxmemory-policy")
				cmd.Env = env
				out, _ := cmd.CombinedOutput()
				return string(out)
			}
			if got := ask("REDISCLI_AUTH=" + secret); !strings.Contains(got, "noeviction") {
				t.Errorf("with the password: %s", got)
			}
			for _, wrong := range []string{"", "REDISCLI_AUTH=wrong", "REDISCLI_AUTH=" + secret + "\n"} {
				if got := ask(wrong); !strings.Contains(got, "NOAUTH") {
					t.Errorf("with %q: %s", wrong, got)
				}
			}
			for _, file := range []string{"cmdline", "environ"} {
				said, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", server.cmd.Process.Pid, file))
				if err != nil {
					t.Fatal(err)
				}
				if bytes.Contains(said, []byte(secret)) {
					t.Errorf("%s of the process says the password: %q", file, said)
				}
			}
		})
	}
}

// TestRedisOfATrialWithoutAPassword: a Secret that holds nothing starts no Redis that anybody may use.
func TestRedisOfATrialWithoutAPassword(t *testing.T) {
	for password, want := range map[string]string{"": "is empty", "\n": "is empty", "\r\n": "is empty", "a\nb": "has a line break in it"} {
		server, _, _ := trialOfRedis(t, password)
		var log []string
		for line := range server.lines {
			if log = append(log, line); strings.Contains(line, "Ready") {
				break
			}
		}
		if text := strings.Join(log, "\n"); !strings.Contains(text, want) || strings.Contains(text, "Ready") {
			t.Errorf("with %q: %s", password, text)
		}
	}
}

package chart

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// live are values of an installation on one host. Redis has a password, everything else is under TLS.
const live = `
tls: {nodeSecret: node-tls, workerSecret: worker-tls, clientSecret: client-tls}
gossip: {existingSecret: gossip}
access: {unrestricted: true}
payloadKeys: {existingSecret: payload-keys}
auditKeys: {existingSecret: audit-keys}
redis: {url: "redis://redis:6379/0", existingSecret: redis}
networkPolicy: {egress: {to: [{to: [{podSelector: {}}], ports: [{port: 6379}]}]}}
scheduler: {config: {payload-require-sealed: true, shards: 4, durability: memory, allow-unsafe-redis: true}}
jobs: {ping: {http: {url: "http://127.0.0.1:9/"}, schedule: {interval: {every: 1h}}}}
queues: {mail: {rate: 5}}
`

// TestPodsWork runs what the pods of the chart would run, as processes: the commands with the rendered configuration,
// variables and files. Only addresses and the directory of the files differ. Two nodes meet, the one that has the
// worker is stopped, and the test pod's command sees a job back off at the other.
func TestPodsWork(t *testing.T) {
	all := objects(t, parse(t, live))
	dir := t.TempDir()
	redis := startRedis(t, dir)
	secrets(t, dir)
	node := func(join string) (p *process, grpc, gossip string) {
		p = start(t, all, "scheduler", strings.NewReplacer("/etc/fermata/", dir+"/", "0.0.0.0:7070", "127.0.0.1:0", "0.0.0.0:7071", "127.0.0.1:0",
			"0.0.0.0:7072", "127.0.0.1:0", "0.0.0.0:7946", "127.0.0.1:0", "redis://redis:6379", "redis://"+redis, "blue-fermata-nodes.jobs.svc.cluster.local:7946", join),
			"FERMATA_ADVERTISE_GRPC=", "FERMATA_ADVERTISE_PEER=", "FERMATA_ADVERTISE_GOSSIP=")
		m := await(t, p, `"msg":"node is up".*"grpc":"([^"]+)".*"gossip":"([^"]+)"`)
		return p, m[1], m[2]
	}
	first, firstAddress, gossip := node("127.0.0.1:1")
	_, address, _ := node(gossip)
	worker := start(t, all, "worker", strings.NewReplacer("/etc/fermata/", dir+"/", "0.0.0.0:7072", "127.0.0.1:0", "blue-fermata.jobs.svc:7070", firstAddress))
	await(t, worker, `"msg":"connected"()`)

	p := all[slices.IndexFunc(all, func(o object) bool { return strings.HasSuffix(o.file, "tests/try.yaml") })].typed.(*corev1.Pod).Spec.Containers[0]
	here := strings.NewReplacer("/etc/fermata/", dir+"/", "blue-fermata.jobs.svc:7070", address)
	for met := false; !met && t.Context().Err() == nil; {
		show := commandOf(p, here)
		show.Args = []string{"fermata", "cluster", "nodes"}
		out, err := show.CombinedOutput()
		if err != nil {
			t.Fatalf("fermata cluster nodes: %v\n%s", err, out)
		}
		met = strings.Count(string(out), " serving ") == 2
	}

	applies(t, dir, here)
	auditIsSigned(t, dir, p, here)

	if err := first.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for range first.lines { // until it has ended
	}
	if err := first.cmd.Wait(); err != nil {
		t.Errorf("a stopped node: %v", err)
	}
	out, err := commandOf(p, here).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "now runs every 10s instead of 5s") {
		t.Errorf("the test pod: %v\n%s", err, out)
	}
}

// applies runs what the hook would run after some upgrades. What nodes refuse ends with the code that fails the hook at
// once.
func applies(t *testing.T, dir string, here *strings.Replacer) {
	t.Helper()
	every := func(interval string) values {
		return values{"handler": "h", "schedule": values{"interval": values{"every": interval}}}
	}
	before := parse(t, live)
	for _, c := range []struct {
		values  values
		want    string
		refused bool
	}{
		{before, "applied: 1 created, 1 queue limited\n", false},
		{before, "applied: nothing to do, 1 unchanged\n", false},
		{with(before, []string{"jobs"}, values{"pong": every("1m")}), "applied: 1 created, 1 deleted\n", false},
		{with(before, []string{"jobs"}, values{"pong": every("1ms")}), "schedule.interval.every: ", true},
		{with(with(before, []string{"jobs"}, values{"pong": every("1m")}), []string{"apply"}, values{"owner": "other"}), "belongs to owner", true},
		{with(with(before, []string{"jobs"}, values{}), []string{"apply"}, values{"allowEmpty": true}), "applied: 1 deleted\n", false},
	} {
		all := objects(t, c.values)
		hook := find[*batchv1.Job](t, all, "blue-fermata-apply").Spec
		pod := hook.Template.Spec
		source := pod.Volumes[0].ConfigMap
		jobs := find[*corev1.ConfigMap](t, all, source.Name).Data
		for _, item := range source.Items {
			write(t, filepath.Join(dir, "jobs", item.Path), jobs[item.Key])
		}
		code := 0
		if c.refused {
			code = int(hook.PodFailurePolicy.Rules[0].OnExitCodes.Values[0])
		}
		cmd := commandOf(pod.Containers[0], here)
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != code || !strings.Contains(string(out), c.want) {
			t.Errorf("the hook: %v, want exit code %d and %q\n%s", err, code, c.want, out)
		}
	}
}

// writeAuditKeys makes a key as people do: the private line for the nodes, the public one beside their files.
func writeAuditKeys(t *testing.T, dir string) {
	t.Helper()
	var private, public strings.Builder
	cmd := exec.Command(filepath.Join(binaries(), "scheduler"), "audit-key", "new", "2027")
	cmd.Stdout, cmd.Stderr = &private, &public
	if err := cmd.Run(); err != nil {
		t.Fatalf("scheduler audit-key new: %v\n%s", err, public.String())
	}
	write(t, filepath.Join(dir, "audit-keys", "audit.key"), private.String())
	write(t, filepath.Join(dir, "audit.pub"), public.String())
}

// auditIsSigned: nodes sign what the hook has changed with the key of the Secret.
func auditIsSigned(t *testing.T, dir string, c corev1.Container, here *strings.Replacer) {
	t.Helper()
	for t.Context().Err() == nil { // a record is written after the call that it is about
		verify := commandOf(c, here)
		verify.Args = []string{"fermata", "audit", "verify", "--public-key-file", filepath.Join(dir, "audit.pub")}
		out, err := verify.CombinedOutput()
		if err == nil {
			return
		}
		if !strings.Contains(string(out), "no record") {
			t.Fatalf("fermata audit verify: %v\n%s", err, out)
		}
	}
}

// commandOf is a container as a command of this host. Variables with values of the pod are left to the caller.
func commandOf(c corev1.Container, here *strings.Replacer, env ...string) *exec.Cmd {
	var args []string
	for _, a := range slices.Concat(c.Command[1:], c.Args) {
		args = append(args, here.Replace(a))
	}
	cmd := exec.Command(filepath.Join(binaries(), filepath.Base(c.Command[0])), args...)
	for _, e := range c.Env {
		if e.ValueFrom == nil {
			cmd.Env = append(cmd.Env, e.Name+"="+here.Replace(e.Value))
		}
	}
	cmd.Env = append(cmd.Env, env...)
	return cmd
}

// process is a container that runs as one, and its log, which ends with it.
type process struct {
	cmd   *exec.Cmd
	lines chan string
}

// start runs the container of a component until the test ends.
func start(t *testing.T, all []object, component string, here *strings.Replacer, env ...string) *process {
	t.Helper()
	p := pods(all)[slices.IndexFunc(pods(all), func(p pod) bool { return p.component == component })]
	i := slices.IndexFunc(p.spec.Volumes, func(v corev1.Volume) bool { return v.Name == "config" })
	config := filepath.Join(t.TempDir(), "config.yaml")
	text := here.Replace(find[*corev1.ConfigMap](t, all, p.spec.Volumes[i].ConfigMap.Name).Data["config.yaml"])
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := commandOf(p.spec.Containers[0], here, env...)
	cmd.Args[1] = "--config=" + config
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 10_000)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(log); s.Scan(); {
			lines <- s.Text()
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		for line := range lines {
			if t.Failed() {
				t.Logf("%s: %s", component, line)
			}
		}
		_ = cmd.Wait()
	})
	return &process{cmd, lines}
}

// await reads a log up to a line that matches, and returns its groups.
func await(t *testing.T, p *process, pattern string) []string {
	t.Helper()
	want := regexp.MustCompile(pattern)
	var seen []string
	for line := range p.lines {
		if m := want.FindStringSubmatch(line); m != nil {
			return m
		}
		seen = append(seen, line)
	}
	t.Fatalf("the process ended before %s:\n%s", pattern, strings.Join(seen, "\n"))
	return nil
}

// ownHost is an address of this host that nobody else uses, so that its ports stay free.
func ownHost(t *testing.T) string {
	t.Helper()
	own := make([]byte, 3)
	if _, err := rand.Read(own); err != nil {
		t.Fatal(err)
	}
	return net.IPv4(127, 1+own[0]%250, own[1], 1+own[2]%250).String()
}

func startRedis(t *testing.T, dir string) (address string) {
	t.Helper()
	host := ownHost(t)
	const port = "6379"
	address = net.JoinHostPort(host, port)
	write(t, filepath.Join(dir, "redis", "password"), "hunter2\n")
	server := exec.Command("redis-server", "--port", port, "--bind", host, "--save", "", "--dir", dir, "--requirepass", "hunter2", "--logfile", "")
	log, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	lines, over := make(chan string, 1000), make(chan struct{})
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(log); s.Scan(); {
			select {
			case lines <- s.Text():
			case <-over:
			}
		}
	}()
	t.Cleanup(func() {
		_ = server.Process.Kill()
		close(over)
		for range lines {
		}
		_ = server.Wait()
	})
	await(t, &process{server, lines}, "Ready to accept connections")
	return address
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// secrets writes what the Secrets would hold. One certificate is for nodes and workers: its names are those that
// cert-manager would be asked for.
func secrets(t *testing.T, dir string) {
	t.Helper()
	key := make([]byte, 32)
	if _, err := rand.Read(key); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "gossip", "gossip.keys"), base64.StdEncoding.EncodeToString(key)+"\n")
	write(t, filepath.Join(dir, "payload-keys", "payload.keys"), "2027 "+base64.StdEncoding.EncodeToString(key)+"\n")
	writeAuditKeys(t, dir)
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	identity := &url.URL{Scheme: "spiffe", Host: "cluster.local", Path: "/ns/jobs/blue-fermata/node"}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "fermata"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames:    []string{"blue-fermata.jobs.svc"}, URIs: []*url.URL{identity},
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	for name, text := range map[string]string{"tls.crt": block("CERTIFICATE", certificate), "ca.crt": block("CERTIFICATE", certificate), "tls.key": block("PRIVATE KEY", secret)} {
		write(t, filepath.Join(dir, "tls", name), text)
	}
}

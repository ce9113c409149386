package acceptance

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
	"github.com/fermata-io/fermata/worker"
)

// canaries are marked secrets by where they were put.
type canaries map[string]string

func (c canaries) canaryAt(place string) string {
	if c[place] == "" {
		c[place] = "CANARY-" + place + "-9b1f7c"
	}
	return c[place]
}

// journal is a log that is written by several goroutines.
type journal struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.Write(b)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.String()
}

// TestSecretsAreNotExposed: a marked secret in every place that takes one, then
// runs that succeed, fail, panic and make no sense; afterwards none of the marks is
// in a log, a metric, an error, a stored run, a command line or an environment.
func TestSecretsAreNotExposed(t *testing.T) {
	runBesideOthers(t)
	marks := canaries{}
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	// The receiver returns the secret that it was sent, in every way it has.
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := r.Header.Get("Authorization")
		switch {
		case r.URL.Path == "/fail":
			w.WriteHeader(http.StatusInternalServerError)
		case strings.HasSuffix(r.URL.Path, "/away"):
			http.Redirect(w, r, "/"+strings.TrimPrefix(key, "Bearer ")+"/away", http.StatusTemporaryRedirect)
		}
		fmt.Fprintf(w, "you said %s, %s", key, base64.StdEncoding.EncodeToString([]byte(strings.TrimPrefix(key, "Bearer "))))
	}))
	defer receiver.Close()

	server := newRedisWithPassword(t, marks.canaryAt("redis"))
	_, address, _ := strings.Cut(server.URL(), "@")
	gossip := []byte(marks.canaryAt("gossip") + "which no key of a cluster is")[:32]
	c := newCluster(t, "redis://"+address, "--log-level", "debug",
		"--validate-payloads", "", // so that the broken one comes to a worker
		"--redis-password-file", write("redis", marks.canaryAt("redis")+"\n"),
		"--gossip-key-file", write("gossip", base64.StdEncoding.EncodeToString(gossip)))
	n := c.startNode("a")
	c.redisURL = server.URL() // for the audit

	write("secrets/token", marks.canaryAt("http-secret")+"\n")
	write("secrets/token.allow", receiver.URL)
	write("secrets/key", marks.canaryAt("exec-secret")+"\n")
	write("secrets/key.allow", "/bin/sh")
	w := startProcess(t, "worker", nil, commandPath(t, "worker"), "--scheduler", n.grpc, "--http-allow", "127.0.0.1/32", "--exec-allow", "/bin/sh", "--exec-allow-root", "--exec-env", "KEY,PLAIN",
		"--secrets-dir", filepath.Join(dir, "secrets"), "--metrics-addr", "127.0.0.1:0", "--log-level", "debug", "--log-format", "json")
	metrics, _ := w.awaitLog(patience, "serving metrics")["address"].(string)

	var panics journal
	inside := runPanicking(t, n.grpc, &panics)

	header := `"headers":{"Authorization":"Bearer ${secret:token}","X-Key":"` + marks.canaryAt("header") + `"},"body":"` + marks.canaryAt("body") + `","method":"POST"`
	url := strings.Replace(receiver.URL, "http://", "http://user:"+marks.canaryAt("userinfo")+"@", 1)
	payloads := map[string][2]string{
		"good":    {"http", `{"url":"` + url + `/good?q=` + marks.canaryAt("query") + `",` + header + `}`},
		"fails":   {"http", `{"url":"` + url + `/fail?q=` + marks.canaryAt("query") + `",` + header + `}`},
		"away":    {"http", `{"url":"` + url + `/away?q=` + marks.canaryAt("query") + `",` + header + `}`},
		"refused": {"http", `{"url":"http://user:` + marks.canaryAt("userinfo") + `@127.0.0.1:1/?q=` + marks.canaryAt("query") + `"}`},
		"stolen":  {"http", `{"url":"http://127.0.0.1:1/","headers":{"X":"${secret:token}"}}`},
		"broken":  {"http", `{"url":"http://` + marks.canaryAt("broken")},
		"program": {"exec", `{"argv":["/bin/sh","-c","cat; echo $KEY >&2; exit 3"],"env":{"KEY":"${secret:key}","PLAIN":"` + marks.canaryAt("env") + `"},"stdin":"${secret:key}"}`},
		"silent":  {"exec", `{"argv":["/bin/sh","-c","exit 1"],"env":{"PLAIN":"` + marks.canaryAt("env") + `"},"stdin":"` + marks.canaryAt("stdin") + `"}`},
		"panics":  {"panics", `{"x":"` + marks.canaryAt("panic") + `"}`},
		"missing": {"nobody", `{"x":"` + marks.canaryAt("payload") + `"}`},
	}
	for id, p := range payloads {
		n.createJob(id, &fermatav1.Job{Handler: p[0], Payload: []byte(p[1]), Schedule: onceAt(time.Now()), RetryPolicy: &fermatav1.RetryPolicy{MaxAttempts: 1}, Queue: queueOf(p[0])})
	}
	// A refusal does not contain it either.
	_, err := n.jobs.CreateJob(callContext(t), &fermatav1.CreateJobRequest{Parent: namespace, JobId: "no/job", Job: &fermatav1.Job{Payload: []byte(marks.canaryAt("payload"))}})
	violatedFields(t, err)

	var said bytes.Buffer // everything that anyone can read
	add := func(what, text string) { fmt.Fprintf(&said, "\n== %s\n%s\n", what, text) }
	for id := range payloads {
		redistest.Eventually(t, patience, id+" has run", func() error {
			runs := n.listRuns(id)
			if len(runs) == 0 || runs[0].GetState() != fermatav1.Run_STATE_FINISHED {
				return fmt.Errorf("runs are %v", runs)
			}
			return nil
		})
		for _, r := range n.listRuns(id) {
			add("run of "+id, protojson.Format(r)+string(r.GetOutput())+r.GetError())
		}
	}
	inside()
	add("error of a call", err.Error())
	add("log of the panicking worker", panics.String())
	add("metrics of the node", fetchBody(t, "http://"+n.http+"/metrics"))
	add("metrics of the worker", fetchBody(t, "http://"+metrics+"/metrics"))
	for _, p := range []*process{n.process, w} {
		for _, file := range []string{"cmdline", "environ"} {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", p.cmd.Process.Pid, file))
			if err != nil || file == "cmdline" && len(text) == 0 {
				t.Fatal(len(text), err)
			}
			add(file+" of "+p.name, string(text))
		}
	}
	for _, binary := range []string{n.cmd.Path, w.cmd.Path, commandPath(t, "fermata")} {
		help, err := exec.Command(binary, "--help").CombinedOutput()
		if err != nil {
			t.Fatal(err)
		}
		add("help of "+binary, string(help))
	}
	stored := strings.Join(dumpKeyspace(t, server), "\n")
	w.terminate(20 * time.Second)
	n.terminate(25 * time.Second)
	c.forgetNode(n)
	for _, p := range []*process{n.process, w} {
		log, err := os.ReadFile(p.log)
		if err != nil {
			t.Fatal(err)
		}
		add("log of "+p.name, string(log))
	}

	for place, mark := range marks {
		if at := strings.Index(said.String(), mark); at >= 0 {
			section := said.String()[:at]
			section = section[strings.LastIndex(section, "\n== "):]
			t.Errorf("the secret of %s is exposed:%s... %s", place, firstLine(section[1:]), said.String()[max(0, at-200):min(said.Len(), at+100)])
		}
	}
	for _, form := range []string{base64.StdEncoding.EncodeToString(gossip), base64.StdEncoding.EncodeToString([]byte(marks.canaryAt("http-secret")))[:16]} {
		if strings.Contains(said.String(), form) {
			t.Errorf("%s is exposed", form)
		}
	}
	for _, place := range []string{"redis", "gossip", "http-secret", "exec-secret"} {
		if strings.Contains(stored, marks[place]) {
			t.Errorf("the secret of %s is stored in Redis", place)
		}
	}
	// The control: the search finds what is there, and what should have been logged was.
	if !strings.Contains(stored, marks["header"]) {
		t.Error("the payload is not found where it is stored")
	}
	for _, text := range []string{"unexpected status 500", "you said Bearer [secret]", "more than 3 redirects", "exit status 3", "told to panic", "does not allow it to go to http://127.0.0.1:1", "connection refused"} {
		if !strings.Contains(said.String(), text) {
			t.Errorf("%q was not logged", text)
		}
	}
}

// queueOf keeps what the worker of the test itself runs apart.
func queueOf(handler string) string {
	if handler == "panics" {
		return "panics"
	}
	return "default"
}

// runPanicking runs a worker in this process whose handler panics.
func runPanicking(t *testing.T, address string, log io.Writer) (stop func()) {
	t.Helper()
	w, err := worker.New(worker.Options{
		Addresses: []string{address}, Queues: []string{"panics"}, ID: "panicking",
		Logger: slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		t.Fatal(err)
	}
	w.Handle("panics", func(context.Context, *worker.Task) error { panic("told to panic") })
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(stop)
	return stop
}

func fetchBody(t *testing.T, url string) string {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || len(text) == 0 {
		t.Fatal(len(text), err)
	}
	return string(text)
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

func newRedisWithPassword(t *testing.T, password string) *redistest.Server {
	t.Helper()
	return redistest.Start(t, redistest.WithAOF("no"), redistest.WithPassword(password))
}

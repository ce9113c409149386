package worker

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"

	"github.com/fermata-io/fermata/internal/auth/bearer"
	"github.com/fermata-io/fermata/internal/core/job"
)

// Defaults of [Options]: slots, attempts, and the time to drain.
const (
	DefaultSlots        = 16
	DefaultPrefetch     = 1000
	DefaultDrainTimeout = 30 * time.Second
)

// Options configures a [Worker]. Addresses is required; all other fields have defaults.
type Options struct {
	// Addresses are host:port of scheduler nodes, or gRPC targets such as "dns:///fermata:7070". One reachable
	// node is enough: the worker learns the others from it (docs/worker-protocol.md#finding-a-node). Required.
	Addresses []string
	// Namespace is the namespace whose jobs this worker runs. Default "default".
	Namespace string
	// Queues are the queues to serve, 1 to 64. Default: the queue "default".
	Queues []string
	// Slots is the maximum number of handlers that run concurrently, 1 to 100000. Default 16.
	Slots int
	// Prefetch is the maximum number of attempts that wait here for a slot; a negative value disables it. Only
	// very short handlers need it (docs/workers.md#options-of-the-go-package). Default 1000.
	Prefetch int
	// ID identifies this process, 1 to 128 characters of [A-Za-z0-9._:~-]. It must be unique among the workers.
	// Default: the result of [NewID].
	ID string
	// Version and Labels are shown in lists of workers. Default: empty.
	Version string
	Labels  map[string]string
	// DrainTimeout is how long Run waits for running handlers after its context has ended. Negative values are
	// invalid. Default 30 s.
	DrainTimeout time.Duration

	// TLS configures TLS to the nodes. Default nil: plaintext.
	TLS *tls.Config
	// Token returns the bearer token that each stream is opened with; see [TokenFile]. Without TLS, all of
	// Addresses must be loopback addresses. Default nil: no token.
	Token func(context.Context) (string, error)
	// DialOptions are added to the worker's own gRPC options, for example for credentials. Stream interceptors
	// see messages that are not all protobuf messages.
	DialOptions []grpc.DialOption
	// Dialer opens network connections. Default: TCP, without a proxy.
	Dialer func(ctx context.Context, address string) (net.Conn, error)

	// TracerProvider creates a span for each handler of a traced run. Default nil: no spans. The handler's
	// context carries the trace of the run in both cases.
	TracerProvider trace.TracerProvider

	// Logger receives the worker's log, such as warnings that no node can be reached. Default: slog.Default().
	Logger *slog.Logger
	// Registerer registers the worker's metrics. Default nil: they are not registered.
	Registerer prometheus.Registerer
}

func (o Options) withDefaults() (Options, error) {
	if o.Namespace == "" {
		o.Namespace = job.DefaultNamespace
	}
	if len(o.Queues) == 0 {
		o.Queues = []string{job.DefaultQueue}
	}
	if o.Slots == 0 {
		o.Slots = DefaultSlots
	}
	if o.Prefetch == 0 {
		o.Prefetch = DefaultPrefetch
	}
	if o.ID == "" {
		o.ID = NewID()
	}
	if o.DrainTimeout == 0 {
		o.DrainTimeout = DefaultDrainTimeout
	}
	if o.Dialer == nil {
		dialer := &net.Dialer{}
		o.Dialer = func(ctx context.Context, address string) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", address)
		}
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o, o.validate()
}

func (o Options) validate() error {
	var faults []error
	if len(o.Addresses) == 0 {
		faults = append(faults, errors.New("no Addresses"))
	}
	for _, a := range o.Addresses {
		if _, _, err := net.SplitHostPort(a); err != nil && !strings.Contains(a, "://") {
			faults = append(faults, fmt.Errorf("address %q is not host:port", a))
		}
	}
	if o.Token != nil && o.TLS == nil && len(o.DialOptions) == 0 {
		for _, a := range o.Addresses {
			if !bearer.IsLocal(a) {
				faults = append(faults, fmt.Errorf("a token for %s, which is beyond this host, without TLS", a))
			}
		}
	}
	if o.DrainTimeout < 0 {
		faults = append(faults, errors.New("DrainTimeout is negative"))
	}
	// Validate here what a node would reject.
	hello := job.Hello{
		WorkerID: o.ID, Namespace: o.Namespace, Queues: o.Queues, Slots: o.Slots, Epoch: 1,
		Version: o.Version, Labels: o.Labels,
	}
	for _, v := range hello.Validate() {
		faults = append(faults, fmt.Errorf("%s %s", strings.TrimPrefix(v.Field, "hello."), v.Description))
	}
	if err := errors.Join(faults...); err != nil {
		return fmt.Errorf("worker options: %w", err)
	}
	return nil
}

// TokenFile returns a function for [Options].Token that returns the token in a file. It reads the file again
// after a change. It returns an error if the file has no token now.
func TokenFile(path string) (func(context.Context) (string, error), error) { return bearer.File(path) }

// NewID returns an id that is unique to this process: host name, process id and a random number.
func NewID() string {
	host, err := os.Hostname()
	if err != nil {
		host = "worker"
	}
	clean := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '-':
			return r
		}
		return '-'
	}, host)
	clean = strings.TrimLeft(clean[:min(len(clean), 80)], ".-")
	if clean == "" {
		clean = "worker"
	}
	var random [6]byte
	// crypto/rand.Read never fails.
	_, _ = rand.Read(random[:])
	return fmt.Sprintf("%s-%d-%s", clean, os.Getpid(), hex.EncodeToString(random[:]))
}

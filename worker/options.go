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

// Defaults of [Options].
const (
	DefaultSlots        = 16
	DefaultPrefetch     = 1000
	DefaultDrainTimeout = 30 * time.Second
)

// Options configure a [Worker]. Addresses is required.
type Options struct {
	// Addresses are host:port of scheduler nodes, any of them, or gRPC targets such as
	// "dns:///fermata:7070"; further ones are learnt from the nodes. With TLS, a node at one of these
	// has to have a certificate for the host of one of Addresses, unless TLS names the server.
	Addresses []string
	// Namespace whose jobs are run. Default "default".
	Namespace string
	// Queues to serve, 1 to 64. Default: the queue "default".
	Queues []string
	// Slots is how many handlers run at once, 1 to 100000. Default 16.
	Slots int
	// Prefetch is how many attempts may wait here at most, unstarted, while all slots
	// are taken; a negative number is none. It keeps slots from standing empty for a
	// round trip while handlers are short: nodes see to it that there is work for 10 ms
	// here, with at most 32 waiting for each slot, and only while no slot is free
	// anywhere. What has waited for 50 ms goes back, uncounted; what waits when this
	// process dies waits on for the end of its lease. Default 1000, which is more than
	// nodes make use of.
	Prefetch int
	// ID is unique for this process, 1 to 128 of [A-Za-z0-9._:~-]. Default: host,
	// process id and a random number.
	ID string
	// Version and Labels are shown where workers are listed.
	Version string
	Labels  map[string]string
	// DrainTimeout is how long Run waits for what still runs after its context
	// has ended. Default 30 s.
	DrainTimeout time.Duration

	// TLS of the connection; nil means plaintext.
	TLS *tls.Config
	// Token gives the token that each stream begins with; see [TokenFile]. Without TLS
	// it is sent to loopback addresses only, and to learnt ones only if all of Addresses are that too.
	// nil: no token.
	Token func(context.Context) (string, error)
	// DialOptions are added to those of the worker, for credentials for example. The
	// messages that an interceptor sees on the stream are not all of protobuf.
	DialOptions []grpc.DialOption
	// Dialer opens connections. Default: TCP, without a proxy.
	Dialer func(ctx context.Context, address string) (net.Conn, error)

	// TracerProvider makes the spans of handlers of runs that are traced; nil: none are
	// made. Either way a handler's context carries the trace that its run belongs to.
	TracerProvider trace.TracerProvider

	// Logger defaults to slog.Default(): it says that no node can be reached, among other
	// things. slog.New(slog.DiscardHandler) is silent. Registerer nil registers nothing.
	Logger     *slog.Logger
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
			if !bearer.Local(a) {
				faults = append(faults, fmt.Errorf("a token for %s, which is beyond this host, without TLS", a))
			}
		}
	}
	if o.DrainTimeout < 0 {
		faults = append(faults, errors.New("DrainTimeout is negative"))
	}
	// What a node would refuse is refused here.
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

// TokenFile gives the token that a file holds, for Options.Token, and another one
// soon after the file has changed. It fails if there is none now.
func TokenFile(path string) (func(context.Context) (string, error), error) { return bearer.File(path) }

// NewID makes an id that no other process has, as [Options].ID is by default.
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

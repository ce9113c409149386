package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	"github.com/fermata-io/fermata/internal/auth/bearer"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// Options configure a [Client]. The zero value uses the defaults.
type Options struct {
	// Namespace is the namespace of jobs that are named by id. Default "default".
	Namespace string
	// TLS configures TLS. Default nil: plaintext.
	TLS *tls.Config
	// Token returns the bearer token of each call; see [TokenFile]. Without TLS all addresses must be loopback
	// addresses. Default nil: no token.
	Token func(context.Context) (string, error)
	// Attempts is the maximum number of attempts of a call, 1 to 20. Default 5.
	Attempts int
	// MaxMessage is the maximum size of a response in bytes. Default 16 MiB.
	MaxMessage int
	// DialOptions are passed to gRPC after the client's own options. Interceptors see messages of
	// [Client.CreateJob] that are not all protobuf messages.
	DialOptions []grpc.DialOption
	// SeparateCreates sends each [Client.CreateJob] by a call of its own. Set it if interceptors or credentials of
	// DialOptions use values of the context: a call that several callers share has none of them. Token needs no such
	// setting. Default false: concurrent calls share calls.
	SeparateCreates bool
}

func (o Options) withDefaults() (Options, error) {
	if o.Namespace == "" {
		o.Namespace = "default"
	}
	if o.Attempts == 0 {
		o.Attempts = 5
	}
	if o.MaxMessage == 0 {
		o.MaxMessage = 16 << 20
	}
	if o.Attempts < 1 || o.Attempts > 20 || o.MaxMessage < 0 {
		return o, fmt.Errorf("client: %d attempts, %d bytes; want 1 to 20 attempts and no negative size", o.Attempts,
			o.MaxMessage)
	}
	return o, nil
}

// Behind one address, such as that of a Kubernetes service, some nodes may be down while others answer, so the
// next attempt may succeed. Therefore connections are retried about as often as calls, and no attempt waits
// long.
const (
	firstRedialDelay = 100 * time.Millisecond
	maxRedialDelay   = 5 * time.Second
	connectTimeout   = 5 * time.Second
)

// Client calls a cluster. It is safe for concurrent use.
type Client struct {
	options       Options
	conn          *grpc.ClientConn
	jobs          fermatav1.JobServiceClient
	cluster       fermatav1.ClusterServiceClient
	backups       fermatav1.BackupServiceClient
	createBatcher createBatcher
	events        fermatav1.EventServiceClient
	access        fermatav1.AccessServiceClient
}

// Dial returns a client for the nodes at these addresses (host:port). It does not wait for a connection; calls
// do. A single address may be a host name with several records (all are used), or a gRPC target such as
// "unix:///run/fermata". It returns an error if the options or the addresses are invalid.
func Dial(addresses []string, o Options) (*Client, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	target, options, err := targetOf(addresses, o.TLS)
	if err != nil {
		return nil, err
	}
	options = append(options,
		grpc.WithTransportCredentials(transportCredentials(o.TLS)),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"round_robin":{}}]}`),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{BaseDelay: firstRedialDelay, Multiplier: 1.6, Jitter: 0.2,
				MaxDelay: maxRedialDelay},
			MinConnectTimeout: connectTimeout,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(o.MaxMessage)),
		grpc.WithDisableServiceConfig(),
		grpc.WithChainUnaryInterceptor(sendTrace),
	)
	if o.Token != nil {
		options = append(options, grpc.WithPerRPCCredentials(bearer.Credentials(tokenSource(o.Token), addresses...)))
	}
	conn, err := grpc.NewClient(target, append(options, o.DialOptions...)...)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	return newClient(conn, o), nil
}

func newClient(conn *grpc.ClientConn, o Options) *Client {
	c := &Client{
		options: o, conn: conn,
		jobs: fermatav1.NewJobServiceClient(conn), cluster: fermatav1.NewClusterServiceClient(conn),
		backups: fermatav1.NewBackupServiceClient(conn), events: fermatav1.NewEventServiceClient(conn),
		access: fermatav1.NewAccessServiceClient(conn),
	}
	c.createBatcher.send, c.createBatcher.token, c.createBatcher.maxDelay = c.sendBatch, o.Token, maxBatchDelay
	return c
}

// InNamespace returns a client for another namespace that shares the connections. Closing either client closes
// them.
func (c *Client) InNamespace(namespace string) *Client {
	o := c.options
	o.Namespace = namespace
	return newClient(c.conn, o)
}

// targetOf resolves a single address with DNS and lists several as they are. Each is verified by its own host,
// unless the TLS configuration fixes the server name.
func targetOf(addresses []string, secure *tls.Config) (string, []grpc.DialOption, error) {
	if len(addresses) == 0 {
		return "", nil, errors.New("client: no address")
	}
	if len(addresses) == 1 && strings.Contains(addresses[0], "://") {
		return addresses[0], nil, nil
	}
	var list []resolver.Address
	for _, address := range addresses {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return "", nil, fmt.Errorf("client: address %q is not host:port: %w", address, err)
		}
		if secure != nil && secure.ServerName != "" {
			host = secure.ServerName
		}
		list = append(list, resolver.Address{Addr: address, ServerName: host})
	}
	if len(list) == 1 {
		return "dns:///" + addresses[0], nil, nil
	}
	static := manual.NewBuilderWithScheme("fermata")
	static.InitialState(resolver.State{Addresses: list})
	return "fermata:///cluster", []grpc.DialOption{grpc.WithResolvers(static)}, nil
}

func transportCredentials(config *tls.Config) credentials.TransportCredentials {
	if config == nil {
		return insecure.NewCredentials()
	}
	return credentials.NewTLS(config)
}

// TokenFile returns a function for [Options].Token that returns the token in a file. It reads the file again
// after a change. It returns an error if the file has no token now.
func TokenFile(path string) (func(context.Context) (string, error), error) { return bearer.File(path) }

// Close closes all connections.
func (c *Client) Close() error { return c.conn.Close() }

// Namespace returns the client's namespace.
func (c *Client) Namespace() string { return c.options.Namespace }

// Conn returns the connection, for the stubs of proto/fermata/v1. Their calls are not retried.
func (c *Client) Conn() grpc.ClientConnInterface { return c.conn }

// JobName returns the full name of a job. A full name is returned unchanged.
func (c *Client) JobName(job string) string {
	if strings.HasPrefix(job, "namespaces/") {
		return job
	}
	return c.namespaceName() + "/jobs/" + job
}

// RunName returns the full name of a run, which is also in [Run].Name. A full name is returned unchanged.
func (c *Client) RunName(job, run string) string {
	if strings.HasPrefix(run, "namespaces/") {
		return run
	}
	return c.JobName(job) + "/runs/" + run
}

// QueueName returns the full name of a queue. A full name is returned unchanged.
func (c *Client) QueueName(queue string) string {
	if strings.HasPrefix(queue, "namespaces/") {
		return queue
	}
	return c.namespaceName() + "/queues/" + queue
}

func (c *Client) namespaceName() string { return "namespaces/" + c.options.Namespace }

// listParent returns the parent of a list: the client's namespace, or "" for all namespaces.
func (c *Client) listParent(allNamespaces bool) string {
	if allNamespaces {
		return ""
	}
	return c.namespaceName()
}

// spanningParent returns the parent of a list of jobs: the client's namespace, or all that the caller may see.
func (c *Client) spanningParent(allNamespaces bool) string {
	if allNamespaces {
		return "namespaces/-"
	}
	return c.namespaceName()
}

// JobID returns the last part of a job's name.
func JobID(j *Job) string { return lastNamePart(j.GetName()) }

// RunID returns the last part of a run's name.
func RunID(r *Run) string { return lastNamePart(r.GetName()) }

func lastNamePart(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }

// WhoAmI returns the identity that the cluster assigns to the client, and its permissions.
func (c *Client) WhoAmI(ctx context.Context) (*Identity, error) {
	return callWithRetry(ctx, c, c.access.WhoAmI, &fermatav1.WhoAmIRequest{})
}

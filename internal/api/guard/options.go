package guard

import (
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/fermata-io/fermata/internal/core/authz"
)

// Bounds that hold for every caller.
const (
	// MaxRequestBytes bounds one request in bytes.
	MaxRequestBytes = 16 << 20
	// MaxHeaderBytes bounds the headers of a call.
	MaxHeaderBytes = 8 << 10
	// MaxStreamsPerConnection bounds the concurrent calls of one connection.
	MaxStreamsPerConnection = 250
)

// Options configure a [Gate].
type Options struct {
	// Authority authenticates and authorizes callers. If it is nil, every caller may do anything.
	Authority Authority
	// Binding is the key that lease ids are signed with.
	Binding []byte
	// Limits apply to each calling host when there is no Authority.
	Limits authz.Limits
	// MaxPayload is the largest payload of a job, in bytes. It bounds how many calls that change a job run at once.
	// Default 256 KiB.
	MaxPayload int
	// MaxUnauthenticated bounds the unauthenticated connections. Default [DefaultUnauthenticatedConnections].
	MaxUnauthenticated int
	// UnauthenticatedAge bounds how long a connection may stay unauthenticated. Default [DefaultUnauthenticatedAge].
	UnauthenticatedAge time.Duration
	// Registerer receives the metrics of refused calls; nil registers none.
	Registerer prometheus.Registerer
	Logger     *slog.Logger
}

// CheckMethods returns an error if a registered method lacks a permission or a bound of work.
func CheckMethods(services map[string]grpc.ServiceInfo) error {
	return errors.Join(checkPermissions(services), checkWorkBounds(services))
}
